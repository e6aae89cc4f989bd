// The door: a key, and the name that others see.
import { useState } from "preact/hooks";
import { personName, signedOutBecause, signIn, signInProblem } from "../lib/session";
import { Logo } from "../ui/icon";
import { Button, Field, Notice } from "../ui/parts";
import { ThemeButton } from "../ui/shell";

export function SignIn() {
  const [secret, setSecret] = useState("");
  const [name, setName] = useState(personName.value);
  const [remember, setRemember] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);

  async function submit(event: Event) {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await signIn(secret.trim(), name.trim(), remember);
    } catch (error) {
      setProblem(signInProblem(error));
      setBusy(false);
    }
  }

  return (
    <main class="sign-in">
      <div class="theme"><ThemeButton /></div>
      <form onSubmit={submit} class="appear">
        <div class="head">
          <Logo size={44} />
          <h1>Sign in to hotdesk</h1>
          <p class="soft">Desktops for computer-use agents</p>
        </div>
        {problem ? <Notice look="bad" icon="warning">{problem}</Notice> : signedOutBecause.value && <Notice look="warn" icon="warning">{signedOutBecause.value}</Notice>}
        <Field label="Key" help={<>The first one is in <code>admin.key</code> of the fleet's data directory; <code>hotdesk key new</code> makes more.</>}>
          {(id) => <input id={id} class="input mono" type="password" required autofocus autocomplete="current-password" spellcheck={false} placeholder="hd_…" value={secret} onInput={(e) => setSecret(e.currentTarget.value)} />}
        </Field>
        <Field label="Your name" help="Others see it while you drive a desk. May be left out.">
          {(id) => <input id={id} class="input" autocomplete="name" maxLength={60} value={name} onInput={(e) => setName(e.currentTarget.value)} />}
        </Field>
        <label class="check"><input type="checkbox" checked={remember} onChange={(e) => setRemember(e.currentTarget.checked)} />Stay signed in on this browser</label>
        <Button type="submit" look="first wide" disabled={busy || !secret.trim()}>{busy ? "Signing in" : "Sign in"}</Button>
      </form>
    </main>
  );
}
