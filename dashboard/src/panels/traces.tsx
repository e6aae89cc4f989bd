// Recordings of what was done on the desk: begin, end, look at.
import { useState } from "preact/hooks";
import { get, isMissing, request, send } from "../api/client";
import type { TraceInfo } from "../api/types";
import { bytes, clock, count, dateTime } from "../lib/format";
import { traceLink } from "../lib/router";
import { useRead } from "../lib/use-read";
import { Icon } from "../ui/icon";
import { attempt, Button, Empty, Failure, Notice } from "../ui/parts";
import { PanelHead } from "./panels";
import { save } from "./upload";

const EVERY_MS = 2_000;

export function Traces({ desk }: { desk: string }) {
  const [busy, setBusy] = useState(false);
  const list = useRead(async () => (await get<{ traces: TraceInfo[] }>(`v1/desks/${desk}/traces`, { glance: true })).traces.sort((a, b) => b.started.localeCompare(a.started)), [desk], EVERY_MS);
  const running = list.value?.find((trace) => !trace.ended);
  const act = async (work: Promise<unknown>, done: string) => {
    setBusy(true);
    await attempt(work, done);
    setBusy(false);
    list.again();
  };
  const begin = () => act(send("POST", `v1/desks/${desk}/trace`, {}), "Recording");
  const end = () => act(send("DELETE", `v1/desks/${desk}/trace`), "The trace is kept");

  if (list.error && isMissing(list.error)) return <><PanelHead title="Traces" /><Empty icon="film" title="This desk records no traces">Its server is older than the fleet's. A reset brings the newest.</Empty></>;
  return (
    <>
      <PanelHead title="Traces">
        {running ? <Button look="small danger" icon="stop" disabled={busy} onClick={end}>End recording</Button> : <Button look="small first" icon="record" disabled={busy || !list.value} onClick={begin}>Record</Button>}
      </PanelHead>
      {list.error && !list.value ? <div class="panel-pad"><Failure error={list.error} again={list.again} /></div> : list.value?.length === 0 ? (
        <Empty icon="film" title="Nothing recorded yet">A trace keeps every step of agents and people on this desk: what was done, what the screen showed before and after, and who did it.</Empty>
      ) : (
        <ul class="panel-scroll traces">
          {list.value?.map((trace) => <Trace key={trace.id} desk={desk} trace={trace} again={list.again} />)}
        </ul>
      )}
      {running && <div class="panel-pad"><Notice icon="record">Every step is recorded. Typed secrets are masked.</Notice></div>}
    </>
  );
}

function Trace({ desk, trace, again }: { desk: string; trace: TraceInfo; again: () => void }) {
  const seconds = ((trace.ended ? new Date(trace.ended).getTime() : Date.now()) - new Date(trace.started).getTime()) / 1000;
  const path = `v1/desks/${desk}/traces/${trace.id}`;
  const fetchFile = () => attempt(request(`${path}/file`).then(async (answer) => save(await answer.blob(), `${trace.name || trace.id}.hdtrace`)));
  const remove = async () => {
    if (!confirm("Delete this trace?")) return;
    await attempt(request(path, { method: "DELETE" }), "The trace is deleted");
    again();
  };
  return (
    <li>
      <a href={traceLink(desk, trace.id)} class="trace-link">
        <span class="trace-icon">{trace.ended ? <Icon name="play" size={14} /> : <span class="dot recording pulse" />}</span>
        <span class="column grow">
          <span class="cut">{trace.name || dateTime(trace.started)}</span>
          <span class="faint tiny number">{count(trace.steps, "step")} · {clock(seconds)} · {bytes(trace.bytes)}{trace.ended ? "" : " · recording"}</span>
        </span>
      </a>
      <Button icon="download" look="small plain" label="Download the trace" onClick={fetchFile} />
      <Button icon="trash" look="small plain" label="Delete the trace" disabled={!trace.ended} onClick={remove} />
    </li>
  );
}
