// Who drives a desk: followed by events, taken and given back. A desk that knows no lease can be driven by everybody.
import { computed, signal } from "@preact/signals";
import { get, isMissing, send, viewer } from "../api/client";
import { listen } from "../api/stream";
import type { Lease } from "../api/types";
import { personName } from "../lib/session";

/** How long a person may do nothing before the agent drives again. */
const IDLE_S = 60;

export class LeaseWatch {
  readonly lease = signal<Lease | null>(null);
  /** The desk knows no lease. */
  readonly free = signal(false);
  readonly mine = computed(() => this.free.value || (this.lease.value?.driver === "person" && this.lease.value.viewer === viewer));
  /** When the agent drives again, in the page's own time. */
  private readonly returnsAt = signal<number | null>(null);
  readonly left = signal<number | null>(null);
  private readonly timer: ReturnType<typeof setInterval>;
  private readonly end: () => void;

  constructor(private readonly desk: string) {
    this.end = listen(`v1/desks/${desk}/lease/events`, {}, {
      message: (message) => this.heard(JSON.parse(message.data)),
      again: (error) => {
        if (!isMissing(error)) return true;
        this.free.value = true;
        return false;
      },
    });
    this.timer = setInterval(() => this.count(), 250);
  }

  close() {
    this.end();
    clearInterval(this.timer);
  }

  async take(force = false) {
    this.heard(await send<Lease>("PUT", `v1/desks/${this.desk}/lease`, { name: personName.value || null, viewer, idle_s: IDLE_S, force }));
  }

  async give() {
    this.heard(await send<Lease>("DELETE", `v1/desks/${this.desk}/lease`));
  }

  /** The person did something: the countdown begins anew, before the desk says so. */
  touched() {
    const lease = this.lease.peek();
    if (lease && this.mine.peek()) this.returnsAt.value = performance.now() + lease.idle_limit_s * 1000;
  }

  async ask() {
    this.heard(await get<Lease>(`v1/desks/${this.desk}/lease`));
  }

  private heard(lease: Lease) {
    this.lease.value = lease;
    this.returnsAt.value = lease.returns_in_s === null || lease.returns_in_s === undefined ? null : performance.now() + lease.returns_in_s * 1000;
    this.count();
  }

  private count() {
    const at = this.returnsAt.peek();
    this.left.value = at === null ? null : Math.max(0, Math.ceil((at - performance.now()) / 1000));
  }
}
