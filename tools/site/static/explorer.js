// The explorer: the bank grid of a swizzle that the reader writes (swizzle.js), and who holds which element of a fragment.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const root = document.querySelector(".explorer");
  if (!root) return;
  const facts = JSON.parse(document.querySelector("script.layouts").textContent);

  function make(tag, attributes = {}, ...children) {
    const node = ["svg", "rect", "text", "g", "title"].includes(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  // A grid as the site's drawings are: names above and at the left, cells of {row, column, tall, wide, text, kind, act}.
  const WIDTH = 320, MARGIN = 46, LINE = 20;
  function grid(words, rows, columns, cells) {
    const unit = WIDTH / columns.length;
    const svg = make("svg", { viewBox: `0 0 ${MARGIN + WIDTH + 2} ${LINE * (rows.length + 1) + 2}`, role: "img", "aria-label": words });
    columns.forEach((name, i) => svg.append(make("text", { class: "label", x: MARGIN + (i + 0.5) * unit, y: 14 }, name)));
    rows.forEach((name, i) => svg.append(make("text", { class: "label row", x: MARGIN - 6, y: LINE * (i + 1) + 14 }, name)));
    for (const cell of cells) {
      const x = MARGIN + cell.column * unit, y = LINE * (cell.row + 1), tall = LINE * (cell.tall || 1), wide = unit * (cell.wide || 1);
      const group = make("g", { class: cell.kind, ...cell.data }, make("rect", { x, y, width: wide, height: tall }),
                         make("text", { x: x + wide / 2, y: y + tall / 2 + 4 }, cell.text));
      if (cell.act) group.addEventListener("click", cell.act);
      svg.append(group);
    }
    return svg;
  }

  const label = (text, control) => make("label", {}, `${text} `, control);
  const range = (max, name) => make("input", { type: "range", min: 0, max, value: 0, "data-choice": name });
  const select = (name, options) => make("select", { "data-choice": name }, ...options.map(([value, text]) => make("option", { value }, text)));
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  // ---- banks --------------------------------------------------------------------------------------------------------------

  const PRESETS = [["chunk", 16, "none (01_base)"], ["chunk ^ row % 8", 16, "XOR (02_swizzle)"], ["chunk", 17, "padding: rows of 17 chunks"],
                   ["(chunk + row) % 16", 16, "rotation"], ["chunk ^ row % 4", 16, "XOR with too few rows"],
                   ["chunk ^ row / 2 % 8", 16, "XOR with the wrong rows"], ["chunk % 8", 16, "loses data"], ["chunk ^ row", 16, "leaves the tile"]];
  const preset = select("preset", [...PRESETS.map(([, , name], i) => [i, name]), ["", "your own"]]);
  const expression = make("input", { type: "text", spellcheck: "false", autocomplete: "off", autocapitalize: "off", maxlength: 200, "data-choice": "expression" });
  const pitch = make("input", { type: "number", min: swizzle.CHUNKS, max: 64, "data-choice": "pitch" });
  const chunk = range(swizzle.CHUNKS - 1, "chunk"), group = range(swizzle.ROWS / 8 - 1, "group");
  const wrong = make("p", { class: "wrong", role: "alert" }), verdict = make("p", { class: "verdict", "aria-live": "polite" });
  const picture = make("div", { class: "drawing" }), reading = make("p", { class: "reading", "aria-live": "polite" }), costs = make("div", {});

  function drawBanks() {
    let tile;
    const width = Number(pitch.value);
    const same = PRESETS.findIndex(([text, width_]) => text === expression.value.trim() && width_ === width);
    preset.value = same < 0 ? "" : same;
    try {
      if (!Number.isInteger(width) || width < swizzle.CHUNKS || width > 64) throw new swizzle.Mistake(`A row must be ${swizzle.CHUNKS} to 64 chunks apart from the next.`);
      tile = swizzle.tile(swizzle.parse(expression.value), width);
      wrong.textContent = "";
    } catch (error) {
      if (!(error instanceof swizzle.Mistake)) throw error;
      wrong.textContent = error.message;
    }
    for (const part of [verdict, picture, reading, costs]) part.hidden = !tile;
    if (!tile) return;

    const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
    const read = sum(tile.reads.flat()), readIdeal = tile.reads.flat().length, written = sum(tile.writes), writeIdeal = 4 * tile.writes.length;
    const ways = (taken, ideal) => `${taken} wavefronts where ${ideal} would do, ${(taken / ideal).toFixed(2)}-way`;
    const found = [];
    if (tile.clashes.length) {
      const { first, second, offset } = tile.clashes[0];
      found.push(`Data loss: chunk ${second[1]} of row ${second[0]} lies where chunk ${first[1]} of row ${first[0]} does, at byte ${offset}; ` +
                 `${plural(tile.clashes.length, "chunk")} of ${swizzle.ROWS * swizzle.CHUNKS} overwrite another.`);
    }
    if (tile.behind) {
      found.push(`Out of the tile: chunk ${tile.behind[1]} of row ${tile.behind[0]} and ${tile.behindCount - 1} more lie behind the tile's last byte, in what comes next.`);
    }
    if (!found.length) found.push("Every chunk has a place of its own, inside the tile.");
    found.push(`Reading with ldmatrix: ${ways(read, readIdeal)}. Writing two rows at a time with st.shared.v4: ${ways(written, writeIdeal)}.`);
    if (width > swizzle.CHUNKS) found.push(`The tile takes ${(100 * (width / swizzle.CHUNKS - 1)).toFixed(1)} % more shared memory.`);
    verdict.textContent = found.join(" ");
    verdict.classList.toggle("wrong", Boolean(tile.clashes.length || tile.behind));

    const first = 8 * Number(group.value), chosen = Number(chunk.value);
    const cells = [];
    for (let row = 0; row < 8; ++row) {
      const slots = Array.from({ length: 8 }, () => []);
      tile.offsets[first + row].forEach((offset, c) => slots[offset % 128 / 16].push(c));
      slots.forEach((chunks, column) => {
        const here = chunks.includes(chosen);
        cells.push({ row, column, text: chunks.length > 3 ? `${chunks.slice(0, 2).join(" ")} ..` : chunks.join(" "), kind: here ? "r2 picked" : "r0",
                     data: { "data-row": first + row, "data-slot": column, "data-chunks": chunks.join(" ") },
                     act: () => { if (chunks.length) { chunk.value = chunks[(chunks.indexOf(chosen) + 1) % chunks.length]; update(drawBanks); } } });
      });
    }
    const places = Array.from({ length: 8 }, (_, row) => tile.offsets[first + row][chosen] % 128 / 4);
    const taken = tile.reads[Number(group.value)][chosen];
    reading.textContent = `Chunk ${chosen} of rows ${first} to ${first + 7}, one 8x8 matrix, begins in bank ${places.join(", ")}: ${plural(taken, "wavefront")}.`;
    picture.replaceChildren(grid(`Which chunks of rows ${first} to ${first + 7} lie in which banks. ${reading.textContent}`,
      Array.from({ length: 8 }, (_, row) => `row ${first + row}`), Array.from({ length: 8 }, (_, i) => `${4 * i}-${4 * i + 3}`), cells));
    const head = make("tr", {}, make("th", {}, "rows"), ...tile.reads[0].map((_, c) => make("th", {}, c)));
    costs.replaceChildren(make("table", { class: "costs" }, make("caption", {}, "Wavefronts to read a chunk (column) of eight rows"), make("thead", {}, head), make("tbody", {},
      ...tile.reads.map((line, g) => make("tr", {}, make("th", {}, `${8 * g}-${8 * g + 7}`), ...line.map((count) => make("td", {}, count)))))));
  }

  // ---- fragments ------------------------------------------------------------------------------------------------------------

  const NAMES = { A: "A, 16 x 16 of f16", B: "B, 16 x 8 of f16", C: "C, 16 x 8 of f32", ldmatrix: "ldmatrix, one 8x8 matrix", "ldmatrix-trans": "ldmatrix.trans, one 8x8 matrix" };
  const operand = select("operand", Object.entries(NAMES));
  const lane = range(31, "lane"), register = range(3, "register");
  const held = make("p", { class: "held", "aria-live": "polite" }), matrix = make("div", { class: "drawing" });

  // Elements of a lane and register as [row, column], low half first.
  function elementsOf(name, l, r) {
    const per = facts[name].perRegister;
    return facts[name].lanes[l].slice(r * per, (r + 1) * per);
  }

  function drawFragment() {
    const name = operand.value, { rows, cols, lanes, perRegister } = facts[name];
    register.max = lanes[0].length / perRegister - 1;
    register.disabled = Number(register.max) === 0;
    const l = Number(lane.value), r = Number(register.value);
    const cells = lanes.flatMap((places, who) => places.map(([row, column], i) => {
      const which = Math.floor(i / perRegister), mine = who === l && which === r;
      return { row, column, text: who, kind: `r${which}${mine ? " picked" : who === l ? " same-lane" : ""}`, data: { "data-row": row, "data-column": column },
               act: () => { lane.value = who; register.value = which; update(drawFragment); } };
    }));
    cells.sort((a, b) => a.kind.includes("picked") - b.kind.includes("picked"));  // an outline lies over its neighbours
    const places = elementsOf(name, l, r).map(([row, column]) => `row ${row} column ${column}`);
    const where = perRegister === 2 ? `${places[0]} in the low half, ${places[1]} in the high half` : places[0];
    held.textContent = name.startsWith("ldmatrix")
      ? `Lane ${l} receives ${where} of matrix m in its register m; of an .x4 it gives the address of row ${l % 8} of matrix ${l >> 3}.`
      : `Lane ${l}, register ${r} of ${name}: ${where}.`;
    matrix.replaceChildren(grid(`${NAMES[name]}: the lane that holds each element. ${held.textContent}`, Array.from({ length: rows }, (_, i) => `${i}`),
                                Array.from({ length: cols }, (_, i) => `${i}`), cells));
  }

  // ---- the page -------------------------------------------------------------------------------------------------------------

  const choices = { expression, pitch, chunk, group, operand, lane, register };
  function defaults() {
    [expression.value, pitch.value] = [PRESETS[0][0], PRESETS[0][1]];
    [chunk.value, group.value, operand.value, lane.value, register.value] = [2, 0, "A", 5, 0];
  }

  let later = 0;
  function update(draw) {
    draw();
    for (const [control, text] of [[chunk, "Chunk"], [group, "Rows"], [lane, "Lane"], [register, "Register"]]) {
      control.nextSibling.textContent = ` ${text === "Rows" ? `${8 * control.value} to ${8 * control.value + 7}` : control.value}`;
    }
    clearTimeout(later);
    later = setTimeout(() => {
      const state = new URLSearchParams(Object.entries(choices).map(([name, control]) => [name, control.value]));
      history.replaceState(null, "", `#${state}`);
    }, 150);
  }

  function restore() {
    defaults();
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      const control = choices[name];
      if (!control) continue;
      const before = control.value;
      control.value = value;
      if (control.value === "" && name !== "expression") control.value = before;
    }
    drawBanks();
    update(drawFragment);
  }

  const sliding = (text, control) => make("label", { class: "sliding" }, `${text} `, control, make("output", {}, ""));
  const table = make("details", {}, make("summary", {}, "Some mappings, counted by the emulator's bank model"), ...[...root.children].slice(1));
  root.replaceChildren(
    make("div", { class: "banks" }, make("h2", {}, "Banks"),
      make("div", { class: "choices" }, label("Preset", preset), label("Place of a chunk in its row", expression), label("Chunks from row to row", pitch)),
      wrong, verdict, sliding("Chunk", chunk), sliding("Rows", group), reading, picture, costs),
    make("div", { class: "fragments" }, make("h2", {}, "Fragments"),
      make("div", { class: "choices" }, label("Operand", operand)), sliding("Lane", lane), sliding("Register", register), held, matrix),
    table);
  preset.addEventListener("change", () => {
    if (preset.value === "") return;
    [expression.value, pitch.value] = PRESETS[preset.value];
    update(drawBanks);
  });
  for (const control of [expression, pitch, chunk, group]) control.addEventListener("input", () => update(drawBanks));
  for (const control of [operand, lane, register]) control.addEventListener("input", () => update(drawFragment));
  addEventListener("hashchange", restore);
  restore();
});
