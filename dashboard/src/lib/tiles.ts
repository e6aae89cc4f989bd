// Pictures of the wall: small, fetched only for tiles that somebody can see, and only when the screen changed.
//
// One loop asks for all tiles, a few at a time. The desk answers 304 while its screen is the same; such a tile is asked
// less and less often. A glance does not count as work on the desk, so a watched wall lets idle desks go to sleep.
import { signal, type Signal } from "@preact/signals";
import { request } from "../api/client";

/** Requests at the same time: browsers open six connections to a host, and one carries the events. */
const AT_ONCE = 4;
/** How soon a tile is asked again: after a change, at most, and after a failure. */
const LIVELY_MS = 700;
const CALM_MS = 4_000;
const FAILED_MS = 3_000;
/** Each unchanged answer makes the next wait longer. */
const CALMER = 1.5;
const QUALITY = 70;

export class Tile {
  readonly picture: Signal<string | null> = signal(null);
  visible = false;
  private etag: string | null = null;
  private wait = LIVELY_MS;
  due = 0;
  busy = false;

  constructor(readonly desk: string, readonly width: number) {}

  async look() {
    this.busy = true;
    try {
      const headers: Record<string, string> = this.etag ? { "if-none-match": this.etag } : {};
      const query = { format: "jpeg", quality: QUALITY, max_width: this.width };
      const answer = await request(`v1/desks/${this.desk}/screenshot`, { query, headers, glance: true });
      if (answer.status === 304) {
        this.wait = Math.min(this.wait * CALMER, CALM_MS);
      } else {
        this.show(await answer.blob(), answer.headers.get("etag"));
        this.wait = LIVELY_MS;
      }
    } catch {
      this.wait = FAILED_MS;
    }
    this.busy = false;
    this.due = performance.now() + this.wait;
  }

  private show(blob: Blob, etag: string | null) {
    const old = this.picture.peek();
    this.picture.value = URL.createObjectURL(blob);
    this.etag = etag;
    // The old one is still on the screen for a moment.
    if (old) setTimeout(() => URL.revokeObjectURL(old), 1_000);
  }

  close() {
    const old = this.picture.peek();
    if (old) URL.revokeObjectURL(old);
    // A desk that is started again begins with a new picture.
    this.picture.value = null;
    this.etag = null;
    this.due = 0;
  }
}

const tiles = new Set<Tile>();
const byElement = new WeakMap<globalThis.Element, Tile>();
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const tile = byElement.get(entry.target);
    if (tile) tile.visible = entry.isIntersecting;
  }
  turn();
}, { rootMargin: "120px" });

let timer: ReturnType<typeof setTimeout> | undefined;

/** Begins to show a desk on an element; the returned function ends it. */
export function watch(tile: Tile, element: globalThis.Element): () => void {
  tiles.add(tile);
  byElement.set(element, tile);
  watcher.observe(element);
  return () => {
    watcher.unobserve(element);
    tiles.delete(tile);
    tile.close();
  };
}

function turn() {
  clearTimeout(timer);
  timer = undefined;
  if (document.visibilityState !== "visible") return;
  const wanted = [...tiles].filter((tile) => tile.visible && !tile.busy).sort((a, b) => a.due - b.due);
  if (!wanted.length) return;
  const now = performance.now();
  let busy = [...tiles].filter((tile) => tile.busy).length;
  for (const tile of wanted) {
    if (tile.due > now || busy >= AT_ONCE) break;
    busy++;
    void tile.look().then(turn);
  }
  const next = wanted.find((tile) => !tile.busy);
  if (next && busy < AT_ONCE) timer = setTimeout(turn, Math.max(30, next.due - now));
}

document.addEventListener("visibilitychange", turn);
