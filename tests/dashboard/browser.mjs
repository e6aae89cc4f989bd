// A real Chromium, pictures of pages, and the search for what people with disabilities would stumble over.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { PATIENCE_MS, ROOT } from "./fleet.mjs";

const SHOTS = join(ROOT, "target/dashboard-shots");
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export async function openBrowser(args = []) {
  const executablePath = PLACES.find((path) => path && existsSync(path));
  if (!executablePath) throw new Error("there is no Chromium: install the package chromium, or say where it is with CHROMIUM");
  mkdirSync(SHOTS, { recursive: true });
  // Its own sandbox needs rights that containers do not have; the page comes from this machine.
  return chromium.launch({ executablePath, args: ["--no-sandbox", ...args] });
}

/** A person with a browser window. What the page or its security policy complains about fails the test at its end. */
export class Person {
  static async open(browser, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme: "dark", reducedMotion: "reduce", ...options });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    return new Person(context, page);
  }

  constructor(context, page) {
    this.context = context;
    this.page = page;
    this.complaints = [];
    page.on("pageerror", (error) => this.complaints.push(error.stack ?? error.message));
    page.on("console", (message) => /Content Security Policy|Refused to/.test(message.text()) && this.complaints.push(message.text()));
    // Nothing may come from another host.
    page.on("request", (request) => /^(https?|wss?):/.test(request.url()) && new URL(request.url()).hostname !== "127.0.0.1" && this.complaints.push(`asked ${request.url()}`));
  }

  async shot(name) {
    await this.page.screenshot({ path: join(SHOTS, `${name}.png`) });
  }

  /** Fails on serious and critical faults. */
  async checkAccess(what) {
    await this.page.evaluate(AXE);
    const faults = await this.page.evaluate(async () => {
      const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
      return violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.help}\n${v.nodes.slice(0, 5).map((n) => `    ${n.html.slice(0, 160)}\n      ${n.any.concat(n.all).map((c) => c.message).join("; ")}`).join("\n")}`);
    });
    assert.deepEqual(faults, [], `${what}:\n${faults.join("\n")}`);
  }

  async close() {
    await this.context.close();
    assert.deepEqual(this.complaints, [], this.complaints.join("\n"));
  }
}

/** How many different colours the live view shows: one means that nothing is there. */
export function colours(page) {
  return page.evaluate(() => {
    const canvas = document.querySelector(".view-place canvas");
    if (!canvas?.width) return 0;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4 * 997) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return seen.size;
  });
}
