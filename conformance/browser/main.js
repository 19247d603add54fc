// A real browser in front of the console of a cluster that is under load: every page in both colour schemes, on a desktop and on a
// phone, looked over by axe within the console's own content policy; then actions, by mouse and by keyboard.
// CONSOLE: the gateway's URL. HIGHWATER, ACCESS: the program that makes load and is asked for lag, and the words (JSON) by which it
// reaches the cluster. KAFKAS_GROUPS: in front of Apache Kafka, the words of a command that runs kafka-consumer-groups. SHOTS: a
// folder for pictures. REPORT: the URL of a report's page.
"use strict";
const { execFileSync, spawn } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");
const axeSource = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const base = process.env.CONSOLE;
const access = JSON.parse(process.env.ACCESS);
const kafkasGroups = process.env.KAFKAS_GROUPS && JSON.parse(process.env.KAFKAS_GROUPS);
const shots = process.env.SHOTS;
const REPORT = process.env.REPORT;
const findings = [];
const found = (what) => { findings.push(what); console.log(`not so: ${what}`); };
const check = (holds, what) => { if (!holds) found(what); };

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const SIZES = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };
const TOPIC = "orders";
const GROUP = "billing";
const METERED = "metered";
const METERED_RATE = 400;
const METERED_SECONDS = 50;
// The console looks every 15 seconds.
const LOOK_MS = 16000;
const PAGES = {
  overview: "/console",
  brokers: "/console/brokers",
  broker: "/console/broker?id=1",
  topics: "/console/topics",
  topic: `/console/topic?name=${TOPIC}`,
  groups: "/console/groups",
  group: `/console/group?id=${GROUP}`,
  records: `/console/records?topic=${TOPIC}&partition=0&offset=earliest&limit=5`,
  newest: `/console/records?topic=${TOPIC}&partition=all&limit=5`,
  actions: "/console/actions",
  moves: "/console/moves",
  produce: `/console/do/produce?topic=${TOPIC}`,
  create: "/console/do/create-topic",
  reset: `/console/do/move-group?group=${GROUP}`,
  reassign: `/console/do/reassign?topic=${TOPIC}`,
  tail: `/console/tail?topic=${TOPIC}`,
  gateway: "/console/gateway",
  distribution: `/console/distribution?topic=${TOPIC}`,
  runs: "/console/runs",
  run: "/console/run?name=2-cores",
  missing: "/console/topic?name=not-there",
};

// Records that go in while pages are looked at: a load that a browser's pages change under.
const produce = async (count) => {
  const records = Array.from({ length: count }, (_, n) => ({ key: `k${n}`, value: `{"order":${n},"total":"9.90"}` }));
  const answer = await fetch(`${base}/topics/${TOPIC}?partitioner=round-robin`, {
    method: "POST", headers: { "content-type": "application/vnd.kafka.text.v2+json" }, body: JSON.stringify({ records }),
  });
  if (!answer.ok) throw new Error(`producing: ${answer.status} ${await answer.text()}`);
};
const load = () => {
  let goes = true;
  const loop = (async () => {
    while (goes) {
      await produce(50);
      await pause(50);
    }
  })();
  return async () => { goes = false; await loop; };
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const highwater = (...words) => execFileSync(process.env.HIGHWATER, [...words, ...access], { encoding: "utf8" });
const value = async (address) => (await fetch(base + address)).json();

// Records a second as the console says them while a load goes to a topic, and as the load's own program does at its end. A look
// counts if the one before it was made under the load, too.
const meter = async () => {
  const words = ["perf", "produce", "--topic", METERED, "--num-records", String(METERED_RATE * METERED_SECONDS), "--record-size", "500",
    "--throughput", String(METERED_RATE)];
  const program = spawn(process.env.HIGHWATER, [...words, ...access], { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  program.stdout.on("data", (bytes) => { said += bytes; });
  let ended = null;
  const end = new Promise((resolve, reject) => {
    program.on("error", reject);
    program.on("close", (code) => { ended = code; resolve(code); });
  });
  const looks = new Map();
  while (ended === null) {
    const { taken_ms: at } = await value("/api/v1/cluster");
    const rate = (await value("/api/v1/topics")).topics.find((topic) => topic.name === METERED)?.records_per_second;
    const same = at === (await value("/api/v1/cluster")).taken_ms;
    if (said && same && ended === null && typeof rate === "number") looks.set(at, rate);
    await pause(500);
  }
  check(await end === 0, `the load ended with ${ended}`);
  // Behind the first whose beginning may lie before the load.
  const seen = [...looks.values()].slice(1);
  const theirs = Number(/([\d.]+) records\/sec/.exec(said.trim().split("\n").at(-1))?.[1]);
  const ours = seen.reduce((sum, rate) => sum + rate, 0) / seen.length;
  check(Math.abs(ours / theirs - 1) <= 0.05, `records a second: the console says ${seen.join(", ")}, the load ${theirs}`);
  console.log(`records a second: ${ours.toFixed(1)} in ${seen.length} looks of the console, ${theirs} by the load`);
};

const watch = (page, name) => {
  page.on("console", (message) => { if (message.type() === "error" && !/status of (404|422)/.test(message.text())) found(`${name}: ${message.text()}`); });
  page.on("pageerror", (error) => found(`${name}: ${error}`));
  page.on("requestfailed", (request) => {
    if (!/ERR_ABORTED/.test(request.failure().errorText)) found(`${name}: ${request.url()} ${request.failure().errorText}`);
  });
};

// The inspector's own world: the page's policy holds as it is, for whoever tests too.
const axe = async (page, session, name) => {
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
    expression: `${axeSource}; axe.run({ resultTypes: ["violations"] }).then((r) => JSON.stringify(r.violations.map((v) => [v.id, v.nodes.map((n) => n.target.join(" ") + ": " + n.failureSummary)])))`,
    awaitPromise: true, returnByValue: true,
  });
  if (exceptionDetails) return found(`${name}: axe: ${exceptionDetails.text} ${exceptionDetails.exception?.description ?? ""}`);
  for (const [id, nodes] of JSON.parse(result.value)) found(`${name}: ${id}: ${nodes.slice(0, 3).join(" | ")}`);
};

const look = async (browser) => {
  for (const [size, viewport] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"]) {
      const context = await browser.newContext({ viewport, colorScheme, locale: "en-GB" });
      const page = await context.newPage();
      const session = await context.newCDPSession(page);
      for (const [name, address] of Object.entries(PAGES)) {
        const shot = `${name}-${size}-${colorScheme}`;
        if (!page.listenerCount("console")) watch(page, shot);
        const answer = await page.goto(base + address, { waitUntil: "load" });
        // A stream fills its table, and its page must hold while it does.
        if (name === "tail") await page.waitForSelector("#tail th[scope=row]", { timeout: 10000 }).catch(() => found(`${shot}: no record comes`));
        check(name === "missing" || answer.status() === 200, `${shot}: status ${answer.status()}`);
        check((answer.headers()["content-security-policy"] ?? "").startsWith("default-src 'self'"), `${shot}: no content policy`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        check(wide <= 0, `${shot}: ${wide} pixels too wide`);
        await axe(page, session, shot);
        await page.screenshot({ path: path.join(shots, `${shot}.png`), fullPage: !["tail", "run"].includes(name) });
      }
      await context.close();
    }
  }
};

// The bars of the report's first screen have the widths that the page declares, in percent of their group.
const bars = async (browser) => {
  for (const [size, viewport] of Object.entries(SIZES)) {
    const context = await browser.newContext({ viewport });
    const page = await context.newPage();
    await page.goto(REPORT, { waitUntil: "load" });
    const drawn = await page.evaluate(() => [...document.querySelectorAll(".group .bar i")].map((bar) => ({
      group: bar.closest(".group").clientWidth,
      share: parseFloat(bar.style.width) / 100,
      width: bar.getBoundingClientRect().width,
    })));
    check(drawn.length > 0, `report-${size}: no bars`);
    for (const { group, share, width } of drawn) {
      check(Math.abs(width - share * group) <= 1, `report-${size}: a bar of ${width} pixels, ${share * group} declared`);
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    check(wide <= 0, `report-${size}: ${wide} pixels too wide`);
    await context.close();
  }
};

// What a stream says besides records stays on the page, however many records come behind it.
const missed = async (browser) => {
  const context = await browser.newContext();
  const page = await context.newPage();
  const record = { topic: TOPIC, partition: 0, offset: 9, timestamp: 0, key: null, value: "behind it", headers: [] };
  const gap = { topic: TOPIC, partition: 0, reason: "slow", from: 1, to: 9 };
  const body = `retry: 100000\n\nevent: gap\ndata: ${JSON.stringify(gap)}\n\ndata: ${JSON.stringify(record)}\n\n`;
  await page.route("**/events?*", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  await page.goto(base + PAGES.tail);
  await page.waitForSelector("#tail th[scope=row]", { timeout: 10000 }).catch(() => found("missed: no record comes"));
  // Two times at least as long as the page takes until it is drawn anew.
  await pause(600);
  const state = await page.locator("#tail-state").innerText();
  check(/"reason":"slow"/.test(state), `a gap is not told: ${state}`);
  await context.close();
};

// How somebody acts: where the next thing is, and how it is used.
const MOUSE = {
  async press(_page, button) { await button.hover(); await button.click(); },
  async toggle(page, box) { await this.press(page, box); },
  async fill(_page, field, value) {
    await field.click();
    if (await field.evaluate((node) => node.tagName) === "SELECT") await field.selectOption(value);
    else await field.fill(value);
  },
};
const KEYBOARD = {
  // Tab until it has the focus, which must be seen.
  async reach(page, element) {
    for (let steps = 0; steps < 300; steps += 1) {
      if (await element.evaluate((node) => node === document.activeElement)) {
        const outline = await element.evaluate((node) => getComputedStyle(node).outlineStyle);
        return check(outline !== "none", "the focus is not seen");
      }
      await page.keyboard.press("Tab");
    }
    found(`no way by keyboard to ${await element.evaluate((node) => node.outerHTML.slice(0, 80))}`);
    await element.focus();
  },
  async press(page, button) { await this.reach(page, button); await page.keyboard.press("Enter"); },
  async toggle(page, box) { await this.reach(page, box); await page.keyboard.press("Space"); },
  async fill(page, field, value) {
    await this.reach(page, field);
    if (await field.evaluate((node) => node.tagName) !== "SELECT") {
      await page.keyboard.press("ControlOrMeta+A");
      return page.keyboard.type(value);
    }
    for (let steps = 0; steps < 20 && await field.inputValue() !== value; steps += 1) await page.keyboard.press("ArrowDown");
    check(await field.inputValue() === value, `no way by keyboard to the choice ${value}`);
  },
};

// Fills a form in and reviews it; gives what carries it out.
const act = async (page, fields, button, hand) => {
  for (const [name, value] of Object.entries(fields)) {
    await hand.fill(page, page.locator(`form[method=post] [name="${name}"]:not([type=hidden])`), value);
  }
  await hand.press(page, page.getByRole("button", { name: "Review" }));
  await page.waitForSelector("form.act input[name=token]", { state: "attached" });
  return async () => {
    await hand.press(page, page.getByRole("button", { name: button, exact: true }));
    await page.waitForSelector("section[role=status]");
    return page.locator("section[role=status]").innerText();
  };
};

// Where the copies of a topic's partitions are, by the brokers' own word.
const copies = (topic) => JSON.parse(highwater("topic", "describe", topic, "--format", "json")).map((row) => row.replicas);
const until = async (holds, what) => {
  const end = Date.now() + 30000;
  while (!await holds()) {
    if (Date.now() > end) return found(what);
    await pause(300);
  }
};
const nothingMoves = async () => (await value("/api/v1/moves")).moves.length === 0;

// From the page of a topic to a plan that puts two copies of each partition on the first two brokers.
const propose = async (page, topic, hand) => {
  await page.goto(`${base}/console/topic?name=${topic}`);
  await hand.press(page, page.getByRole("link", { name: "Move replicas" }));
  await page.waitForSelector("form[method=get] [name=copies]");
  await hand.toggle(page, page.locator("form[method=get] [name=on][value='3']"));
  await hand.fill(page, page.locator("form[method=get] [name=copies]"), "2");
  await hand.press(page, page.getByRole("button", { name: "Propose" }));
  await page.waitForFunction(() => document.querySelector("#moves").value.includes("partitions"));
};

const reassign = async (page, topic, way, hand) => {
  await propose(page, topic, hand);
  const begin = await act(page, {}, "Move replicas", hand);
  if (way === "mouse") await page.screenshot({ path: path.join(shots, "plan-desktop-light.png"), fullPage: true });
  const told = await begin();
  if (!kafkasGroups) return check(/refused|moved yet|cannot/.test(told), `Highwater does not move replicas, and says: ${told}`);
  check(/begun/.test(told), `reassign by ${way}: ${told}`);
  await until(nothingMoves, `moves by ${way} do not end`);
  const now = copies(topic);
  check(now.length === 3 && now.every((ids) => ids.length === 2 && !ids.includes(3)), `after a reassignment by ${way}: ${JSON.stringify(now)}`);
};

// A move that takes long, because it is limited: how far it is, its end before its time by the mouse; again, and the limit is lifted
// by keyboard.
const slowly = async (page, session) => {
  const before = JSON.stringify(copies(METERED));
  for (const [way, hand] of [["mouse", MOUSE], ["keyboard", KEYBOARD]]) {
    await propose(page, METERED, hand);
    let told = await (await act(page, { throttle: "20000" }, "Move replicas", hand))();
    check(/begun/.test(told), `a limited move by ${way}: ${told}`);
    await page.goto(`${base}/console/moves`);
    check(await page.locator("#moves progress").count() > 0, `no progress is shown of what was begun by ${way}`);
    await axe(page, session, `moves under way, by ${way}`);
    await page.screenshot({ path: path.join(shots, `moves-by-${way}-light.png`), fullPage: true });
    if (way === "mouse") {
      await hand.press(page, page.getByRole("link", { name: "Cancel them" }));
      await page.waitForSelector("form[method=post]");
      told = await (await act(page, {}, "Cancel moves of replicas", hand))();
      check(/cancelled/.test(told), `cancelled by ${way}: ${told}`);
      await until(nothingMoves, "moves go on that were cancelled");
      check(JSON.stringify(copies(METERED)) === before, `copies are elsewhere after moves were cancelled: ${JSON.stringify(copies(METERED))}`);
      await page.goto(`${base}/console/moves`);
    }
    await hand.press(page, page.getByRole("link", { name: "Lift the throttle" }));
    await page.waitForSelector("form[method=post]");
    told = await (await act(page, {}, "Lift the throttle", hand))();
    check(/no limit/.test(told), `lifted by ${way}: ${told}`);
  }
  await until(nothingMoves, "moves without a limit do not end");
  check(copies(METERED).every((ids) => ids.length === 2), `copies after a move: ${JSON.stringify(copies(METERED))}`);
};

// The command that a review shows does what it says, in a shell, with a login where one is needed.
const typed = (command, topic) => {
  const folder = path.dirname(process.env.HIGHWATER);
  execFileSync("bash", ["-c", command.replace(topic, "made-by-command")], { env: { ...process.env, PATH: `${folder}:${process.env.PATH}` } });
  check(copies("made-by-command").length === 3, `another topic than reviewed is made by: ${command}`);
};

const actions = async (browser) => {
  const context = await browser.newContext({ viewport: SIZES.desktop, colorScheme: "light" });
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  watch(page, "actions");
  for (const [way, hand] of [["mouse", MOUSE], ["keyboard", KEYBOARD]]) {
    const topic = `made-by-${way}`;
    await page.goto(`${base}/console/topics`);
    await hand.press(page, page.getByRole("link", { name: "Create a topic" }));
    await page.waitForSelector("form[method=post]");
    const create = await act(page, { topic, partitions: "3" }, "Create a topic", hand);
    if (way === "mouse") typed(await page.locator("pre.command").innerText(), topic);
    let told = await create();
    check(/done/.test(told), `create by ${way}: ${told}`);

    await page.goto(`${base}/console/topic?name=${topic}`);
    check(await page.locator("h1").innerText() === topic, `${topic} is not shown after it was made`);
    await hand.press(page, page.getByRole("link", { name: "Produce" }));
    await page.waitForSelector("form[method=post]");
    const run = await act(page, { partitioner: "round-robin", key: "k{n}", value: "v{n}", count: "6" }, "Produce records", hand);
    told = await run();
    check(/record 5: partition/.test(told), `produce by ${way}: ${told}`);
    await page.goto(`${base}/console/do/produce?topic=${topic}`);
    const rows = await page.locator("#distribution tbody tr").count();
    check(rows === 3, `bars after produce by ${way}: ${rows} rows`);

    await reassign(page, topic, way, hand);

    await page.goto(`${base}/console/group?id=${GROUP}`);
    await hand.press(page, page.getByRole("link", { name: "Reset offsets" }));
    await page.waitForSelector("form[method=post]");
    const reset = await act(page, { to: way === "mouse" ? "earliest" : "shift", ...(way === "mouse" ? {} : { shift: "7" }) }, "Reset a group's offsets", hand);
    check(await page.getByText("nothing has been done").count() === 1, `no dry run by ${way}`);
    if (way === "mouse") await page.screenshot({ path: path.join(shots, "dry-run-desktop-light.png"), fullPage: true });
    told = await reset();
    check(/moved/.test(told), `reset by ${way}: ${told}`);
  }
  await page.screenshot({ path: path.join(shots, "told-desktop-light.png"), fullPage: true });
  if (kafkasGroups) await slowly(page, session);

  // Bars move while a page is open, without a reload.
  await page.goto(`${base}/console/do/produce?topic=${TOPIC}`);
  const sum = () => page.locator("#distribution caption").first().innerText();
  const before = await sum();
  await produce(100);
  await page.waitForFunction((old) => document.querySelector("#distribution caption").innerText !== old, before, { timeout: 10000 })
    .catch(() => found("the bars do not move"));
  await page.screenshot({ path: path.join(shots, "bars-desktop-light.png"), fullPage: true });

  // A topic is deleted only if its name is typed. A page of it that is open says that it has gone.
  const open = await context.newPage();
  watch(open, "a page of a topic that is deleted");
  await open.goto(`${base}/console/topic?name=made-by-mouse`);
  await page.goto(`${base}/console/do/delete-topic?topic=made-by-mouse`);
  await page.getByRole("button", { name: "Review" }).click();
  await page.waitForSelector("#typed");
  await page.screenshot({ path: path.join(shots, "delete-desktop-light.png"), fullPage: true });
  await page.locator("#typed").fill("made-by-mouse");
  await page.getByRole("button", { name: "Delete a topic" }).click();
  check(/done/.test(await page.locator("section[role=status]").innerText()), "delete");
  await open.waitForFunction(() => document.querySelector("h1").innerText === "Topic not found", null, { timeout: 3 * LOOK_MS })
    .catch(() => found("a page that is open shows a topic that was deleted"));
  await context.close();
};

// Lag as the console says it, and as command lines do, with the load at rest.
const lag = async () => {
  const told = { console: (await value(`/api/v1/group?id=${GROUP}`)).lag };
  const rows = JSON.parse(highwater("group", "describe", GROUP, "--format", "json"));
  told["highwater group describe"] = rows.reduce((sum, row) => sum + (row.lag ?? 0), 0);
  if (kafkasGroups) {
    const [program, ...words] = [...kafkasGroups, "--describe", "--group", GROUP];
    const lines = execFileSync(program, words, { encoding: "utf8" }).split("\n").map((line) => line.trim().split(/\s+/));
    const column = lines.find((words) => words.includes("LAG"))?.indexOf("LAG");
    const lags = lines.filter((words) => words[0] === GROUP).map((words) => Number(words[column]));
    told["kafka-consumer-groups"] = lags.reduce((sum, lag) => sum + lag, 0);
  }
  const all = Object.values(told);
  check(all.every((lag) => lag === all[0]) && all[0] > 0, `lag: ${JSON.stringify(told)}`);
  console.log(`lag of ${GROUP}: ${JSON.stringify(told)}`);
};

const main = async () => {
  // With a profile of its own, which is empty, in a folder that goes with it.
  const maker = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: FLAGS });
  try {
    await produce(300);
    highwater("consume", TOPIC, "--group", GROUP, "--count", "90");
    const stop = load();
    const metered = meter();
    await look(maker);
    await missed(maker);
    await bars(maker);
    await stop();
    await metered;
    await actions(maker);
    // The next look of the console is after the last record.
    await pause(LOOK_MS);
    await lag();
  } finally {
    await maker.close();
  }
  console.log(`${Object.keys(PAGES).length * 4} pages, ${findings.length} findings`);
  process.exitCode = findings.length ? 1 : 0;
};

main().catch((error) => { console.error(error); process.exitCode = 1; });
