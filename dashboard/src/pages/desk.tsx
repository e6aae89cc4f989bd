// A desk's page. The same address shows its stages, then its desktop, then why it rests.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, isMissing, send, told } from "../api/client";
import type { Desk, Rect } from "../api/types";
import { answered, desks, loaded, put } from "../lib/desks";
import { deskLink, go, wallLink } from "../lib/router";
import { Panels, type PanelName } from "../panels/panels";
import { uploadAll } from "../panels/upload";
import { Icon } from "../ui/icon";
import { attempt, Button, Empty, say } from "../ui/parts";
import { nameOf, onItsWay, StateChip } from "../ui/state";
import { Boot } from "../view/boot";
import { LeaseWatch } from "../view/lease";
import type { Link } from "../view/link";
import { LiveView } from "../view/live-view";
import { bringClipboard } from "../view/tools";
import { DeskBar } from "./desk-bar";
import { isTyping } from "./wall";

const PANEL = "hotdesk.panel";

export function DeskPage({ id }: { id: string }) {
  const desk = useDesk(id);
  if (desk === undefined) return <div class="desk-page"><div class="desk-bar"><div class="skeleton" style={{ width: "220px", height: "20px" }} /></div><div class="stage"><div class="skeleton fill" /></div></div>;
  if (desk === null) {
    return <Empty icon="screen" title="This desk is gone" action={<a class="button" href={wallLink}>To the desks</a>}>There is no desk <code>{id}</code>, or the key may not see it.</Empty>;
  }
  return <Present desk={desk} />;
}

function Present({ desk }: { desk: Desk }) {
  const runs = desk.state === "running";
  const lease = useLease(desk.id, runs);
  const mark = useMemo(() => signal<Rect | null>(null), [desk.id]);
  const [link, setLink] = useState<Link | null>(null);
  const [scaled, setScaled] = useState(true);
  const [panel, setPanel] = useState<PanelName | null>(() => (innerWidth < 900 ? null : ((sessionStorage.getItem(PANEL) || null) as PanelName | null)));
  const choose = (name: PanelName | null) => {
    sessionStorage.setItem(PANEL, name ?? "");
    mark.value = null;
    setPanel(name);
  };

  const take = async (force = false) => {
    try {
      await lease?.take(force);
    } catch (error) {
      say(told(error), "bad");
    }
  };
  const give = () => attempt(lease?.give() ?? Promise.resolve());

  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      const driving = lease?.mine.peek() && !lease.free.peek();
      if (event.key === "F8" && driving) {
        event.preventDefault();
        event.stopPropagation();
        void give();
      } else if (event.key.toLowerCase() === "t" && lease && !driving && !lease.free.peek() && (onScreen(event) || !isTyping(event)) && !event.metaKey && !event.ctrlKey && !event.altKey) {
        event.preventDefault();
        void take(event.shiftKey);
      }
    };
    const back = () => lease?.mine.peek() && void bringClipboard(link);
    addEventListener("keydown", key, { capture: true });
    addEventListener("focus", back);
    return () => {
      removeEventListener("keydown", key, { capture: true });
      removeEventListener("focus", back);
    };
  }, [lease, link]);

  return (
    <div class={`desk-page ${panel ? "with-panel" : ""} panel-${panel ?? "none"}`}>
      <DeskBar desk={desk} lease={lease} link={link} scaled={scaled} onScaled={setScaled} onTake={take} onGive={give} panel={panel} onPanel={choose} />
      <div class="stage" id="stage">
        {runs && lease ? (
          <LiveView desk={desk.id} size={desk.screen} lease={lease} mark={mark} scaled={scaled} onLink={setLink} onFiles={(files) => void uploadAll(desk.id, "", files)} />
        ) : onItsWay(desk.state) ? <Boot desk={desk} /> : <Rest desk={desk} />}
      </div>
      {panel && <Panels desk={desk} name={panel} onName={choose} mark={mark} />}
    </div>
  );
}

/** The live view takes keys only while this person drives. */
function onScreen(event: KeyboardEvent): boolean {
  return (event.target as HTMLElement).tagName === "CANVAS";
}

function Rest({ desk }: { desk: Desk }) {
  const start = () => attempt(send<Desk>("POST", `v1/desks/${desk.id}/start`, undefined, { query: { wait: 0 } }).then(answered));
  const reset = () => attempt(send<Desk>("POST", `v1/desks/${desk.id}/reset`, undefined, { query: { wait: 0 } }).then(answered));
  const failed = desk.state === "error";
  return (
    <div class="rest">
      <div class="picture faint"><Icon name={failed ? "warning" : "power"} size={40} /></div>
      <StateChip state={desk.state} />
      <p class="soft small">{desk.reason}</p>
      {(desk.state === "stopped" || desk.state === "archived") && <Button icon="power" look="first" onClick={start}>Start</Button>}
      {failed && <div class="row"><Button icon="reset" look="first" onClick={reset}>Start anew</Button></div>}
    </div>
  );
}

/** Undefined while nobody knows, null when there is none. */
function useDesk(id: string): Desk | null | undefined {
  const known = desks.value.get(id) ?? [...desks.value.values()].find((desk) => desk.name === id);
  const [gone, setGone] = useState(false);
  useEffect(() => {
    if (known) return setGone(false);
    if (!loaded.value) return;
    get<Desk>(`v1/desks/${id}`).then((desk) => {
      if (desk.state === "deleted") return setGone(true);
      put(desk);
      if (desk.id !== id) go(deskLink(desk.id), true);
    }, (error) => isMissing(error) && setGone(true));
  }, [id, !known, loaded.value]);
  useEffect(() => {
    if (known) document.title = `${nameOf(known)} · hotdesk`;
  }, [known?.name]);
  return known ?? (gone ? null : undefined);
}

function useLease(id: string, runs: boolean): LeaseWatch | null {
  const [lease, setLease] = useState<LeaseWatch | null>(null);
  useEffect(() => {
    if (!runs) return;
    const watch = new LeaseWatch(id);
    setLease(watch);
    return () => {
      setLease(null);
      watch.close();
    };
  }, [id, runs]);
  return lease;
}
