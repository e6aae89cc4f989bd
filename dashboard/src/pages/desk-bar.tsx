// The bar above a desk: what it is, who drives, and everything that can be done with it.
import { useState } from "preact/hooks";
import { request, send } from "../api/client";
import type { Desk } from "../api/types";
import { answered } from "../lib/desks";
import { clock } from "../lib/format";
import { deskLink, go, wallLink } from "../lib/router";
import type { PanelName } from "../panels/panels";
import { save } from "../panels/upload";
import { Icon } from "../ui/icon";
import { attempt, Button, Dialog, Menu, say } from "../ui/parts";
import { driverWord, nameOf, StateChip } from "../ui/state";
import type { LeaseWatch } from "../view/lease";
import type { Link } from "../view/link";
import { ClipboardBox, KeyboardMenu } from "../view/tools";

interface Props {
  desk: Desk;
  lease: LeaseWatch | null;
  link: Link | null;
  scaled: boolean;
  onScaled: (scaled: boolean) => void;
  onTake: (force?: boolean) => void;
  onGive: () => void;
  panel: PanelName | null;
  onPanel: (panel: PanelName | null) => void;
}

export function DeskBar({ desk, lease, link, scaled, onScaled, onTake, onGive, panel, onPanel }: Props) {
  const [asking, setAsking] = useState(false);
  const [clipboard, setClipboard] = useState(false);
  const runs = desk.state === "running";
  const driving = lease?.mine.value ?? false;

  const picture = () => attempt(request(`v1/desks/${desk.id}/screenshot`).then(async (answer) => save(await answer.blob(), `${nameOf(desk)}.png`)));
  const fill = () => void document.getElementById("stage")?.requestFullscreen().then(() => link?.focus(), () => say("this browser does not fill the screen", "bad"));

  return (
    <div class="desk-bar">
      <a class="button plain icon" href={wallLink} aria-label="All desks" title="All desks"><Icon name="back" /></a>
      <div class="desk-title">
        <h1 class="cut">{nameOf(desk)}</h1>
        <StateChip state={desk.state} />
      </div>
      <span class="grow" />
      {runs && lease && <Driver lease={lease} onTake={onTake} onGive={onGive} />}
      {runs && (
        <div class="row tools" role="toolbar" aria-label="Live view">
          <Button icon="camera" look="plain" label="Save a screenshot" onClick={picture} />
          <Button icon="clipboard" look="plain" label="Clipboard" onClick={() => setClipboard(true)} />
          <KeyboardMenu desk={desk.id} link={link} driving={driving} />
          <Button icon="real" look="plain" label={scaled ? "Real size" : "Fit the window"} pressed={!scaled} onClick={() => onScaled(!scaled)} />
          <Button icon="expand" look="plain" label="Full screen" onClick={fill} />
        </div>
      )}
      <Button icon="panel" look="plain" label={panel ? "Hide the panel" : "Show the panel"} pressed={panel !== null} onClick={() => onPanel(panel ? null : "terminal")} />
      <Actions desk={desk} onDelete={() => setAsking(true)} />
      {asking && <Delete desk={desk} onClose={() => setAsking(false)} />}
      {clipboard && <ClipboardBox desk={desk.id} link={link} driving={driving} onClose={() => setClipboard(false)} />}
    </div>
  );
}

/** Who drives, and the way to change it. */
function Driver({ lease, onTake, onGive }: { lease: LeaseWatch; onTake: (force?: boolean) => void; onGive: () => void }) {
  if (lease.free.value) return null;
  const now = lease.lease.value;
  if (!now) return <span class="chip"><span class="dot pulse" />Who drives</span>;
  const mine = lease.mine.value;
  const left = lease.left.value;
  return (
    <div class="driver" data-driver={mine ? "you" : now.driver}>
      <span class={`chip ${now.driver}`} role="status">
        {now.driver === "agent" ? <span class="dot" /> : <Icon name="hand" size={13} />}
        {driverWord(now)}
        {now.driver === "person" && left !== null && <span class="countdown number" aria-hidden="true" title="Until the agent drives again, if nothing is done">{clock(left)}</span>}
      </span>
      {mine ? <Button look="small" onClick={onGive} keys="F8" title="The agent drives again">Give back<kbd>F8</kbd></Button>
        : now.driver === "agent" ? <Button look="small first" onClick={() => onTake()} keys="t" title="You drive; the agent waits">Take over<kbd>T</kbd></Button>
        : <Button look="small" onClick={() => onTake(true)} title={`Takes the desk from ${now.name || "the other person"}`}>Take from {now.name || "them"}</Button>}
    </div>
  );
}

function Actions({ desk, onDelete }: { desk: Desk; onDelete: () => void }) {
  const verb = (name: string) => attempt(send<Desk>("POST", `v1/desks/${desk.id}/${name}`, undefined, { query: { wait: 0 } }).then(answered));
  const snapshot = () => attempt(send("POST", `v1/desks/${desk.id}/snapshot`, {}), "The snapshot is made");
  const fork = () => attempt(send<Desk>("POST", `v1/desks/${desk.id}/fork`, {}, { query: { wait: 0 } }).then((made) => { answered(made); go(deskLink(made.id)); }));
  const extend = () => attempt(send<Desk>("POST", `v1/desks/${desk.id}/extend`, { by_s: 3600 }).then(answered), "It lives an hour longer");
  const link = () => attempt(navigator.clipboard?.writeText(location.origin + deskLink(desk.id)) ?? Promise.reject(new Error("copy the address from the browser's bar")), "The address is copied");
  const runs = desk.state === "running";
  const rests = desk.state === "stopped" || desk.state === "archived";
  return (
    <Menu label="More">
      <button type="button" onClick={link}><Icon name="link" />Copy the address</button>
      <button type="button" onClick={snapshot} disabled={!runs && !rests}><Icon name="camera" />Make a snapshot</button>
      <button type="button" onClick={fork} disabled={!runs && !rests}><Icon name="copy" />Fork</button>
      {desk.expires_at && <button type="button" onClick={extend}><Icon name="plus" />Extend by 1 hour</button>}
      <hr />
      {runs && <button type="button" onClick={() => verb("stop")}><Icon name="stop" />Stop</button>}
      {rests && <button type="button" onClick={() => verb("start")}><Icon name="power" />Start</button>}
      <button type="button" onClick={() => verb("reset")} disabled={!runs && !rests && desk.state !== "error"}><Icon name="reset" />Reset to the template</button>
      <hr />
      <button type="button" class="danger" onClick={onDelete}><Icon name="trash" />Delete</button>
    </Menu>
  );
}

function Delete({ desk, onClose }: { desk: Desk; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const remove = async () => {
    setBusy(true);
    const gone = await attempt(send<Desk>("DELETE", `v1/desks/${desk.id}`, undefined, { query: { wait: 0 } }), `${nameOf(desk)} is deleted`);
    if (gone) go(wallLink);
    else setBusy(false);
  };
  return (
    <Dialog title={`Delete ${nameOf(desk)}?`} onClose={onClose} footer={<>
      <Button onClick={onClose}>Keep it</Button>
      <Button look="first danger" disabled={busy} onClick={remove}>Delete the desk</Button>
    </>}>
      <p class="soft">Its programs end and its files are gone. Snapshots of it stay.</p>
    </Dialog>
  );
}
