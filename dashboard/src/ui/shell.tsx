// What stands around every page: the bar with the way to the other pages, and light or dark.
import { effect, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { live, loaded } from "../lib/desks";
import { fleetLink, place, wallLink } from "../lib/router";
import { signOut } from "../lib/session";
import { Logo } from "./icon";
import { Button } from "./parts";

const THEME = "hotdesk.theme";
const system = matchMedia("(prefers-color-scheme: light)");
const wish = signal(localStorage.getItem(THEME));
const bright = signal(system.matches);
system.addEventListener("change", () => (bright.value = system.matches));
export const theme = signal<"light" | "dark">("dark");

effect(() => {
  theme.value = wish.value === "light" || (wish.value !== "dark" && bright.value) ? "light" : "dark";
  document.documentElement.dataset.theme = theme.value;
});

export function toggleTheme() {
  const next = theme.value === "light" ? "dark" : "light";
  localStorage.setItem(THEME, next);
  wish.value = next;
}

export function ThemeButton() {
  const dark = theme.value === "dark";
  return <Button icon={dark ? "sun" : "moon"} look="plain" label={dark ? "Light colours" : "Dark colours"} onClick={toggleTheme} />;
}

export function Shell({ children }: { children: ComponentChildren }) {
  const at = place.value.at;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the page</a>
      <header class="bar">
        <a class="brand" href={wallLink} aria-label="hotdesk, all desks"><Logo /><span>hotdesk</span></a>
        <nav aria-label="Pages">
          <a href={wallLink} aria-current={at === "wall" || at === "desk" || at === "trace" ? "page" : undefined}>Desks</a>
          <a href={fleetLink} aria-current={at === "fleet" ? "page" : undefined}>Fleet</a>
        </nav>
        <span class="grow" />
        {loaded.value && !live.value && <span class="chip warn" role="status"><span class="dot pulse" />Reconnecting</span>}
        <ThemeButton />
        <Button icon="leave" look="plain" label="Sign out" onClick={() => signOut()} />
      </header>
      <main id="main" tabIndex={-1}>{children}</main>
    </>
  );
}
