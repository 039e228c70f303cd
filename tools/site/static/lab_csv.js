// Reads and writes files of measurements in the browser. The recorded ones were judged when the site was built (tools/results.py); of
// a reader's own this asks that its cells can be read, by the columns of docs/results/schema.json, which the page carries.
"use strict";
window.lab = {};
{
  const CELL = /(?:"((?:[^"]|"")*)"|([^",]*))(?=,|$)/y;
  const FLAGS = { 0: false, 1: true, false: false, true: true };

  class Refusal extends Error {}

  function split(where, line) {
    const cells = [];
    for (CELL.lastIndex = 0; CELL.lastIndex <= line.length; ++CELL.lastIndex) {
      const cell = CELL.exec(line);
      if (!cell) throw new Refusal(`${where}: a quote that is not closed, or stands within a cell`);
      cells.push((cell[1] === undefined ? cell[2] : cell[1].replaceAll('""', '"')).trim());
    }
    return cells;
  }

  function parse(where, name, cell, { type, enum: words }) {
    const isRead = { boolean: cell in FLAGS, string: true }[type] ?? (words ? words.includes(cell)
      : Number.isFinite(Number(cell)) && (cell !== "" || type.includes("null")));
    if (!isRead) throw new Refusal(`${where}: cannot read ${name} '${cell}'`);
    return type === "boolean" ? FLAGS[cell] : words || type === "string" ? cell : cell === "" ? null : Number(cell);
  }

  // "results" or "traffic", by the columns.
  lab.formOf = (text) => (text.split("\n", 1)[0].split(",").includes("metric") ? "traffic" : "results");

  // Rows with their values under the columns' names, and as written under `raw`. Throws lab.Refusal, `FILE:LINE: what`.
  lab.read = (file, text, { properties, required }) => {
    const lines = text.split("\n").map((line) => line.replace(/\r$/, "")), header = split(`${file}:1`, lines[0]);
    const missing = required.filter((column) => !header.includes(column));
    if (missing.length) throw new Refusal(`${file}:1: no column ${missing.join(", ")}`);
    return lines.map((line, i) => ({ line: i + 1, cells: split(`${file}:${i + 1}`, line) })).slice(1)
      .filter(({ cells }) => cells.length > 1).map(({ line, cells }) => {
        if (cells.length !== header.length) throw new Refusal(`${file}:${line}: ${cells.length} fields, but the header has ${header.length}`);
        const row = { line, raw: {} };
        for (const [name, rule] of Object.entries(properties)) {
          const at = header.indexOf(name);
          row.raw[name] = at < 0 ? "" : cells[at];
          row[name] = at < 0 ? "" : parse(`${file}:${line}`, name, cells[at], rule);
        }
        return row;
      });
  };

  lab.Refusal = Refusal;

  const quoted = (cell) => (/[,"\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  lab.write = (rows, columns) => {
    const lines = rows.map((row) => columns.map((name) => quoted(row.raw[name])));
    return [columns, ...lines].map((cells) => `${cells.join(",")}\n`).join("");
  };
}
