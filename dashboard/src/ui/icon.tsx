// Small pictures, drawn on a grid of 16.

const paths = {
  back: "M9.5 3.5 5 8l4.5 4.5",
  plus: "M8 3v10M3 8h10",
  close: "m4 4 8 8m0-8-8 8",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9Zm6.5 2-3.3-3.3",
  camera: "M2 5.5c0-.6.4-1 1-1h2L6 3h4l1 1.5h2c.6 0 1 .4 1 1V12c0 .6-.4 1-1 1H3c-.6 0-1-.4-1-1Zm6 5.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4Z",
  expand: "M9.5 2.5h4v4m-7 7h-4v-4m11-7-4.5 4.5m-6.5 6.5L7 9",
  hand: "M5 8V4.2a1 1 0 0 1 2 0V7m0-.5V3.2a1 1 0 0 1 2 0V7m0-2.8a1 1 0 0 1 2 0V8m0-1.5a1 1 0 0 1 2 0V10a4 4 0 0 1-4 4H8c-1.500 0-2.600-.8-3.300-2L3 9.300a1 1 0 0 1 1.700-1L5 9",
  return: "M6 4 2.500 7.500 6 11M3 7.500h6.500a4 4 0 0 1 4 4V13",
  record: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm0 3A6 6 0 1 0 8 2a6 6 0 0 0 0 12Z",
  stop: "M4.500 4.500h7v7h-7Z",
  play: "M5 3.500v9l7.500-4.500Z",
  pause: "M5.500 3.500v9m5-9v9",
  folder: "M2 4.500c0-.6.4-1 1-1h3.200l1.300 1.500H13c.6 0 1 .4 1 1V12c0 .6-.4 1-1 1H3c-.6 0-1-.4-1-1Z",
  file: "M4 2.500h5l3 3v8H4Zm5 0v3h3",
  download: "M8 2.500v7.500m0 0L5 7m3 3 3-3M3 13h10",
  upload: "M8 10V2.500m0 0-3 3m3-3 3 3M3 13h10",
  trash: "M3 4.500h10M6 4.500V3h4v1.500m-5.500 0 .5 8.500h6l.5-8.500",
  terminal: "m3 4.500 3.500 3.500L3 11.500M8 12h5",
  list: "M5.500 4h8M5.500 8h8m-8 4h8M2.500 4h.01M2.500 8h.01M2.500 12h.01",
  chart: "M2.500 13.500h11M4.500 11V8m3.500 3V3.500m3.500 7.500V6",
  tree: "M3 3.500h4M5 5.500V12h3M5 8h3m2 0h3m-3 4h3",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1H3Zm2.700 1.500a1.400 1.400 0 0 0 2.600 0",
  film: "M2.500 3.500h11v9h-11Zm3 0v9m5-9v9m-8-6h3m-3 3h3m5-3h3m-3 3h3",
  info: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Zm0-6.500V11m0-5.800v.01",
  warning: "M8 2.500 14 13H2Zm0 4v3m0 1.800v.01",
  check: "m3.500 8.500 3 3 6-7",
  sun: "M8 10.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5ZM8 2v1m0 10v1M2 8h1m10 0h1M3.800 3.800l.7.7m7 7 .7.7m0-8.400-.7.7m-7 7-.7.7",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500Z",
  leave: "M6.500 13H3.500a1 1 0 0 1-1-1V4a1 1 0 0 1 1-1h3m3.500 8 3-3-3-3m3 3H6.500",
  clipboard: "M5.500 3.500h-2v10h9v-10h-2m-5-1h5v2h-5Z",
  keyboard: "M2 4.500h12v7H2Zm2.500 2.300h.01m2.300 0h.01m2.300 0h.01m2.300 0h.01M5.500 9.300h5",
  panel: "M2.500 3.500h11v9h-11Zm7 0v9",
  power: "M8 2.500V8m3.500-4a5 5 0 1 1-7 0",
  reset: "M3 8a5 5 0 1 1 1.500 3.500M3 12.500v-3h3",
  copy: "M5.500 5.500h7v7h-7Zm-2 5h-1v-8h8v1",
  link: "M6.800 9.200a2.500 2.500 0 0 0 3.600 0l2-2a2.500 2.500 0 0 0-3.600-3.600l-.8.8m1.200 2.400a2.500 2.500 0 0 0-3.600 0l-2 2a2.500 2.500 0 0 0 3.600 3.600l.8-.8",
  screen: "M2.500 3h11v7.500h-11ZM6 13h4",
  right: "m6 4 4 4-4 4",
  real: "m2 5.500 2-1.500v8m6-6.500 2-1.500v8M8 6.500v.01M8 10v.01",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name, size = 16, class: className }: { name: IconName; size?: number; class?: string }) {
  return (
    <svg class={className} width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width={size > 24 ? 0.9 : 1.4} stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}

export function Logo({ size = 22 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" fill="none" aria-hidden="true">
      <rect x="3" y="5" width="26" height="17" rx="3.500" stroke="var(--accent)" stroke-width="2.800" />
      <path d="M10 27.500h12" stroke="var(--accent)" stroke-width="2.800" stroke-linecap="round" />
      <path d="M16 9.500l4.300 7.500h-8.600z" fill="var(--accent)" />
    </svg>
  );
}
