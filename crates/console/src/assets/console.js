// Keeps a page fresh: every 15 seconds, while it is seen and not being used, its content is fetched anew and replaced; parts
// that are marked so, more often. Without this script everything works but that.
"use strict";
(() => {
  const PERIOD_MS = 15000;
  const KEY = "highwater-console-refresh";
  const parsed = async (address) => {
    const answer = await fetch(address, { cache: "no-store" });
    // A page that says what is wrong is a page: of a topic that was deleted meanwhile, for one.
    if (!answer.headers.get("content-type")?.startsWith("text/html")) throw new Error(answer.status);
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  };
  const replace = (id, fresh) => {
    const [here, there] = [document.getElementById(id), fresh.getElementById(id)];
    if (here && there) here.replaceWith(document.adoptNode(there));
  };

  // What is shown stays, and it is said that it is old.
  const old = () => {
    const asOf = document.getElementById("as-of");
    if (!asOf || asOf.classList.contains("bad")) return;
    asOf.classList.add("bad");
    asOf.append(", not refreshed since: the console does not answer");
  };

  // The page as a whole.
  const switcher = document.getElementById("refresh");
  if (switcher) {
    const main = () => document.getElementById("main");
    switcher.closest("[hidden]").hidden = false;
    switcher.checked = localStorage.getItem(KEY) !== "off";
    switcher.addEventListener("change", () => localStorage.setItem(KEY, switcher.checked ? "on" : "off"));
    const busy = () => {
      const selection = document.getSelection();
      return document.hidden || !switcher.checked || main().contains(document.activeElement)
        || main().querySelector("details[open], form.act, [data-stays]") || (selection && !selection.isCollapsed);
    };
    const refresh = async () => {
      if (busy()) return;
      try {
        const fresh = await parsed(location.href);
        if (!busy()) for (const id of ["main", "as-of"]) replace(id, fresh);
      } catch {
        old();
      }
    };
    setInterval(refresh, PERIOD_MS);
  }

  // Parts that say how often, and from where.
  const live = () => document.querySelector("[data-live]");
  const again = async () => {
    const part = live();
    if (!part) return;
    const pause = Number(part.dataset.live) || PERIOD_MS;
    if (!document.hidden && !part.contains(document.activeElement)) {
      try {
        replace(part.id, await parsed(part.dataset.from || location.href));
      } catch { /* The next one may succeed. */ }
    }
    setTimeout(again, pause);
  };
  if (live()) setTimeout(again, Number(live().dataset.live));

  // Records as they come. What they hold is text, never markup; what is not seen is written as it is called.
  const table = document.getElementById("tail");
  if (table) {
    const KEPT = 200;
    const SHOWN = 4096;
    const body = table.tBodies[0];
    const [pause, state] = ["tail-pause", "tail-state"].map((id) => document.getElementById(id));
    let source = null;
    let [count, waiting] = [0, []];
    // What is wrong now, and what was said last that was missed: it stays, however many records come behind it.
    let [trouble, missed] = ["", ""];
    const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => c === "\n" || c === "\t" ? c : `\\u{${c.codePointAt(0).toString(16)}}`);
    const words = (value) => {
      if (value === null) return "null";
      if (typeof value === "object") return `base64 ${value.base64}`;
      return value;
    };
    const cell = (row, text, name, tag = "td") => {
      const cell = document.createElement(tag);
      if (tag === "th") cell.scope = "row";
      if (name) cell.className = name;
      const shown = visible(text.slice(0, SHOWN)) + (text.length > SHOWN ? " …" : "");
      if (name === "value") cell.appendChild(document.createElement("pre")).textContent = shown;
      else cell.textContent = shown;
      row.append(cell);
    };
    const draw = () => {
      const rows = waiting.splice(0).slice(-KEPT).reverse().map((record) => {
        const row = document.createElement("tr");
        cell(row, String(record.partition), "number");
        cell(row, String(record.offset), "number", "th");
        cell(row, Number.isNaN(new Date(record.timestamp).getTime()) ? "–" : new Date(record.timestamp).toISOString(), "time");
        cell(row, words(record.key));
        cell(row, words(record.value), "value");
        cell(row, record.headers.map((header) => `${header.key}: ${words(header.value)}`).join("\n") || "–");
        return row;
      });
      if (rows.length) {
        body.querySelector(".empty")?.parentElement.remove();
        body.prepend(...rows);
        while (body.rows.length > KEPT) body.lastElementChild.remove();
      }
      if (source) tell();
    };
    const tell = () => { state.textContent = `${trouble || `${count} records have come`}${missed && `; ${visible(missed)}`}`; };
    const contains = table.dataset.contains;
    const follow = () => {
      source = new EventSource(table.dataset.tail);
      pause.textContent = "Pause";
      trouble = "";
      source.onopen = () => { trouble = ""; tell(); };
      source.onmessage = (event) => {
        const record = JSON.parse(event.data);
        if (contains && !words(record.value).includes(contains)) return;
        count += 1;
        waiting.push(record);
        if (waiting.length > KEPT) waiting.shift();
      };
      source.addEventListener("gap", (event) => { missed = `a gap: ${event.data}`; tell(); });
      source.onerror = (event) => {
        // The stream has an event of this name, too, for a record that cannot be sent.
        if (event.data !== undefined) missed = `not shown: ${event.data}`;
        else trouble = source.readyState === EventSource.CLOSED ? "the gateway has refused: look at the filters" : "the gateway does not answer; trying again";
        tell();
      };
    };
    const rest = (why) => { source?.close(); source = null; pause.textContent = "Go on"; state.textContent = why; };
    pause.hidden = false;
    pause.addEventListener("click", () => source ? rest(`paused after ${count} records`) : follow());
    // A page that is not seen holds no connection: a browser has six for each host.
    document.addEventListener("visibilitychange", () => { if (document.hidden && source) rest("paused while the page was not seen"); });
    setInterval(draw, 250);
    follow();
  }
})();
