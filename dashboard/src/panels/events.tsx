// What happened to the desk, the newest first.
import { useEffect } from "preact/hooks";
import { get } from "../api/client";
import type { FleetEvent } from "../api/types";
import { onEvent } from "../lib/desks";
import { dateTime, time } from "../lib/format";
import { useRead } from "../lib/use-read";
import { Empty, Failure } from "../ui/parts";
import { StateChip } from "../ui/state";
import { PanelHead } from "./panels";

const MOST = 1_000;

export function Events({ desk }: { desk: string }) {
  const list = useRead(async () => (await get<{ events: FleetEvent[] }>("v1/events", { query: { desk, limit: MOST } })).events.reverse(), [desk]);
  useEffect(() => onEvent((event) => event.desk === desk && event.kind !== "stage" && list.again()), [desk]);
  return (
    <>
      <PanelHead title="Events" />
      {list.error && !list.value ? <div class="panel-pad"><Failure error={list.error} again={list.again} /></div> : list.value?.length === 0 ? <Empty icon="bell" title="Nothing happened yet" /> : (
        <ol class="panel-scroll events" tabIndex={0} aria-label="Events, the newest first">
          {list.value?.map((event) => (
            <li key={event.number}>
              <div class="row">{event.state ? <StateChip state={event.state} /> : <span class="chip">{event.kind}</span>}<span class="grow" /><time class="faint tiny number" dateTime={event.at} title={dateTime(event.at)}>{time(event.at)}</time></div>
              <p class="small">{event.reason}</p>
              <p class="tiny faint cut">by {event.by}</p>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
