// Who is signed in: the key is kept for the tab, or, on wish, for the browser.
import { signal } from "@preact/signals";
import { get, key, onKeyLost, Problem } from "../api/client";
import type { Fleet } from "../api/types";

const KEY = "hotdesk.key";
const NAME = "hotdesk.name";

/** Why somebody has to sign in again. */
export const signedOutBecause = signal<string | null>(null);
/** Shown to others while this person drives. */
export const personName = signal(localStorage.getItem(NAME) ?? "");

/** A key in the address (`#key=hd_…`, as `hotdesk` prints it) counts most, and disappears from it. */
export function restore() {
  const handed = new URLSearchParams(location.hash.slice(1)).get("key");
  if (handed) {
    history.replaceState(null, "", location.pathname + location.search);
    sessionStorage.setItem(KEY, handed);
  }
  key.value = handed ?? sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

/** Throws a Problem when the key is no good. */
export async function signIn(secret: string, name: string, remember: boolean) {
  // The fleet tells anybody with a good key how it is.
  await get<Fleet>("v1/fleet", { as: secret });
  sessionStorage.setItem(KEY, secret);
  if (remember) localStorage.setItem(KEY, secret);
  localStorage.setItem(NAME, name);
  personName.value = name;
  signedOutBecause.value = null;
  key.value = secret;
}

export function signOut(because: string | null = null) {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  signedOutBecause.value = because;
  key.value = null;
}

export function signInProblem(error: unknown): string {
  if (error instanceof Problem && error.status === 401) return "this key is not known here: it is wrong, expired or revoked";
  return error instanceof Error ? error.message : String(error);
}

onKeyLost(() => signOut("the key has expired or was revoked"));
