// The trace player: steps through a trace (trace.js, replay.js) with the kernel beside it. The page holds the traces and the kernels.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const root = document.querySelector(".player");
  if (!root) return;

  // ---- the page -------------------------------------------------------------------------------------------------------

  function make(tag, attributes = {}, ...children) {
    const node = tag === "svg" || tag === "rect" || tag === "line" || tag === "title"
      ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  // On a chapter's page: that rung alone, from the event that the chapter speaks of, and the page's address is its own.
  const isEmbedded = root.dataset.at !== undefined;
  const summary = make("details", {}, make("summary", {}, `The trace of ${root.dataset.first} summed up by source line`), ...[...root.children].slice(1));
  const stages = [...document.querySelectorAll("script.stage")].map((script) => script.dataset.name);
  const OWN = "your file";

  const select = (name, options) => make("select", { "data-choice": name }, ...options.map(([value, text]) => make("option", { value }, text)));
  const choices = {
    stage: select("stage", stages.map((stage) => [stage, stage])),
    warp: select("warp", []),
    order: select("order", [["turns", "warps in turn"], ["emulated", "as emulated"]]),
  };
  const file = make("input", { type: "file", accept: ".json,application/json" });
  const button = (action, text, words) => make("button", { type: "button", "data-action": action, "aria-label": words, title: words }, text);
  const play = button("play", "Play", "Play or stop (space)");
  const buttons = make("div", { class: "buttons", role: "group", "aria-label": "Steps" },
    button("first", "|<", "First event (Home)"), button("back-part", "<< part", "Start of a part before (shift and left, or P)"),
    button("back", "<", "Previous event (left)"), play, button("next", ">", "Next event (right)"),
    button("next-part", "part >>", "Next part (shift and right, or p)"), button("last", ">|", "Last event (End)"),
    button("next-wait", "wait", "Next wait for copies or an mbarrier (w; before: W)"), button("next-barrier", "barrier", "Next barrier (b; before: B)"));
  const speed = select("speed", [["2", "2 a second"], ["10", "10 a second"], ["50", "50 a second"]]);
  const slider = make("input", { type: "range", min: "0", "aria-label": "Event" });
  const said = make("p", { class: "said", "aria-live": "polite" });
  const refusal = make("p", { class: "refusal", role: "alert" });
  const lanes = make("div", { class: "lanes" }), memory = make("div", { class: "memory" });
  const kernel = make("div", { class: "source", tabindex: "0", role: "region", "aria-label": "Kernel" });
  const about = make("p", { class: "about" });
  const label = (text, control) => make("label", {}, `${text} `, control);
  const key = (...kinds) => make("p", { class: "key" }, ...kinds.flatMap(([kind, text]) => [make("span", { class: `swatch ${kind}` }), ` ${text} `]));

  root.replaceChildren(
    make("div", { class: "choices" }, ...(isEmbedded ? [] : [label("Stage", choices.stage)]), label("Follow", choices.warp), label("Order", choices.order),
      label("Speed", speed), ...(isEmbedded ? [] : [label("Your own trace", file)])),
    refusal, about, make("div", { class: "steps" }, buttons, slider, said),
    make("div", { class: "halves" },
      make("div", {}, make("h3", {}, "Warps"), lanes,
        key(["LOAD", "LOAD"], ["QK", "QK"], ["SOFTMAX", "SOFTMAX"], ["PV", "PV"], ["STORE", "STORE"], ["WAIT", "waits at a barrier"]),
        memory,
        key(["state1", "in flight"], ["state2", "landed for the warp that copied or wrote"], ["state3", "safe for all warps; in global memory: written"])),
      make("div", {}, kernel)),
    summary);
  root.tabIndex = -1;

  // ---- state ----------------------------------------------------------------------------------------------------------

  const known = new Map();  // by stage, and OWN
  let made, order, preferred = "turns", replay, at = 0, timer = 0, pieces, lines, marked, frame = 0;

  function loaded(stage) {
    if (!known.has(stage)) {
      const lines = [...document.querySelector(`template[data-kernel="${stage}"]`).content.querySelectorAll(".line")];
      const text = document.querySelector(`script.stage[data-name="${stage}"]`).textContent;
      known.set(stage, trace.read(text, lines.map((line) => line.textContent.replace(/\n$/, ""))));
    }
    return known.get(stage);
  }

  function show(name) {
    made = loaded(name);
    choices.stage.value = name;
    const tiles = made.tile.bc ? `, ${made.n / made.tile.bc} tiles of ${made.tile.bc} keys` : "";
    about.textContent = `${made.stage}${made.variant ? `, ${made.variant}` : ""}: block 0 of n = ${made.n}, d = ${made.d}${tiles}; ` +
      `${made.events.length} warp instructions of ${made.warps} warps${made.turns ? "" : ", with mbarriers: as emulated alone"}.`;
    choices.warp.replaceChildren(make("option", { value: "all" }, "all warps"),
      ...Array.from({ length: made.warps }, (_, warp) => make("option", { value: warp }, `warp ${warp}`)));
    const template = name === OWN ? null : document.querySelector(`template[data-kernel="${name}"]`);
    const source = made.source || ["This trace brings no source; the line numbers are those of its kernel."];
    const pre = template ? template.content.firstElementChild.cloneNode(true) : make("pre", { class: "highlight kernel" },
      ...source.map((line, i) => make("span", { class: "line", "data-n": made.source ? i + 1 : "" }, `${line}\n`)));
    for (const line of pre.querySelectorAll("[id]")) line.removeAttribute("id");
    kernel.replaceChildren(pre);
    lines = made.source ? [...pre.querySelectorAll(".line")] : [];
    marked = undefined;
    slider.max = made.events.length - 1;
    put();
  }

  function put() {
    choices.order.disabled = !made.turns;
    choices.order.value = made.turns ? preferred : "emulated";
    order = choices.order.value === "turns" ? made.turns : made.events;
    replay = new trace.Replay(made, order);
    pieces = { lanes: drawLanes(), launch: -1 };
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  function strip(cells, name) {
    const svg = make("svg", { viewBox: `0 0 ${cells} 1`, preserveAspectRatio: "none", role: "img", "aria-label": name });
    const rects = Array.from({ length: cells }, (_, i) => svg.appendChild(make("rect", { x: i, y: 0, width: 1, height: 1, class: "state0" })));
    const touch = svg.appendChild(make("rect", { class: "touch", y: 0, height: 1, width: 0 }));
    const shown = new Uint8Array(cells);
    return { svg, touch, update: (states) => states.forEach((state, i) => {
      if (shown[i] === state) return;
      shown[i] = state;
      rects[i].setAttribute("class", `state${state}`);
    }) };
  }

  function row(into, name, picture) {
    const text = make("span", { class: "state-text" });
    into.append(make("div", { class: "row" }, make("span", { class: "name" }, name), picture, text));
    return text;
  }

  function drawLanes() {
    lanes.replaceChildren();
    return trace.spans(made, order).map((spans, warp) => {
      const svg = make("svg", { viewBox: `0 0 ${order.length} 1`, preserveAspectRatio: "none", role: "img", "aria-label": `Warp ${warp} over the trace` });
      for (const span of spans) {
        if (span.end > span.start) svg.append(make("rect", { x: span.start, y: 0, width: span.end - span.start, height: 1, class: span.kind }));
      }
      const cursor = svg.appendChild(make("line", { class: "cursor", y1: 0, y2: 1 }));
      svg.addEventListener("click", (click) => {
        const box = svg.getBoundingClientRect();
        go(Math.min(order.length - 1, Math.floor((click.clientX - box.left) / box.width * order.length)));
      });
      return { cursor, text: row(lanes, `warp ${warp}`, svg) };
    });
  }

  function drawMemory() {
    memory.replaceChildren();
    const level = (title) => {
      const into = make("div", {});
      memory.append(make("h3", {}, title), into);
      return into;
    };
    const strips = (into, buffers) => new Map([...buffers].map(([name, buffer]) => {
      const drawn = strip(buffer.cells.length, name);
      return [name, { ...drawn, buffer, text: row(into, name, drawn.svg) }];
    }));
    pieces.launch = replay.launch;
    pieces.shared = replay.shared.size ? strips(level("Shared memory"), replay.shared) : new Map();
    const registers = made.hasParts && made.events.some(trace.isMma) ? level("Registers") : null;
    pieces.registers = registers && replay.warps.map((_, warp) => {
      const svg = make("svg", { viewBox: "0 0 201 1", preserveAspectRatio: "none", role: "img", "aria-label": `Registers of warp ${warp}` },
        make("rect", { class: "state0", x: 0, width: 100, height: 1 }), make("rect", { class: "state0", x: 101, width: 100, height: 1 }));
      const scores = svg.appendChild(make("rect", { class: "QK", x: 0, width: 0, height: 1 }));
      const output = svg.appendChild(make("rect", { class: "PV", x: 101, width: 0, height: 1 }));
      const total = made.events.filter((event) => event.warp === warp && event.part === "PV" && event.mma).length;
      return { scores, output, total, text: row(registers, `warp ${warp}`, svg) };
    });
    pieces.global = strips(level("Global memory"), replay.global);
  }

  const lineOf = (event) => `line ${event.line}${event.elsewhere ? ` of ${event.elsewhere}` : ""}`;

  function stateOf(warp) {
    if (warp.waits) return `waits at ${lineOf(warp.waits)}`;
    if (!warp.last) return "has not begun";
    if (warp.ended) return "has ended";
    return `${placeIn(warp.last)}${lineOf(warp.last)}`;
  }

  function scroll() {
    frame = 0;
    if (!marked) return;
    const away = marked.getBoundingClientRect().top - kernel.getBoundingClientRect().top - kernel.clientHeight / 2;
    if (Math.abs(away) > kernel.clientHeight / 3) kernel.scrollTop += away;
  }

  function say(node, text) {  // most of them are the same after a step, and a change costs a layout
    if (node.textContent !== text) node.textContent = text;
  }

  function placeIn(event) {
    if (made.hasParts) return event.part === "STORE" ? "STORE, " : `${event.part} of tile ${event.tile}, `;
    return made.events[made.events.length - 1].launch > 0 ? `kernel ${event.launch + 1}, ` : "";
  }

  function draw() {
    const event = order[at];
    replay.to(at + 1);
    if (pieces.launch !== replay.launch || !pieces.global) drawMemory();

    const counted = (buffer, names, bytes) => [1, 2, 3].map((state) => [buffer.cells.reduce((sum, cell) => sum + (cell === state), 0), names[state]])
      .filter(([count]) => count).map(([count, name]) => `${count * buffer.cellBytes / bytes} ${name}`).join(", ");
    for (const [level, names] of [["global", ["", "", "read", "written"]], ["shared", ["", "in flight", "landed", "safe"]]]) {
      for (const [name, piece] of pieces[level]) {
        const buffer = replay[level].get(name);
        piece.update(buffer.cells);
        const touched = event[level] && event[level].buffer === name ? trace.Replay.cellsOf(buffer, event[level]) : null;
        piece.touch.setAttribute("x", touched ? touched[0] : 0);
        piece.touch.setAttribute("width", touched ? touched[1] - touched[0] + 1 : 0);
        const [unit, bytes] = trace.hasRows(name, level) ? ["rows", replay.rowBytes] : ["bytes", 1];
        const from = buffer.from > 0 ? `; last filled from row ${buffer.from / replay.rowBytes} of ${name} on` : "";
        say(piece.text, `${buffer.bytes / bytes} ${unit}: ${counted(buffer, names, bytes) || (level === "global" ? "untouched" : "empty")}${from}`);
      }
    }
    replay.warps.forEach((warp, i) => {
      const { cursor, text } = pieces.lanes[i];
      cursor.setAttribute("x1", at + 0.5);
      cursor.setAttribute("x2", at + 0.5);
      say(text, stateOf(warp));
      if (!pieces.registers) return;
      const { scores, output, total, text: registers } = pieces.registers[i];
      scores.setAttribute("width", 100 * warp.scoresDone);
      scores.setAttribute("class", warp.scores === "S" ? "QK" : "SOFTMAX");
      output.setAttribute("width", 100 * warp.outputDone / Math.max(1, total));
      say(registers, `${warp.scores} ${Math.round(100 * warp.scoresDone)} %, O ${Math.round(100 * warp.outputDone / Math.max(1, total))} %`);
    });

    const line = event.elsewhere ? undefined : lines[event.line - 1];
    if (line !== marked) {
      marked?.classList.remove("current");
      marked = line;
    }
    if (line && !line.classList.contains("current")) {
      line.classList.add("current");
      if (!frame) frame = requestAnimationFrame(scroll);  // once for many steps: asking for places costs a layout
    }

    slider.value = at;
    slider.setAttribute("aria-valuetext", `event ${event.id}`);
    said.textContent = `Event ${event.id}, warp ${event.warp}, ${placeIn(event)}${lineOf(event)}: ${event.instruction} ${trace.words(event, replay)}`;
    root.dataset.event = event.id;
    root.dataset.line = event.line;
    remember();
  }

  // ---- moving ---------------------------------------------------------------------------------------------------------

  const followed = (event) => choices.warp.value === "all" || event.warp === Number(choices.warp.value);

  function find(step, wanted) {
    for (let i = at + step; i >= 0 && i < order.length; i += step) if (followed(order[i]) && wanted(order[i])) return i;
    return -1;
  }

  const elsewhere = (event) => event.isFirst && ["part", "tile", "launch"].some((what) => event[what] !== order[at][what]);
  const MOVES = {
    first: () => order.findIndex(followed),
    last: () => order.length - 1 - [...order].reverse().findIndex(followed),
    back: () => find(-1, () => true), next: () => find(1, () => true),
    "back-part": () => find(-1, elsewhere), "next-part": () => find(1, elsewhere),
    "back-wait": () => find(-1, trace.isWait), "next-wait": () => find(1, trace.isWait),
    "back-barrier": () => find(-1, trace.isArrival), "next-barrier": () => find(1, trace.isArrival),
  };
  const KEYS = { ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last", p: "next-part", P: "back-part", w: "next-wait", W: "back-wait",
                 b: "next-barrier", B: "back-barrier", " ": "play" };

  function go(to) {
    if (to < 0) return false;
    at = to;
    draw();
    return true;
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
    said.setAttribute("aria-live", "polite");
  }

  function act(action) {
    if (action !== "play" || timer) {
      const playing = timer !== 0;
      stop();
      if (action === "play" && playing) return;
    }
    if (action === "play") {
      play.textContent = "Stop";
      said.setAttribute("aria-live", "off");  // nobody could listen that fast
      timer = setInterval(() => { if (!go(MOVES.next())) stop(); }, 1000 / Number(speed.value));
    } else {
      go(MOVES[action]());
    }
  }

  buttons.addEventListener("click", (click) => { if (click.target.dataset.action) act(click.target.dataset.action); });
  root.addEventListener("keydown", (press) => {
    const { target, key: name } = press, typed = target.matches("select, input:not([type=range])");
    if (press.ctrlKey || press.altKey || press.metaKey || typed || (name === " " && target.matches("button, summary"))) return;
    const action = press.shiftKey && name.startsWith("Arrow") ? { ArrowLeft: "back-part", ArrowRight: "next-part" }[name] : KEYS[name];
    if (!action) return;
    press.preventDefault();
    act(action);
  });
  slider.addEventListener("input", () => {
    at = Number(slider.value);
    if (!followed(order[at]) && !go(MOVES.next())) go(MOVES.back());
    draw();
  });
  choices.stage.addEventListener("change", () => { stop(); show(choices.stage.value); go(0); });
  choices.warp.addEventListener("change", () => { if (!followed(order[at]) && !go(MOVES.next())) go(MOVES.back()); draw(); });
  choices.order.addEventListener("change", () => {
    const event = order[at];
    preferred = choices.order.value;
    put();
    go(order.indexOf(event));
  });

  // ---- a reader's own trace -------------------------------------------------------------------------------------------

  async function open(chosen) {
    stop();
    try {
      known.set(OWN, trace.read(await chosen.text()));
      refusal.textContent = "";
    } catch (error) {
      if (!(error instanceof trace.Refusal)) throw error;
      refusal.textContent = `${chosen.name} is not shown. ${error.message}`;
      return;
    }
    if (!choices.stage.querySelector(`[value="${OWN}"]`)) choices.stage.append(make("option", { value: OWN }, OWN));
    show(OWN);
    go(0);
  }
  file.addEventListener("change", () => { if (file.files.length) open(file.files[0]); });
  root.addEventListener("dragover", (drag) => drag.preventDefault());
  root.addEventListener("drop", (drop) => {
    drop.preventDefault();
    if (drop.dataTransfer.files.length) open(drop.dataTransfer.files[0]);
  });

  // ---- the address ----------------------------------------------------------------------------------------------------

  let later = 0;
  function remember() {  // late, for browsers refuse hundreds of addresses in a row; a file of the reader's own has none
    if (isEmbedded) return;
    clearTimeout(later);
    later = setTimeout(() => {
      const [stage, warp, turn] = ["stage", "warp", "order"].map((name) => choices[name].value);
      const state = new URLSearchParams({ stage, event: order[at].id, warp, order: turn });
      history.replaceState(null, "", choices.stage.value === OWN ? location.pathname : `#${state}`);
    }, 150);
  }

  function restore() {
    const state = new URLSearchParams(location.hash.slice(1));
    const stage = stages.includes(state.get("stage")) ? state.get("stage") : root.dataset.first;
    preferred = state.get("order") === "emulated" ? "emulated" : "turns";
    show(stage);
    const warp = [...choices.warp.options].find((option) => option.value === state.get("warp"));
    if (warp) choices.warp.value = warp.value;
    const event = made.events[Number(state.get("event"))] || made.events[0];
    go(order.indexOf(event));
  }
  // "QK 1": where that part of that tile begins; "QK 1 2": for warp 2.
  function begin() {
    const [part, tile, warp] = root.dataset.at.split(" ");
    show(root.dataset.first);
    go(order.findIndex((event) => event.part === part && event.tile === Number(tile) && (warp === undefined || event.warp === Number(warp))));
    root.dataset.isFound = order[at].part === part && order[at].tile === Number(tile);
  }
  if (isEmbedded) {
    begin();
  } else {
    addEventListener("hashchange", restore);
    restore();
  }
});
