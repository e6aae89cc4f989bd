// How a desk comes into being: its stages, each with the time that it took. Then the desktop takes this place.
import { useEffect, useState } from "preact/hooks";
import type { Desk } from "../api/types";
import { stages } from "../lib/desks";
import { duration, milliseconds } from "../lib/format";
import { Icon } from "../ui/icon";
import { stateWord } from "../ui/state";

export function Boot({ desk }: { desk: Desk }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 100);
    return () => clearInterval(timer);
  }, []);
  const seen = stages.value.get(desk.id) ?? [];
  const list = seen.length || !desk.stage ? seen : [{ name: desk.stage, at: new Date(desk.changed_at).getTime() }];
  const since = (now - new Date(desk.changed_at).getTime()) / 1000;
  return (
    <div class="boot" role="status" aria-live="polite">
      <div class="boot-screen"><Icon name="screen" size={52} /><span class="boot-light pulse" /></div>
      <h2>{stateWord(desk.state)}</h2>
      <p class="soft small">From the template <code>{desk.template}</code>, for {duration(Math.max(0, since))}</p>
      <ol class="boot-stages">
        {list.map((stage, index) => {
          const next = list[index + 1];
          return (
            <li key={stage.name + stage.at} class={`appear ${next ? "done" : ""}`}>
              <span class="boot-tick">{next ? <Icon name="check" size={13} /> : <span class="ring spin" />}</span>
              <span class="grow">{words(stage.name)}</span>
              <span class="faint tiny number">{milliseconds((next?.at ?? now) - stage.at)}</span>
            </li>
          );
        })}
        {!list.length && <li><span class="boot-tick"><span class="ring spin" /></span><span class="grow">Waiting for its turn</span></li>}
      </ol>
    </div>
  );
}

function words(stage: string): string {
  const text = stage.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
