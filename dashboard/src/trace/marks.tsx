// What was done, drawn on the picture and said in words.
import type { Action, Point, Size, Step } from "../api/types";

export function Marks({ step, size }: { step: Step; size: Size }) {
  const unit = size.width / 1000;
  return (
    <svg class="marks" viewBox={`0 0 ${size.width} ${size.height}`} preserveAspectRatio="xMidYMid meet" aria-hidden="true">
      <g class={`by-${step.by.driver}`} stroke-width={2.2 * unit} fill="none">
        {step.actions.map((action, index) => <Mark key={index} action={action} unit={unit} />)}
      </g>
    </svg>
  );
}

function Mark({ action, unit }: { action: Action; unit: number }) {
  const at = action.at ?? action.to;
  switch (action.do) {
    case "click": case "button_down": case "button_up":
      return at ? <Ring at={at} unit={unit} times={action.times ?? 1} /> : null;
    case "scroll":
      return at ? <path d={`M${at.x} ${at.y}v${Math.sign(action.dy ?? 0) * 22 * unit}m${-6 * unit} ${-Math.sign(action.dy ?? 0) * 6 * unit}l${6 * unit} ${Math.sign(action.dy ?? 0) * 6 * unit}l${6 * unit} ${-Math.sign(action.dy ?? 0) * 6 * unit}`} /> : null;
    case "drag": {
      const path = action.path ?? [];
      return path.length ? <><polyline points={path.map((p) => `${p.x},${p.y}`).join(" ")} stroke-dasharray={`${5 * unit} ${4 * unit}`} /><Ring at={path[0]} unit={unit} times={1} /><Dot at={path[path.length - 1]} unit={unit} /></> : null;
    }
    case "move":
      return at ? <Dot at={at} unit={unit} /> : null;
    default:
      return null;
  }
}

function Ring({ at, unit, times }: { at: Point; unit: number; times: number }) {
  return (
    <>
      <circle class="halo" cx={at.x} cy={at.y} r={20 * unit} />
      {Array.from({ length: Math.min(times, 3) }, (_, n) => <circle key={n} cx={at.x} cy={at.y} r={(11 + 5 * n) * unit} />)}
      <Dot at={at} unit={unit} />
    </>
  );
}

function Dot({ at, unit }: { at: Point; unit: number }) {
  return <circle class="dot" cx={at.x} cy={at.y} r={3.2 * unit} />;
}

/** `click at 200, 100`, `type “hello”`. */
export function inWords(action: Action): string {
  const place = (p?: Point | null) => (p ? ` at ${p.x}, ${p.y}` : "");
  switch (action.do) {
    case "click": return `${(action.times ?? 1) === 2 ? "double click" : (action.times ?? 1) > 2 ? `${action.times} clicks` : "click"}${action.button && action.button !== "left" ? ` (${action.button})` : ""}${place(action.at)}`;
    case "move": return `move to ${action.to?.x}, ${action.to?.y}`;
    case "button_down": return `press the button${place(action.at)}`;
    case "button_up": return `release the button${place(action.at)}`;
    case "drag": return `drag${place(action.path?.[0])} to ${action.path?.at(-1)?.x}, ${action.path?.at(-1)?.y}`;
    case "scroll": return `scroll ${(action.dy ?? 0) > 0 ? "down" : (action.dy ?? 0) < 0 ? "up" : (action.dx ?? 0) > 0 ? "right" : "left"}${place(action.at)}`;
    case "key": return `key ${action.keys?.join(" + ")}${(action.times ?? 1) > 1 ? ` × ${action.times}` : ""}`;
    case "key_down": return `hold ${action.keys?.join(" + ")}`;
    case "key_up": return `let go ${action.keys?.join(" + ")}`;
    case "type": return `type “${action.text ?? ""}”`;
    case "wait": return `wait ${action.ms} ms`;
    case "window": return `${action.change ?? "change"} the window`;
    case "place_window": return "place the window";
    case "element": return `${action.act?.do.replaceAll("_", " ") ?? "act on"} an element`;
    case "copy": return action.text ? `copy “${action.text}”` : "copy";
    case "clear_clipboard": return "empty the clipboard";
    default: return action.do.replaceAll("_", " ");
  }
}

export function stepWords(step: Step): string {
  return step.actions.map(inWords).join(", ") || "nothing";
}
