// The benchmark lab: what is shown is a function of the files and of the state in the address, so that a link restores a view.
"use strict";
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".bench-lab").forEach(lab.start));

lab.start = (home) => {
  const data = JSON.parse(home.querySelector("script").textContent), { rules } = data;
  const isRung = new RegExp(`^(?:${rules.rung})$`);
  const files = data.files.map(({ name, text }) => ({ name, own: false, rows: lab.read(name, text, rules) }));

  // ---- metrics -----------------------------------------------------------------------------------------------------

  const four = (value) => (Math.abs(value) >= 9999.5 ? String(Math.round(value)) : value.toPrecision(4).replace(/e.*$/, ""));
  const plain = (value) => String(Number(value.toPrecision(6)));
  const ROUNDS = "the middle 60 % of the rounds", PAIRED = "95 % interval of the paired rounds";
  // A rate moves as one over the time does.
  const rate = (name) => (row) => [row[name], row.ms_p80 && (row[name] * row.ms_median) / row.ms_p80, row.ms_p20 && (row[name] * row.ms_median) / row.ms_p20];
  const ratio = (name) => (row) => [row[name], row[`${name}_lo`], row[`${name}_hi`]];
  const METRICS = {
    tflops: { name: "TFLOPS", of: rate("tflops"), write: four, interval: ROUNDS },
    // The launch of a ceiling is another problem's.
    ms: { name: "ms a launch", of: (row) => (row.kind === "ceiling" ? [null] : [row.ms_median, row.ms_p20, row.ms_p80]), write: four, log: true, interval: ROUNDS },
    pct_ceiling: { name: "% of its ceiling", of: rate("pct_ceiling"), write: (value) => value.toFixed(1), interval: ROUNDS },
    vs_previous: { name: "times the rung before", of: ratio("vs_previous"), write: (value) => value.toFixed(3), log: true, base: 1, baseName: "as before", interval: PAIRED },
    vs_fa2: { name: "times FA2", of: ratio("vs_fa2"), write: (value) => value.toFixed(3), base: 1, baseName: "FA2", interval: PAIRED },
    flop_per_clk_sm: { name: "FLOP a clock and SM", of: (row) => [row.flop_per_clk_sm], write: four },
  };

  // ---- state ---------------------------------------------------------------------------------------------------------

  // null is "the default", which may depend on the rest. `only` holds what the reader has switched, by name: on or off.
  const fresh = () => ({ metric: "tflops", gpu: null, shape: null, causal: "0", regime: "sustained", inputs: null, dtype: null, y: null, x: null, switched: {} });
  let state = fresh();

  function readAddress() {
    const hash = location.hash.slice(1);
    if (hash && !hash.includes("=")) return;  // a link to a section
    state = fresh();
    for (const [name, value] of new URLSearchParams(hash)) {
      if (name === "show" || name === "hide") state.switched[value] = name === "show";
      else if (name !== "switched" && Object.hasOwn(state, name) && (name !== "metric" || Object.hasOwn(METRICS, value))) state[name] = value;
    }
  }

  function writeAddress() {
    const initial = fresh(), address = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) {
      if (name !== "switched" && value !== null && value !== initial[name]) address.set(name, value);
    }
    for (const [name, on] of Object.entries(state.switched)) address.append(on ? "show" : "hide", name);
    history.replaceState(null, "", `#${address}`);
  }

  // ---- from rows to a view ---------------------------------------------------------------------------------------------

  const machineOf = (row, file) => row.gpu + (file.own ? ` (${file.name})` : row.source === "measured" ? "" : ` (${row.source})`);
  const shapeOf = (row) => [row.batch, row.heads, row.n, row.d].join(",");
  const kindOf = (row) => (row.kind === "stage" && !isRung.test(row.stage) ? "variant" : row.kind);
  const KINDS = { stage: "Rungs", variant: "Variants of rungs", peer: "Other implementations", ceiling: "Ceilings of the card" };
  const shown = (stage, kind) => state.switched[stage] ?? (kind === "peer" ? stage === "fa2" : kind !== "variant");

  const all = () => files.flatMap((file) => file.rows.map((row) => Object.assign(row, { machine: machineOf(row, file), variety: kindOf(row) })));
  const distinct = (rows, of) => [...new Set(rows.map(of))];

  // Families of shapes that a line can join: the same number of tokens (batch x N), at three lengths or more.
  function familiesOf(rows) {
    const families = new Map();
    for (const row of rows) {
      const key = `all,${row.batch * row.n},${row.heads},${row.d}`;
      families.set(key, (families.get(key) ?? new Set()).add(row.n));
    }
    return [...families].filter(([, lengths]) => lengths.size > 2).map(([key]) => key);
  }

  function shapesOf(rows) {
    const heads = distinct(rows, (row) => `${row.heads},${row.d}`).length > 1;
    const tail = (heads_, d) => (heads ? `, ${heads_} heads, d = ${d}` : "");
    const single = distinct(rows, shapeOf).map((key) => key.split(",").map(Number)).sort((a, b) => a[2] - b[2] || a[0] - b[0]);
    return [
      ...familiesOf(rows).map((key) => [key, `all N, batch × N = ${key.split(",")[1]}${tail(...key.split(",").slice(2))}`]),
      ...single.map(([batch, heads_, n, d]) => [`${batch},${heads_},${n},${d}`, `N = ${n}, batch ${batch}${tail(heads_, d)}`]),
    ];
  }

  // A choice that the data do not have falls back to the first that they have.
  const pick = (options, wanted, otherwise) => [wanted, otherwise, options[0]?.[0]].find((key) => options.some(([known]) => known === key));

  function look() {
    const rows = all(), metric = METRICS[state.metric], headline = shapeOf(data.headline);
    const machines = distinct(rows, (row) => row.machine).map((name) => [name, name]);
    if (machines.length > 1) machines.push(["all", "all, side by side"]);
    const options = {
      metric: Object.entries(METRICS).map(([key, { name }]) => [key, name]),
      gpu: machines,
      shape: shapesOf(rows),
      causal: [["0", "dense"], ["1", "causal"]],
      regime: [["sustained", "sustained"], ["burst", "burst"]],
      inputs: distinct(rows, (row) => row.inputs).map((name) => [name, name]),
      dtype: distinct(rows, (row) => row.dtype).map((name) => [name, name]),
      y: [["linear", "linear"], ["log", "logarithmic"]],
      x: [["linear", "linear"], ["log", "logarithmic"]],
    };
    const chosen = {};
    for (const [name, list] of Object.entries(options)) chosen[name] = pick(list, state[name], { shape: headline, inputs: "normal", dtype: "fp16", y: metric.log ? "log" : "linear", x: "log" }[name]);
    const family = chosen.shape?.startsWith("all,");
    const inShape = (row) => (family ? `all,${row.batch * row.n},${row.heads},${row.d}` : shapeOf(row)) === chosen.shape;
    const here = rows.filter((row) => (chosen.gpu === "all" || row.machine === chosen.gpu) && inShape(row) && row.causal === (chosen.causal === "1") &&
      row.regime === chosen.regime && row.inputs === chosen.inputs && row.dtype === chosen.dtype);
    return { rows, options, chosen, family, here, metric };
  }

  const letter = (i) => String.fromCharCode(65 + i);

  // One series for each contestant and machine, in the order of the ladder.
  function seriesOf({ rows, here, chosen, family, metric }) {
    const machines = distinct(here, (row) => row.machine), rungs = distinct(rows.filter((row) => row.variety === "stage"), (row) => row.stage).sort();
    const order = (row) => [{ stage: 0, variant: 0, peer: 1, ceiling: 2 }[row.variety], row.stage, machines.indexOf(row.machine)];
    const compare = (a, b) => { const i = [0, 1, 2].find((i) => a[i] !== b[i]) ?? 0; return a[i] < b[i] ? -1 : a[i] > b[i] ? 1 : 0; };
    const groups = new Map(), without = new Set();
    for (const row of here.toSorted((a, b) => compare(order(a), order(b)) || a.n - b.n)) {
      if (!shown(row.stage, row.variety)) continue;
      const [value, low, high] = metric.of(row);
      if (value === null) { without.add(row.stage); continue; }
      const key = `${row.stage}\n${row.machine}`, machine = machines.indexOf(row.machine);
      const suffix = machines.length > 1 ? ` ${letter(machine)}` : "";
      if (!groups.has(key)) {
        groups.set(key, {
          stage: row.stage, kind: row.variety === "variant" ? "stage" : row.variety, gpu: row.machine, machine,
          label: row.stage + suffix, short: (isRung.test(row.stage) ? row.stage.split("_")[0] : row.stage) + suffix,
          tone: rungs.length > 1 ? Math.max(0, rungs.indexOf(row.stage.split("[")[0])) / (rungs.length - 1) : 1, shape: groups.size,
          across: !family && (row.kind === "peer" || row.kind === "ceiling"), points: [],
        });
      }
      const known = typeof low === "number" && typeof high === "number";
      const spoken = known ? `, ${metric.interval} ${metric.write(low)} to ${metric.write(high)}` : "";
      const verdict = chosen.metric === "vs_previous" && row.verdict ? `, verdict ${row.verdict}` : "";
      groups.get(key).points.push({
        n: row.n, value, row, ...(known ? { low, high } : {}),
        text: `${row.stage}, ${row.machine}, N = ${row.n}: ${metric.write(value)} ${metric.name}${spoken}${verdict}`,
      });
    }
    for (const { stage } of groups.values()) without.delete(stage);
    return { series: [...groups.values()], machines, without: [...without] };
  }

  function describe({ chosen, family, here, metric }, { machines, without, series }) {
    const [row] = here, parts = [machines.length > 1 ? machines.map((name, i) => `${letter(i)} ${name}`).join(", ") : chosen.gpu];
    if (row) parts.push(family ? `batch × N = ${row.batch * row.n}` : `batch ${row.batch}`, `heads ${row.heads}`, ...(family ? [] : [`N = ${row.n}`]), `d = ${row.d}`);
    parts.push(chosen.causal === "1" ? "causal" : "dense", chosen.regime, ...(chosen.inputs === "normal" ? [] : [`${chosen.inputs} inputs`]), ...(chosen.dtype === "fp16" ? [] : [chosen.dtype]));
    const said = [`${parts.join(", ")}.`];
    if (series.some((one) => one.points.some((point) => point.low !== undefined))) said.push(`Whiskers: ${metric.interval}.`);
    if (series.some((one) => one.kind === "peer")) said.push("Dashed: other implementations.");
    if (series.some((one) => one.kind === "ceiling")) said.push("Dotted: ceilings of the card.");
    if (without.length) said.push(`Without this figure: ${without.join(", ")}.`);
    return said.join(" ");
  }

  // ---- the page ------------------------------------------------------------------------------------------------------

  const html = (tag, attributes = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  };
  const change = (edit) => { edit(); writeAddress(); render(); };

  const LABELS = { metric: "Show", gpu: "GPU", shape: "Shape", causal: "Mask", regime: "Regime", inputs: "Inputs", dtype: "Type", y: "Values", x: "N axis" };
  const selects = {};
  for (const name of Object.keys(LABELS)) {
    selects[name] = html("select", { name, onchange: (event) => change(() => {
      state[name] = event.target.value;
      if (name === "metric") state.y = null;
    }) });
  }
  const controls = html("form", { className: "lab-controls", onsubmit: () => false },
    ...Object.entries(LABELS).map(([name, label]) => html("label", {}, `${label} `, selects[name])));
  controls.setAttribute("aria-label", "What the chart shows");

  const chart = document.createElementNS("http://www.w3.org/2000/svg", "svg"), tip = html("div", { className: "lab-tip", hidden: true });
  chart.setAttribute("class", "lab-chart");
  chart.setAttribute("role", "group");
  const caption = html("figcaption"), empty = html("p", { className: "lab-empty", hidden: true });
  const figure = html("figure", {}, chart, empty, tip, caption);
  const toggles = html("div", { className: "lab-toggles" });
  const download = html("a", { className: "lab-download" }, "Download these rows as CSV");
  const input = html("input", { type: "file", accept: ".csv,text/csv", multiple: true, onchange: () => take([...input.files]) });
  const status = html("div", { className: "lab-status" });
  status.setAttribute("role", "status");
  const own = html("div", { className: "lab-own" }, html("label", {}, "Add your own CSV, or drop it here: ", input), status, html("p", {}, download));
  const table = html("table");
  const twin = html("div", { className: "lab-table", tabIndex: 0 }, table);
  twin.setAttribute("role", "region");
  twin.setAttribute("aria-label", "The chart as a table");
  home.replaceChildren(controls, figure, toggles, own, twin);

  function showOptions({ rows, options, chosen, family }) {
    for (const [name, select] of Object.entries(selects)) {
      const wanted = options[name].map(([key, text]) => `${key}\n${text}`).join("\n\n");
      if (select.dataset.options !== wanted) {
        select.replaceChildren(...options[name].map(([value, text]) => html("option", { value }, text)));
        select.dataset.options = wanted;
      }
      select.value = chosen[name] ?? "";
    }
    for (const option of selects.causal.options) option.disabled = !rows.some((row) => row.causal === (option.value === "1"));
    for (const option of selects.regime.options) option.disabled = !rows.some((row) => row.regime === option.value);
    for (const name of ["inputs", "dtype"]) selects[name].parentElement.hidden = options[name].length < 2;
    selects.x.parentElement.hidden = !family;
  }

  function showToggles(rows) {
    const groups = Object.entries(KINDS).map(([kind, title]) => [kind, title, distinct(rows.filter((row) => row.variety === kind), (row) => row.stage).sort()]);
    const wanted = JSON.stringify(groups);
    if (toggles.dataset.wanted !== wanted) {
      toggles.dataset.wanted = wanted;
      toggles.replaceChildren(...groups.filter(([, , stages]) => stages.length).map(([kind, title, stages]) => {
        const set = (on) => () => change(() => stages.forEach((stage) => { state.switched[stage] = on; }));
        const boxes = stages.map((stage) => html("label", {}, html("input", {
          type: "checkbox", name: stage, onchange: (event) => change(() => { state.switched[stage] = event.target.checked; }),
        }), ` ${stage}`));
        const button = (text, on) => html("button", { type: "button", onclick: set(on), ariaLabel: `${title}: ${text}` }, text);
        return html("fieldset", {}, html("legend", {}, title), ...boxes, ...(stages.length > 2 ? [button("all", true), button("none", false)] : []));
      }));
    }
    for (const box of toggles.querySelectorAll("input")) {
      box.checked = shown(box.name, rows.find((row) => row.stage === box.name).variety);
    }
  }

  // ---- the table: a row for each mark, or a row for each line and a column for each N ------------------------------------

  const cell = (tag, text, scope) => html(tag, scope ? { scope } : {}, text);
  const withInterval = (point, metric) => metric.write(point.value) + (point.low === undefined ? "" : ` [${metric.write(point.low)}, ${metric.write(point.high)}]`);

  function showTable({ chosen, family, here, metric }, { series, machines }) {
    const lengths = distinct(here, (row) => row.n).sort((a, b) => a - b), several = machines.length > 1;
    const heads = ["contestant", ...(several ? ["GPU"] : []), ...(family ? lengths.map((n) => `N = ${n}`)
      : [metric.name, metric.interval ?? "interval", ...(chosen.metric === "vs_previous" ? ["verdict"] : []), "clock, MHz", "measured"])];
    const lines = series.map((one) => {
      const first = [cell("th", one.stage, "row"), ...(several ? [cell("td", one.gpu)] : [])];
      if (family) {
        return [...first, ...lengths.map((n) => {
          const point = one.points.find((point) => point.n === n);
          return cell("td", point ? withInterval(point, metric) : "");
        })];
      }
      const [point] = one.points, { row } = point;
      return [...first, cell("td", metric.write(point.value)), cell("td", point.low === undefined ? "" : `${metric.write(point.low)} to ${metric.write(point.high)}`),
        ...(chosen.metric === "vs_previous" ? [cell("td", row.verdict)] : []), cell("td", row.clock_mhz === null ? "" : plain(row.clock_mhz)),
        cell("td", [row.date, row.commit].filter(Boolean).join(", "))];
    });
    table.replaceChildren(html("caption", {}, family ? `${metric.name}, with ${metric.interval ?? "no interval"}` : `${metric.name}, as drawn above`),
      html("thead", {}, html("tr", {}, ...heads.map((head) => cell("th", head, "col")))),
      html("tbody", {}, ...lines.map((cells) => html("tr", {}, ...cells))));
  }

  // ---- the chart, its tip and its keys -----------------------------------------------------------------------------------

  let nearest = () => undefined;
  const marks = () => [...chart.querySelectorAll(".mark")];

  function point(mark) {
    for (const other of chart.querySelectorAll(".mark.picked")) other.classList.remove("picked");
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("picked");
    tip.textContent = mark.getAttribute("aria-label");
    const ratio = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
    const left = mark.at.x * ratio + 12, above = mark.at.y * ratio;
    tip.style.left = `${Math.max(0, Math.min(left, figure.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${above > tip.offsetHeight + 14 ? above - tip.offsetHeight - 12 : above + 14}px`;
  }

  function moved(event) {
    const box = chart.getBoundingClientRect(), ratio = chart.viewBox.baseVal.width / box.width;
    point(nearest((event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio));
  }
  chart.addEventListener("pointermove", moved);
  chart.addEventListener("pointerdown", moved);
  chart.addEventListener("pointerleave", () => point(chart.querySelector(".mark:focus")));
  // At the figure: an svg that listens for focus itself becomes a stop of the Tab key in Chromium.
  figure.addEventListener("focusin", (event) => point(event.target.closest(".mark")));
  figure.addEventListener("focusout", () => point());

  // One stop of the Tab key; the arrows walk from mark to mark: along a line, and to the next value at the same N.
  figure.addEventListener("keydown", (event) => {
    const here = event.target.closest(".mark"), list = marks();
    if (event.key === "Escape") return point();
    const back = event.key === "ArrowLeft" || event.key === "ArrowUp", walk = back || event.key === "ArrowRight" || event.key === "ArrowDown";
    if (!here || !(walk || event.key === "Home" || event.key === "End")) return;
    event.preventDefault();
    const series = here.closest(".series");
    let path = list;
    if (series && walk) {
      path = event.key === "ArrowLeft" || event.key === "ArrowRight" ? [...series.querySelectorAll(".mark")]
        : list.filter((mark) => mark.dataset.n === here.dataset.n).sort((a, b) => b.dataset.value - a.dataset.value);
    }
    const next = event.key === "Home" ? list[0] : event.key === "End" ? list.at(-1) : path[path.indexOf(here) + (back ? -1 : 1)];
    if (!next) return;
    here.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });

  let drawn = { series: [] }, width = 0;
  function drawChart() {
    const { view } = drawn;
    width = figure.clientWidth;
    if (!view || !width) return;
    nearest = lab.draw(chart, view, width);
    marks()[0]?.setAttribute("tabindex", 0);
  }
  new ResizeObserver(() => { if (figure.clientWidth !== width) drawChart(); }).observe(figure);

  // ---- the reader's own files ----------------------------------------------------------------------------------------------

  const say = (text, kind) => status.replaceChildren(html("p", { className: kind }, text), ...files.filter((file) => file.own).map((file) =>
    html("button", { type: "button", onclick: () => { files.splice(files.indexOf(file), 1); say(`${file.name} is gone again.`, "good"); change(() => { state.gpu = null; }); } }, `Remove ${file.name}`)));

  async function take(list) {
    for (const file of list) {
      try {
        let text;
        try {
          text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        } catch {
          throw new lab.Refusal(`${file.name}: not a text file`);
        }
        const rows = lab.read(file.name, text, rules), known = files.findIndex((other) => other.own && other.name === file.name);
        if (known >= 0) files.splice(known, 1);
        files.push({ name: file.name, own: true, rows });
        say(`${file.name}: ${rows.length} rows read. They stay in this page and are sent nowhere.`, "good");
        change(() => { state.gpu = "all"; });
      } catch (error) {
        if (!(error instanceof lab.Refusal)) throw error;
        say(`Refused. ${error.message}`, "bad");
      }
    }
    input.value = "";
  }
  home.addEventListener("dragover", (event) => { event.preventDefault(); home.classList.add("dragged"); });
  home.addEventListener("dragleave", (event) => { if (!home.contains(event.relatedTarget)) home.classList.remove("dragged"); });
  home.addEventListener("drop", (event) => {
    event.preventDefault();
    home.classList.remove("dragged");
    take([...event.dataTransfer.files]);
  });

  // ------------------------------------------------------------------------------------------------------------------------

  function render() {
    const now = look(), made = seriesOf(now), { chosen, metric, family } = now;
    showOptions(now);
    showToggles(now.rows);
    const some = made.series.length > 0;
    chart.toggleAttribute("hidden", !some);
    empty.hidden = some;
    table.hidden = !some;
    empty.textContent = now.here.length ? "Nothing that is switched on has this figure here." : "Nothing was measured like this. Choose another shape, mask, regime or GPU.";
    caption.textContent = describe(now, made);
    point();
    drawn = { ...made, view: some && {
      form: family ? "lines" : "bars", title: metric.name, log: chosen.y === "log", logN: chosen.x === "log", base: metric.base, baseName: metric.baseName,
      write: metric.write, writeTick: plain, series: made.series,
    } };
    chart.setAttribute("aria-label", `Chart of ${metric.name}. ${caption.textContent} The arrow keys walk through the values; the table below holds them all.`);
    drawChart();
    showTable(now, made);
    const rows = made.series.flatMap((one) => one.points.map((one) => one.row));
    download.download = `flash-ladder-${chosen.metric}.csv`;
    download.href = `data:text/csv;charset=utf-8,${encodeURIComponent(lab.write(rows, rules.columns))}`;
  }

  addEventListener("hashchange", () => { readAddress(); render(); });
  readAddress();
  render();
};
