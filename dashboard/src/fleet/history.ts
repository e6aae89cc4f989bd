// The last minutes of the fleet, measured while somebody looks.
import { useEffect, useState } from "preact/hooks";
import { Problem, request } from "../api/client";
import { buckets, minus, parse, quantile, sum, total, type Buckets, type Sample } from "./metrics";

const EVERY_MS = 3_000;
/** Points that are kept: ten minutes. */
export const LENGTH = 200;
const REQUESTS = "hotdesk_http_request_seconds";

export interface Moment { screenshots: number | null; actions: number | null; rate: number; cpu: number | null; memory: number }
export interface DeskUse { desk: string; cpu: number | null; memory: number; disk: number; processes: number }

export interface History { moments: Moment[]; desks: DeskUse[]; stages: [string, number][]; refused: boolean; latest: Sample[] }

interface Before { at: number; all: Buckets; screenshots: Buckets; actions: Buckets; cpu: Map<string, number>; cpuAt: number }

/** Kept while the page is left and come back to. */
let kept: History = { moments: [], desks: [], stages: [], refused: false, latest: [] };
let before: Before | null = null;

export function useHistory(): History {
  const [history, setHistory] = useState(kept);
  useEffect(() => {
    let ended = false;
    const read = async () => {
      if (document.visibilityState !== "visible") return;
      try {
        take(parse(await (await request("metrics")).text()));
      } catch (error) {
        if (error instanceof Problem && error.status === 403) kept = { ...kept, refused: true };
      }
      if (!ended) setHistory(kept);
    };
    void read();
    const timer = setInterval(read, EVERY_MS);
    return () => {
      ended = true;
      clearInterval(timer);
    };
  }, []);
  return history;
}

function take(samples: Sample[]) {
  const at = performance.now();
  const all = buckets(samples, REQUESTS, () => true);
  const screenshots = buckets(samples, REQUESTS, (labels) => labels.class === "screenshot");
  const actions = buckets(samples, REQUESTS, (labels) => labels.class === "action");
  const cpu = new Map(samples.filter((s) => s.name === "hotdesk_desk_cpu_seconds_total").map((s) => [s.labels.desk, s.value]));
  const of = (name: string, desk: string) => samples.find((s) => s.name === name && s.labels.desk === desk)?.value ?? 0;
  const old = before;
  // The gateway looks at desks every ten seconds; between two looks the numbers are the same.
  const fresh = !old || [...cpu].some(([desk, value]) => value !== old.cpu.get(desk));
  const cores = new Map<string, number>();
  if (old && fresh) for (const [desk, value] of cpu) if (old.cpu.has(desk)) cores.set(desk, Math.max(0, ((value - old.cpu.get(desk)!) * 1000) / (at - old.cpuAt)));
  const known = (desk: string) => (fresh ? cores.get(desk) ?? null : kept.desks.find((d) => d.desk === desk)?.cpu ?? null);
  const desks = [...cpu.keys()].map((desk) => ({ desk, cpu: known(desk), memory: of("hotdesk_desk_memory_bytes", desk), disk: of("hotdesk_desk_disk_bytes", desk), processes: of("hotdesk_desk_processes", desk) }));
  const seconds = old ? (at - old.at) / 1000 : 1;
  const ms = (counts: Buckets) => { const value = quantile(counts, 0.5); return value === null ? null : value * 1000; };
  const moment: Moment = {
    screenshots: ms(minus(screenshots, old?.screenshots)),
    actions: ms(minus(actions, old?.actions)),
    rate: old ? total(minus(all, old.all)) / seconds : 0,
    cpu: desks.some((d) => d.cpu !== null) ? desks.reduce((n, d) => n + (d.cpu ?? 0), 0) : null,
    memory: sum(samples, "hotdesk_desk_memory_bytes"),
  };
  kept = { moments: [...kept.moments, ...(old ? [moment] : [])].slice(-LENGTH), desks, stages: stages(samples), refused: false, latest: samples };
  before = { at, all, screenshots, actions, cpu, cpuAt: fresh ? at : old!.cpuAt };
}

/** The median of each stage of making a desk. */
function stages(samples: Sample[]): [string, number][] {
  const names = [...new Set(samples.filter((s) => s.name === "hotdesk_create_stage_seconds_bucket").map((s) => s.labels.stage))];
  return names.map((name): [string, number] => [name, (quantile(buckets(samples, "hotdesk_create_stage_seconds", (l) => l.stage === name), 0.5) ?? 0) * 1000]);
}
