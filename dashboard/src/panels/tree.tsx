// What programs tell assistive technology about their windows; what is pointed at here is marked on the live view.
import type { Signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { get } from "../api/client";
import type { Element, Rect } from "../api/types";
import { useRead } from "../lib/use-read";
import { Icon } from "../ui/icon";
import { Button, Empty, Failure } from "../ui/parts";
import { PanelHead } from "./panels";

/** Levels that are open at first. */
const OPEN_DEPTH = 3;

export function Tree({ desk, mark }: { desk: string; mark: Signal<Rect | null> }) {
  const tree = useRead(() => get<{ apps: Element[] }>(`v1/desks/${desk}/accessibility`, { query: { visible_only: true } }), [desk]);
  const [words, setWords] = useState("");
  const apps = tree.value?.apps ?? [];
  const found = words ? apps.flatMap((app) => [...flat(app)]).filter((e) => `${e.role} ${e.name ?? ""} ${e.text ?? ""}`.toLowerCase().includes(words.toLowerCase())) : null;
  return (
    <>
      <PanelHead title="Accessibility tree">
        <input class="input small-input" type="search" aria-label="Find elements" placeholder="Find" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
        <Button icon="reset" look="small plain" label="Read it again" onClick={tree.again} />
      </PanelHead>
      {tree.error && !tree.value ? <div class="panel-pad"><Failure error={tree.error} again={tree.again} /></div> : !tree.value ? (
        <div class="panel-pad column" style={{ gap: "8px" }}>{[70, 55, 62].map((width) => <div key={width} class="skeleton" style={{ height: "18px", width: `${width}%` }} />)}</div>
      ) : !apps.length ? <Empty icon="tree" title="No program tells about itself">Start one that has a window, then read the tree again.</Empty> : (
        <div class="panel-scroll tree" onMouseLeave={() => (mark.value = null)} tabIndex={0} role="region" aria-label="Elements">
          {found ? found.slice(0, 200).map((element) => <Line key={element.id} element={element} mark={mark} />) : apps.map((app) => <Branch key={app.id} element={app} depth={0} mark={mark} />)}
          {found?.length === 0 && <Empty icon="search" title="No element fits" />}
        </div>
      )}
    </>
  );
}

function Branch({ element, depth, mark }: { element: Element; depth: number; mark: Signal<Rect | null> }) {
  const [open, setOpen] = useState(depth < OPEN_DEPTH);
  const children = element.children ?? [];
  return (
    <div class="branch">
      <Line element={element} mark={mark} open={children.length ? open : undefined} onToggle={() => setOpen(!open)} />
      {open && children.length > 0 && <div class="branches">{children.map((child) => <Branch key={child.id} element={child} depth={depth + 1} mark={mark} />)}</div>}
    </div>
  );
}

function Line({ element, mark, open, onToggle }: { element: Element; mark: Signal<Rect | null>; open?: boolean; onToggle?: () => void }) {
  const show = () => (mark.value = element.area ?? null);
  const words = element.name || element.text;
  return (
    <button type="button" class="element" onMouseEnter={show} onFocus={show} onBlur={() => (mark.value = null)} onClick={onToggle} aria-expanded={open} title={element.states?.join(", ")}>
      <span class={`twist ${open ? "open" : ""}`}>{open !== undefined && <Icon name="right" size={11} />}</span>
      <span class="role">{element.role}</span>
      {words && <span class="cut">{words}</span>}
    </button>
  );
}

function* flat(element: Element): Generator<Element> {
  yield element;
  for (const child of element.children ?? []) yield* flat(child);
}
