// The time of a trace: where each step is on the scale, with long waits shortened.
import type { Step } from "../api/types";

/** A wait longer than that is shown as that: nobody wants to watch an agent think. */
const LONGEST_WAIT_MS = 2_000;
/** The picture before a step stays at least so long, so that its mark is seen. */
const MARK_MS = 450;
/** After the last step. */
const TAIL_MS = 1_000;

export interface Timeline {
  steps: Step[];
  /** The beginning of each step on the scale. */
  at: number[];
  /** When the picture after it is shown. */
  after: number[];
  length: number;
}

export function timeline(steps: Step[]): Timeline {
  const at: number[] = [];
  const after: number[] = [];
  let now = 0;
  let end = 0;
  steps.forEach((step, index) => {
    const before = steps[index - 1];
    const wait = before ? step.offset_ms - (before.offset_ms + before.took_ms) : step.offset_ms;
    now = Math.max(end, now) + Math.min(Math.max(wait, 0), LONGEST_WAIT_MS);
    at.push(now);
    after.push(now + Math.max(MARK_MS, Math.min(step.took_ms, LONGEST_WAIT_MS)));
    end = after[index];
  });
  return { steps, at, after, length: end + TAIL_MS };
}

/** The step that is shown at a time; -1 before the first. */
export function stepAt(line: Timeline, time: number): number {
  let low = 0;
  let high = line.at.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.at[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The frame to show: what was there before the step, with its mark, then what came of it. */
export function frameAt(line: Timeline, time: number): { frame: string | null; index: number; before: boolean } {
  const index = stepAt(line, time);
  if (index < 0) return { frame: line.steps[0]?.before ?? line.steps[0]?.after ?? null, index: 0, before: true };
  const step = line.steps[index];
  const before = time < line.after[index];
  const first = before ? [step.before, step.after] : [step.after, step.before];
  return { frame: first[0] ?? first[1] ?? nearest(line, index), index, before };
}

function nearest(line: Timeline, index: number): string | null {
  for (let i = index; i >= 0; i--) if (line.steps[i].after ?? line.steps[i].before) return line.steps[i].after ?? line.steps[i].before;
  return null;
}
