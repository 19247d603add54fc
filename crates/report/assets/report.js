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
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const before = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b
    : typeof a === "number" ? -1 : typeof b === "number" ? 1 : a.localeCompare(b));
  for (const head of all("th[aria-sort]")) {
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
  }
  addEventListener("beforeprint", () => all("details").forEach((one) => { one.open = true; }));

  // Pictures: drawn when they come into sight, with the page's own colours.
  const drawn = new Map();
  const colour = (name) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = `var(${name})`;
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  const number = (value) => Number(value).toLocaleString("en", { maximumSignificantDigits: 4 });
  const dress = (live, width) => {
    const options = structuredClone(live.options);
    const [ink, soft, rule, page] = ["--ink", "--soft", "--rule", "--page"].map(colour);
    const text = { color: soft, fontSize: 12 };
    const heat = options.series[0].type === "heatmap";
    options.animation = false;
    options.textStyle = { fontFamily: "system-ui, sans-serif" };
    const axes = [...options.xAxis, ...options.yAxis];
    axes.forEach((axis, place) => {
      const named = new Map(heat ? [] : live.ticks[place]);
      const values = [...named.keys()];
      axis.nameTextStyle = { ...text, align: ["center", "left", "right"][place] };
      axis.nameGap = place ? 12 : 30;
      axis.axisTick = { show: false };
      axis.axisLine = { show: place === 0 && !heat, lineStyle: { color: rule } };
      axis.splitLine = { show: place === 1 && !heat, lineStyle: { color: rule } };
      axis.axisLabel = { ...text, hideOverlap: true };
      if (!values.length) return;
      const label = (value) => named.get(values.find((other) => Math.abs(other - value) <= 1e-6 * Math.abs(other))) ?? "";
      Object.assign(axis.axisLabel, { customValues: values, formatter: label });
      axis.axisTick.customValues = values;
      if (place && axis.type === "value") axis.interval = values[1] - values[0];
    });
    if (options.yAxis[0].nameLocation === "end" || heat) options.yAxis[0].nameTextStyle.padding = [0, 0, 0, -20];
    if (options.yAxis[1]) options.yAxis[1].nameTextStyle.padding = [0, -20, 0, 0];
    let top = 30;
    for (const legend of [].concat(options.legend || [])) {
      legend.textStyle = { color: ink, fontSize: 12 };
      let rows = 1, used = 0;
      for (const { name } of options.series) {
        const need = name.length * 6.6 + 36;
        if (used + need > width) { rows += 1; used = 0; }
        used += need;
      }
      top += rows * 22;
    }
    options.grid = { left: 6, right: 16, top, bottom: 36, containLabel: true };
    const low = new Map(live.intervals.map(([series, x, ...bounds]) => [`${series} ${x}`, bounds]));
    options.tooltip = {
      trigger: heat ? "item" : "axis", confine: true, backgroundColor: page, borderColor: rule,
      textStyle: { color: ink, fontSize: 12 },
      formatter: (given) => {
        if (heat) return `${options.xAxis[0].name} ${given.name}<br>${given.seriesName}: <b>${number(given.value[3])}</b>`;
        const points = given.filter((point) => point.seriesType !== "custom");
        if (!points.length) return "";
        const x = points[0].axisType === "xAxis.category" ? points[0].axisValueLabel : number(points[0].axisValue);
        const line = (point) => {
          const bounds = low.get(`${point.seriesIndex} ${point.value[0]}`);
          return `${point.marker}${point.seriesName} <b>${number(point.value[1])}</b>${bounds ? ` (${bounds.map(number).join("–")})` : ""}`;
        };
        return [`${options.xAxis[0].name} ${x}`, ...points.map(line)].join("<br>");
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
    for (const series of options.series) if (series.type === "bar") series.barMaxWidth = 56;
    if (live.intervals.length) {
      options.series.push({
        type: "custom", silent: true, z: 5, data: live.intervals, encode: { x: 1, y: [2, 3] },
        renderItem: (_, api) => {
          const bar = live.bars.indexOf(api.value(0));
          const shift = bar < 0 ? 0 : api.barLayout({ count: live.bars.length, barMaxWidth: 56 })[bar].offsetCenter;
          const [high, down] = [3, 2].map((place) => api.coord([api.value(1), api.value(place)]));
          if (down[1] - high[1] < 4) return null;
          const style = { stroke: bar < 0 ? options.series[api.value(0)].itemStyle.color : soft };
          const piece = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style });
          const x = high[0] + shift;
          return { type: "group", children: [piece(x, high[1], x, down[1]), piece(x - 3, high[1], x + 3, high[1]), piece(x - 3, down[1], x + 3, down[1])] };
        },
      });
    }
    return options;
  };
  const draw = (place) => {
    const live = JSON.parse(place.nextElementSibling.textContent);
    place.style.height = `${live.height_px + (place.clientWidth < 420 ? 20 : 0)}px`;
    const chart = drawn.get(place) || echarts.init(place, null, { renderer: "svg" });
    chart.setOption(dress(live, place.clientWidth), true);
    drawn.set(place, chart);
  };
  const redraw = () => drawn.forEach((_, place) => draw(place));
  const start = async () => {
    const packed = Uint8Array.from(atob(document.getElementById("echarts").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.echarts) return;
    root.classList.add("js");
    const sight = new IntersectionObserver((seen) => seen.forEach(({ isIntersecting, target }) => {
      if (isIntersecting && !drawn.has(target)) draw(target);
    }), { rootMargin: "400px" });
    all(".live").forEach((place) => { place.style.height = `${place.dataset.h}px`; sight.observe(place); });
    let waiting;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => drawn.forEach((chart, place) => { chart.resize(); draw(place); }), 150);
    });
  };
  // Without it the still pictures stay.
  start().catch((error) => console.warn("interactive pictures are not available:", error));
})();
