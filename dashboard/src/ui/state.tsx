// How states and drivers are shown, the same on every page.
import type { Desk, Lease, State } from "../api/types";
import { viewer } from "../api/client";

const looks: Record<State, [string, string]> = {
  creating: ["warn", "Starting up"],
  starting: ["warn", "Starting"],
  restoring: ["warn", "Restoring"],
  resetting: ["warn", "Resetting"],
  running: ["good", "Running"],
  stopping: ["", "Stopping"],
  stopped: ["", "Stopped"],
  archiving: ["", "Archiving"],
  archived: ["", "Archived"],
  deleting: ["bad", "Deleting"],
  deleted: ["bad", "Deleted"],
  error: ["bad", "Failed"],
};

export const onItsWay = (state: State) => ["creating", "starting", "restoring", "resetting"].includes(state);
export const atRest = (state: State) => ["stopped", "archived", "error"].includes(state);
export const stateWord = (state: State) => looks[state]?.[1] ?? state;
export const nameOf = (desk: Desk) => desk.name ?? desk.id;

export function StateChip({ state }: { state: State }) {
  const [look, word] = looks[state] ?? ["", state];
  const moving = onItsWay(state) || state.endsWith("ing") && state !== "running";
  return <span class={`chip ${look}`}><span class={`dot ${moving ? "pulse" : ""}`} />{word}</span>;
}

export function driverWord(lease: Pick<Lease, "driver" | "name" | "viewer">): string {
  if (lease.driver === "agent") return "Agent is driving";
  if (lease.viewer === viewer) return "You are driving";
  return `${lease.name || "Somebody"} is driving`;
}
