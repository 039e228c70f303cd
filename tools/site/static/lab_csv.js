// Reads and writes files of measurements in the browser. The rules are those of docs/results/schema.json, which the page carries,
// a section for each form of file; what they mean is tools/results.py's. A test gives both the same broken files and wants
// the same answers.
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

  const columnsOf = (rules) => rules.columns.map(({ name }) => name);

  function checkHeader(name, header, rules) {
    const columns = columnsOf(rules), { added_later } = rules;
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
    const { type } = rules.columns.find((column) => column.name === name);
    if (type === "word") return cell;
    if (cell === "") return null;
    if (type === "flag") {
      if (!Object.hasOwn(rules.flags, cell)) throw new Refusal(`${where}: ${name} is '${cell}'; expected 0 or 1`);
      return rules.flags[cell];
    }
    const integer = type === "integer";
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
    for (const { column, above = -Infinity, at_least = -Infinity, at_most = Infinity, why } of rules.limits) {
      const value = row[column];
      if (value !== null && !(value > above && at_least <= value && value <= at_most)) {
        throw new Refusal(`${where}: ${column} is ${g(value)}; ${why}`);
      }
    }
    for (const [name, { column, is, why }] of Object.entries(rules.filled_where ?? {})) {
      if ((row[column] === is) !== Boolean(row[name])) {
        throw new Refusal(`${where}: ${column} is '${row[column]}' and ${name} '${row[name]}'; ${why}`);
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
  function bounds(ceiling, row, rules) {
    const rule = rules.ceilings.find(({ stage }) => stage === ceiling.stage);
    if (!rule || ceiling.gpu !== row.gpu) return false;
    return !rule.column || row[rule.column] !== null || (row.sm > 0 && row.sm < rule.before_sm);
  }

  function checkCeilings(file, rows, rules) {
    const ceilings = rules.ceilings.length ? rows.filter((row) => row.kind === "ceiling") : [];
    for (const row of ceilings.length ? rows : []) {
      const binding = ceilings.filter((ceiling) => bounds(ceiling, row, rules)).map((ceiling) => ceiling.tflops);
      if (!binding.length || row.kind === "ceiling" || row.source !== "measured") continue;
      const highest = Math.max(...binding);
      if (row.tflops > highest) {
        throw new Refusal(`${file}:${row.line}: ${row.stage} claims ${g(row.tflops)} TFLOPS, ` +
          `above this card's ceiling of ${g(highest)}`);
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
    checkCeilings(file, rows, rules);
    return rows;
  };

  lab.Refusal = Refusal;

  const quoted = (cell) => (/[,"\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  lab.write = (rows, columns) => {
    const lines = rows.map((row) => columns.map((name) => quoted(row.raw[name])));
    return [columns, ...lines].map((cells) => `${cells.join(",")}\n`).join("");
  };
}
