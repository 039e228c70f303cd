// A trace of `ladder explain STAGE --trace FILE` (harness/trace.hpp) read, checked and put in order. replay.js says what it does to
// memory, player.js draws.
"use strict";

const trace = (() => {
  const FORMAT = "flash-ladder trace 1", MOST_EVENTS = 200000;

  class Refusal extends Error {}

  const isCount = (value) => Number.isInteger(value) && value >= 0;

  function require(condition, message) {
    if (!condition) throw new Refusal(message);
  }

  // The text of a file -> a trace; a Refusal, made to be read by whoever chose the file, if it is none.
  function read(text, lines) {
    let file;
    try {
      file = JSON.parse(text);
    } catch (error) {
      throw new Refusal(`It is not JSON (${error.message}). If it was cut short, write it again.`);
    }
    require(file !== null && typeof file === "object" && typeof file.format === "string" && file.format.startsWith("flash-ladder trace"),
            'It is JSON, but not a trace: it has no "format". Make one with: ladder explain 03 --trace mine.json');
    require(file.format === FORMAT, `Its format is "${file.format}"; this page reads "${FORMAT}".`);
    for (const name of ["global", "shared", "sites", "events"]) require(Array.isArray(file[name]), `It has no list "${name}".`);
    require(typeof file.stage === "string" && isCount(file.n) && isCount(file.d) && file.d > 0 && file.tile && isCount(file.tile.bc),
            'It does not say "stage", "n", "d" and "tile".');
    require(file.events.length > 0, "It has no events.");
    require(file.events.length <= MOST_EVENTS, `It has ${file.events.length} events; this page takes ${MOST_EVENTS}. Trace a smaller --n.`);
    for (const known of [...file.global, ...file.shared]) {
      require(known && typeof known.buffer === "string" && isCount(known.bytes) && known.bytes > 0, "A buffer has no name or no size.");
    }
    file.sites.forEach((site, i) => {
      require(site && typeof site.instruction === "string" && isCount(site.line) && isCount(site.launch),
              `Site ${i} has no instruction, line or launch.`);
      for (const memory of [site.shared, site.global]) {
        require(memory === undefined || (memory && typeof memory.buffer === "string" && isCount(memory.bytes)),
                `Site ${i} touches memory without a name or size.`);
      }
    });
    const events = file.events.map((event, id) => {
      require(Array.isArray(event) && event.every(isCount), `Event ${id} is not a list of numbers.`);
      const site = file.sites[event[0]];
      require(site, `Event ${id} is of site ${event[0]}, but there are ${file.sites.length} sites.`);
      const touched = [site.shared, site.global].filter(Boolean).length;
      require(event.length === 2 + touched && event[1] < 32, `Event ${id} has ${event.length} numbers where its site needs ${2 + touched}.`);
      const place = (memory, offset) => memory && { buffer: memory.buffer, offset, bytes: memory.bytes };
      // A kernel may be a part that several rungs say: then its lines are those of common/words/, and none of the source here.
      const elsewhere = String(site.file || "").startsWith("words/") ? `common/${site.file}` : "";
      return { id, site, warp: event[1], launch: site.launch, line: site.line, elsewhere, instruction: site.instruction,
               shared: place(site.shared, event[2]), global: place(site.global, event[site.shared ? 3 : 2]) };
    });
    const source = Array.isArray(file.source) ? file.source.map(String) : lines || null;
    const made = { ...file, source, events, warps: 1 + events.reduce((most, event) => Math.max(most, event.warp), 0) };
    for (const event of events) {
      require(!source || event.elsewhere || (event.line >= 1 && event.line <= source.length), `Event ${event.id} is of line ${event.line}, but its kernel has ${source && source.length} lines.`);
    }
    nameParts(made);
    // Who may pass an mbarrier depends on the arrivals of single lanes, which a trace of warps does not have.
    made.turns = events.some(isMbarrierWait) ? null : inTurns(made);
    return made;
  }

  // ---- where in the algorithm an event is: its part by the kernel's own markers, and its tile of keys --------------------

  function nameParts(made) {
    const markers = [];
    (made.source || []).forEach((line, i) => {
      const found = /^\s*\/\/ (LOAD|QK|SOFTMAX|PV|STORE)\b/.exec(line);
      if (found) markers.push({ part: found[1], line: i + 1 });
    });
    const warps = Array.from({ length: made.warps }, () => ({ part: "", tile: 0, seen: null }));
    for (const event of made.events) {
      const warp = warps[event.warp];
      if (markers.length) {
        const above = event.elsewhere ? undefined : markers.filter((marker) => marker.line <= event.line).pop();
        // Above the first marker are the helpers and what precedes the loop. What brings data in is LOAD wherever it is called.
        const brings = event.instruction.startsWith("cp.async") || event.instruction.startsWith("ld.global") || isWrite(event);
        event.part = above ? above.part : brings || !warp.part ? "LOAD" : warp.part;
        if (warp.part === "PV" && event.part !== "PV" && event.part !== "STORE") ++warp.tile;
        warp.part = event.part;
        event.tile = warp.tile;
      } else {
        event.part = "";
        event.tile = 0;
      }
      // A stretch of one warp's events in one part of one tile, and how many of its mma have been issued up to here.
      if (!warp.seen || warp.seen.part !== event.part || warp.seen.tile !== event.tile || warp.seen.launch !== event.launch) {
        warp.seen = { part: event.part, tile: event.tile, launch: event.launch, mma: 0, events: 0 };
      }
      event.stretch = warp.seen;
      event.isFirst = warp.seen.events++ === 0;
      if (isMma(event)) event.mma = ++warp.seen.mma;
    }
    made.hasParts = markers.length > 0;
  }

  const isMma = (event) => /^(wmma\.)?mma/.test(event.instruction);
  const isWrite = (event) => /^(st\.shared|wmma\.store)/.test(event.instruction);

  // ---- order ----------------------------------------------------------------------------------------------------------

  const isBarrier = (event) => event.instruction === "__syncthreads" || event.instruction === "bar.sync";
  const isArrival = (event) => isBarrier(event) || event.instruction === "bar.arrive";
  const isMbarrierWait = (event) => event.instruction === "mbarrier.try_wait.parity";
  const isWait = (event) => event.instruction === "cp.async.wait_group" || isMbarrierWait(event);
  const isCopy = (event) => /^cp\.async\.(\d+$|bulk)/.test(event.instruction);

  // Who stands at which barrier. come() returns the events of those it lets go, the newcomer included; empty if it must wait.
  class Barriers {
    constructor(live) {
      this.live = live;  // warps that have not ended
      this.at = new Map();
    }
    come(event) {
      const key = event.instruction === "__syncthreads" ? 0 : event.site.operand || 0;
      const here = this.at.get(key) || [];
      this.at.set(key, [...here, event]);
      return this.complete(key);
    }
    complete(key) {
      const here = this.at.get(key) || [];
      const needed = key === 0 ? this.live : Math.ceil((here[0]?.site.threads || 0) / 32);
      if (here.length === 0 || here.length < needed) return [];
      this.at.delete(key);
      return here;
    }
    expected(event) {
      return event.instruction === "__syncthreads" ? this.live : Math.ceil((event.site.threads || 0) / 32);
    }
    here(event) {
      return (this.at.get(event.instruction === "__syncthreads" ? 0 : event.site.operand || 0) || []).length;
    }
    end() {
      --this.live;
      return this.complete(0);
    }
  }

  // Every warp issues one instruction in its turn; one that stands at a barrier is passed over. The trace has the order within a
  // warp and the barriers; between them any order is one that the card could take, and this one shows the warps at work together.
  function inTurns(made) {
    const order = [];
    for (let launch = 0; launch <= made.events[made.events.length - 1].launch; ++launch) {
      const queues = Array.from({ length: made.warps }, () => []);
      for (const event of made.events) if (event.launch === launch) queues[event.warp].push(event);
      const next = queues.map(() => 0), waits = queues.map(() => null), ended = queues.map(() => false);
      const barriers = new Barriers(queues.filter((queue) => queue.length).length);
      const endIfDone = (warp) => {
        if (ended[warp] || waits[warp] || next[warp] < queues[warp].length) return;
        ended[warp] = true;
        release(barriers.end());
      };
      const release = (events) => {
        for (const event of events) waits[event.warp] = null;
        for (const event of events) endIfDone(event.warp);
      };
      for (let left = queues.reduce((sum, queue) => sum + queue.length, 0); left > 0;) {
        const before = left;
        queues.forEach((queue, warp) => {
          if (waits[warp] || next[warp] === queue.length) return;
          const event = queue[next[warp]++];
          order.push(event);
          --left;
          if (isBarrier(event)) waits[warp] = event;
          if (isArrival(event)) release(barriers.come(event));
          endIfDone(warp);
        });
        if (left === before) {
          const stuck = waits.find(Boolean);
          throw new Refusal(`It is not whole: warp ${stuck.warp} waits at line ${stuck.line} for warps that never come.`);
        }
      }
    }
    return order;
  }

  return { read, Refusal, Barriers, isBarrier, isArrival, isWait, isMbarrierWait, isCopy, isWrite, isMma };
})();
