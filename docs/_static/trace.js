// A trace of `ladder explain STAGE --trace FILE` (harness/trace.hpp) read, checked, put in order and replayed. No page in here:
// player.js draws.
"use strict";

const trace = (() => {
  const FORMAT = "flash-ladder trace 1", MOST_EVENTS = 200000;
  const PARTS = ["LOAD", "QK", "SOFTMAX", "PV", "STORE"];

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
        require(memory === undefined || (memory && typeof memory.buffer === "string" && isCount(memory.bytes)), `Site ${i} touches memory without a name or size.`);
      }
    });
    const events = file.events.map((event, id) => {
      require(Array.isArray(event) && event.every(isCount), `Event ${id} is not a list of numbers.`);
      const site = file.sites[event[0]];
      require(site, `Event ${id} is of site ${event[0]}, but there are ${file.sites.length} sites.`);
      const touched = [site.shared, site.global].filter(Boolean).length;
      require(event.length === 2 + touched && event[1] < 32, `Event ${id} has ${event.length} numbers where its site needs ${2 + touched}.`);
      const place = (memory, offset) => memory && { buffer: memory.buffer, offset, bytes: memory.bytes };
      return { id, site, warp: event[1], launch: site.launch, line: site.line, instruction: site.instruction,
               shared: place(site.shared, event[2]), global: place(site.global, event[site.shared ? 3 : 2]) };
    });
    const source = Array.isArray(file.source) ? file.source.map(String) : lines || null;
    const made = { ...file, source, events, warps: 1 + events.reduce((most, event) => Math.max(most, event.warp), 0) };
    for (const event of events) require(!source || (event.line >= 1 && event.line <= source.length), `Event ${event.id} is of line ${event.line}, but its kernel has ${source && source.length} lines.`);
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
        const above = markers.filter((marker) => marker.line <= event.line).pop();
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
  const isCopy = (event) => /^cp\.async\.\d+$/.test(event.instruction);

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
      const next = queues.map(() => 0), waits = queues.map(() => null);
      const barriers = new Barriers(queues.filter((queue) => queue.length).length);
      const release = (events) => events.forEach((event) => { waits[event.warp] = null; });
      for (let left = queues.reduce((sum, queue) => sum + queue.length, 0); left > 0;) {
        const before = left;
        queues.forEach((queue, warp) => {
          if (waits[warp] || next[warp] === queue.length) return;
          const event = queue[next[warp]++];
          order.push(event);
          --left;
          if (isBarrier(event)) waits[warp] = event;
          if (isArrival(event)) release(barriers.come(event));
          if (next[warp] === queue.length && !waits[warp]) release(barriers.end());
        });
        if (left === before) {
          const stuck = waits.find(Boolean);
          throw new Refusal(`It is not whole: warp ${stuck.warp} waits at line ${stuck.line} for warps that never come.`);
        }
      }
    }
    return order;
  }

  // ---- replay ---------------------------------------------------------------------------------------------------------

  const EMPTY = 0, IN_FLIGHT = 1, LANDED = 2, READY = 3;
  const CELLS = 128;

  // What memory and warps look like after the first `count` events of an order.
  class Replay {
    constructor(made, order) {
      this.made = made;
      this.order = order;
      this.rowBytes = 2 * made.d;
      this.reset();
    }

    reset() {
      const { made } = this;
      this.count = 0;
      this.launch = -1;
      this.global = new Map(made.global.map((buffer) => {
        const cellBytes = this.cellBytes(buffer.bytes, CELLS);
        return [buffer.buffer, { ...buffer, cellBytes, cells: new Uint8Array(Math.ceil(buffer.bytes / cellBytes)) }];
      }));
    }

    // A cell of a drawing is a row, or as many rows as make the buffer fit.
    cellBytes(bytes, most) {
      return this.rowBytes * Math.ceil(bytes / this.rowBytes / most);
    }

    startLaunch(launch) {
      const { made } = this;
      this.launch = launch;
      this.left = Array.from({ length: made.warps }, () => 0);
      for (const event of made.events) if (event.launch === launch) ++this.left[event.warp];
      this.barriers = new Barriers(this.left.filter(Boolean).length);
      this.mbarriers = new Map();  // by offset: the copies and the warps that have arrived
      this.warps = Array.from({ length: made.warps }, () => ({ last: null, waits: null, ended: false, groups: [], open: [],
                                                                  scores: "S", scoresDone: 0, outputDone: 0 }));
      this.shared = new Map(made.shared.filter((region) => region.launch === launch).map((region) => {
        const cellBytes = this.cellBytes(region.bytes, 2 * CELLS);
        const count = Math.ceil(region.bytes / cellBytes);
        return [region.buffer, { ...region, cellBytes, cells: new Uint8Array(count), owner: new Uint8Array(count), from: null }];
      }));
    }

    to(count) {
      if (count < this.count) this.reset();
      while (this.count < count) this.apply(this.order[this.count++]);
    }

    static cellsOf(buffer, place) {
      const first = Math.floor(place.offset / buffer.cellBytes), last = Math.floor((place.offset + place.bytes - 1) / buffer.cellBytes);
      return [Math.min(first, buffer.cells.length - 1), Math.min(last, buffer.cells.length - 1)];
    }

    set(buffer, place, state, warp) {
      const [first, last] = Replay.cellsOf(buffer, place);
      buffer.cells.fill(state, first, last + 1);
      if (buffer.owner) buffer.owner.fill(warp, first, last + 1);
    }

    apply(event) {
      if (event.launch !== this.launch) this.startLaunch(event.launch);
      const warp = this.warps[event.warp], shared = event.shared && this.shared.get(event.shared.buffer);
      const global = event.global && this.global.get(event.global.buffer), what = event.instruction, writes = isWrite(event);
      const before = warp.last;
      warp.last = event;
      if (warp.waits && isMbarrierWait(warp.waits)) this.passMbarrier(warp);  // its next event shows that it has
      this.note = "";
      if (global) this.set(global, event.global, what.startsWith("st.") ? READY : LANDED);
      if (writes && shared) {
        this.set(shared, event.shared, LANDED, event.warp);
        const source = before?.instruction.startsWith("ld.global") && before.global;  // what it passes on, if of the same name
        shared.from = source && source.buffer === event.shared.buffer ? source.offset - event.shared.offset : null;
      }
      if (isCopy(event)) {
        if (shared) {
          this.set(shared, event.shared, IN_FLIGHT, event.warp);
          shared.from = event.global && event.global.offset - event.shared.offset;
        }
        warp.open.push(event);
      }
      if (what === "cp.async.commit_group") {
        this.note = warp.open.length ? `${copies(warp.open)} become one group.` : "An empty group: nothing was copied since the last one.";
        warp.groups.push(warp.open);
        warp.open = [];
      }
      if (isMbarrierWait(event)) {
        warp.waits = event;
        this.note = "It goes on when the phase is complete.";
      } else if (isWait(event)) {
        const landed = warp.groups.splice(0, Math.max(0, warp.groups.length - (event.site.operand || 0))).flat();
        for (const copy of landed) {
          const region = this.shared.get(copy.shared.buffer);
          if (region) this.set(region, copy.shared, LANDED, event.warp);
        }
        this.note = landed.length ? `${copies(landed)} ${landed.length > 1 ? "have" : "has"} landed; other warps may read ${landed.length > 1 ? "them" : "it"} only after a barrier.`
                                  : "Nothing of this warp was in flight.";
      }
      if (what === "mbarrier.arrive" || what === "cp.async.mbarrier.arrive.noinc") {
        const known = this.mbarriers.get(event.shared?.offset) || { copies: [], warps: new Set() };
        this.mbarriers.set(event.shared?.offset, known);
        known.warps.add(event.warp);
        if (what !== "mbarrier.arrive") known.copies.push(...warp.groups.flat(), ...warp.open);
      }
      // In registers: QK makes S, which turns into P, and every PV adds to O.
      if (event.part === "QK") [warp.scores, warp.scoresDone] = ["S", event.mma === undefined ? warp.scoresDone : event.mma / event.stretch.mma];
      if (event.part === "QK" && event.isFirst) warp.scoresDone = 0;
      if (event.part === "SOFTMAX" || event.part === "PV") warp.scores = "P";
      if (event.part === "PV" && event.mma !== undefined) ++warp.outputDone;
      if (isBarrier(event)) warp.waits = event;
      if (isArrival(event)) {
        const needed = this.barriers.expected(event), here = this.barriers.here(event) + 1;
        const gone = this.barriers.come(event);
        this.note = gone.length ? `The last of ${here} to come: all go on, and what has landed is everybody's.`
                                : `Warp ${event.warp} is number ${here} of ${needed} here${isBarrier(event) ? " and waits" : ""}.`;
        this.release(gone);
      }
      if (--this.left[event.warp] === 0 && !warp.waits) {
        warp.ended = true;
        this.release(this.barriers.end());
      }
    }

    passMbarrier(warp) {
      const known = this.mbarriers.get(warp.waits.shared?.offset);
      warp.waits = null;
      if (!known) return;
      for (const copy of known.copies.splice(0)) {
        const region = copy.shared && this.shared.get(copy.shared.buffer);
        if (region) this.set(region, copy.shared, READY, copy.warp);
      }
      this.makeSafe(known.warps);
      known.warps = new Set();
    }

    release(events) {
      const gone = new Set(events.map((event) => event.warp));
      for (const warp of gone) this.warps[warp].waits = null;
      if (gone.size) this.makeSafe(gone);
    }

    makeSafe(writers) {
      for (const region of this.shared.values()) {
        region.cells.forEach((state, i) => { if (state === LANDED && writers.has(region.owner[i])) region.cells[i] = READY; });
      }
    }
  }

  // For drawing: each warp's events as spans of an order's positions, work by part and waits at barriers.
  function spans(made, order) {
    const lanes = Array.from({ length: made.warps }, () => []), open = lanes.map(() => null), waits = lanes.map(() => null);
    const replay = new Replay(made, order);
    order.forEach((event, at) => {
      const span = open[event.warp];
      if (span && span.stretch === event.stretch) {
        span.end = at + 1;
      } else {
        lanes[event.warp].push(open[event.warp] = { kind: event.part || "WORK", stretch: event.stretch, start: at, end: at + 1 });
      }
      replay.to(at + 1);
      replay.warps.forEach((warp, i) => {
        if (warp.waits && !waits[i]) {
          lanes[i].push(waits[i] = { kind: "WAIT", start: at + 1, end: at + 1 });
          open[i] = null;
        } else if (!warp.waits && waits[i]) {
          waits[i].end = at;
          waits[i] = null;
        }
      });
    });
    return lanes;
  }

  const size = (bytes) => bytes % 1024 === 0 && bytes ? `${bytes / 1024} KiB` : `${bytes} bytes`;

  function copies(events) {
    const buffers = [...new Set(events.map((event) => event.shared.buffer))];
    const bytes = events.reduce((sum, event) => sum + (event.site.bytes || 0), 0);
    return `${events.length} ${events.length > 1 ? "copies" : "copy"} to ${buffers.join(" and ")}, ${size(bytes)},`;
  }

  // ---- in words -------------------------------------------------------------------------------------------------------

  // Rows of d halves; S, P and what else a kernel keeps have rows of their own.
  const hasRows = (buffer, level) => (level === "global" ? /^[QKVO]$/ : /^[QKV]\d*$/).test(buffer);

  function rows(place, rowBytes, level) {
    if (!hasRows(place.buffer, level)) return `${place.buffer} (from byte ${place.offset} on)`;
    const first = Math.floor(place.offset / rowBytes), last = Math.floor((place.offset + place.bytes - 1) / rowBytes);
    return `${place.buffer} (in row${first === last ? ` ${first}` : `s ${first} to ${last}`})`;
  }

  function words(event, replay) {
    const rowBytes = replay.rowBytes, bytes = event.site.bytes || 0, what = event.instruction;
    const shared = event.shared && rows(event.shared, rowBytes, "shared");
    const global = event.global && rows(event.global, rowBytes, "global");
    if (isCopy(event)) return `starts to copy ${bytes} bytes of ${global || "global memory"} from global to shared ${shared}.`;
    if (what.startsWith("ld.global")) return `reads ${bytes} bytes of ${global || "global memory"} into registers.`;
    if (what.startsWith("st.global")) return `writes ${bytes} bytes of ${global || "global memory"}.`;
    if (isWrite(event)) return `writes ${bytes} bytes to shared ${shared}.`;
    if (isMbarrierWait(event)) return `waits for a phase of the mbarrier in ${shared}, parity ${event.site.operand || 0}. ${replay.note}`;
    if (what.includes("mbarrier")) return `${what.includes("init") ? "makes an mbarrier" : what.includes("cp.async") ? "lets its copies arrive, when they have landed, at the mbarrier" : "arrives at the mbarrier"} in ${shared}.`;
    if (shared) return `reads ${bytes} bytes of shared ${shared} into registers.`;
    if (what === "cp.async.commit_group") return replay.note;
    if (isWait(event)) return `waits until at most ${event.site.operand || 0} of its groups are in flight. ${replay.note}`;
    if (isArrival(event)) return replay.note;
    if (isMma(event)) return event.part ? `multiplies: number ${event.mma} of ${event.stretch.mma} in this ${event.part}.` : "multiplies.";
    if (what.startsWith("shfl")) return "exchanges a number between lanes.";
    return "";
  }

  return { read, Refusal, Replay, words, spans, hasRows, isMma, isBarrier, isArrival, isWait, PARTS, EMPTY, IN_FLIGHT, LANDED, READY };
})();
