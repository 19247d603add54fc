"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Light, dark, or as the system says.
  const themes = ["auto", "light", "dark"];
  const button = document.querySelector("button.theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % 3];
    root.dataset.theme = next;
    button.textContent = `Theme: ${next}`;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());

  // A click on a column's head sorts by it; a second one turns the order round.
  const key = (row, column) => {
    const cell = row.cells[column], text = cell.firstChild ? cell.firstChild.textContent : "";
    const value = Number.parseFloat(cell.dataset.v || text.replaceAll(",", "").replace("−", "-"));
    return Number.isNaN(value) ? text : value;
  };
  const before = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b
    : typeof a === "number" ? -1 : typeof b === "number" ? 1 : a.localeCompare(b));
  const sortable = () => all("th[aria-sort]:not([tabindex])").forEach((head) => {
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const table = head.closest("table"), column = Number(head.dataset.c);
      all("th[aria-sort]", table).forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => before(key(a, column), key(b, column)));
      table.tBodies[0].append(...(down ? rows.reverse() : rows));
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
  sortable();
  addEventListener("beforeprint", () => all("details").forEach((one) => { one.open = true; }));

  // Pictures: drawn when they come into sight, with the page's own colours.
  const drawn = new Map();
  let lively = {};
  const colour = (name) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = `var(${name})`;
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  const number = (value) => Number(value).toLocaleString("en", { maximumSignificantDigits: 4 });
  const safe = (text) => String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
  const dress = (live, width) => {
    const options = structuredClone(live.options);
    const [ink, soft, rule, page] = ["--ink", "--soft", "--rule", "--page"].map(colour);
    const text = { color: soft, fontSize: 12 };
    const heat = options.series[0].type === "heatmap";
    options.animation = false;
    options.textStyle = { fontFamily: "system-ui, sans-serif" };
    const [x] = options.xAxis = [].concat(options.xAxis);
    const [y, second] = options.yAxis = [].concat(options.yAxis);
    const axes = [x, y, second].filter(Boolean);
    axes.forEach((axis, place) => {
      const named = new Map(heat ? [] : live.ticks[place]);
      const values = [...named.keys()];
      axis.nameTextStyle = text;
      axis.nameGap = 30;
      axis.axisTick = { show: false };
      axis.axisLine = { show: place === 0 && !heat, lineStyle: { color: rule } };
      axis.splitLine = { show: place === 1 && !heat, lineStyle: { color: rule } };
      axis.axisLabel = { ...text, hideOverlap: true, ...(axis.type === "category" ? { interval: 0 } : {}) };
      if (place === 0 && axis.type === "category") {
        const longest = Math.max(...axis.data.map((name) => name.length)) * 6.8 + 8;
        const margin = heat ? 30 + Math.max(...options.yAxis[0].data.map((name) => name.length)) * 6.8 : 90;
        if (longest > (width - margin) / axis.data.length && axis.data.length > 1) {
          const steep = (width - margin) / axis.data.length < 28;
          Object.assign(axis.axisLabel, { rotate: steep ? 60 : 32, interval: 0, fontSize: 11 });
          axis.nameGap = 12 + longest * (steep ? 0.8 : 0.5);
        }
      }
      if (!values.length) return;
      const label = (value) => named.get(values.find((other) => Math.abs(other - value) <= 1e-6 * Math.abs(other))) ?? "";
      Object.assign(axis.axisLabel, { customValues: values, formatter: label });
      axis.axisTick.customValues = values;
      if (place && axis.type === "value") axis.interval = values.at(-1) - values.at(-2);
    });
    // Above the field: headings at both ends, below them the legend in as many rows as it takes.
    options.title = live.headings.map((heading, place) => ({
      text: heading, top: 4, left: place ? "right" : -5, padding: [0, 5], textStyle: { ...text, fontWeight: "normal" },
    }));
    let rows = 0;
    for (const legend of options.legend ? [].concat(options.legend) : []) {
      Object.assign(legend, { top: 21, textStyle: { color: ink, fontSize: 12 }, padding: [2, 0] });
      const marks = live.upon.map(([place]) => options.series[place].name);
      legend.data = legend.data.map((given) => given.name ?? given)
        .map((name) => (marks.includes(name) ? { name, icon: "diamond" } : { name }));
      let used = width;
      for (const { name } of legend.data) {
        const need = name.length * 6.8 + 40;
        if (used + need > width) { rows += 1; used = 0; }
        used += need;
      }
    }
    const extra = rows * 19;
    options.grid = { left: 6, right: 16, top: 30 + extra, bottom: 30, containLabel: true };
    const low = new Map(live.intervals.map(([series, x, ...bounds]) => [`${series} ${x}`, bounds]));
    options.tooltip = {
      trigger: heat ? "item" : "axis", confine: true, backgroundColor: page, borderColor: rule,
      textStyle: { color: ink, fontSize: 12 },
      formatter: (given) => {
        if (heat) return `${safe(`${x.name} ${given.name}`)}<br>${safe(given.seriesName)}: <b>${number(given.value[3])}</b>`;
        const points = given.filter((point) => point.seriesName !== "whiskers");
        if (!points.length) return "";
        const at = points[0].axisType === "xAxis.category" ? points[0].axisValueLabel : number(points[0].axisValue);
        const line = (point) => {
          const bounds = low.get(`${point.seriesIndex} ${point.value[0]}`);
          const { color, borderColor } = options.series[point.seriesIndex].itemStyle;
          const mark = `<span style="color:${borderColor ?? color}">${borderColor ? "○" : "●"}</span> `;
          return `${mark}${safe(point.seriesName)} <b>${number(point.value[1])}</b>${bounds ? ` (${bounds.map(number).join("–")})` : ""}`;
        };
        return [safe(`${x.name} ${at}`), ...points.map(line)].join("<br>");
      },
    };
    if (heat) {
      const named = new Map(live.ticks[0].map(([value, label]) => [Number(value.toPrecision(6)), label]));
      const pale = (point) => point.value[2] > 0.45;
      Object.assign(options.series[0].label, {
        formatter: (point) => `{${pale(point) ? "b" : "a"}|${named.get(point.value[3]) ?? number(point.value[3])}}`,
        rich: { a: { color: "#1c242d", fontSize: 11 }, b: { color: "#ffffff", fontSize: 11 } },
      });
      options.series[0].itemStyle = { borderColor: page, borderWidth: 2 };
    }
    for (const series of options.series) {
      if (series.type === "bar") series.barMaxWidth = 56;
      if (/^empty/.test(series.symbol)) {
        series.symbol = series.symbol.slice(5).toLowerCase();
        series.itemStyle = { color: page, borderColor: series.itemStyle.color, borderWidth: 1.5 };
      }
    }
    for (const [place, bar] of live.upon) {
      Object.assign(options.series[place], { type: "custom", renderItem: (_, api) => {
        const shift = bar < 0 ? 0 : api.barLayout({ count: live.bars.length, barMaxWidth: 56 })[bar].offsetCenter;
        const [cx, cy] = api.coord([api.value(0), api.value(1)]);
        const points = [[0, -5], [5, 0], [0, 5], [-5, 0]].map(([dx, dy]) => [cx + shift + dx, cy + dy]);
        return { type: "polygon", shape: { points }, style: { fill: "#fff", stroke: "#2b333b", lineWidth: 1.5 } };
      }, z: 6, itemStyle: { color: soft } });
    }
    if (live.intervals.length) {
      options.series.push({
        type: "custom", name: "whiskers", silent: true, z: 5, data: live.intervals, encode: { x: 1, y: [2, 3] },
        renderItem: (_, api) => {
          const bar = live.bars.indexOf(api.value(0));
          const shift = bar < 0 ? 0 : api.barLayout({ count: live.bars.length, barMaxWidth: 56 })[bar].offsetCenter;
          const [high, down] = [3, 2].map((place) => api.coord([api.value(1), api.value(place)]));
          if (down[1] - high[1] < 4) return null;
          const style = { stroke: bar < 0 ? options.series[api.value(0)].itemStyle.color : soft };
          const piece = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style });
          const middle = high[0] + shift;
          return { type: "group", children: [piece(middle, high[1], middle, down[1]), ...[high[1], down[1]].map((end) => piece(middle - 3, end, middle + 3, end))] };
        },
      });
    }
    return [options, Math.max(0, rows - 1) * 19 + (x.nameGap > 30 ? x.nameGap - 22 : 0)];
  };
  const drawOrLeave = (place) => {
    try {
      draw(place);
    } catch (error) {
      // The still picture shows the same.
      Object.assign(place, { hidden: true }).previousElementSibling.style.display = "block";
      console.warn("an interactive picture is not available:", error);
    }
  };
  const draw = (place) => {
    const live = lively.pictures[place.dataset.n];
    const [options, extra] = dress(live, place.clientWidth);
    place.style.height = `${live.height_px + extra}px`;
    const chart = drawn.get(place) || echarts.init(place, null, { renderer: "svg" });
    chart.resize();
    chart.setOption(options, true);
    drawn.set(place, chart);
  };
  const redraw = () => drawn.forEach((_, place) => draw(place));
  const unpacked = (id) => {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const start = async () => {
    const script = document.createElement("script");
    script.textContent = await unpacked("echarts");
    lively = JSON.parse(await unpacked("live"));
    all("details[data-t]").forEach((place) => place.insertAdjacentHTML("beforeend", lively.tables[place.dataset.t]));
    sortable();
    document.head.append(script);
    if (!window.echarts) return;
    root.classList.add("js");
    const sight = new IntersectionObserver((seen) => seen.forEach(({ isIntersecting, target }) => {
      if (isIntersecting && !drawn.has(target) && !target.hidden) drawOrLeave(target);
    }), { rootMargin: "400px" });
    all(".live").forEach((place) => { place.style.height = `${lively.pictures[place.dataset.n].height_px}px`; sight.observe(place); });
    let waiting;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => drawn.forEach((_, place) => draw(place)), 150);
    });
  };
  // Without it the still pictures stay.
  start().catch((error) => console.warn("interactive pictures are not available:", error));
})();
