// What is beside the live view: one panel at a time.
import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Desk, Rect } from "../api/types";
import { Icon, type IconName } from "../ui/icon";
import { Details } from "./details";
import { Events } from "./events";
import { Files } from "./files";
import { Logs } from "./logs";
import { Processes } from "./processes";
import { TerminalPanel } from "./terminal";
import { Traces } from "./traces";
import { Tree } from "./tree";
import { Empty } from "../ui/parts";

export type PanelName = "terminal" | "files" | "processes" | "tree" | "traces" | "logs" | "events" | "details";

const names: [PanelName, string, IconName][] = [
  ["terminal", "Terminal", "terminal"],
  ["files", "Files", "folder"],
  ["processes", "Processes", "list"],
  ["tree", "Accessibility tree", "tree"],
  ["traces", "Traces", "film"],
  ["logs", "Logs", "file"],
  ["events", "Events", "bell"],
  ["details", "Details and cost", "info"],
];

/** These tell something about a desk that does not run, too. */
const always: PanelName[] = ["events", "details", "logs"];

export function Panels({ desk, name, onName, mark }: { desk: Desk; name: PanelName; onName: (name: PanelName) => void; mark: Signal<Rect | null> }) {
  const choose = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    const next = names[(names.findIndex(([n]) => n === name) + by + names.length) % names.length][0];
    onName(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <aside class="panel" aria-label="About the desk">
      <div class="tabs" role="tablist" aria-label="Panels" onKeyDown={choose}>
        {names.map(([tab, words, icon]) => (
          <button key={tab} id={`tab-${tab}`} type="button" role="tab" aria-selected={tab === name} aria-controls="panel" tabIndex={tab === name ? 0 : -1} title={words} aria-label={words} onClick={() => onName(tab)}>
            <Icon name={icon} />
          </button>
        ))}
      </div>
      <div id="panel" class="panel-inside" role="tabpanel" aria-labelledby={`tab-${name}`} tabIndex={-1}>
        {desk.state === "running" || always.includes(name) ? <Inside desk={desk} name={name} mark={mark} />
          : <Empty icon="power" title="The desk does not run">{names.find(([n]) => n === name)![1]} can be seen while it runs.</Empty>}
      </div>
    </aside>
  );
}

function Inside({ desk, name, mark }: { desk: Desk; name: PanelName; mark: Signal<Rect | null> }): ComponentChildren {
  switch (name) {
    case "terminal": return <TerminalPanel key={desk.id} desk={desk.id} />;
    case "files": return <Files desk={desk.id} />;
    case "processes": return <Processes desk={desk.id} />;
    case "tree": return <Tree desk={desk.id} mark={mark} />;
    case "traces": return <Traces desk={desk.id} />;
    case "logs": return <Logs desk={desk} />;
    case "events": return <Events desk={desk.id} />;
    case "details": return <Details desk={desk} />;
  }
}

export function PanelHead({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="panel-head"><h2>{title}</h2><span class="grow" />{children}</div>;
}
