// What the parts of the session wrote; for a desk that does not run, what its server printed.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, request } from "../api/client";
import type { Desk, LogLine } from "../api/types";
import { useRead } from "../lib/use-read";
import { Empty, Failure } from "../ui/parts";
import { PanelHead } from "./panels";

const EVERY_MS = 3_000;
const LINES = 500;

export function Logs({ desk }: { desk: Desk }) {
  const runs = desk.state === "running";
  const [part, setPart] = useState(runs ? "" : "server");
  const box = useRef<HTMLDivElement>(null);
  const list = useRead<LogLine[]>(async () => {
    if (part === "server" || !runs) {
      const text = await (await request(`v1/desks/${desk.id}/console`, { query: { lines: LINES } })).text();
      return text.split("\n").filter(Boolean).map((text) => ({ part: "server", at_ms: 0, text }));
    }
    return (await get<{ lines: LogLine[] }>(`v1/desks/${desk.id}/logs`, { query: { tail: LINES }, glance: true })).lines;
  }, [desk.id, runs, part === "server"], EVERY_MS);
  const lines = list.value ?? [];
  const parts = [...new Set(lines.map((line) => line.part))].filter((name) => name !== "server").sort();
  const shown = part && part !== "server" ? lines.filter((line) => line.part === part) : lines;
  useEffect(() => {
    box.current?.scrollTo(0, box.current.scrollHeight);
  }, [shown.length]);
  return (
    <>
      <PanelHead title="Logs">
        <select class="select small-input" aria-label="Part" value={part} onChange={(e) => setPart(e.currentTarget.value)}>
          {runs && <option value="">All parts</option>}
          {parts.map((name) => <option key={name} value={name}>{name.replaceAll("_", " ")}</option>)}
          <option value="server">desk's server</option>
        </select>
      </PanelHead>
      {list.error && !list.value ? <div class="panel-pad"><Failure error={list.error} again={list.again} /></div> : !shown.length && list.value ? <Empty icon="file" title="Nothing was written" /> : (
        <div class="panel-scroll log" ref={box} tabIndex={0} role="log" aria-label="Lines of the log">
          {shown.map((line, index) => <div key={index}>{line.part !== "server" && <span class="faint">{line.part} </span>}{line.text}</div>)}
        </div>
      )}
    </>
  );
}
