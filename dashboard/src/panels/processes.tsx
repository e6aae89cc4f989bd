// What runs on the desk.
import { useRef, useState } from "preact/hooks";
import { get, send } from "../api/client";
import type { SystemProcess } from "../api/types";
import { bytes } from "../lib/format";
import { useRead } from "../lib/use-read";
import { attempt, Button, Failure } from "../ui/parts";
import { PanelHead } from "./panels";

const EVERY_MS = 2_000;

export function Processes({ desk }: { desk: string }) {
  const [words, setWords] = useState("");
  const before = useRef<{ at: number; cpu: Map<number, number> } | null>(null);
  const load = useRef(new Map<number, number>());
  const list = useRead(async () => {
    const { all } = await get<{ all: SystemProcess[] }>(`v1/desks/${desk}/processes`, { query: { all: true } });
    const at = performance.now();
    const old = before.current;
    if (old) load.current = new Map(all.map((p) => [p.pid, (100 * (p.cpu_ms - (old.cpu.get(p.pid) ?? p.cpu_ms))) / (at - old.at)]));
    before.current = { at, cpu: new Map(all.map((p) => [p.pid, p.cpu_ms])) };
    return all;
  }, [desk], EVERY_MS);

  const cpu = (p: SystemProcess) => load.current.get(p.pid) ?? 0;
  const shown = (list.value ?? []).filter((p) => !words || p.argv.join(" ").toLowerCase().includes(words.toLowerCase()) || p.name.includes(words)).sort((a, b) => Math.round(cpu(b)) - Math.round(cpu(a)) || b.memory_bytes - a.memory_bytes);
  const end = async (p: SystemProcess) => {
    if (!confirm(`End ${p.name} (${p.pid})?`)) return;
    await attempt(send("POST", `v1/desks/${desk}/processes/run`, { argv: ["kill", String(p.pid)] }).then((run) => {
      const { exit_code, stderr } = run as { exit_code: number; stderr: string };
      if (exit_code !== 0) throw new Error(stderr.trim());
    }), `${p.name} was asked to end`);
    list.again();
  };

  return (
    <>
      <PanelHead title="Processes"><input class="input small-input" type="search" aria-label="Filter processes" placeholder="Filter" value={words} onInput={(e) => setWords(e.currentTarget.value)} /></PanelHead>
      {list.error && !list.value ? <div class="panel-pad"><Failure error={list.error} again={list.again} /></div> : (
        <div class="panel-scroll" tabIndex={0} role="region" aria-label="List of processes">
          <table>
            <thead><tr><th class="right">Pid</th><th>Program</th><th class="right">CPU</th><th class="right">Memory</th><th><span class="only-read">End it</span></th></tr></thead>
            <tbody>
              {shown.map((p) => (
                <tr key={p.pid}>
                  <td class="right faint number">{p.pid}</td>
                  <td class="program"><div class="cut" title={p.argv.join(" ")}>{p.name} <span class="faint">{p.argv.slice(1).join(" ")}</span></div></td>
                  <td class="right number">{Math.round(cpu(p))} %</td>
                  <td class="right number">{bytes(p.memory_bytes)}</td>
                  <td class="right"><Button icon="close" look="small plain" label={`End ${p.name}`} onClick={() => void end(p)} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
