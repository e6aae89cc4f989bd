// The fleet: how full it is, what is kept ready, what is spent, how quick it answers.
import type { ComponentChildren } from "preact";
import { get } from "../api/client";
import type { Budget, Costs, Fleet, Pool } from "../api/types";
import { Bars, Lines, Meter } from "../fleet/charts";
import { LENGTH, useHistory } from "../fleet/history";
import { buckets, quantile, total } from "../fleet/metrics";
import { desks } from "../lib/desks";
import { bytes, duration, milliseconds, money } from "../lib/format";
import { deskLink } from "../lib/router";
import { useRead } from "../lib/use-read";
import { Failure } from "../ui/parts";
import { nameOf, stateWord } from "../ui/state";
import type { State } from "../api/types";

const EVERY_MS = 5_000;
const MIB = 1024 * 1024;
const DAYS = 14;

export function FleetPage() {
  const fleet = useRead(() => get<Fleet>("v1/fleet"), [], EVERY_MS);
  const pools = useRead(() => get<{ pools: Pool[] }>("v1/pools").then((list) => list.pools), [], EVERY_MS);
  const costs = useRead(() => get<Costs>("v1/costs"), [], EVERY_MS);
  const budgets = useRead(() => get<{ budgets: Budget[] }>("v1/budgets").then((list) => list.budgets), [], EVERY_MS * 4);
  const history = useHistory();
  const info = fleet.value;
  if (fleet.error && !info) return <div class="page"><h1>Fleet</h1><br /><Failure error={fleet.error} again={fleet.again} /></div>;
  const moments = history.moments;
  // The scale grows with what was measured, up to ten minutes.
  const shownLength = Math.min(LENGTH, Math.max(20, moments.length));
  const count = info ? Object.values(info.desks).reduce((sum, n) => sum + n, 0) : 0;

  return (
    <div class="page fleet">
      <div class="wall-head"><div class="column"><h1>Fleet</h1><p class="soft small">{info ? `hotdesk ${info.version}` : "Looking"}</p></div></div>
      <div class="cards">
        <Card title="Limits" wide={false}>
          {info ? (
            <div class="column" style={{ gap: "16px" }}>
              <Meter label="Desks" value={count} most={info.max_desks} words={`${count} of ${info.max_desks}`} />
              <Meter label="Processors promised" value={info.cpus_promised} most={Math.max(info.cpus, info.cpus_promised)} words={`${info.cpus_promised} on ${info.cpus}`} calm />
              <Meter label="Memory promised" value={info.memory_promised_mib} most={info.memory_mib} words={`${bytes(info.memory_promised_mib * MIB)} of ${bytes(info.memory_mib * MIB)}`} />
              <div class="states">{Object.entries(info.desks).map(([state, n]) => <span key={state} class="chip">{n} {stateWord(state as State).toLowerCase()}</span>)}</div>
            </div>
          ) : <div class="skeleton" style={{ height: "150px" }} />}
        </Card>
        <Card title="Money">
          {costs.value ? (
            <>
              <div class="figures">
                <Figure words="Today" value={money(costs.value.today, costs.value.currency)} />
                <Figure words="In all" value={money(costs.value.total, costs.value.currency)} />
              </div>
              <Bars label="Spent by day" values={lastDays(costs.value.by_day)} words={(value) => money(value, costs.value!.currency)} />
              {budgets.value?.length ? (
                <div class="column" style={{ gap: "14px", marginTop: "16px" }}>
                  {budgets.value.map((budget) => {
                    const limit = budget.per_day ?? budget.total ?? 0;
                    const spent = budget.per_day ? costs.value!.today : costs.value!.by_project[budget.project] ?? 0;
                    return <Meter key={budget.project} label={`Budget of ${budget.project}${budget.per_day ? " a day" : ""}`} value={spent} most={limit} words={`${money(spent)} of ${money(limit)}`} />;
                  })}
                </div>
              ) : <p class="faint tiny" style={{ marginTop: "14px" }}>No budget is set: <code>hotdesk budget</code> sets one.</p>}
            </>
          ) : costs.error ? <Failure error={costs.error} /> : <div class="skeleton" style={{ height: "150px" }} />}
        </Card>
        <Card title="Latency" note="median of the last moments, at the gateway">
          {history.refused ? <Closed /> : (
            <>
              <div class="figures">
                <Figure words="Screenshot" value={overall(history.latest, "screenshot")} />
                <Figure words="Action" value={overall(history.latest, "action")} />
                <Figure words="Control" value={overall(history.latest, "control")} />
              </div>
              <Lines label="Latency" length={shownLength} words={milliseconds} series={[{ name: "Screenshots", colour: "agent", values: moments.map((m) => m.screenshots) }, { name: "Actions", colour: "accent", values: moments.map((m) => m.actions) }]} />
            </>
          )}
        </Card>
        <Card title="Use" note="of all desks">
          {history.refused ? <Closed /> : (
            <div class="two-lines">
              <Lines label="Processors" length={shownLength} words={(n) => `${n.toFixed(2)} cores`} least={0.1} series={[{ name: "Processors", colour: "good", values: moments.map((m) => m.cpu) }]} />
              <Lines label="Memory" length={shownLength} words={bytes} series={[{ name: "Memory", colour: "warn", values: moments.map((m) => m.memory) }]} />
            </div>
          )}
        </Card>
        <Card title="Desks by use">
          {history.refused ? <Closed /> : history.desks.length === 0 ? <p class="soft small">No desk runs.</p> : (
            <div class="table-scroll"><table>
              <thead><tr><th>Desk</th><th class="right">Processors</th><th class="right">Memory</th><th class="right">Disk</th></tr></thead>
              <tbody>{[...history.desks].sort((a, b) => (b.cpu ?? 0) - (a.cpu ?? 0) || b.memory - a.memory).slice(0, 10).map((use) => {
                const desk = desks.value.get(use.desk);
                return <tr key={use.desk}><td><a class="text-link" href={deskLink(use.desk)}>{desk ? nameOf(desk) : use.desk}</a></td><td class="right number">{use.cpu === null ? "–" : use.cpu.toFixed(2)}</td><td class="right number">{bytes(use.memory)}</td><td class="right number">{bytes(use.disk)}</td></tr>;
              })}</tbody>
            </table></div>
          )}
        </Card>
        <Card title="Making a desk" note="median of each stage">
          {history.stages.length === 0 ? <p class="soft small">{info ? `No desk was made since the fleet began. Idle desks stop after ${duration(info.default_policy.auto_stop_s)}.` : ""}</p> : (
            <dl class="facts">{history.stages.map(([stage, ms]) => <div key={stage}><dt>{stage.replaceAll("_", " ")}</dt><dd class="number">{milliseconds(ms)}</dd></div>)}</dl>
          )}
        </Card>
        <Card title="Pools" note="desks that wait, so that a claim costs nothing">
          {pools.error && !pools.value ? <Failure error={pools.error} /> : pools.value?.length === 0 ? <p class="soft small">No pool is kept. <code>hotdesk pool set base 2 --max 8</code> keeps desks of a template ready.</p> : (
            <div class="table-scroll"><table>
              <thead><tr><th>Template</th><th class="right">Ready</th><th class="right">On the way</th><th class="right">Wanted</th><th class="right">Claims</th><th class="right">Misses</th></tr></thead>
              <tbody>{pools.value?.map((pool) => <tr key={pool.template}><td>{pool.template}</td><td class="right number">{pool.ready}</td><td class="right number">{pool.filling}</td><td class="right number">{pool.target} <span class="faint">({pool.min} to {pool.max})</span></td><td class="right number">{pool.claims}</td><td class="right number">{pool.misses}</td></tr>)}</tbody>
            </table></div>
          )}
        </Card>
        <Card title="Providers">
          <ul class="providers">
            {info?.providers.map((provider) => (
              <li key={provider.name} class="row"><span class={`state-dot ${provider.ready ? "good" : "bad"}`} aria-hidden="true" /><span>{provider.name}</span><span class="grow" /><span class="soft tiny">{provider.ready ? "ready" : provider.reason}</span></li>
            ))}
          </ul>
        </Card>
      </div>
    </div>
  );
}

function Card({ title, note, children }: { title: string; note?: string; wide?: boolean; children: ComponentChildren }) {
  return <section class="card fleet-card"><div class="row fleet-card-head"><h2>{title}</h2>{note && <span class="faint tiny">{note}</span>}</div>{children}</section>;
}

function Figure({ words, value }: { words: string; value: string }) {
  return <div class="figure"><span class="tiny faint">{words}</span><strong class="number">{value}</strong></div>;
}

function Closed() {
  return <p class="soft small">These numbers are of the whole fleet: they need a key of scope <code>admin</code>.</p>;
}

function overall(samples: Parameters<typeof buckets>[0], name: string): string {
  const counts = buckets(samples, "hotdesk_http_request_seconds", (labels) => labels.class === name);
  const value = total(counts) ? quantile(counts, 0.5) : null;
  return value === null ? "–" : milliseconds(value * 1000);
}

function lastDays(byDay: Record<string, number>): [string, number][] {
  return Array.from({ length: DAYS }, (_, index) => {
    const day = new Date(Date.now() - (DAYS - 1 - index) * 86_400_000).toISOString().slice(0, 10);
    return [day, byDay[day] ?? 0];
  });
}
