// The numbers that the fleet counts for Prometheus, read as they are.

export interface Sample { name: string; labels: Record<string, string>; value: number }

export function parse(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    samples.push({ name: match[1], labels, value: Number(match[3]) });
  }
  return samples;
}

/** Counts by upper bound, added up over everything that fits. */
export type Buckets = Map<number, number>;

export function buckets(samples: Sample[], name: string, fits: (labels: Record<string, string>) => boolean): Buckets {
  const sums: Buckets = new Map();
  for (const sample of samples) {
    if (sample.name !== `${name}_bucket` || !fits(sample.labels)) continue;
    const bound = sample.labels.le === "+Inf" ? Infinity : Number(sample.labels.le);
    sums.set(bound, (sums.get(bound) ?? 0) + sample.value);
  }
  return sums;
}

export function minus(now: Buckets, before: Buckets | undefined): Buckets {
  return new Map([...now].map(([bound, count]) => [bound, count - (before?.get(bound) ?? 0)]));
}

export function total(counts: Buckets): number {
  return counts.get(Infinity) ?? 0;
}

/** The value below which a part of all lies, in the histogram's unit; null when there is none. */
export function quantile(counts: Buckets, part: number): number | null {
  const all = total(counts);
  if (all <= 0) return null;
  const wanted = all * part;
  let below = 0;
  let low = 0;
  for (const bound of [...counts.keys()].sort((a, b) => a - b)) {
    const upTo = counts.get(bound)!;
    if (upTo >= wanted) {
      if (bound === Infinity) return low;
      return low + ((bound - low) * (wanted - below)) / Math.max(upTo - below, 1e-9);
    }
    below = upTo;
    low = bound;
  }
  return low;
}

export function sum(samples: Sample[], name: string): number {
  return samples.filter((sample) => sample.name === name).reduce((all, sample) => all + sample.value, 0);
}
