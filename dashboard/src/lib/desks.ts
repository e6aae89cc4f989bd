// All desks that the session may see, kept right by the fleet's events.
import { computed, effect, signal } from "@preact/signals";
import { get, isMissing, signedIn, told } from "../api/client";
import { listen } from "../api/stream";
import type { Desk, FleetEvent } from "../api/types";

/** Idle time and cost change without an event. */
const REFRESH_MS = 10_000;
/** A stage list of a desk that is on its way. */
export interface Stage { name: string; at: number }

export const desks = signal<ReadonlyMap<string, Desk>>(new Map());
export const loaded = signal(false);
export const failure = signal<string | null>(null);
/** Whether events arrive right now. */
export const live = signal(false);
/** Stages that were seen, by desk. They are told, not kept, so a page that comes late has fewer. */
export const stages = signal<ReadonlyMap<string, Stage[]>>(new Map());
/** When the list was last read: idle times count on from there. */
export const readAt = signal(Date.now());

export const inOrder = computed(() => [...desks.value.values()].sort((a, b) => b.created_at.localeCompare(a.created_at) || a.id.localeCompare(b.id)));

const listeners = new Set<(event: FleetEvent) => void>();
export function onEvent(listener: (event: FleetEvent) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function put(desk: Desk) {
  const next = new Map(desks.value);
  if (desk.state === "deleted") next.delete(desk.id);
  else next.set(desk.id, desk);
  desks.value = next;
}

/** An answer to a request of ours. It may be older than an event that came meanwhile, so the desk is read once more. */
export function answered(desk: Desk) {
  put(desk);
  soon(desk.id);
}

export async function refresh(id: string) {
  try {
    put(await get<Desk>(`v1/desks/${id}`));
  } catch (error) {
    if (isMissing(error)) remove(id);
  }
}

function remove(id: string) {
  if (!desks.value.has(id)) return;
  const next = new Map(desks.value);
  next.delete(id);
  desks.value = next;
}

async function readAll() {
  try {
    const list = await get<{ desks: Desk[] }>("v1/desks");
    desks.value = new Map(list.desks.filter((desk) => desk.state !== "deleted").map((desk) => [desk.id, desk]));
    readAt.value = Date.now();
    failure.value = null;
  } catch (error) {
    failure.value = told(error);
  }
  loaded.value = true;
}

function happened(event: FleetEvent) {
  for (const listener of listeners) listener(event);
  if (!event.desk) return;
  if (event.kind === "stage") {
    note(event.desk, event.reason);
    const known = desks.value.get(event.desk);
    if (known) put({ ...known, stage: event.reason });
    return;
  }
  if (event.state === "deleted") return remove(event.desk);
  if (event.state === "creating" || event.state === "starting" || event.state === "resetting") {
    stages.value = new Map(stages.value).set(event.desk, []);
  }
  const known = desks.value.get(event.desk);
  // Shown at once; what else changed is asked for.
  if (known && event.state) put({ ...known, state: event.state, reason: event.reason });
  soon(event.desk);
}

function note(id: string, name: string) {
  const seen = stages.value.get(id) ?? [];
  if (seen.at(-1)?.name === name) return;
  stages.value = new Map(stages.value).set(id, [...seen, { name, at: Date.now() }]);
}

const waiting = new Set<string>();
/** Several events of a desk in a row are one request. */
function soon(id: string) {
  if (waiting.has(id)) return;
  waiting.add(id);
  setTimeout(() => {
    waiting.delete(id);
    void refresh(id);
  }, 60);
}

/** Follows the fleet for as long as somebody is signed in. */
export function follow() {
  effect(() => {
    if (!signedIn.value) {
      desks.value = new Map();
      loaded.value = false;
      return;
    }
    void readAll();
    const timer = setInterval(() => document.visibilityState === "visible" && void readAll(), REFRESH_MS);
    const end = listen("v1/events", {}, {
      message: (message) => happened(JSON.parse(message.data)),
      state(open) {
        // What happened in between comes by Last-Event-ID; desks that were deleted meanwhile are found by reading all.
        if (open && !live.peek()) void readAll();
        live.value = open;
      },
    });
    return () => {
      clearInterval(timer);
      end();
      live.value = false;
    };
  });
}
