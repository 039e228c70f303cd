// What a trace (trace.js) does to memory and who waits, after any number of its events; in numbers, spans and words.
"use strict";

Object.assign(trace, (() => {
  const { Barriers, isBarrier, isArrival, isWait, isMbarrierWait, isCopy, isWrite, isMma } = trace;

  const IN_FLIGHT = 1, LANDED = 2, READY = 3;  // of a cell; 0 is untouched
  const CELLS = 128;
  const PANEL_ROW_BYTES = 128;  // the copy engine leaves a tile as panels of such rows, each panel behind all rows of the one before
  const isBulk = ({ instruction }) => instruction.startsWith("cp.async.bulk");

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
      this.mbarriers = new Map();  // by place: the copies and the warps that have arrived
      this.warps = Array.from({ length: made.warps }, () => ({ last: null, waits: null, ended: false, groups: [], open: [],
                                                                  scores: "S", scoresDone: 0, outputDone: 0 }));
      this.shared = new Map(made.shared.filter((region) => region.launch === launch).map((region) => {
        const cellBytes = this.cellBytes(region.bytes, 2 * CELLS);
        const count = Math.ceil(region.bytes / cellBytes);
        const bulk = made.sites.find((site) => site.launch === launch && isBulk(site) && site.shared?.buffer === region.buffer);
        return [region.buffer, { ...region, cellBytes, tileBytes: bulk?.shared.bytes, cells: new Uint8Array(count), owner: new Uint8Array(count), from: null }];
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
        if (isBulk(event)) {
          if (warp.expects) warp.expects.copies.push(event);  // at the mbarrier where the warp has expected bytes last
        } else {
          warp.open.push(event);
        }
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
        const [have, them] = landed.length > 1 ? ["have", "them"] : ["has", "it"];
        this.note = landed.length ? `${copies(landed)} ${have} landed; other warps may read ${them} only after a barrier.`
                                  : "Nothing of this warp was in flight.";
      }
      if (/^(cp\.async\.)?mbarrier\.arrive/.test(what)) {
        const known = this.mbarriers.get(placeOf(event)) || { copies: [], warps: new Set() };
        this.mbarriers.set(placeOf(event), known);
        known.warps.add(event.warp);
        if (what === "cp.async.mbarrier.arrive.noinc") known.copies.push(...warp.groups.flat(), ...warp.open);
        if (what === "mbarrier.arrive.expect_tx") warp.expects = known;
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
      --this.left[event.warp];
      this.endIfDone(event.warp);
    }

    // A warp whose last event is a barrier has ended when the barrier lets it go.
    endIfDone(number) {
      const warp = this.warps[number];
      if (this.left[number] || warp.waits || warp.ended) return;
      warp.ended = true;
      this.release(this.barriers.end());
    }

    passMbarrier(warp) {
      const known = this.mbarriers.get(placeOf(warp.waits));
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
      gone.forEach((warp) => this.endIfDone(warp));
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

  const placeOf = (event) => event.shared && `${event.shared.buffer}+${event.shared.offset}`;
  const size = (bytes) => bytes % 1024 === 0 && bytes ? `${bytes / 1024} KiB` : `${bytes} bytes`;

  function copies(events) {
    const buffers = [...new Set(events.map((event) => event.shared.buffer))];
    const bytes = events.reduce((sum, event) => sum + (event.site.bytes || 0), 0);
    return `${events.length} ${events.length > 1 ? "copies" : "copy"} to ${buffers.join(" and ")}, ${size(bytes)},`;
  }

  // ---- in words -------------------------------------------------------------------------------------------------------

  // Rows of d halves; S, P and what else a kernel keeps have rows of their own.
  const hasRows = (buffer, level) => (level === "global" ? /^[QKVO]$/ : /^[QKV]\d*$/).test(buffer);

  function rows(place, replay, level) {
    if (!hasRows(place.buffer, level)) return `${place.buffer} (from byte ${place.offset} on)`;
    const { rowBytes } = replay, tileBytes = level === "shared" ? replay.shared.get(place.buffer)?.tileBytes : undefined;
    const panelBytes = tileBytes && tileBytes * PANEL_ROW_BYTES / rowBytes;
    const rowOf = (byte) => tileBytes ? Math.floor(byte / tileBytes) * tileBytes / rowBytes + Math.floor(byte % panelBytes / PANEL_ROW_BYTES)
                                      : Math.floor(byte / rowBytes);
    const end = place.offset + place.bytes - 1, first = rowOf(place.offset), last = rowOf(end);
    const panel = Math.floor(place.offset / panelBytes);  // NaN if there are none
    const part = panel === Math.floor(end / panelBytes) ? ` of panel ${panel % (rowBytes / PANEL_ROW_BYTES)}` : "";
    return `${place.buffer} (in row${first === last ? ` ${first}` : `s ${first} to ${last}`}${part})`;
  }

  function words(event, replay) {
    const bytes = event.site.bytes || 0, what = event.instruction;
    const shared = event.shared && rows(event.shared, replay, "shared");
    const global = event.global && rows(event.global, replay, "global");
    if (isCopy(event)) return `starts to copy ${bytes} bytes of ${global || "global memory"} from global to shared ${shared}.`;
    if (what.startsWith("ld.global")) return `reads ${bytes} bytes of ${global || "global memory"} into registers.`;
    if (what.startsWith("st.global")) return `writes ${bytes} bytes of ${global || "global memory"}.`;
    if (isWrite(event)) return `writes ${bytes} bytes to shared ${shared}.`;
    if (isMbarrierWait(event)) return `waits for a phase of the mbarrier in ${shared}, parity ${event.site.operand || 0}. ${replay.note}`;
    if (what === "mbarrier.init") return `makes an mbarrier in ${shared}.`;
    if (what === "mbarrier.arrive.expect_tx") return `arrives at the mbarrier in ${shared}, whose phase is to wait for ${size(event.site.operand || 0)} as well.`;
    if (what === "fence.mbarrier_init") return "makes its mbarriers known to the copy engine.";
    if (what === "mbarrier.arrive") return `arrives at the mbarrier in ${shared}.`;
    if (what === "cp.async.mbarrier.arrive.noinc") return `lets its copies arrive, when they have landed, at the mbarrier in ${shared}.`;
    if (shared) return `reads ${bytes} bytes of shared ${shared} into registers.`;
    if (what === "cp.async.commit_group") return replay.note;
    if (isWait(event)) return `waits until at most ${event.site.operand || 0} of its groups are in flight. ${replay.note}`;
    if (isArrival(event)) return replay.note;
    if (isMma(event)) return event.part ? `multiplies: number ${event.mma} of ${event.stretch.mma} in this ${event.part}.` : "multiplies.";
    if (what.startsWith("shfl")) return "exchanges a number between lanes.";
    if (what === "vote.any") return event.site.operand ? "asks its lanes: one of them says yes." : "asks its lanes: none says yes.";
    return "";
  }

  return { Replay, words, spans, hasRows };
})());
