// The benchmark lab: its controls, its table, its keys. What is shown is a function of the files and of the state in the address,
// so that a link restores a view.
"use strict";
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".bench-lab").forEach(lab.start));

lab.start = (home) => {
  const data = JSON.parse(home.querySelector("script").textContent), { forms } = data;
  const files = data.files.map(({ name, form, text }) => ({ name, form, own: false, rows: lab.read(name, text, forms[form]) }));
  let state = lab.fresh();

  function readAddress() {
    const hash = location.hash.slice(1);
    if (!hash || hash.includes("=")) state = lab.fromAddress(hash);  // else it leads to a section
  }
  function change(edit) {
    edit();
    history.replaceState(null, "", `#${lab.toAddress(state)}`);
    render();
  }

  // ---- the parts -----------------------------------------------------------------------------------------------------

  const html = (tag, attributes = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  };

  const LABELS = {
    metric: "Show", gpu: "GPU", shape: "Shape", causal: "Mask", regime: "Regime", inputs: "Inputs", dtype: "Type", problem: "Problem",
    y: "Values", x: "N axis",
  };
  const selects = {};
  for (const name of Object.keys(LABELS)) {
    selects[name] = html("select", { name, onchange: (event) => change(() => {
      state[name] = event.target.value;
      if (name === "metric") state.y = null;
    }) });
  }
  const controls = html("form", { className: "lab-controls", ariaLabel: "What the chart shows", onsubmit: () => false },
    ...Object.entries(LABELS).map(([name, label]) => html("label", {}, `${label} `, selects[name])));

  const chart = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  chart.setAttribute("class", "lab-chart");
  chart.setAttribute("role", "group");
  const tip = html("div", { className: "lab-tip", hidden: true }), empty = html("p", { className: "lab-empty", hidden: true });
  const caption = html("figcaption"), figure = html("figure", {}, chart, empty, tip, caption);
  const who = html("summary"), boxes = html("div"), toggles = html("details", { className: "lab-toggles" }, who, boxes);
  const presets = html("div", { className: "lab-presets", role: "group", ariaLabel: "Questions" }, ...lab.PRESETS.map(([text, address]) => html("button",
    { type: "button", onclick: () => change(() => { state = lab.fromAddress(address); }) }, text)),
    html("button", { type: "button", onclick: () => input.click() }, "Your own CSV"));
  const download = html("a", { className: "lab-download" }, "Download these rows as CSV");
  const input = html("input", { type: "file", accept: ".csv,text/csv", multiple: true, onchange: () => take([...input.files]) });
  const status = html("div", { className: "lab-status", role: "status" });
  const own = html("div", { className: "lab-own" },
    html("label", {}, "Add your own CSV, or drop it here: ", input), status, html("p", {}, download));
  const table = html("table");
  const twin = html("div", { className: "lab-table", tabIndex: 0, role: "region", ariaLabel: "The chart as a table" }, table);
  home.replaceChildren(presets, controls, figure, toggles, twin, own);

  // ---- the controls ----------------------------------------------------------------------------------------------------

  function showOptions({ rows, options, chosen, family }) {
    for (const [name, select] of Object.entries(selects)) {
      const wanted = JSON.stringify(options[name]);
      if (select.dataset.options !== wanted) {
        select.replaceChildren(...options[name].map(([value, text]) => html("option", { value }, text)));
        select.dataset.options = wanted;
      }
      select.value = chosen[name] ?? "";
      select.parentElement.hidden = options[name].length < (["inputs", "dtype", "problem"].includes(name) ? 2 : 1);
    }
    const has = (name, value) => rows.some((row) => row[name] === value);
    const BOTH = { causal: [false, true], regime: ["turns", "alone"] };
    for (const [name, both] of Object.entries(BOTH)) {
      for (const { value } of selects[name].options) {
        const wanted = value === "both" ? both : [name === "causal" ? value === "1" : value];
        selects[name].querySelector(`[value="${value}"]`).disabled = !wanted.every((one) => has(name, one));
      }
    }
    selects.x.parentElement.hidden = !family;
  }

  const KINDS = {
    stage: "Rungs", variant: "Variants of rungs", peer: "Other implementations", ceiling: "Ceilings of the card",
  };

  function showToggles({ rows, crowded }) {
    const kinds = new Map(rows.map((row) => [row.stage, row.variety]));
    const inOrder = (a, b) => lab.placeOf(a, data) - lab.placeOf(b, data) || (a < b ? -1 : 1);
    const ofKind = (kind) => [...kinds.keys()].filter((stage) => kinds.get(stage) === kind).sort(inOrder);
    const groups = Object.keys(KINDS).map((kind) => [kind, ofKind(kind)]);
    if (toggles.dataset.groups !== JSON.stringify(groups)) {
      toggles.dataset.groups = JSON.stringify(groups);
      boxes.replaceChildren(...groups.filter(([, stages]) => stages.length).map(([kind, stages]) => {
        const turn = (names, on) => change(() => names.forEach((name) => { state.switched[name] = on; }));
        const boxes = stages.map((name) => html("label", {},
          html("input", { type: "checkbox", name, onchange: (event) => turn([name], event.target.checked) }), ` ${name}`));
        const button = (text, on) => html("button",
          { type: "button", ariaLabel: `${KINDS[kind]}: ${text}`, onclick: () => turn(stages, on) }, text);
        const buttons = stages.length > 2 ? [button("all", true), button("none", false)] : [];
        return html("fieldset", {}, html("legend", {}, KINDS[kind]), ...boxes, ...buttons);
      }));
    }
    const all = [...boxes.querySelectorAll("input")];
    for (const box of all) box.checked = lab.isShown(state, box.name, kinds.get(box.name), data, crowded);
    who.textContent = `Who is shown: ${all.filter((box) => box.checked).length} of ${all.length}`;
  }

  // ---- the table: a line for each mark, or one for each contestant and a column for each N ---------------------------------

  function showTable({ here, family, metric }, { series, machines }) {
    const cell = (text) => html("td", {}, text), several = machines.length > 1;
    const between = ({ low, high }, word) => (low === undefined ? "" : `${metric.write(low)}${word}${metric.write(high)}`);
    const lengths = [...new Set(here.map((row) => row.n))].sort((a, b) => a - b);
    const overN = (one) => lengths.map((n) => {
      const point = one.points.find((point) => point.n === n);
      if (!point) return cell("");
      return cell(metric.write(point.value) + (point.low === undefined ? "" : ` [${between(point, ", ")}]`));
    });
    const alone = ({ points: [{ row, ...point }] }) => [
      cell(metric.write(point.value)), cell(between(point, " to ")), ...(metric.verdict ? [cell(row.verdict)] : []),
      ...(metric.form === "results" ? [cell(row.clock_mhz ?? "")] : []), cell([row.date, row.commit].filter(Boolean).join(", ")),
    ];
    const heads = ["contestant", ...(several ? ["GPU"] : []), ...(family ? lengths.map((n) => `N = ${n}`) : [
      metric.name, metric.interval ?? "interval", ...(metric.verdict ? ["verdict"] : []),
      ...(metric.form === "results" ? ["clock, MHz"] : []), "recorded",
    ])];
    const lines = series.map((one) => html("tr", {}, html("th", { scope: "row" }, one.stage),
      ...(several ? [cell(one.gpu)] : []), ...(family ? overN : alone)(one)));
    const title = family && metric.interval ? `${metric.name}, with ${metric.interval}` : metric.name;
    table.replaceChildren(html("caption", {}, title),
      html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))), html("tbody", {}, ...lines));
  }

  // ---- the chart, its tip and its keys -----------------------------------------------------------------------------------

  let view = null, width = 0, nearest = () => undefined;
  const marks = () => [...chart.querySelectorAll(".mark")];

  function drawChart() {
    width = figure.clientWidth;
    chart.replaceChildren();
    if (!view || !width) return;
    nearest = lab.draw(chart, view, width);
    marks()[0]?.setAttribute("tabindex", 0);
  }
  new ResizeObserver(() => { if (figure.clientWidth !== width) drawChart(); }).observe(figure);

  function pick(mark) {
    for (const other of chart.querySelectorAll(".mark.picked")) other.classList.remove("picked");
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("picked");
    tip.textContent = mark.getAttribute("aria-label");
    const ratio = chart.getBoundingClientRect().width / width, x = mark.at.x * ratio, y = mark.at.y * ratio;
    tip.style.left = `${Math.max(0, Math.min(x + 12, figure.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${y > tip.offsetHeight + 14 ? y - tip.offsetHeight - 12 : y + 14}px`;
  }

  function moved(event) {
    const box = chart.getBoundingClientRect(), ratio = width / box.width;
    pick(nearest((event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio));
  }
  chart.addEventListener("pointermove", moved);
  chart.addEventListener("pointerdown", moved);
  chart.addEventListener("pointerleave", () => pick(chart.querySelector(".mark:focus")));
  // At the figure: an svg that listens for focus itself becomes a stop of the Tab key in Chromium.
  figure.addEventListener("focusin", (event) => pick(event.target.closest(".mark")));
  figure.addEventListener("focusout", () => pick());

  // One stop of the Tab key. The arrows walk from mark to mark: along a line, and to the next value at the same N.
  function neighbour(mark, key) {
    const list = marks(), series = mark.closest(".series"), back = key === "ArrowLeft" || key === "ArrowUp";
    if (key === "Home" || key === "End") return list.at(key === "Home" ? 0 : -1);
    if (!back && key !== "ArrowRight" && key !== "ArrowDown") return undefined;
    let path = list;
    if (series && (key === "ArrowLeft" || key === "ArrowRight")) {
      path = [...series.querySelectorAll(".mark")];
    } else if (series) {
      path = list.filter((other) => other.dataset.n === mark.dataset.n).sort((a, b) => b.dataset.value - a.dataset.value);
    }
    return path[path.indexOf(mark) + (back ? -1 : 1)] ?? mark;
  }
  figure.addEventListener("keydown", (event) => {
    const mark = event.target.closest(".mark"), next = mark && neighbour(mark, event.key);
    if (event.key === "Escape") pick();
    if (!next) return;
    event.preventDefault();
    mark.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });

  // ---- the reader's own files ----------------------------------------------------------------------------------------------

  function say(text, className) {
    const remove = (file) => html("button", { type: "button", onclick: () => {
      files.splice(files.indexOf(file), 1);
      say(`${file.name} is gone again.`, "good");
      change(() => { state.gpu = null; });
    } }, `Remove ${file.name}`);
    status.replaceChildren(html("p", { className }, text), ...files.filter((file) => file.own).map(remove));
  }

  function textOf(name, buffer) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(buffer);
    } catch {
      throw new lab.Refusal(`${name}: not a text file`);
    }
  }

  async function take(list) {
    for (const { name, ...file } of list.map((file) => ({ name: file.name, buffer: file.arrayBuffer() }))) {
      try {
        const text = textOf(name, await file.buffer), form = lab.formOf(text), rows = lab.read(name, text, forms[form]);
        const known = files.findIndex((other) => other.own && other.name === name);
        if (known >= 0) files.splice(known, 1);
        files.push({ name, form, own: true, rows });
        say(`${name}: ${rows.length} rows read. They stay in this page and are sent nowhere.`, "good");
        change(() => {
          state.gpu = "all";
          if (lab.look(files, state, data).metric.form === form) return;
          state.metric = form === "results" ? "tflops" : rows.find((row) => row.metric.includes("bytes"))?.metric ?? state.metric;
          state.y = null;
        });
      } catch (error) {
        if (!(error instanceof lab.Refusal)) throw error;
        say(`Refused. ${error.message}`, "bad");
      }
    }
    input.value = "";
  }
  home.addEventListener("dragover", (event) => {
    event.preventDefault();
    home.classList.add("dragged");
  });
  home.addEventListener("dragleave", (event) => home.classList.toggle("dragged", home.contains(event.relatedTarget)));
  home.addEventListener("drop", (event) => {
    event.preventDefault();
    home.classList.remove("dragged");
    take([...event.dataTransfer.files]);
  });

  // ------------------------------------------------------------------------------------------------------------------------

  function render() {
    const now = lab.look(files, state, data), made = lab.seriesOf(now, state), { chosen, metric, family } = now;
    const series = lab.drawn(made.series), some = series.length > 0;
    showOptions(now);
    showToggles(now);
    chart.toggleAttribute("hidden", !some);
    empty.hidden = some;
    table.hidden = !made.series.length;
    empty.textContent = made.series.length ? "All of it is 0, which is not on a logarithmic axis. Choose linear values."
      : now.here.length ? "Nothing that is switched on has this figure here."
      : "Nothing was measured like this. Choose another shape, mask, regime or GPU.";
    caption.textContent = lab.describe(now, made, state);
    chart.setAttribute("aria-label", `Chart of ${metric.name}. ${caption.textContent} ` +
      "The arrow keys walk through the values; the table below holds them all.");
    pick();
    view = some && {
      form: family ? "lines" : "bars", title: metric.name, log: chosen.y === "log", logN: chosen.x === "log", base: metric.base,
      baseName: metric.baseName, write: metric.write, writeTick: metric.writeTick, series,
    };
    drawChart();
    showTable(now, made);
    const rows = made.series.flatMap((one) => one.points.map((point) => point.row));
    download.download = `flash-ladder-${chosen.metric}.csv`;
    download.href = `data:text/csv;charset=utf-8,${encodeURIComponent(lab.write(rows, Object.keys(forms[metric.form].properties)))}`;
  }

  addEventListener("hashchange", () => {
    readAddress();
    render();
  });
  readAddress();
  render();
};
