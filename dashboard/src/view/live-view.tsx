// The desk's screen, live: scaled to the place that there is, with what is marked on it and the state of its connection.
import type { Signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Rect, Size } from "../api/types";
import { Icon } from "../ui/icon";
import { driverWord } from "../ui/state";
import { Link } from "./link";
import type { LeaseWatch } from "./lease";

interface Props {
  desk: string;
  size: Size;
  lease: LeaseWatch;
  /** A part of the screen to point out. */
  mark: Signal<Rect | null>;
  scaled: boolean;
  onLink: (link: Link | null) => void;
  onFiles: (files: FileList) => void;
}

export function LiveView({ desk, size, lease, mark, scaled, onLink, onFiles }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const still = useRef<HTMLCanvasElement>(null);
  const [link, setLink] = useState<Link | null>(null);
  const [dragging, setDragging] = useState(false);

  // A desk's server that knows no lease knows no viewers either, and refuses their names.
  const known = lease.free.value || lease.lease.value !== null;
  useEffect(() => {
    if (!known) return;
    const made = new Link(desk, place.current!, still.current!, () => lease.touched(), !lease.free.peek());
    setLink(made);
    onLink(made);
    return () => {
      made.close();
      onLink(null);
    };
  }, [desk, known]);
  const mine = lease.mine.value;
  useEffect(() => link?.drive(mine), [link, mine]);
  useEffect(() => link?.scale(scaled), [link, scaled]);

  const state = link?.state.value ?? "connecting";
  return (
    <div
      class={`view ${mine && !lease.free.value ? "mine" : ""} ${dragging ? "dragging" : ""}`}
      data-state={state}
      onDragOver={(event) => { event.preventDefault(); setDragging(true); }}
      onDragLeave={() => setDragging(false)}
      onDrop={(event) => { event.preventDefault(); setDragging(false); if (event.dataTransfer?.files.length) onFiles(event.dataTransfer.files); }}
    >
      <canvas ref={still} class="view-still" hidden={state === "connected"} aria-hidden="true" />
      <div ref={place} class="view-place" />
      <Mark mark={mark} size={size} link={link} />
      {state !== "connected" && (
        <div class="view-state" role="status"><span class="chip warn"><span class="dot pulse" />{state === "lost" ? "Connection lost, trying again" : "Connecting"}</span></div>
      )}
      {!lease.free.value && lease.lease.value && (
        <div class="view-driver"><span class={`chip ${lease.lease.value.driver}`}>{driverWord(lease.lease.value)}{mine ? <kbd>F8</kbd> : <kbd>T</kbd>}</span></div>
      )}
      {dragging && <div class="view-drop"><Icon name="upload" size={28} />Drop to upload to the home directory</div>}
    </div>
  );
}

/** Where something of the desk's screen is on the page. */
function Mark({ mark, size, link }: { mark: Signal<Rect | null>; size: Size; link: Link | null }) {
  const rect = mark.value;
  const canvas = link?.canvas;
  if (!rect || !canvas) return null;
  const shown = canvas.getBoundingClientRect();
  const frame = canvas.closest(".view")!.getBoundingClientRect();
  const scale = shown.width / (canvas.width || size.width);
  const screen = { left: `${shown.left - frame.left}px`, top: `${shown.top - frame.top}px`, width: `${shown.width}px`, height: `${shown.height}px` };
  const part = { left: `${rect.x * scale}px`, top: `${rect.y * scale}px`, width: `${rect.width * scale}px`, height: `${rect.height * scale}px` };
  return <div class="view-shade" style={screen} aria-hidden="true"><div class="view-mark" style={part} /></div>;
}
