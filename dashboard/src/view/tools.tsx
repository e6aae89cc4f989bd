// What a person does with a live view besides looking: the clipboard, the keyboard's layout, keys that the browser keeps.
import { useEffect, useState } from "preact/hooks";
import { request, send } from "../api/client";
import { attempt, Button, Dialog, Menu } from "../ui/parts";
import type { Link } from "./link";

/** Layouts of the X server, by the names that setxkbmap knows. */
const LAYOUTS = [["us", "English (US)"], ["gb", "English (UK)"], ["de", "German"], ["fr", "French"], ["es", "Spanish"], ["it", "Italian"], ["pt", "Portuguese"], ["pl", "Polish"], ["se", "Swedish"], ["ch", "Swiss"], ["jp", "Japanese"], ["ru", "Russian"]] as const;

export function KeyboardMenu({ desk, link, driving }: { desk: string; link: Link | null; driving: boolean }) {
  const layout = (name: string, words: string) =>
    attempt(
      send<{ exit_code: number; stderr: string }>("POST", `v1/desks/${desk}/processes/run`, { argv: ["setxkbmap", name] }).then((run) => {
        if (run.exit_code !== 0) throw new Error(`the layout was not changed: ${run.stderr.trim()}`);
      }),
      `The desk's keyboard is ${words} now`,
    );
  return (
    <Menu label="Keyboard" icon="keyboard" look="plain">
      <div class="title">Keys that the browser keeps</div>
      <button type="button" disabled={!driving} onClick={() => link?.keys([0xffe3, "ControlLeft"], [0xffe9, "AltLeft"], [0xffff, "Delete"])}>Ctrl Alt Delete</button>
      <button type="button" disabled={!driving} onClick={() => link?.keys([0xffe9, "AltLeft"], [0xff09, "Tab"])}>Alt Tab</button>
      <button type="button" disabled={!driving} onClick={() => link?.keys([0xffe9, "AltLeft"], [0xffc1, "F4"])}>Alt F4</button>
      <button type="button" disabled={!driving} onClick={() => link?.keys([0xffe3, "ControlLeft"], [0x77, "KeyW"])}>Ctrl W</button>
      <hr />
      <div class="title">Layout in the desk</div>
      <div class="menu-scroll">
        {LAYOUTS.map(([name, words]) => <button type="button" key={name} onClick={() => void layout(name, words)}>{words}</button>)}
      </div>
    </Menu>
  );
}

/** The desk's clipboard in a box: works also where the browser gives pages no access to the person's. */
export function ClipboardBox({ desk, link, driving, onClose }: { desk: string; link: Link | null; driving: boolean; onClose: () => void }) {
  const [text, setText] = useState(link?.clipboard.peek() ?? "");
  useEffect(() => {
    request(`v1/desks/${desk}/clipboard`).then((answer) => answer.text()).then(setText, () => {});
  }, [desk]);
  const put = () => attempt(request(`v1/desks/${desk}/clipboard`, { method: "PUT", body: text, headers: { "content-type": "text/plain" } }), "The text is on the desk's clipboard").then((done) => done && onClose());
  const take = () => attempt(navigator.clipboard.writeText(text), "Copied to your clipboard");
  return (
    <Dialog title="Clipboard of the desk" onClose={onClose} footer={<>
      {navigator.clipboard && <Button icon="copy" onClick={take} disabled={!text}>Copy to mine</Button>}
      <Button look="first" onClick={put} disabled={!driving}>Put on the desk's</Button>
    </>}>
      <textarea class="input mono" rows={8} aria-label="Text on the desk's clipboard" value={text} onInput={(e) => setText(e.currentTarget.value)} placeholder="The desk's clipboard is empty" />
      {!driving && <p class="soft small">Take over to put a text on the desk's clipboard.</p>}
    </Dialog>
  );
}

/** What the person copied elsewhere is on the desk's clipboard when they come back, where the browser allows that. */
export async function bringClipboard(link: Link | null) {
  try {
    const allowed = await navigator.permissions.query({ name: "clipboard-read" as PermissionName });
    if (allowed.state !== "granted") return;
    const text = await navigator.clipboard.readText();
    if (text && text !== link?.clipboard.peek()) link?.paste(text);
  } catch {
    // The browser has no such thing.
  }
}
