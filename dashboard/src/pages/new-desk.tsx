// A new desk from a template. The desk's page then shows how it comes into being.
import { useEffect, useState } from "preact/hooks";
import { get, send, told } from "../api/client";
import type { Desk, Template } from "../api/types";
import { answered } from "../lib/desks";
import { bytes } from "../lib/format";
import { deskLink, go } from "../lib/router";
import { Button, Dialog, Failure, Field, Notice } from "../ui/parts";

/** The template that is chosen before anybody chose. */
const USUAL = "base";
const SIZES = ["1920x1080", "1280x800", "1024x768"];

export function NewDesk({ onClose }: { onClose: () => void }) {
  const [templates, setTemplates] = useState<Template[] | null>(null);
  const [failure, setFailure] = useState<unknown>(null);
  const [template, setTemplate] = useState(USUAL);
  const [name, setName] = useState("");
  const [labels, setLabels] = useState("");
  const [size, setSize] = useState(SIZES[0]);
  const [stop, setStop] = useState("900");
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);

  const load = () => {
    setFailure(null);
    get<{ templates: Template[] }>("v1/templates").then(({ templates }) => {
      const usable = templates.filter((t) => !/not for desks/.test(t.description)).sort((a, b) => Number(b.built) - Number(a.built));
      setTemplates(usable);
      if (!usable.some((t) => t.name === USUAL) && usable[0]) setTemplate(usable[0].name);
    }, setFailure);
  };
  useEffect(load, []);

  async function make(event: Event) {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    const [width, height] = size.split("x").map(Number);
    const wish = {
      template,
      name: name.trim() || null,
      labels: Object.fromEntries(labels.split(/[\s,]+/).filter(Boolean).map((pair) => { const [key, ...value] = pair.split("="); return [key, value.join("=")]; })),
      screen: { width, height },
      policy: { auto_stop_s: Number(stop) },
    };
    try {
      const desk = await send<Desk>("POST", "v1/desks", wish, { query: { wait: 0 } });
      answered(desk);
      onClose();
      go(deskLink(desk.id));
    } catch (error) {
      setProblem(told(error));
      setBusy(false);
    }
  }

  const chosen = templates?.find((t) => t.name === template);
  return (
    <Dialog title="New desk" onClose={onClose} footer={<>
      <Button onClick={onClose}>Cancel</Button>
      <Button look="first" disabled={busy || !templates} onClick={() => (document.getElementById("new-desk") as HTMLFormElement).requestSubmit()}>{busy ? "Making it" : "Make desk"}</Button>
    </>}>
      <form id="new-desk" onSubmit={make} class="column" style={{ gap: "18px" }}>
        <fieldset>
          <legend>Template</legend>
          {failure ? <Failure error={failure} again={load} /> : (
            <div class="choices">
              {templates ? templates.map((t) => (
                <label class="choice" key={t.name}>
                  <input type="radio" name="template" value={t.name} checked={t.name === template} onChange={() => setTemplate(t.name)} />
                  <strong><span>{t.name}</span><span class="faint tiny number">{t.built && t.size_bytes ? bytes(t.size_bytes) : "not built"}</span></strong>
                  <span class="about">{t.description}</span>
                </label>
              )) : [1, 2, 3, 4].map((n) => <div key={n} class="skeleton" style={{ height: "64px" }} />)}
            </div>
          )}
        </fieldset>
        {chosen && !chosen.built && <Notice look="warn" icon="info">This template is built first, once on this machine. That takes a few minutes.</Notice>}
        <div class="pair">
          <Field label="Name" help="May be left out">{(id) => <input id={id} class="input" autofocus value={name} onInput={(e) => setName(e.currentTarget.value)} placeholder="research-1" />}</Field>
          <Field label="Labels" help="Separated by spaces">{(id) => <input id={id} class="input" value={labels} onInput={(e) => setLabels(e.currentTarget.value)} placeholder="run=7 team=web" />}</Field>
          <Field label="Screen">{(id) => <select id={id} class="select" value={size} onChange={(e) => setSize(e.currentTarget.value)}>{SIZES.map((s) => <option key={s} value={s}>{s.replace("x", " × ")}</option>)}</select>}</Field>
          <Field label="When idle, stop after">{(id) => (
            <select id={id} class="select" value={stop} onChange={(e) => setStop(e.currentTarget.value)}>
              <option value="300">5 minutes</option><option value="900">15 minutes</option><option value="3600">1 hour</option><option value="28800">8 hours</option><option value="0">Never</option>
            </select>
          )}</Field>
        </div>
        {problem && <Notice look="bad" icon="warning">{problem}</Notice>}
      </form>
    </Dialog>
  );
}
