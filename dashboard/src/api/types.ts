// The words of the API (docs/openapi-fleet.json, docs/openapi.json), as far as the page uses them.

export type State =
  | "creating" | "running" | "stopping" | "stopped" | "starting" | "resetting"
  | "archiving" | "archived" | "restoring" | "deleting" | "deleted" | "error";

export interface Size { width: number; height: number }
export interface Rect extends Size { x: number; y: number }
export interface Point { x: number; y: number }
export interface Resources { cpus: number; memory_mib: number; disk_mib: number }
export interface Policy { auto_stop_s: number; auto_archive_s: number; auto_delete_s: number; ttl_s: number }

export interface Desk {
  id: string;
  name: string | null;
  project: string;
  template: string;
  snapshot: string | null;
  provider: string;
  state: State;
  reason: string;
  stage: string | null;
  labels: Record<string, string>;
  resources: Resources;
  policy: Policy;
  screen: Size;
  created_at: string;
  changed_at: string;
  expires_at: string | null;
  idle_s: number | null;
  busy: string | null;
  cost: number;
}

export interface FleetEvent {
  number: number;
  at: string;
  desk: string | null;
  project: string | null;
  kind: string;
  state: State | null;
  reason: string;
  by: string;
}

export interface Template { name: string; description: string; built: boolean; digest?: string; size_bytes?: number }

export interface Provider { name: string; ready: boolean; reason: string }

export interface Fleet {
  version: string;
  desks: Record<string, number>;
  max_desks: number;
  cpus: number;
  cpus_promised: number;
  memory_mib: number;
  memory_promised_mib: number;
  providers: Provider[];
  default_policy: Policy;
}

export interface Pool { template: string; provider: string | null; min: number; max: number; target: number; ready: number; filling: number; claims: number; misses: number }
export interface Budget { project: string; per_day: number | null; total: number | null; alert_at: number }
export interface Costs { currency: string; total: number; today: number; by_project: Record<string, number>; by_day: Record<string, number> }
export interface Usage { cpu_s: number; memory_bytes: number; disk_bytes: number; processes: number }

export interface Health { ready: boolean; stage: string; stages_ms: Record<string, number>; uptime_ms: number; parts: Record<string, Part> }
export interface Part { state: string; reason?: string; restarts: number; pid?: number }
export interface Activity { commands: number; recording: boolean; viewers: number; driver?: "agent" | "person" }

export interface FileInfo { path: string; name: string; kind: string; size: number; mode: string; modified_ms: number; target?: string | null; end?: { kind: string } | null }
export interface FileList { path: string; entries: FileInfo[]; truncated: boolean }
export interface SystemProcess { pid: number; parent: number; name: string; argv: string[]; state: string; cpu_ms: number; memory_bytes: number; started_after_ms: number }
export interface LogLine { part: string; at_ms: number; text: string }

export interface Element {
  id: string;
  role: string;
  name?: string | null;
  text?: string | null;
  app?: string | null;
  area?: Rect | null;
  states?: string[];
  children?: Element[];
}

export interface Lease {
  driver: "agent" | "person";
  name: string | null;
  viewer: string | null;
  since: string;
  idle_limit_s: number;
  returns_in_s: number | null;
}

export interface TraceInfo {
  id: string;
  name: string | null;
  started: string;
  ended: string | null;
  steps: number;
  bytes: number;
  width: number;
  height: number;
  complete: boolean;
  note?: string;
}

export interface Action {
  do: string;
  to?: Point;
  at?: Point | null;
  path?: Point[];
  button?: string;
  times?: number;
  keys?: string[];
  text?: string;
  dx?: number;
  dy?: number;
  ms?: number;
  change?: string;
  act?: { do: string };
}

export interface Step {
  number: number;
  at: string;
  offset_ms: number;
  took_ms: number;
  by: { driver: "agent" | "person"; name: string | null };
  entrance: string;
  actions: Action[];
  result: "done" | "refused" | "failed";
  message: string | null;
  before: string | null;
  after: string | null;
  tree: boolean;
  snapshot: string | null;
}
