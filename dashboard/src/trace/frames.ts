// Frames of a trace, kept as long as they may be shown again.
import { request } from "../api/client";

/** A screen is some 100 kB as a file; this many can be gone back to without a request. */
const KEPT = 120;

export class Frames {
  private readonly kept = new Map<string, Promise<string>>();

  constructor(private readonly path: string) {}

  get(frame: string): Promise<string> {
    const known = this.kept.get(frame);
    if (known) {
      // To the young end.
      this.kept.delete(frame);
      this.kept.set(frame, known);
      return known;
    }
    const coming = request(`${this.path}/frames/${frame}`, { glance: true }).then(async (answer) => URL.createObjectURL(await answer.blob()));
    coming.catch(() => this.kept.delete(frame));
    this.kept.set(frame, coming);
    for (const [old, url] of this.kept) {
      if (this.kept.size <= KEPT) break;
      this.kept.delete(old);
      url.then(URL.revokeObjectURL, () => {});
    }
    return coming;
  }

  close() {
    for (const url of this.kept.values()) url.then(URL.revokeObjectURL, () => {});
    this.kept.clear();
  }
}
