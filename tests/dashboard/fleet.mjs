// A fleet of one's own: `hotdesk serve` with a new data directory on a free port; ended, it leaves nothing behind.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const BINARY = process.env.HOTDESK_BIN ?? join(ROOT, "target/release/hotdesk");
/** Longer than anything here takes on a busy machine; only a hang reaches it. */
export const PATIENCE_MS = 60_000;

export class Fleet {
  static async start(flags = []) {
    if (!existsSync(BINARY)) throw new Error(`there is no binary at ${BINARY}: build it, or say where it is with HOTDESK_BIN`);
    const fleet = new Fleet(mkdtempSync(join(tmpdir(), "hotdesk-dashboard-")), freePort(), flags);
    await fleet.begin();
    return fleet;
  }

  constructor(data, port, flags) {
    this.data = data;
    this.url = `http://127.0.0.1:${port}`;
    this.flags = flags;
    this.log = join(data, "serve.log");
  }

  async begin() {
    const log = openSync(this.log, "a");
    const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HOTDESK_") || name === "HOTDESK_IMAGES"));
    this.process = spawn(BINARY, ["serve", "--listen", this.url.slice("http://".length), "--data", this.data, "--provider", "local", ...this.flags], { stdio: ["ignore", log, log], env: environment, detached: true });
    this.ended = new Promise((done) => this.process.once("exit", done));
    await until("the fleet is ready", async () => (await fetch(`${this.url}/ready`)).ok, () => this.tail());
    this.key = readFileSync(join(this.data, "admin.key"), "utf8").trim();
  }

  /** The gateway ends; desks run on. */
  async end() {
    this.process.kill("SIGTERM");
    await this.ended;
  }

  async close() {
    try {
      const { desks } = await this.get("v1/desks");
      await Promise.all(desks.map((desk) => this.ask("DELETE", `v1/desks/${desk.id}?wait=60`)));
    } finally {
      await this.end();
      rmSync(this.data, { recursive: true, force: true });
    }
  }

  /** As an agent: with the key, and no viewer. */
  ask(method, path, body, headers = {}) {
    return fetch(`${this.url}/${path}`, { method, headers: { authorization: `Bearer ${this.key}`, ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers }, body: body === undefined ? undefined : JSON.stringify(body) });
  }

  async get(path) {
    const answer = await this.ask("GET", path);
    if (!answer.ok) throw new Error(`GET ${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  }

  async send(method, path, body) {
    const answer = await this.ask(method, path, body);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }

  /** A command of the CLI; what it printed. */
  run(command, ...args) {
    const run = spawnSync(BINARY, [command, ...args, "--url", this.url], { encoding: "utf8" });
    if (run.status !== 0) throw new Error(`hotdesk ${command}: ${run.stderr}`);
    return run.stdout;
  }

  tail() {
    return readFileSync(this.log, "utf8").split("\n").slice(-20).join("\n");
  }
}

/** Templates that are not built yet are built; on a machine that has them this takes no time. */
export function ensureBuilt(...templates) {
  const run = spawnSync(BINARY, ["template", "build", ...templates], { encoding: "utf8" });
  if (run.status !== 0) throw new Error(`the templates ${templates.join(", ")} were not built: ${run.stderr}`);
}

export async function until(what, test, more = () => "") {
  const end = Date.now() + PATIENCE_MS;
  let last;
  while (Date.now() < end) {
    try {
      const result = await test();
      if (result) return result;
    } catch (error) {
      last = error;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`not within ${PATIENCE_MS / 1000} s: ${what}${last ? ` (${last.message})` : ""}\n${more()}`);
}

function freePort() {
  return spawnSync(join(ROOT, "tests/fleet/ports.py"), { encoding: "utf8" }).stdout.trim();
}
