// The wall: every desk as a live picture, with who drives it, how long it is idle and what it costs.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import type { Activity, Desk } from "../api/types";
import { failure, inOrder, loaded, readAt } from "../lib/desks";
import { count, duration, money } from "../lib/format";
import { deskLink } from "../lib/router";
import { Tile, watch } from "../lib/tiles";
import { Icon } from "../ui/icon";
import { Button, Empty, Notice, Segments } from "../ui/parts";
import { atRest, nameOf, onItsWay, StateChip, stateWord } from "../ui/state";
import { NewDesk } from "./new-desk";

type Shown = "all" | "running" | "resting";
const words = signal("");
const shown = signal<Shown>("all");
/** Who drives changes seldom; a tile asks that often. */
const DRIVER_MS = 4_000;
/** Wide enough for a tile on a dense screen. */
const PICTURE_WIDTH = 640;

export function Wall() {
  const [making, setMaking] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      if (event.key === "n") setMaking(true);
      else if (event.key === "/") search.current?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);

  const all = inOrder.value;
  const wanted = all.filter((desk) => fits(desk, words.value) && within(desk, shown.value));
  const driven = all.filter((desk) => desk.state === "running").length;
  const cost = all.reduce((sum, desk) => sum + desk.cost, 0);

  return (
    <div class="page wall">
      <div class="wall-head">
        <div class="column">
          <h1>Desks</h1>
          <p class="soft small number" role="status">
            {loaded.value ? `${count(all.length, "desk")}, ${driven} running${cost > 0 ? `, ${money(cost)} so far` : ""}` : "Looking"}
          </p>
        </div>
        <span class="grow" />
        <div class="search">
          <Icon name="search" />
          <input ref={search} class="input" type="search" aria-label="Filter by name or label" placeholder="Name, or label such as run=7" value={words.value} onInput={(e) => (words.value = e.currentTarget.value)} />
          <kbd aria-hidden="true">/</kbd>
        </div>
        <Segments label="State" value={shown.value} options={[["all", "All"], ["running", "Running"], ["resting", "At rest"]]} onChange={(value) => (shown.value = value)} />
        <Button icon="plus" look="first" onClick={() => setMaking(true)} keys="n" title="New desk (N)">New desk</Button>
      </div>
      {failure.value && <Notice look="warn" icon="warning">{failure.value}</Notice>}
      {!loaded.value ? <Loading /> : all.length === 0 && !failure.value ? (
        <Empty icon="screen" title="No desk yet" action={<Button icon="plus" look="first" onClick={() => setMaking(true)}>New desk</Button>}>
          A desk is a desktop of its own for an agent: display, programs, files, network. It starts in a few seconds.
        </Empty>
      ) : wanted.length === 0 && all.length > 0 ? (
        <Empty icon="search" title="No desk fits" action={<Button onClick={() => { words.value = ""; shown.value = "all"; }}>Show all</Button>}>
          {count(all.length, "desk")} {all.length === 1 ? "is" : "are"} hidden by the filter.
        </Empty>
      ) : (
        <ul class="tiles">
          {wanted.map((desk) => <li key={desk.id} class="appear"><DeskTile desk={desk} /></li>)}
        </ul>
      )}
      {making && <NewDesk onClose={() => setMaking(false)} />}
    </div>
  );
}

function DeskTile({ desk }: { desk: Desk }) {
  const runs = desk.state === "running";
  const box = useRef<HTMLDivElement>(null);
  const tile = useMemo(() => new Tile(desk.id, PICTURE_WIDTH), [desk.id]);
  const driver = useDriver(desk, tile);
  useEffect(() => (runs && box.current ? watch(tile, box.current) : undefined), [runs, tile]);
  const labels = Object.entries(desk.labels).filter(([name]) => !name.includes("/"));

  return (
    <a class="tile" href={deskLink(desk.id)} data-desk={desk.id}>
      <div class="tile-picture" ref={box} style={{ aspectRatio: `${desk.screen.width} / ${desk.screen.height}` }}>
        {runs ? <Picture tile={tile} /> : <Resting desk={desk} />}
        {runs && driver === "person" && <span class="chip person tile-driver"><Icon name="hand" size={13} />Person is driving</span>}
      </div>
      <div class="tile-words">
        <div class="row">
          <span class={`state-dot ${runs ? "good" : desk.state === "error" ? "bad" : onItsWay(desk.state) ? "warn pulse" : ""}`} aria-hidden="true" />
          <span class="tile-name cut grow">{nameOf(desk)}{runs && <span class="only-read">, {stateWord(desk.state)}</span>}</span>
          <span class="faint tiny number">{activityWord(desk)}</span>
        </div>
        <div class="row tile-second">
          <span class="faint tiny cut">{desk.template}</span>
          {labels.slice(0, 2).map(([name, value]) => <span key={name} class="tag cut">{value ? `${name}=${value}` : name}</span>)}
          <span class="grow" />
          {desk.cost > 0 && <span class="faint tiny number">{money(desk.cost)}</span>}
        </div>
      </div>
    </a>
  );
}

function Picture({ tile }: { tile: Tile }) {
  const source = tile.picture.value;
  return source ? <img src={source} alt="" draggable={false} /> : <div class="skeleton fill" />;
}

function Resting({ desk }: { desk: Desk }) {
  return (
    <div class="tile-resting">
      <StateChip state={desk.state} />
      <span class="tiny faint">{onItsWay(desk.state) ? desk.stage ?? "waiting" : desk.reason}</span>
    </div>
  );
}

/** Who drives, for tiles that are seen. */
function useDriver(desk: Desk, tile: Tile): Activity["driver"] {
  const [driver, setDriver] = useState<Activity["driver"]>();
  useEffect(() => {
    if (desk.state !== "running") return;
    const ask = async () => {
      if (!tile.visible || document.visibilityState !== "visible") return;
      try {
        setDriver((await get<Activity>(`v1/desks/${desk.id}/activity`, { glance: true })).driver);
      } catch {
        // The next time tells.
      }
    };
    const timer = setInterval(ask, DRIVER_MS);
    const first = setTimeout(ask, 300);
    return () => {
      clearInterval(timer);
      clearTimeout(first);
    };
  }, [desk.id, desk.state]);
  return driver;
}

function activityWord(desk: Desk): string {
  if (desk.state !== "running") return "";
  if (desk.busy) return desk.busy;
  const idle = (desk.idle_s ?? 0) + Math.max(0, (Date.now() - readAt.value) / 1000);
  return idle < 10 ? "active" : `idle ${duration(idle)}`;
}

/** `run=7` and `run` are labels, everything else a part of the name, id or template. All words must fit. */
function fits(desk: Desk, text: string): boolean {
  return text.toLowerCase().split(/\s+/).filter(Boolean).every((word) => {
    const [name, value] = word.split("=");
    const labels = Object.entries(desk.labels).map(([n, v]) => [n.toLowerCase(), v.toLowerCase()] as const);
    if (value !== undefined) return labels.some(([n, v]) => n === name && v.startsWith(value));
    return [desk.id, desk.name ?? "", desk.template, desk.project].some((part) => part.toLowerCase().includes(word)) || labels.some(([n, v]) => n.includes(word) || v.includes(word));
  });
}

function within(desk: Desk, which: Shown): boolean {
  return which === "all" || (which === "running" ? !atRest(desk.state) : atRest(desk.state));
}

export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT", "CANVAS"].includes(target.tagName) || target.closest("dialog, .xterm") !== null;
}

function Loading() {
  return <ul class="tiles" aria-hidden="true">{[1, 2, 3, 4].map((n) => <li key={n}><div class="tile"><div class="skeleton" style={{ aspectRatio: "16 / 9", borderRadius: "0" }} /><div class="tile-words"><div class="skeleton" style={{ height: "16px", width: "60%" }} /></div></div></li>)}</ul>;
}
