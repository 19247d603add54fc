// Keeps a page fresh: every 15 seconds, while it is seen and not being used, its content is fetched anew and replaced.
// Without this script everything works but that.
"use strict";
(() => {
  const switcher = document.getElementById("refresh");
  if (!switcher) return;
  const PERIOD_MS = 15000;
  const KEY = "highwater-console-refresh";
  switcher.closest("[hidden]").hidden = false;
  switcher.checked = localStorage.getItem(KEY) !== "off";
  switcher.addEventListener("change", () => localStorage.setItem(KEY, switcher.checked ? "on" : "off"));
  const busy = () => {
    const main = document.getElementById("main");
    const selection = document.getSelection();
    return document.hidden || !switcher.checked || main.contains(document.activeElement)
      || main.querySelector("details[open]") || (selection && !selection.isCollapsed);
  };
  const refresh = async () => {
    if (busy()) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!answer.ok || busy()) return;
      for (const id of ["main", "as-of"]) {
        const [here, there] = [document.getElementById(id), fresh.getElementById(id)];
        if (here && there) here.replaceWith(document.adoptNode(there));
      }
    } catch {
      document.getElementById("as-of")?.classList.add("bad");
    }
  };
  setInterval(refresh, PERIOD_MS);
})();
