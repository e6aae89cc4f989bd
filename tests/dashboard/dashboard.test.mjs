// The dashboard as a person meets it: a real fleet, a real desk, a real browser. The tests build on each other, in order.
import assert from "node:assert/strict";
import { after, before, test as run } from "node:test";
import { colours, openBrowser, Person } from "./browser.mjs";
import { ensureBuilt, Fleet, until } from "./fleet.mjs";

/** The text editor of the template, whichever it is. */
const EDITOR = "exec $(command -v gedit || command -v mousepad)";
let fleet, browser, ada, desk;

before(async () => {
  ensureBuilt("base", "bare");
  fleet = await Fleet.start();
  browser = await openBrowser();
  ada = await Person.open(browser);
});

after(async () => {
  await browser?.close();
  await fleet?.close();
});

/** A test that follows a failed one would only wait in vain. */
let failed = null;
function test(name, body) {
  run(name, async () => {
    if (failed) throw new Error(`not tried, because this failed: ${failed}`);
    failed = name;
    await body();
    failed = null;
  });
}

const driver = (page, words) => page.locator(".driver .chip", { hasText: words });
const view = (page) => page.locator('.view[data-state="connected"]');

test("a wrong key is refused in words, a good one lets in", async () => {
  const { page } = ada;
  await page.goto(fleet.url);
  await page.getByLabel("Key", { exact: true }).fill("hd_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").filter({ hasText: "not known here" }).waitFor();
  await ada.checkAccess("sign in");
  await ada.shot("sign-in-refused-dark");
  await page.getByLabel("Key", { exact: true }).fill(fleet.key);
  await page.getByLabel("Your name").fill("Ada");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "No desk yet" }).waitFor();
  await ada.checkAccess("the empty wall");
  await ada.shot("wall-empty-dark");
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  assert.doesNotMatch(kept, /hd_|hotdesk-session/, "scripts find neither the key nor the session");
  const [cookie] = await ada.context.cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
});

test("a new desk shows its stages and becomes a desktop at the same address", async () => {
  const { page } = ada;
  await page.keyboard.press("n");
  await page.getByRole("radio", { name: /^base/ }).check({ force: true });
  await page.getByLabel("Name", { exact: true }).fill("research-1");
  await page.getByLabel("Labels").fill("run=7 team=web");
  await ada.checkAccess("new desk");
  await ada.shot("new-desk-dark");
  // The stages may be gone again before anybody asks for them.
  await page.evaluate(() => {
    globalThis.stages = new Set();
    const note = () => document.querySelectorAll(".boot-stages li").forEach((stage) => globalThis.stages.add(stage.children[1].textContent));
    new MutationObserver(note).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  await page.getByRole("button", { name: "Make desk" }).click();
  await page.locator(".boot, .view").first().waitFor();
  const address = page.url();
  assert.match(address, /\/desks\/d-[a-z0-9]{12}$/);
  desk = address.split("/").pop();
  assert.equal((await fleet.get(`v1/desks/${desk}`)).template, "base");
  await ada.shot("desk-boot-dark");
  await view(page).waitFor();
  assert.equal(page.url(), address);
  const stages = await page.evaluate(() => [...globalThis.stages]);
  assert.ok(stages.length > 0, "the stages were shown");
  await until("the desktop is shown", async () => (await colours(page)) > 8);
  await ada.shot("desk-dark");
});

test("the wall shows it live, and is filtered by label", async () => {
  const { page } = ada;
  await page.getByRole("link", { name: "All desks", exact: true }).click();
  const tile = page.locator(`[data-desk="${desk}"]`);
  await tile.locator("img").waitFor();
  const first = await tile.locator("img").getAttribute("src");
  await fleet.send("POST", `v1/desks/${desk}/processes`, { shell: EDITOR });
  await until("the picture changes with the screen", async () => (await tile.locator("img").getAttribute("src")) !== first);
  await page.getByLabel("Filter by name or label").fill("run=8");
  await page.getByRole("heading", { name: "No desk fits" }).waitFor();
  await page.getByLabel("Filter by name or label").fill("run=7 research");
  await tile.waitFor();
  await page.getByLabel("Filter by name or label").fill("");
  // One that is made elsewhere appears, and vanishes.
  const other = await fleet.send("POST", "v1/desks", { template: "bare", name: "nightly", labels: { run: "8" } });
  await page.locator(`[data-desk="${other.id}"] img`).waitFor();
  await ada.checkAccess("the wall");
  await ada.shot("wall-dark");
  const { busy } = await fleet.get(`v1/desks/${other.id}`);
  assert.equal(busy, null, "a wall that is looked at is no work for its desks");
  await fleet.send("DELETE", `v1/desks/${other.id}`);
  await page.locator(`[data-desk="${other.id}"]`).waitFor({ state: "detached" });
});

test("a person takes over, types into a program through the view, and gives back", async () => {
  const { page } = ada;
  await page.locator(`[data-desk="${desk}"]`).click();
  await view(page).waitFor();
  await driver(page, "Agent is driving").waitFor();
  const act = () => fleet.ask("POST", `v1/desks/${desk}/input`, { actions: [{ do: "move", to: { x: 30, y: 30 } }] });
  assert.equal((await act()).status, 200);

  // A program that writes down what is typed.
  await fleet.send("POST", `v1/desks/${desk}/processes`, { argv: ["xfce4-terminal", "--title=typed", "--command=sh -c 'cat > /home/user/typed.txt'"] });
  await fleet.send("POST", `v1/desks/${desk}/windows/wait`, { title: "typed", limit_ms: 30_000 });
  await page.keyboard.press("t");
  await driver(page, "You are driving").waitFor();
  await ada.shot("desk-driving-dark");
  const refused = await act();
  assert.equal(refused.status, 423);
  const problem = await refused.json();
  assert.equal(problem.code, "person_is_driving");
  assert.ok(Number(refused.headers.get("retry-after")) > 0, "how long is said");
  assert.equal((await fleet.ask("GET", `v1/desks/${desk}/screenshot`)).status, 200, "looks still work");

  await page.keyboard.type("From the View 42 {} ");
  // A letter that the desk's layout has no key for, as a keyboard that has one sends it.
  await page.evaluate(() => {
    const canvas = document.querySelector(".view-place canvas");
    for (const kind of ["keydown", "keyup"]) canvas.dispatchEvent(new KeyboardEvent(kind, { key: "ü", code: "BracketLeft", bubbles: true, cancelable: true }));
  });
  await page.keyboard.press("Enter");
  await until("what was typed has arrived", async () => (await (await fleet.ask("GET", `v1/desks/${desk}/files/content?path=typed.txt`)).text()).includes("From the View 42 {} ü\n"));
  await page.keyboard.press("Control+d");

  await page.keyboard.press("F8");
  await driver(page, "Agent is driving").waitFor();
  assert.equal((await act()).status, 200, "the agent drives again");
});

/** What a page of a desk tries with the browser of somebody who is signed in; it tells what it got. */
const GREEDY = `<!doctype html><title>greedy</title><script>
const tries = {
  storage: () => JSON.stringify({ ...localStorage, ...sessionStorage }),
  cookies: () => document.cookie || "none",
  worker: async () => (await navigator.serviceWorker.register("sw.js")).scope,
  read: async () => (await fetch("/v1/desks", { credentials: "include" })).text(),
  script: () => new Promise((done, failed) => { const s = document.createElement("script"); s.src = "/v1/desks"; s.onload = () => done("ran"); s.onerror = () => failed("refused"); document.head.append(s); }),
  write: async () => { await fetch("/v1/desks", { method: "POST", mode: "no-cors", credentials: "include", headers: { "content-type": "text/plain" }, body: "{}" }); throw new Error("nothing is told"); },
  sign_in: async () => (await fetch("/v1/session", { credentials: "include" })).text(),
  socket: () => new Promise((done, failed) => { const w = new WebSocket("ws://" + location.host + "/v1/desks/DESK/view"); w.onopen = () => done("open"); w.onerror = () => failed("refused"); }),
  frame: () => new Promise((done) => { const f = document.createElement("iframe"); f.src = "/"; f.onload = () => { try { done(f.contentDocument.title); } catch (e) { done("refused"); } }; document.documentElement.append(f); }),
  opener: () => String(window.opener),
};
globalThis.told = (async () => {
  const told = {};
  for (const [name, attempt] of Object.entries(tries)) {
    try { told[name] = String(await attempt()); } catch (e) { told[name] = "refused"; }
  }
  return told;
})();
</script>`;

test("a page of a desk gets nothing of who looks at it", async () => {
  for (const [path, text] of [["www/index.html", GREEDY.replace("DESK", desk)], ["www/sw.js", "self.addEventListener('fetch', () => {})"]]) {
    const answer = await fetch(`${fleet.url}/v1/desks/${desk}/files/content?path=${path}&make_parents=true`, { method: "PUT", headers: { authorization: `Bearer ${fleet.key}` }, body: text });
    assert.ok(answer.ok, await answer.text());
  }
  await fleet.send("POST", `v1/desks/${desk}/processes`, { argv: ["python3", "-m", "http.server", "8099", "--directory", "www"] });
  const port = `${fleet.url}/v1/desks/${desk}/ports/8099/`;
  await until("the desk serves its page", async () => (await fetch(port, { headers: { authorization: `Bearer ${fleet.key}` } })).ok);
  const before = (await fleet.get("v1/desks")).desks.length;
  const { url } = await fleet.get(`daytona/api/sandbox/${desk}/ports/8099/signed-preview-url?expiresInSeconds=600`);
  // By a link without a key, by the session, and as a file.
  for (const address of [`${url}/`, port, `${fleet.url}/v1/desks/${desk}/files/content?path=www/index.html`]) {
    const page = await ada.context.newPage();
    await page.goto(address);
    assert.equal(await page.title(), "greedy", `${address} is shown`);
    // Scripts of a file do not run at all; those of a page do, so that it could have got something.
    const told = (await page.evaluate(() => globalThis.told)) ?? {};
    assert.equal(Object.keys(told).length > 0, !address.includes("/files/"), `${address}: ${JSON.stringify(told)}`);
    for (const [name, got] of Object.entries(told)) {
      const nothing = name === "opener" ? "null" : "refused";
      assert.equal(got, nothing, `${address}: ${name}: ${got}`);
    }
    assert.equal(await page.evaluate(() => self.origin), "null", "it has an origin of its own");
    await page.close();
  }
  assert.equal((await fleet.get("v1/desks")).desks.length, before, "nothing was made");
  await ada.page.reload();
  await view(ada.page).waitFor();
  assert.deepEqual(await ada.page.evaluate(async () => (await navigator.serviceWorker.getRegistrations()).length), 0);
});

test("two people look at once, and see who drives", async () => {
  const grace = await Person.open(browser, { colorScheme: "light" });
  // She may see this desk alone, and comes by the link that the CLI prints.
  const { secret } = await fleet.send("POST", "v1/keys", { name: "grace", scope: { kind: "desk", desk } });
  await grace.page.goto(fleet.run("open", "--print", desk, "--key", secret).trim());
  await view(grace.page).waitFor();
  assert.doesNotMatch(grace.page.url(), /hd_/, "the key is gone from the address");
  await until("both look", async () => (await fleet.get(`v1/desks/${desk}/view/info`)).viewers.length === 2);
  // Her page was loaded anew; before it knows who drives, the key means nothing.
  await driver(ada.page, "Agent is driving").waitFor();
  await ada.page.keyboard.press("t");
  await driver(grace.page, "Ada is driving").waitFor();
  await until("both see the desktop", async () => (await colours(grace.page)) > 8 && (await colours(ada.page)) > 8);
  await grace.shot("desk-other-drives-light");
  await grace.page.getByRole("button", { name: "Take from Ada" }).click();
  await ada.page.getByRole("button", { name: /^Take from/ }).waitFor();
  // Ada may hear of it before Grace's own page does, and F8 is for who drives.
  await grace.page.getByRole("button", { name: /^Give back/ }).waitFor();
  await grace.page.keyboard.press("F8");
  await driver(ada.page, "Agent is driving").waitFor();
  await grace.close();
});

test("files, terminal, processes, tree, logs, events and details tell what there is", async () => {
  const { page } = ada;
  // The shell comes late; what is typed meanwhile waits for it.
  await page.route("**/terminals", async (route) => {
    await new Promise((done) => setTimeout(done, 1000));
    await route.continue();
  });
  await page.getByRole("button", { name: "Show the panel" }).click();
  await page.locator(".terminal .xterm-screen").waitFor();
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type("echo $((6 * 7)) > /home/user/answer.txt\n");
  await until("the shell has run it", async () => (await (await fleet.ask("GET", `v1/desks/${desk}/files/content?path=answer.txt`)).text()) === "42\n");
  await ada.shot("desk-terminal-dark");
  const show = async (name) => page.getByRole("tab", { name, exact: true }).click();
  await show("Files");
  await page.getByLabel("Files to upload").setInputFiles({ name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("kept") });
  await page.getByRole("button", { name: "notes.txt", exact: false }).first().waitFor();
  assert.equal(await (await fleet.ask("GET", `v1/desks/${desk}/files/content?path=notes.txt`)).text(), "kept");
  const [file] = await Promise.all([page.waitForEvent("download"), page.locator(".file", { hasText: "notes.txt" }).click()]);
  assert.equal(file.suggestedFilename(), "notes.txt");
  await ada.shot("desk-files-dark");
  await show("Processes");
  await page.getByRole("cell", { name: /gedit|mousepad/ }).first().waitFor();
  await ada.checkAccess("processes");
  await show("Accessibility tree");
  await page.locator(".element", { hasText: "Untitled" }).first().hover();
  await page.locator(".view-mark").waitFor();
  await ada.shot("desk-tree-dark");
  await ada.checkAccess("tree");
  await show("Logs");
  await page.getByRole("log").getByText(/x_server|bus/).first().waitFor();
  await show("Events");
  await page.locator(".events").getByText("Running").first().waitFor();
  await show("Details and cost");
  await page.getByText(desk).first().waitFor();
  await ada.shot("desk-details-dark");
});

test("a trace is recorded, and every moment of it can be gone to", async () => {
  const { page } = ada;
  await page.getByRole("tab", { name: "Traces" }).click();
  await page.getByRole("button", { name: "Record", exact: true }).click();
  await page.getByRole("button", { name: "End recording" }).waitFor();
  const { windows } = await fleet.get(`v1/desks/${desk}/windows`);
  const { area } = windows.find((window) => /Untitled/.test(window.title));
  const at = { x: area.x + Math.round(area.width / 2), y: area.y + Math.round(area.height / 2) };
  for (const actions of [[{ do: "click", at }], [{ do: "type", text: "a trace of this" }], [{ do: "key", keys: ["Return"] }], [{ do: "type", text: "second line" }], [{ do: "click", at: { x: 400, y: 900 } }]]) {
    await fleet.send("POST", `v1/desks/${desk}/input`, { actions, settle: { quiet_ms: 100, limit_ms: 2000 } });
  }
  await page.getByRole("button", { name: "End recording" }).click();
  await page.getByRole("button", { name: "Record", exact: true }).waitFor();
  await page.locator(".trace-link").first().click();
  const stage = page.locator(".trace-stage");
  await stage.locator("img").waitFor();
  const steps = await page.locator(".steps li").count();
  assert.ok(steps >= 5, `${steps} steps`);
  assert.equal(await stage.getAttribute("data-step"), "1");
  await page.locator(".marks circle.dot").first().waitFor();
  await ada.shot("trace-click-dark");
  // By the keyboard, by the scale, by the list.
  await page.keyboard.press("ArrowRight");
  await until("the next step is shown", async () => (await stage.getAttribute("data-step")) === "2");
  await page.locator(".caption", { hasText: "a trace of this" }).waitFor();
  const scale = await page.locator(".scale").boundingBox();
  await page.mouse.move(scale.x + 2, scale.y + 20);
  await page.mouse.down();
  const seen = new Set();
  for (let part = 0.02; part < 1; part += 0.02) {
    await page.mouse.move(scale.x + scale.width * part, scale.y + 20);
    seen.add(await stage.getAttribute("data-step"));
  }
  await page.mouse.up();
  assert.equal(seen.size, steps, "scrubbing passes every step");
  const last = await stage.locator("img").getAttribute("src");
  await page.locator(".steps button").first().click();
  await until("the first picture is shown", async () => (await stage.getAttribute("data-step")) === "1" && (await stage.locator("img").getAttribute("src")) !== last);
  await ada.checkAccess("trace");
  await page.getByRole("link", { name: "To the desk" }).click();
  await view(page).waitFor();
});

test("the view comes back by itself after the gateway was away", async () => {
  const { page } = ada;
  await fleet.end();
  await page.locator('.view[data-state="lost"]').waitFor();
  await page.getByText("Connection lost, trying again").waitFor();
  await ada.shot("desk-lost-dark");
  await fleet.begin();
  await view(page).waitFor();
  await until("the desktop is shown again", async () => (await colours(page)) > 8);
  await page.getByText("Reconnecting").waitFor({ state: "detached" });
});

test("the fleet's page shows limits, money and latency", async () => {
  const { page } = ada;
  await page.getByRole("link", { name: "Fleet" }).click();
  await page.getByRole("meter", { name: "Desks" }).waitFor();
  await page.getByRole("img", { name: /^Spent by day/ }).waitFor();
  await page.locator('.lines path[d^="M"]').first().waitFor({ state: "attached" });
  await page.getByRole("link", { name: "research-1" }).waitFor();
  await ada.checkAccess("fleet");
  await ada.shot("fleet-dark");
});

for (const [scheme, size, name] of [["light", { width: 1440, height: 900 }, "light"], ["dark", { width: 390, height: 844 }, "narrow-dark"], ["light", { width: 390, height: 844 }, "narrow-light"]]) {
  test(`every page is usable: ${name}`, async () => {
    const person = await Person.open(browser, { colorScheme: scheme, viewport: size });
    const { page } = person;
    await page.goto(fleet.url);
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    await person.checkAccess(`sign in, ${name}`);
    await person.shot(`sign-in-${name}`);
    await page.goto(`${fleet.url}/#key=${fleet.key}`);
    await page.reload();
    await page.locator(`[data-desk="${desk}"] img`).waitFor();
    await person.checkAccess(`wall, ${name}`);
    await person.shot(`wall-${name}`);
    await page.locator(`[data-desk="${desk}"]`).click();
    await view(page).waitFor();
    await until("the desktop is shown", async () => (await colours(page)) > 8);
    await page.getByRole("button", { name: "Show the panel" }).click();
    await page.getByRole("tab", { name: "Files" }).click();
    await page.locator(".file").first().waitFor();
    await person.checkAccess(`desk with files, ${name}`);
    await person.shot(`desk-files-${name}`);
    await page.getByRole("tab", { name: "Traces" }).click();
    await page.locator(".trace-link").first().click();
    await page.locator(".trace-stage img").waitFor();
    await person.checkAccess(`trace, ${name}`);
    await person.shot(`trace-${name}`);
    await page.goto(`${fleet.url}/fleet`);
    await page.locator('.lines path[d^="M"]').first().waitFor({ state: "attached" });
    await person.checkAccess(`fleet, ${name}`);
    await person.shot(`fleet-${name}`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `the page is ${wide} pixels wider than the window`);
    await person.close();
  });
}

test("a desk is deleted, and the others see it vanish", async () => {
  const { page } = ada;
  const grace = await Person.open(browser);
  await grace.page.goto(`${fleet.url}/#key=${fleet.key}`);
  await grace.page.locator(`[data-desk="${desk}"]`).waitFor();
  await page.getByRole("link", { name: "Desks", exact: true }).click();
  await page.locator(`[data-desk="${desk}"]`).click();
  await page.getByRole("button", { name: "More", exact: true }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await ada.checkAccess("delete");
  await ada.shot("delete-dark");
  await page.getByRole("button", { name: "Delete the desk" }).click();
  await grace.page.locator(`[data-desk="${desk}"]`).waitFor({ state: "detached" });
  await page.getByRole("heading", { name: "Desks", exact: true }).waitFor();
  await page.goto(`${fleet.url}/desks/${desk}`);
  await page.getByRole("heading", { name: "This desk is gone" }).waitFor();
  await grace.close();
  await ada.close();
});
