// Small charts, drawn by ourselves: a meter, bars by day, lines over the last minutes.

/** `calm` where being full is no trouble. */
export function Meter({ label, value, most, words, calm }: { label: string; value: number; most: number; words: string; calm?: boolean }) {
  const part = most > 0 ? Math.min(1, value / most) : 0;
  const look = calm ? "calm" : part > 0.95 ? "bad" : part > 0.8 ? "warn" : "";
  return (
    <div class="meter">
      <div class="row"><span class="small">{label}</span><span class="grow" /><span class="small soft number">{words}</span></div>
      <div class={`meter-track ${look}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={most || 1} aria-valuenow={Math.min(value, most || 1)} aria-valuetext={words}>
        <div style={{ width: `${Math.max(part * 100, value > 0 ? 1 : 0)}%` }} />
      </div>
    </div>
  );
}

export function Bars({ label, values, words }: { label: string; values: [string, number][]; words: (value: number) => string }) {
  const most = Math.max(...values.map(([, value]) => value), 1e-9);
  return (
    <figure class="bars" role="img" aria-label={`${label}: ${values.map(([name, value]) => `${name} ${words(value)}`).join(", ")}`}>
      {values.map(([name, value]) => (
        <div key={name} class="bar-column" title={`${name}: ${words(value)}`}>
          <div class="bar-space"><div class="bar-fill" style={{ height: `${Math.max((100 * value) / most, value > 0 ? 2 : 0.6)}%` }} /></div>
          <span class="tiny faint number">{name.slice(5)}</span>
        </div>
      ))}
    </figure>
  );
}

export interface Series { name: string; colour: string; values: (number | null)[] }

const WIDTH = 600;
const HEIGHT = 130;

/** Lines over the last moments; the newest value is at the right. */
export function Lines({ label, series, length, words, least = 0 }: { label: string; series: Series[]; length: number; words: (value: number) => string; least?: number }) {
  const all = series.flatMap((one) => one.values).filter((value): value is number => value !== null);
  const most = nice(Math.max(...all, least));
  const x = (index: number, of: number) => WIDTH - ((of - 1 - index) * WIDTH) / (length - 1);
  const y = (value: number) => HEIGHT - (value / most) * (HEIGHT - 8);
  return (
    <figure class="lines">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${label}: ${series.map((one) => `${one.name} ${one.values.at(-1) != null ? words(one.values.at(-1)!) : "nothing yet"}`).join(", ")}`}>
        {[0, 0.5, 1].map((part) => <line key={part} class="grid-line" x1={0} x2={WIDTH} y1={y(most * part)} y2={y(most * part)} />)}
        {series.map((one) => <path key={one.name} d={path(one.values, x, y)} stroke={`var(--${one.colour})`} />)}
      </svg>
      <span class="lines-most tiny faint number" aria-hidden="true">{all.length ? words(most) : ""}</span>
      <figcaption>
        {series.map((one) => <span key={one.name} class="legend"><span class="swatch" style={{ background: `var(--${one.colour})` }} />{one.name}<span class="number soft">{one.values.at(-1) != null ? words(one.values.at(-1)!) : "–"}</span></span>)}
      </figcaption>
    </figure>
  );
}

function path(values: (number | null)[], x: (i: number, of: number) => number, y: (v: number) => number): string {
  let text = "";
  let pen = "M";
  values.forEach((value, index) => {
    if (value === null) {
      pen = "M";
      return;
    }
    text += `${pen}${x(index, values.length).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  return text;
}

/** A round number above the greatest value. */
function nice(most: number): number {
  if (most <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((n) => n * size).find((n) => n >= most)!;
}
