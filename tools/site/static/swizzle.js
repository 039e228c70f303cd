// Where a chunk of a tile lies, by an expression that the reader writes, and what that costs at the banks. No page in here:
// explorer.js draws. The rule is that of common/emulator/bank_model.cpp, and a test compares the two.
"use strict";

const swizzle = (() => {
  const ROWS = 32, CHUNKS = 16, CHUNK_BYTES = 16;
  const BANK_CYCLE = 128;  // 32 banks of 4 bytes

  class Mistake extends Error {}

  // ---- expressions: those of C over row and chunk, in 32 bits without a sign ----------------------------------------------

  const LEVELS = [["|"], ["^"], ["&"], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]];  // the last binds tightest, as in C
  const APPLY = {
    "|": (a, b) => a | b, "^": (a, b) => a ^ b, "&": (a, b) => a & b,
    "<<": (a, b) => a << shift(b), ">>": (a, b) => a >>> shift(b),
    "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => Math.imul(a, b),
    "/": (a, b) => Math.floor(a / divisor(b, "/")), "%": (a, b) => a % divisor(b, "%"),
  };

  function shift(by) {
    if (by > 31) throw new Mistake(`It shifts by ${by}; a number has 32 bits, so 0 to 31 are allowed.`);
    return by;
  }

  function divisor(by, sign) {
    if (by === 0) throw new Mistake(`The right side of ${sign} is 0.`);
    return by;
  }

  function tokens(text) {
    const found = [];
    for (let at = 0; at < text.length;) {
      const token = /^(?:\s+|0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|<<|>>|[-|^&+*/%~()])/.exec(text.slice(at));
      if (!token) throw new Mistake(`"${text[at]}" at ${at + 1} is no part of it. There are row, chunk, numbers, ( ) and ~ * / % + - << >> & ^ |.`);
      if (token[0].trim()) found.push({ text: token[0], at: at + 1 });
      at += token[0].length;
    }
    return found;
  }

  // The text -> a function of row and chunk. A Mistake says what is wrong and where.
  function parse(text) {
    if (text.length > 200) throw new Mistake("It is longer than 200 characters.");
    const rest = tokens(text);
    const next = () => rest[0]?.text;

    function operand() {
      const token = rest.shift();
      if (!token) throw new Mistake("It ends where a number, row, chunk or ( should come.");
      if (token.text === "(") {
        const inner = binary(0);
        if (next() !== ")") throw new Mistake(`The ( at ${token.at} is not closed.`);
        rest.shift();
        return inner;
      }
      if (token.text === "~" || token.text === "-") {
        const inner = operand();
        return token.text === "~" ? (row, chunk) => ~inner(row, chunk) >>> 0 : (row, chunk) => -inner(row, chunk) >>> 0;
      }
      if (/^\d/.test(token.text)) {
        const value = Number(token.text);
        if (/^0\d/.test(token.text)) throw new Mistake(`${token.text} at ${token.at}: in C a leading 0 makes it octal. Leave it out.`);
        if (value > 0xffffffff) throw new Mistake(`${token.text} at ${token.at} has more than 32 bits.`);
        return () => value;
      }
      if (token.text === "row") return (row) => row;
      if (token.text === "chunk") return (row, chunk) => chunk;
      if (/^\w/.test(token.text)) throw new Mistake(`"${token.text}" at ${token.at} is unknown: there are row and chunk.`);
      throw new Mistake(`"${token.text}" at ${token.at} stands where a number, row, chunk or ( should.`);
    }

    function binary(level) {
      if (level === LEVELS.length) return operand();
      let left = binary(level + 1);
      while (LEVELS[level].includes(next())) {
        const apply = APPLY[rest.shift().text], before = left, right = binary(level + 1);
        left = (row, chunk) => apply(before(row, chunk), right(row, chunk)) >>> 0;
      }
      return left;
    }

    if (!rest.length) throw new Mistake("It is empty. The plain tile is: chunk");
    const value = binary(0);
    if (rest.length) throw new Mistake(`"${rest[0].text}" at ${rest[0].at} ${rest[0].text === ")" ? "closes nothing" : "has no operator in front of it"}.`);
    return value;
  }

  // ---- banks --------------------------------------------------------------------------------------------------------------

  // A phase, 128 bytes' worth of lanes with 16 bytes each, takes as many wavefronts as the busiest banks have different words.
  function wavefronts(addresses) {
    const different = new Map();
    for (const address of addresses) {
      const slot = address % BANK_CYCLE / CHUNK_BYTES;
      if (!different.has(slot)) different.set(slot, new Set());
      different.get(slot).add(address);
    }
    return Math.max(...[...different.values()].map((set) => set.size));
  }

  // Everything about a tile whose chunk lies at row * pitch + place(row, chunk), counted in chunks.
  function tile(place, pitch) {
    const offsets = Array.from({ length: ROWS }, (_, row) => Array.from({ length: CHUNKS }, (_, chunk) => {
      const at = row * pitch + place(row, chunk);
      // Farther than any tile reaches, all addresses are alike in being wrong.
      return at > 0xfffffff ? -1 : at * CHUNK_BYTES;
    }));
    if (offsets.flat().includes(-1)) throw new Mistake("It puts chunks beyond 4 GiB; did a difference fall below 0? Numbers have no sign here.");
    const range = (length) => [...Array(length).keys()];
    const reads = range(ROWS / 8).map((group) => range(CHUNKS).map((chunk) => wavefronts(range(8).map((i) => offsets[8 * group + i][chunk]))));
    // st.shared.v4 by a warp that writes two rows: four phases of eight lanes.
    const writes = range(ROWS / 2).map((pair) => range(4).reduce((sum, quarter) =>
      sum + wavefronts(range(8).map((i) => offsets[2 * pair + (quarter >> 1)][quarter % 2 * 8 + i])), 0));
    const taken = new Map(), clashes = [];
    let behind = null, behindCount = 0;
    offsets.forEach((row, r) => row.forEach((offset, c) => {
      if (taken.has(offset)) clashes.push({ first: taken.get(offset), second: [r, c], offset });
      else taken.set(offset, [r, c]);
      if (offset >= ROWS * pitch * CHUNK_BYTES) {
        ++behindCount;
        behind = behind || [r, c];
      }
    }));
    return { offsets, reads, writes, clashes, behind, behindCount };
  }

  return { parse, tile, Mistake, ROWS, CHUNKS };
})();
