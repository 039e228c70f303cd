// Reads and writes files of measurements in the browser. The rules are those of harness/plots/results.py: the page carries its
// tables, one for each form of file (columns, integers, ...); here is its logic. A test gives both the same broken files and
// wants the same answers.
"use strict";
window.lab = {};
{
  const CELL = /(?:"((?:[^"]|"")*)"|([^",]*))(?=,|$)/y;
  const INTEGER = /^[+-]?[0-9]+$/;
  const NUMBER = /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/;

  class Refusal extends Error {}

  // As %g writes it: six digits.
  const g = (value) => {
    if (value === 0) return "0";
    const [digits, power] = value.toExponential(5).split("e");
    if (power >= -4 && power < 6) return String(Number(value.toPrecision(6)));
    return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  };

  function split(where, line) {
    const cells = [];
    for (CELL.lastIndex = 0; CELL.lastIndex <= line.length; ++CELL.lastIndex) {
      const cell = CELL.exec(line);
      if (!cell) throw new Refusal(`${where}: a quote that is not closed, or stands within a cell`);
      cells.push(cell[1] === undefined ? cell[2] : cell[1].replaceAll('""', '"'));
    }
    return cells;
  }

  function checkHeader(name, header, { columns, added_later }) {
    const missing = columns.filter((column) => !header.includes(column) && !added_later.includes(column));
    const unknown = header.filter((column) => !columns.includes(column));
    if (missing.length) throw new Refusal(`${name}:1: no column ${missing.join(", ")}; the columns are ${columns.join(",")}`);
    if (unknown.length || header.length !== new Set(header).size) {
      throw new Refusal(`${name}:1: unknown or repeated column ${unknown.join(", ") || "names"}`);
    }
  }

  function parse(where, name, cell, rules) {
    const allowed = rules.allowed[name];
    if (allowed && !allowed.includes(cell)) {
      throw new Refusal(`${where}: ${name} is '${cell}'; expected one of ${allowed.filter(Boolean).join(", ")}`);
    }
    if (rules.words.includes(name)) return cell;
    if (cell === "") return null;
    if (rules.flags[name]) {
      const value = rules.flags[name][cell.toLowerCase()];
      if (value === undefined) throw new Refusal(`${where}: ${name} is '${cell}'; expected 0 or 1`);
      return value;
    }
    const integer = rules.integers.includes(name);
    if (!(integer ? INTEGER : NUMBER).test(cell)) {
      throw new Refusal(`${where}: ${name} is '${cell}', which is not ${integer ? "an integer" : "a number"}`);
    }
    if (!Number.isFinite(Number(cell))) throw new Refusal(`${where}: ${name} is '${cell}'; expected a finite number`);
    return Number(cell);
  }

  function readRow(where, line, header, cells, rules) {
    if (cells.length !== header.length) {
      throw new Refusal(`${where}: ${cells.length} fields, but the header has ${header.length}`);
    }
    const row = { line, raw: {} };
    for (const name of rules.added_later) row[name] = row.raw[name] = "";
    header.forEach((name, i) => {
      row.raw[name] = cells[i].trim();
      row[name] = parse(where, name, row.raw[name], rules);
    });
    for (const name of rules.required) {
      if (row[name] === null || row[name] === "") throw new Refusal(`${where}: no ${name}`);
    }
    for (const names of rules.ordered) {
      const known = names.map((name) => row[name]).filter((value) => value !== null);
      if (known.some((value, i) => value < known[i - 1])) {
        throw new Refusal(`${where}: ${names.join(" <= ")} does not hold: ${known.map(g).join(", ")}`);
      }
    }
    return row;
  }

  function checkDuplicates(file, rows, { identity }) {
    const seen = new Map();
    for (const row of rows) {
      const key = JSON.stringify(identity.map((name) => row[name]));
      if (seen.has(key)) {
        throw new Refusal(`${file}:${row.line}: repeats line ${seen.get(key)}: ${row.stage}, the same measurement`);
      }
      seen.set(key, row.line);
    }
  }

  // The rule about ceilings, as docs/results/README.md states it.
  function bounds(ceiling, row) {
    if (ceiling.gpu !== row.gpu) return false;
    const old = /^[0-9]+$/.test(row.sm) && Number(row.sm) > 0 && Number(row.sm) < 90;
    return ceiling.stage === "wgmma" || (ceiling.stage === "mma_sync" && (row.pct_ceiling !== null || old));
  }

  function checkCeilings(file, rows) {
    const ceilings = rows.filter((row) => row.kind === "ceiling");
    for (const row of rows) {
      const binding = ceilings.filter((ceiling) => bounds(ceiling, row)).map((ceiling) => ceiling.tflops);
      if (!binding.length || row.kind === "ceiling" || row.source !== "measured") continue;
      const highest = Math.max(...binding);
      if (row.tflops > highest) {
        throw new Refusal(`${file}:${row.line}: ${row.stage} claims ${g(row.tflops)} TFLOPS, ` +
          `above this card's ceiling of ${g(highest)}`);
      }
    }
  }

  // harness/plots/results.py
  function checkResults(file, rows) {
    for (const row of rows) {
      const where = `${file}:${row.line}`;
      if (row.tflops <= 0) throw new Refusal(`${where}: tflops is ${g(row.tflops)}; a measured rate is above 0`);
      if (row.pct_ceiling > 100) throw new Refusal(`${where}: ${row.stage} claims ${g(row.pct_ceiling)} % of its ceiling`);
    }
    checkCeilings(file, rows);
  }

  // harness/plots/traffic.py
  function checkTraffic(file, rows) {
    for (const row of rows) {
      const where = `${file}:${row.line}`, shape = [row.batch, row.heads, row.n, row.d];
      if (row.value < 0 || Math.min(...shape) < 1) {
        throw new Refusal(`${where}: ${row.metric} is ${g(row.value)} at ${shape}; nothing counted is below 0, no shape below 1`);
      }
      if ((row.source === "measured") !== Boolean(row.gpu)) {
        throw new Refusal(`${where}: source is '${row.source}' and gpu '${row.gpu}'; a GPU stands in measured rows alone`);
      }
    }
  }

  // "results" or "traffic", by the columns.
  lab.formOf = (text) => (text.split("\n", 1)[0].split(",").includes("metric") ? "traffic" : "results");

  // Rows with their values under the columns' names, and as written under `raw`. Throws lab.Refusal, `FILE:LINE: what`.
  lab.read = (file, text, rules) => {
    const lines = text.split("\n").map((line) => line.replace(/\r$/, ""));
    const nul = lines.findIndex((line) => line.includes("\0"));
    if (nul >= 0) throw new Refusal(`${file}:${nul + 1}: a NUL character; this is no text`);
    const header = split(`${file}:1`, lines[0]);
    checkHeader(file, header, rules);
    const rows = [];
    for (let number = 2; number <= lines.length; ++number) {
      const where = `${file}:${number}`, line = lines[number - 1];
      if (line) rows.push(readRow(where, number, header, split(where, line), rules));
    }
    if (!rows.length) throw new Refusal(`${file}: a header and no rows`);
    checkDuplicates(file, rows, rules);
    (rules.columns.includes("metric") ? checkTraffic : checkResults)(file, rows);
    return rows;
  };

  lab.Refusal = Refusal;

  const quoted = (cell) => (/[,"\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  lab.write = (rows, columns) => {
    const lines = rows.map((row) => columns.map((name) => quoted(row.raw[name])));
    return [columns, ...lines].map((cells) => `${cells.join(",")}\n`).join("");
  };
}
