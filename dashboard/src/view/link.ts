// The connection of a live view: noVNC, and a new one whenever the old one broke.
import { signal } from "@preact/signals";
import type RFB from "@novnc/novnc";
import { socketAddress, viewer } from "../api/client";

export type LinkState = "connecting" | "connected" | "lost";

/** The first wait before coming back, and the longest. */
const SOON_MS = 300;
const LATE_MS = 4_000;

export class Link {
  readonly state = signal<LinkState>("connecting");
  /** What the desk has on its clipboard, as far as it was told. */
  readonly clipboard = signal("");
  private rfb: RFB | null = null;
  /** noVNC takes its canvas out of the page before it says that the connection is gone. */
  private shown: HTMLCanvasElement | null = null;
  private ended = false;
  private wait = SOON_MS;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private driving = false;
  private scaled = true;

  constructor(private readonly desk: string, private readonly place: HTMLElement, private readonly still: HTMLCanvasElement, private readonly onInput: () => void, private readonly leased: boolean) {
    for (const kind of ["keydown", "pointerdown", "wheel", "pointermove"]) place.addEventListener(kind, this.touched, { capture: true, passive: true });
    void this.open();
  }

  get canvas(): HTMLCanvasElement | null {
    return this.place.querySelector("canvas");
  }

  /** Whether this person's keys and pointer reach the desk. */
  drive(on: boolean) {
    this.driving = on;
    if (!this.rfb) return;
    this.rfb.viewOnly = !on;
    if (on) this.rfb.focus({ preventScroll: true });
    else this.rfb.blur();
  }

  scale(on: boolean) {
    this.scaled = on;
    if (this.rfb) this.rfb.scaleViewport = on;
  }

  paste(text: string) {
    this.rfb?.clipboardPasteFrom(text);
  }

  focus() {
    this.rfb?.focus({ preventScroll: true });
  }

  /** Keys that the browser keeps for itself. */
  keys(...symbols: [number, string][]) {
    for (const [symbol, code] of symbols) this.rfb?.sendKey(symbol, code, true);
    for (const [symbol, code] of symbols.reverse()) this.rfb?.sendKey(symbol, code, false);
  }

  close() {
    this.ended = true;
    clearTimeout(this.timer);
    for (const kind of ["keydown", "pointerdown", "wheel", "pointermove"]) this.place.removeEventListener(kind, this.touched, { capture: true });
    this.rfb?.disconnect();
  }

  private readonly touched = () => {
    if (this.driving) this.onInput();
  };

  private async open() {
    const { default: Viewer } = await import("@novnc/novnc");
    if (this.ended) return;
    this.place.replaceChildren();
    const rfb = new Viewer(this.place, socketAddress(`v1/desks/${this.desk}/view`, this.leased ? { viewer } : {}), { shared: true, wsProtocols: ["binary"] });
    rfb.background = "transparent";
    rfb.scaleViewport = this.scaled;
    rfb.viewOnly = !this.driving;
    rfb.qualityLevel = 8;
    rfb.compressionLevel = 1;
    rfb.showDotCursor = true;
    rfb.addEventListener("connect", () => {
      this.wait = SOON_MS;
      this.state.value = "connected";
      this.shown = this.canvas;
      this.shown?.setAttribute("aria-label", "The desk's screen");
      this.shown?.setAttribute("role", "application");
      if (this.driving) rfb.focus({ preventScroll: true });
    });
    rfb.addEventListener("clipboard", (event: CustomEvent<{ text: string }>) => {
      this.clipboard.value = event.detail.text;
      // Works where the page is served by HTTPS or from this machine, and has the focus; the clipboard's own box works always.
      navigator.clipboard?.writeText(event.detail.text).catch(() => {});
    });
    rfb.addEventListener("disconnect", () => this.lost());
    this.rfb = rfb;
  }

  private lost() {
    this.keepPicture();
    this.rfb = null;
    if (this.ended) return;
    this.state.value = "lost";
    this.timer = setTimeout(() => void this.open(), this.wait);
    this.wait = Math.min(this.wait * 1.8, LATE_MS);
  }

  /** The last picture stays while the connection is away. */
  private keepPicture() {
    const canvas = this.shown;
    if (!canvas?.width) return;
    this.still.width = canvas.width;
    this.still.height = canvas.height;
    this.still.getContext("2d")?.drawImage(canvas, 0, 0);
  }
}
