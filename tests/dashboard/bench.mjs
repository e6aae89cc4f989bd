// What the live view and the wall cost, in a real Chromium on a real fleet. `make bench` runs it by `bench/view`.
import { readFileSync } from "node:fs";
import { openBrowser, Person } from "./browser.mjs";
import { ensureBuilt, Fleet, until } from "./fleet.mjs";

const TILES = Number(process.env.BENCH_TILES ?? 30);
const SECONDS = Number(process.env.BENCH_SECONDS ?? 8);
const KEYS = 40;
/** Tiles of desks that draw something each second; the others rest, as most of a fleet does. */
const LIVELY_PART = 1 / 3;
const SMALL = { cpus: 0.5, memory_mib: 512 };

const rows = [];
const row = (what, value, limit = "") => rows.push([what, value, limit]);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function main() {
  ensureBuilt("base");
  const fleet = await Fleet.start();
  // A window that nobody composes: the numbers are those of a machine without a graphics card.
  const browser = await openBrowser();
  try {
    await liveView(fleet, browser);
    await wall(fleet, browser);
  } finally {
    await browser.close();
    await fleet.close();
  }
  print();
}

async function liveView(fleet, browser) {
  const desk = await fleet.send("POST", "v1/desks", { template: "base", screen: { width: 1920, height: 1080 } });
  await fleet.send("POST", `v1/desks/${desk.id}/processes`, { argv: ["mousepad"] });
  const { window } = await fleet.send("POST", `v1/desks/${desk.id}/windows/wait`, { title: "Mousepad", limit_ms: 30_000 });
  const person = await Person.open(browser, { viewport: { width: 1920, height: 1080 } });
  const { page } = person;
  await page.goto(`${fleet.url}/desks/${desk.id}#key=${fleet.key}`);
  await page.locator('.view[data-state="connected"]').waitFor();
  await pause(1_000);

  const bar = { x: window.area.x + 200, y: window.area.y - 10 };
  const corners = [bar, { x: 500, y: 300 }, { x: 1300, y: 300 }, { x: 1300, y: 700 }, { x: 500, y: 700 }, bar];
  const before = await look(fleet, desk.id);
  const began = performance.now();
  await fleet.send("POST", `v1/desks/${desk.id}/input`, { actions: [{ do: "drag", path: corners, ms: SECONDS * 1000 }] });
  const seconds = (performance.now() - began) / 1000;
  const after = await look(fleet, desk.id);
  row("a window that is moved, 1920×1080", `${((after.frames - before.frames) / seconds).toFixed(1)} frames/s`, "at least 25");
  row("  the whole desk meanwhile (X server, window manager, hotdesk)", `${((after.cpu - before.cpu) / seconds).toFixed(2)} cores`, "below 0.5");
  row("  sent", `${((after.bytes - before.bytes) / seconds / 1e6).toFixed(1)} MB/s`);

  await keys(page, window.area);
  await person.close();
  await fleet.send("DELETE", `v1/desks/${desk.id}?wait=60`);
}

/** From a key to the first pixel that it changes, in the page: through the gateway to the program and back. */
async function keys(page, area) {
  await page.keyboard.press("t");
  await page.locator(".driver .chip", { hasText: "You are driving" }).waitFor({ timeout: 5_000 }).catch(() => {});
  const canvas = page.locator(".view-place canvas");
  await canvas.focus();
  const times = [];
  for (let n = 0; n < KEYS; n++) {
    const ms = await page.evaluate(async ([letter, area]) => {
      const canvas = document.querySelector(".view-place canvas");
      const context = canvas.getContext("2d");
      const sum = () => {
        // Where the text is: reading the whole canvas would take longer than the key.
        const { data } = context.getImageData(area.x, area.y + 20, Math.min(area.width, 500), 60);
        const words = new Uint32Array(data.buffer);
        let hash = 0;
        for (let i = 0; i < words.length; i++) hash = (Math.imul(hash, 31) + words[i]) | 0;
        return hash;
      };
      // The cursor blinks: begin right after a change.
      const first = sum();
      const limit = performance.now() + 700;
      while (sum() === first && performance.now() < limit) await new Promise(requestAnimationFrame);
      await new Promise((done) => setTimeout(done, 40));
      const before = sum();
      const key = (kind) => canvas.dispatchEvent(new KeyboardEvent(kind, { key: letter, code: `Key${letter.toUpperCase()}`, bubbles: true, cancelable: true }));
      const start = performance.now();
      key("keydown");
      key("keyup");
      while (sum() === before) {
        if (performance.now() - start > 2_000) return null;
        await new Promise((done) => setTimeout(done, 2));
      }
      return performance.now() - start;
    }, ["abcdefghij"[n % 10], area]);
    if (ms !== null) times.push(ms);
  }
  times.sort((a, b) => a - b);
  if (times.length < KEYS / 2) throw new Error(`only ${times.length} of ${KEYS} keys arrived`);
  row("from a key to its pixel, median", `${times[times.length >> 1].toFixed(0)} ms`, "below 100");
  row("  nine of ten below", `${times[Math.floor(times.length * 0.9)].toFixed(0)} ms`);
}

async function wall(fleet, browser) {
  const desks = [];
  for (let n = 0; n < TILES; n += 5) {
    desks.push(...(await Promise.all(Array.from({ length: Math.min(5, TILES - n) }, (_, i) => fleet.send("POST", "v1/desks?wait=300", { template: "base", name: `tile-${n + i}`, resources: SMALL })))));
  }
  // Something that is drawn each second, with what every desk has.
  for (const desk of desks.slice(0, Math.round(TILES * LIVELY_PART))) {
    await fleet.send("POST", `v1/desks/${desk.id}/processes`, { shell: "while sleep 1; do hsetroot -solid \"#$(date +%S)4060\"; done" });
  }
  const idle = await cost(fleet, desks, browser);
  const person = await Person.open(browser, { viewport: { width: 1920, height: 2400 } });
  await person.page.goto(`${fleet.url}/#key=${fleet.key}`);
  await until("all tiles have a picture", async () => (await person.page.locator(".tile img").count()) === TILES);
  await pause(2_000);
  const shown = await cost(fleet, desks, browser);
  row(`${TILES} tiles, ${Math.round(TILES * LIVELY_PART)} of them change each second`, `${(shown.desks - idle.desks + shown.gateway - idle.gateway).toFixed(2)} cores more`, "below 1");
  row("  the desks themselves, without and with the wall", `${idle.desks.toFixed(2)} and ${shown.desks.toFixed(2)} cores`);
  row("  the gateway", `${shown.gateway.toFixed(2)} cores`);
  row("  the browser", `${shown.browser.toFixed(2)} cores`);
  await person.close();
}

async function look(fleet, id) {
  const [{ viewers }, { cpu_s }] = await Promise.all([fleet.get(`v1/desks/${id}/view/info`), fleet.get(`v1/desks/${id}/usage`)]);
  return { frames: viewers[0]?.frames ?? 0, bytes: viewers[0]?.bytes ?? 0, cpu: cpu_s };
}

/** Cores in use over some seconds. */
async function cost(fleet, desks) {
  const take = async () => ({
    at: performance.now(),
    desks: (await Promise.all(desks.map((desk) => fleet.get(`v1/desks/${desk.id}/usage`)))).reduce((sum, usage) => sum + usage.cpu_s, 0),
    gateway: processSeconds(fleet.process.pid),
    browser: browserSeconds(),
  });
  const before = await take();
  await pause(SECONDS * 1000);
  const after = await take();
  const seconds = (after.at - before.at) / 1000;
  return Object.fromEntries(["desks", "gateway", "browser"].map((what) => [what, (after[what] - before[what]) / seconds]));
}

/** The clock ticks of the kernel's tables are hundredths of a second. */
function processSeconds(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** All processes that this one began, and theirs: the browser's. */
function browserSeconds() {
  const seen = (pid) => {
    let sum = 0;
    for (const child of readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean)) {
      try {
        if (!readFileSync(`/proc/${child}/cmdline`, "utf8").includes("hotdesk")) sum += processSeconds(child) + seen(child);
      } catch {
        // It ended.
      }
    }
    return sum;
  };
  return seen(process.pid);
}

function print() {
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((cells) => cells[column].length)));
  for (const cells of rows) console.log(cells.map((cell, column) => cell.padEnd(widths[column])).join("  ").trimEnd());
}

await main();
