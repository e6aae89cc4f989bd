// Who is signed in: the gateway keeps the session, the browser a cookie that no script can read. The key itself is never kept here.
import { signal } from "@preact/signals";
import { get, onSessionLost, Problem, send, signedIn } from "../api/client";

const NAME = "hotdesk.name";
/** Where earlier versions kept the key. */
const OLD_KEY = "hotdesk.key";

/** Why somebody has to sign in again. */
export const signedOutBecause = signal<string | null>(null);
/** Shown to others while this person drives. */
export const personName = signal(localStorage.getItem(NAME) ?? "");

/** A key in the address (`#key=hd_…`, as `hotdesk` prints it) counts most, and disappears from it before anything else is done. */
export async function restore() {
  const handed = new URLSearchParams(location.hash.slice(1)).get("key");
  if (handed) history.replaceState(null, "", location.pathname + location.search);
  for (const storage of [sessionStorage, localStorage]) storage.removeItem(OLD_KEY);
  try {
    if (handed) await send("POST", "v1/session", { key: handed });
    else await get("v1/session");
    signedIn.value = true;
  } catch (error) {
    // Nobody is signed in, which is no reason to say anything; a key that is no good is.
    if (handed) signedOutBecause.value = signInProblem(error);
    signedIn.value = false;
  }
}

/** Throws a Problem when the key is no good. */
export async function signIn(secret: string, name: string, remember: boolean) {
  await send("POST", "v1/session", { key: secret, remember });
  localStorage.setItem(NAME, name);
  personName.value = name;
  signedOutBecause.value = null;
  signedIn.value = true;
}

export function signOut() {
  signedOutBecause.value = null;
  signedIn.value = false;
  // The cookie goes with the session; a fleet that does not answer now ends it by its time.
  void send("DELETE", "v1/session").catch(() => {});
}

export function signInProblem(error: unknown): string {
  if (error instanceof Problem && error.status === 401) return "this key is not known here: it is wrong, expired or revoked";
  return error instanceof Error ? error.message : String(error);
}

onSessionLost(() => {
  signedOutBecause.value = "the session has ended: the key has expired or was revoked";
  signedIn.value = false;
});
