// The console's own JavaScript: keyboard, search palette, tables, charts, copying. Pages can be read without it.
(() => {
  "use strict";
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* storage is off */ } };
  const root = document.documentElement;

  // == every part that is added to the page is prepared once: the first time, and after htmx swapped something in
  const preparers = [];
  const prepares = (selector, prepare) => preparers.push((part) => {
    const found = part.matches && part.matches(selector) ? [part] : [];
    for (const each of [...found, ...$$(selector, part)]) prepare(each);
  });
  const prepare = (part) => preparers.forEach((each) => each(part));

  // == theme and rail
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-theme-switch], [data-rail], [data-copy]");
    if (!target) return;
    if (target.matches("[data-theme-switch]")) {
      const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = isDark ? "light" : "dark";
      store("theme", root.dataset.theme);
      $$(".chart").forEach((each) => each.dispatchEvent(new Event("redraw")));
    } else if (target.matches("[data-rail]")) {
      if (innerWidth <= 640) { $(".rail")?.classList.toggle("open"); return; }
      root.dataset.rail = root.dataset.rail === "narrow" ? "wide" : "narrow";
      store("rail", root.dataset.rail);
    } else {
      copy(target);
    }
  });

  const copy = async (button) => {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1200);
  };

  // == htmx sends the token with its requests
  document.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["X-CSRF-Token"] = $('meta[name="csrf-token"]')?.content ?? "";
  });
  document.addEventListener("htmx:load", (event) => { if (event.target !== document.body) prepare(event.target); });

  // == tables: sort by a click on a heading, filter while typing; the choice survives a swap
  const choices = new Map();
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const exact = cell?.dataset.v;
    if (exact !== undefined && exact !== "") return Number.isNaN(Number(exact)) ? exact : Number(exact);
    const text = cell?.textContent.trim() ?? "";
    if (cell?.classList.contains("n")) { const number = parseFloat(text.replaceAll(",", "")); return Number.isNaN(number) ? null : number; }
    return text;
  };
  const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const sortTable = (table, column, isDown) => {
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => [valueOf(row, column), row]);
    keyed.sort(([one], [two]) => {
      if (one === null || two === null) return (one === null) - (two === null);
      const order = typeof one === "number" && typeof two === "number" ? one - two : words.compare(String(one), String(two));
      return isDown ? -order : order;
    });
    body.append(...keyed.map(([, row]) => row));
    for (const [at, head] of [...table.tHead.rows[0].cells].entries()) {
      if (at === column) head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  };
  const filterTable = (table, text) => {
    const needle = text.trim().toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = needle !== "" && !row.textContent.toLowerCase().includes(needle);
      shown += row.hidden ? 0 : 1;
    }
    const count = $(`[data-counts="${CSS.escape(table.id)}"]`);
    if (count) count.textContent = needle ? `${shown} of ${table.tBodies[0].rows.length} match` : `${shown} rows`;
  };
  const reapply = (table) => {
    const choice = choices.get(table.id);
    if (choice?.column !== undefined) sortTable(table, choice.column, choice.isDown);
    if (choice?.text) {
      filterTable(table, choice.text);
      const input = $(`[data-filters="${CSS.escape(table.id)}"]`);
      if (input) input.value = choice.text;
    }
  };
  prepares("table[data-sortable]", (table) => {
    for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
      if ("unsorted" in head.dataset) continue;
      head.tabIndex = 0;
      const sort = () => {
        const isNumber = head.classList.contains("n");
        const isDown = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : isNumber;
        choices.set(table.id, { ...choices.get(table.id), column, isDown });
        sortTable(table, column, isDown);
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    }
    reapply(table);
  });
  prepares("[data-filters]", (input) => input.addEventListener("input", () => {
    const table = document.getElementById(input.dataset.filters);
    choices.set(table.id, { ...choices.get(table.id), text: input.value });
    filterTable(table, input.value);
  }));

  // == a dangerous button is off until the name was typed
  prepares("[data-confirms]", (input) => {
    const button = input.form.querySelector("button.primary");
    const check = () => { button.disabled = input.value !== input.dataset.confirms; };
    input.addEventListener("input", check);
    check();
  });

  // == times: the local time on hover
  prepares("time[data-ms]", (time) => {
    const local = new Date(Number(time.dataset.ms));
    if (!Number.isNaN(local.getTime())) time.title += `\n${local.toLocaleString()} (this browser)`;
  });

  // == charts
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const shortBytes = (value) => {
    let at = 0;
    while (Math.abs(value) >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
    return `${at && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
  };
  const shortNumber = (value) => new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
  const shown = {
    bytes: shortBytes,
    byte_rate: (value) => `${shortBytes(value)}/s`,
    rate: (value) => `${shortNumber(value)}/s`,
    ms: (value) => `${shortNumber(value)} ms`,
    count: shortNumber,
  };
  const powers = Array.from({ length: 50 }, (_, at) => 2 ** at);
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const range = () => {
    const given = new URLSearchParams(location.search);
    const from = Number(given.get("from_time")), to = Number(given.get("to_time"));
    return from && to > from ? [from, to] : null;
  };
  const writeRange = (from, to) => {
    const address = new URL(location);
    if (from === null) { address.searchParams.delete("from_time"); address.searchParams.delete("to_time"); }
    else { address.searchParams.set("from_time", Math.floor(from)); address.searchParams.set("to_time", Math.ceil(to)); }
    history.replaceState(history.state, "", address);
  };
  prepares("[data-chart]", (figure) => {
    const plot = $(".plot", figure);
    const show = shown[figure.dataset.unit] ?? shortNumber;
    const note = $(".chart-note", figure);
    // With Prometheus, the server sends the range that the page shows; without, the last 60 minutes.
    const hasPast = "past" in figure.dataset;
    const address = () => { const zoom = hasPast && range(); return figure.dataset.chart + (zoom ? `&from=${zoom[0]}&to=${zoom[1]}` : ""); };
    const clock = (made, at, end) => {
      const time = new Date(at * 1000).toISOString(), isLong = made.scales.x.max - made.scales.x.min > 86400;
      return (isLong ? `${time.slice(5, 10)} ` : "") + time.slice(11, end);
    };
    let chart = null, timer = 0, asked = 0;
    const say = (text) => { if (chart) { chart.destroy(); chart = null; } const line = document.createElement("p"); line.className = "quiet"; line.textContent = text; plot.replaceChildren(line); };
    const make = (data) => {
      const zoom = range();
      const colours = [css("--accent"), css("--second"), css("--quiet")];
      const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
      const options = {
        width: plot.clientWidth, height: 200,
        cursor: { drag: { x: true, y: false, setScale: true }, points: { size: 6 } },
        scales: {
          x: { time: true, range: (_, min, max) => range() ?? (zoom || hasPast ? [min, max] : [Math.max(min, max - 3600), max]) },
          y: { range: (_, min, max) => [Math.min(0, min ?? 0), max ? max * 1.1 : 1] },
        },
        axes: [
          { ...axis, space: 80, values: (made, ticks, _, __, step) => ticks.map((at) => clock(made, at, step < 60 ? 19 : 16)) },
          { ...axis, size: 78, incrs: figure.dataset.unit?.startsWith("byte") ? powers : undefined, values: (_, ticks) => ticks.map(show) },
        ],
        series: [
          { value: (made, at) => (at === null || at === undefined ? "–" : `${clock(made, at, 19)} UTC`) },
          ...data.series.map((each, at) => ({
            label: each.label, stroke: colours[at % 3], width: 1.5, spanGaps: false, points: { show: data.times.length < 3 },
            value: (_, value) => (value === null || value === undefined ? "–" : show(value)),
          })),
        ],
        hooks: { setSelect: [(made) => {
          if (made.select.width <= 4) return;
          writeRange(made.posToVal(made.select.left, "x"), made.posToVal(made.select.left + made.select.width, "x"));
          if (hasPast) refresh();
        }] },
      };
      plot.replaceChildren();
      chart = new uPlot(options, [data.times, ...data.series.map((each) => each.values)], plot);
      chart.over.addEventListener("dblclick", () => { writeRange(null); refresh(); });
    };
    const refresh = async () => {
      clearTimeout(timer);
      if (!figure.isConnected) return;
      const mine = ++asked;
      let pause = document.hidden ? 30000 : 5000;
      try {
        const response = await fetch(address(), { headers: { Accept: "application/json" } });
        const data = await response.json();
        if (mine !== asked) return;
        note.textContent = data.note ?? "";
        if (data.waiting) pause = 1000;
        if (!response.ok) say(data.reason ?? "This chart cannot be read.");
        else if (data.times.length < 2) say(data.waiting ? "Waiting for Prometheus." : hasPast ? "Too few values in this range of time to draw a line." : "Collecting samples: the first point appears after 10 seconds.");
        else if (chart && chart.series.length === data.series.length + 1) chart.setData([data.times, ...data.series.map((each) => each.values)]);
        else make(data);
      } catch {
        if (mine !== asked) return;
        note.textContent = "";
        say("The console does not answer.");
      }
      timer = setTimeout(refresh, pause);
    };
    new ResizeObserver(() => { if (chart && plot.clientWidth) chart.setSize({ width: plot.clientWidth, height: 200 }); }).observe(plot);
    figure.addEventListener("redraw", () => { chart?.destroy(); chart = null; refresh(); });
    refresh();
  });

  // == keyboard and palette
  const palette = $("#palette");
  const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]");
  let asked = 0;
  const fill = async (text) => {
    const mine = ++asked;
    const response = await fetch(`/search.json?q=${encodeURIComponent(text)}`, { headers: { Accept: "application/json" } });
    if (!response.ok || mine !== asked) return;
    const list = $("ul", palette);
    list.replaceChildren(...(await response.json()).map((found, at) => {
      const item = document.createElement("li");
      item.role = "option";
      item.setAttribute("aria-selected", String(at === 0));
      const link = document.createElement("a");
      link.href = found.address;
      for (const [name, words] of [["", found.name], ["quiet", found.kind]]) {
        const part = document.createElement("span");
        part.className = name;
        part.textContent = words;
        link.append(part);
      }
      item.append(link);
      return item;
    }));
  };
  const openPalette = () => { if (palette && !palette.open) { palette.showModal(); const input = $("input", palette); input.value = ""; input.focus(); fill(""); } };
  if (palette) {
    const input = $("input", palette);
    input.addEventListener("input", () => fill(input.value));
    palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
    palette.addEventListener("keydown", (event) => {
      const items = $$("li", palette), at = items.findIndex((each) => each.getAttribute("aria-selected") === "true");
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const next = (at + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length;
        items.forEach((each, place) => each.setAttribute("aria-selected", String(place === next)));
        items[next]?.scrollIntoView({ block: "nearest" });
      } else if (event.key === "Escape") {
        event.preventDefault();
        palette.close();
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (items[at]) location.assign($("a", items[at]).href);
        else location.assign(`/search?q=${encodeURIComponent(input.value)}`);
      }
    });
    $("#search")?.addEventListener("focus", (event) => { if (!event.target.value) openPalette(); });
  }
  document.addEventListener("keydown", (event) => {
    const isCtrlK = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
    if (isCtrlK || (event.key === "/" && !isTyping(event.target))) { event.preventDefault(); openPalette(); }
  });
  document.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-href]");
    if (row && !event.target.closest("a, button, input, label") && !getSelection().toString()) location.assign(row.dataset.href);
  });

  prepare(document.body);
})();
