// The page's addresses: `/`, `/desks/{id}`, `/desks/{id}/traces/{trace}`, `/fleet`.
import { computed, signal } from "@preact/signals";
import { base } from "../api/client";

const path = signal(current());

export type Place =
  | { at: "wall" }
  | { at: "desk"; desk: string }
  | { at: "trace"; desk: string; trace: string }
  | { at: "fleet" }
  | { at: "nowhere" };

export const place = computed<Place>(() => {
  const [first, id, second, trace, ...more] = path.value.split("/").filter(Boolean).map(decodeURIComponent);
  if (!first) return { at: "wall" };
  if (first === "fleet" && !id) return { at: "fleet" };
  if (first === "desks" && id && !second) return { at: "desk", desk: id };
  if (first === "desks" && id && second === "traces" && trace && !more.length) return { at: "trace", desk: id, trace };
  return { at: "nowhere" };
});

export const wallLink = base.pathname;
export const fleetLink = `${base.pathname}fleet`;
export const deskLink = (id: string) => `${base.pathname}desks/${encodeURIComponent(id)}`;
export const traceLink = (desk: string, trace: string) => `${deskLink(desk)}/traces/${encodeURIComponent(trace)}`;

export function go(link: string, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", link);
  path.value = current();
  scrollTo(0, 0);
}

function current(): string {
  return location.pathname.startsWith(base.pathname) ? location.pathname.slice(base.pathname.length) : location.pathname;
}

addEventListener("popstate", () => (path.value = current()));

// Plain links work without a page load; with a modifier key they stay the browser's.
document.addEventListener("click", (event) => {
  const link = (event.target as HTMLElement).closest?.("a");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.origin !== location.origin || link.target || link.hasAttribute("download") || !link.pathname.startsWith(base.pathname)) return;
  event.preventDefault();
  go(link.pathname);
});
