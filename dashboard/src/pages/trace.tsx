// A trace: the screen at any moment, what was done on it and by whom, and a scale to go anywhere.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import type { Step, TraceInfo } from "../api/types";
import { desks } from "../lib/desks";
import { bytes, clock, count, dateTime, milliseconds } from "../lib/format";
import { deskLink } from "../lib/router";
import { Frames } from "../trace/frames";
import { inWords, Marks, stepWords } from "../trace/marks";
import { frameAt, stepAt, timeline, type Timeline } from "../trace/timeline";
import { Icon } from "../ui/icon";
import { Button, Empty, Failure } from "../ui/parts";
import { nameOf } from "../ui/state";
import { isTyping } from "./wall";

const PAGE = 1_000;
/** A trace that is still recorded grows. */
const GROWS_MS = 2_000;
/** Frames that are fetched ahead. */
const AHEAD = 3;

export function TracePage({ desk, id }: { desk: string; id: string }) {
  const { info, steps, error, again } = useTrace(desk, id);
  const name = desks.value.get(desk);
  const line = useMemo(() => timeline(steps), [steps]);
  return (
    <div class="trace-page">
      <div class="desk-bar">
        <a class="button plain icon" href={deskLink(desk)} aria-label="To the desk" title="To the desk"><Icon name="back" /></a>
        <div class="desk-title">
          <h1 class="cut">{info ? info.name || `Trace of ${dateTime(info.started)}` : "Trace"}</h1>
          {info && !info.ended && <span class="chip bad"><span class="dot pulse" />Recording</span>}
          {info?.ended && (info.note || !info.complete) && <span class="chip warn" title={info.note}>Cut short</span>}
        </div>
        <span class="grow" />
        {info && <span class="faint tiny number">{name ? `${nameOf(name)} · ` : ""}{count(info.steps, "step")} · {bytes(info.bytes)}</span>}
      </div>
      {error && !info ? <div class="page"><Failure error={error} again={again} /></div> : !info ? <div class="trace-body"><div class="skeleton fill" /></div>
        : steps.length === 0 ? <Empty icon="film" title="No step yet">Steps appear here as soon as somebody drives the desk.</Empty> : <Player desk={desk} info={info} line={line} />}
    </div>
  );
}

function Player({ desk, info, line }: { desk: string; info: TraceInfo; line: Timeline }) {
  const [time, setTime] = useState(0);
  const [playing, setPlaying] = useState(false);
  const frames = useMemo(() => new Frames(`v1/desks/${desk}/traces/${info.id}`), [desk, info.id]);
  useEffect(() => () => frames.close(), [frames]);
  const shown = frameAt(line, time);
  const step = line.steps[shown.index];
  const picture = usePicture(frames, shown.frame);

  useEffect(() => {
    // What comes next is fetched while this is looked at.
    for (const next of line.steps.slice(shown.index, shown.index + AHEAD)) for (const frame of [next.before, next.after]) if (frame) frames.get(frame).catch(() => {});
  }, [shown.index, line]);

  useEffect(() => {
    if (!playing) return;
    let last = performance.now();
    let handle = requestAnimationFrame(function tick(now) {
      setTime((old) => {
        const next = old + (now - last);
        last = now;
        if (next >= line.length) setPlaying(false);
        return Math.min(next, line.length);
      });
      handle = requestAnimationFrame(tick);
    });
    return () => cancelAnimationFrame(handle);
  }, [playing, line]);

  const jump = (index: number) => {
    setPlaying(false);
    setTime(line.at[Math.max(0, Math.min(index, line.at.length - 1))] ?? 0);
  };
  const toggle = () => {
    if (time >= line.length) setTime(0);
    setPlaying(!playing);
  };

  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      const onScale = (event.target as HTMLElement).classList?.contains("scale-input");
      if ((isTyping(event) && !onScale) || event.metaKey || event.ctrlKey || event.altKey) return;
      const at = stepAt(line, time);
      if (event.key === "ArrowRight") jump(at + 1);
      else if (event.key === "ArrowLeft") jump(time > line.at[at] ? at : at - 1);
      else if (event.key === " " && (event.target as HTMLElement).tagName !== "BUTTON") toggle();
      else if (event.key === "Home") jump(0);
      else if (event.key === "End") jump(line.at.length - 1);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [line, time, playing]);

  return (
    <div class="trace-body">
      <figure class="trace-stage" data-step={step.number} data-before={shown.before}>
        <div class="trace-picture" style={{ aspectRatio: `${info.width} / ${info.height}` }}>
          {picture ? <img src={picture} alt={`The screen ${shown.before ? "before" : "after"} step ${step.number}`} /> : shown.frame ? <div class="skeleton fill" /> : <Empty icon="screen" title="No picture">This trace was recorded without frames.</Empty>}
          {shown.before && <Marks step={step} size={info} />}
          {shown.before && <Captions step={step} />}
        </div>
      </figure>
      <Steps line={line} current={shown.index} onJump={jump} />
      <div class="transport">
        <Button icon="back" look="plain" label="Step before (arrow left)" onClick={() => jump(shown.index - 1)} />
        <Button icon={playing ? "pause" : "play"} label={playing ? "Pause (space)" : "Play (space)"} onClick={toggle} />
        <Button icon="right" look="plain" label="Next step (arrow right)" onClick={() => jump(shown.index + 1)} />
        <Scale line={line} time={time} onTime={(t) => { setPlaying(false); setTime(t); }} words={`step ${step.number} of ${line.steps.length}: ${stepWords(step)}`} />
        <span class="faint tiny number transport-time">{clock(step.offset_ms / 1000)} · {shown.index + 1} / {line.steps.length}</span>
      </div>
    </div>
  );
}

/** A slider of the browser's own over ticks, one for each step. */
function Scale({ line, time, onTime, words }: { line: Timeline; time: number; onTime: (time: number) => void; words: string }) {
  const part = (t: number) => `${(100 * t) / line.length}%`;
  return (
    <div class="scale">
      <div class="scale-track"><div class="scale-done" style={{ width: part(time) }} /></div>
      <div class="scale-ticks" aria-hidden="true">
        {line.steps.length <= 600 && line.steps.map((step, index) => <span key={step.number} class={`tick ${step.by.driver} ${step.result}`} style={{ left: part(line.at[index]), width: `max(3px, ${part(line.after[index] - line.at[index])})` }} />)}
      </div>
      <input class="scale-input" type="range" min={0} max={line.length} step={1} value={time} aria-label="Position in the trace" aria-valuetext={words} onInput={(e) => onTime(Number(e.currentTarget.value))} />
      <div class="scale-head" style={{ left: part(time) }} aria-hidden="true" />
    </div>
  );
}

function Captions({ step }: { step: Step }) {
  const spoken = step.actions.filter((action) => ["type", "key", "key_down", "key_up", "wait"].includes(action.do));
  if (!spoken.length && step.result === "done") return null;
  return (
    <figcaption class="captions">
      {spoken.slice(0, 4).map((action, index) => <span key={index} class="caption">{inWords(action)}</span>)}
      {step.result !== "done" && <span class="caption bad">{step.result}{step.message ? `: ${step.message}` : ""}</span>}
    </figcaption>
  );
}

function Steps({ line, current, onJump }: { line: Timeline; current: number; onJump: (index: number) => void }) {
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const item = list.current?.querySelector<HTMLElement>('[aria-current="step"]');
    if (item && list.current) list.current.scrollTo({ top: item.offsetTop - list.current.clientHeight / 2, behavior: "auto" });
  }, [current]);
  // A window of the list, so that a thousand steps are as quick as ten.
  const from = Math.max(0, current - 150);
  const window = line.steps.slice(from, current + 150);
  return (
    <ol class="steps" ref={list} aria-label="Steps" tabIndex={0}>
      {window.map((step, n) => (
        <li key={step.number}>
          <button type="button" aria-current={from + n === current ? "step" : undefined} onClick={() => onJump(from + n)}>
            <span class="faint tiny number step-number">{step.number}</span>
            <span class="column grow">
              <span class="cut">{stepWords(step)}</span>
              <span class="tiny faint number"><span class={`who ${step.by.driver}`}>{step.by.name || step.by.driver}</span> · {clock(step.offset_ms / 1000)} · {milliseconds(step.took_ms)}{step.result !== "done" ? ` · ${step.result}` : ""}</span>
            </span>
          </button>
        </li>
      ))}
    </ol>
  );
}

/** Shows the old picture until the new one is there. */
function usePicture(frames: Frames, frame: string | null): string | null {
  const [picture, setPicture] = useState<string | null>(null);
  useEffect(() => {
    if (!frame) return setPicture(null);
    let late = false;
    frames.get(frame).then((url) => !late && setPicture(url), () => {});
    return () => {
      late = true;
    };
  }, [frames, frame]);
  return picture;
}

function useTrace(desk: string, id: string) {
  const [info, setInfo] = useState<TraceInfo | null>(null);
  const [steps, setSteps] = useState<Step[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let ended = false;
    const path = `v1/desks/${desk}/traces/${id}`;
    const known: Step[] = [];
    const read = async () => {
      try {
        const told = await get<TraceInfo>(path, { glance: true });
        const before = known.length;
        for (;;) {
          const { steps } = await get<{ steps: Step[] }>(`${path}/steps`, { query: { after: known.at(-1)?.number ?? 0, limit: PAGE }, glance: true });
          known.push(...steps);
          if (steps.length < PAGE) break;
        }
        if (ended) return;
        setInfo(told);
        if (known.length !== before) setSteps([...known]);
        if (!told.ended) setTimeout(read, GROWS_MS);
      } catch (caught) {
        if (!ended) setError(caught);
      }
    };
    setError(null);
    void read();
    return () => {
      ended = true;
    };
  }, [desk, id, turn]);
  return { info, steps, error, again: () => setTurn(turn + 1) };
}
