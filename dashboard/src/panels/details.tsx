// What the desk is made of, what it uses, what it costs.
import type { ComponentChildren } from "preact";
import { get } from "../api/client";
import type { Desk, Health, Usage } from "../api/types";
import { ago, bytes, dateTime, duration, milliseconds, money } from "../lib/format";
import { useRead } from "../lib/use-read";
import { Meter } from "../fleet/charts";
import { PanelHead } from "./panels";

const EVERY_MS = 5_000;
const MIB = 1024 * 1024;

export function Details({ desk }: { desk: Desk }) {
  const runs = desk.state === "running";
  const usage = useRead(() => (runs ? get<Usage>(`v1/desks/${desk.id}/usage`) : Promise.resolve(null)), [desk.id, runs], EVERY_MS);
  const health = useRead(() => (runs ? get<Health>(`v1/desks/${desk.id}/health`, { glance: true }) : Promise.resolve(null)), [desk.id, runs]);
  const labels = Object.entries(desk.labels);
  const stop = desk.policy.auto_stop_s;
  return (
    <>
      <PanelHead title="Details and cost" />
      <div class="panel-scroll panel-pad" tabIndex={0} role="region" aria-label="Details">
        <div class="cost"><span class="faint tiny">Cost so far</span><strong class="number">{money(desk.cost)}</strong><span class="faint tiny">made {ago(desk.created_at)}</span></div>
        {usage.value && (
          <div class="column" style={{ gap: "12px" }}>
            <Meter label="Memory" value={usage.value.memory_bytes} most={desk.resources.memory_mib * MIB} words={`${bytes(usage.value.memory_bytes)} of ${bytes(desk.resources.memory_mib * MIB)}`} />
            <Meter label="Disk" value={usage.value.disk_bytes} most={desk.resources.disk_mib * MIB} words={`${bytes(usage.value.disk_bytes)} of ${bytes(desk.resources.disk_mib * MIB)}`} />
          </div>
        )}
        <dl class="facts">
          <Fact name="Id"><code>{desk.id}</code></Fact>
          <Fact name="Template">{desk.template}</Fact>
          <Fact name="Provider">{desk.provider}</Fact>
          <Fact name="Project">{desk.project}</Fact>
          <Fact name="Screen"><span class="number">{desk.screen.width} × {desk.screen.height}</span></Fact>
          <Fact name="Processors"><span class="number">{desk.resources.cpus}</span></Fact>
          {usage.value && <Fact name="Processor time"><span class="number">{usage.value.cpu_s.toFixed(1)} s</span></Fact>}
          {usage.value && <Fact name="Processes"><span class="number">{usage.value.processes}</span></Fact>}
          <Fact name="Made">{dateTime(desk.created_at)}</Fact>
          {desk.expires_at && <Fact name="Ends">{dateTime(desk.expires_at)}</Fact>}
          <Fact name="When idle">{stop ? `stops after ${duration(stop)}` : "runs on"}</Fact>
          {labels.length > 0 && <Fact name="Labels"><span class="labels">{labels.map(([name, value]) => <span key={name} class="tag cut">{value ? `${name}=${value}` : name}</span>)}</span></Fact>}
        </dl>
        {health.value && (
          <>
            <h2>Start of the session</h2>
            <dl class="facts">
              {Object.entries(health.value.stages_ms).sort((a, b) => a[1] - b[1]).map(([stage, ms]) => <Fact key={stage} name={stage.replaceAll("_", " ")}><span class="number">{milliseconds(ms)}</span></Fact>)}
            </dl>
          </>
        )}
      </div>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}
