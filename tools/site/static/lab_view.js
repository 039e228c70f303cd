// From files and state to what is shown: which rows, which figure of them, in which order. Nothing here touches the page.
"use strict";
{
  const four = (value) => (Math.abs(value) >= 9999.5 ? String(Math.round(value)) : value.toPrecision(4));
  const fixed = (digits) => (value) => value.toFixed(digits);
  const bytes = (value) => {
    if (value === 0) return "0 B";
    const power = value < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(value) / 3));
    return `${four(value / 1000 ** power)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
  };

  // ---- figures -------------------------------------------------------------------------------------------------------

  // A rate moves as one over the time does.
  const rate = (name) => (row) => {
    const time = row.ms_p20 && row.ms_p80 && row.ms_median;
    return time ? [row[name], (row[name] * time) / row.ms_p80, (row[name] * time) / row.ms_p20] : [row[name]];
  };
  const ratio = (name) => (row) => [row[name], row[`${name}_lo`], row[`${name}_hi`]];
  const rounds = "the middle 60 % of the rounds", paired = "95 % interval of the paired rounds";

  // of(row): the value and its interval; base: what a value is compared with.
  const MEASURED = {
    tflops: { name: "TFLOPS", of: rate("tflops"), write: four, interval: rounds },
    ms: {  // the launch of a ceiling is another problem's
      name: "ms per launch", of: (row) => (row.kind === "ceiling" ? [null] : [row.ms_median, row.ms_p20, row.ms_p80]),
      write: four, interval: rounds, log: true,
    },
    pct_ceiling: { name: "% of its ceiling", of: rate("pct_ceiling"), write: fixed(1), interval: rounds },
    vs_previous: {
      name: "times the rung before", of: ratio("vs_previous"), write: fixed(3), interval: paired, log: true,
      base: 1, baseName: "as before", verdict: true,
    },
    vs_fa2: { name: "times FA2", of: ratio("vs_fa2"), write: fixed(3), interval: paired, base: 1, baseName: "FA2" },
    flop_per_clk_sm: { name: "FLOP per clock and SM", of: (row) => [row.flop_per_clk_sm], write: four },
  };
  for (const metric of Object.values(MEASURED)) Object.assign(metric, { form: "results", writeTick: String, takes: () => true });

  // Bytes, by the name of what was counted: what says "bytes" and is neither a rate nor a peak. Ratios, cycles and stalls of the
  // same file belong to the chapters, where they are explained. The shapes differ between rungs, so that only bytes per head
  // compare; the memory that a rung holds was recorded at one shape.
  function counted(name) {
    const whole = name.startsWith("cuda.");
    return {
      name: `bytes${whole ? "" : "/head"}: ${name}`, form: "traffic", log: true, write: bytes,
      writeTick: (value) => bytes(value).replace(/\.0+ /, " "), takes: (row) => row.metric === name,
      of: (row) => [whole ? row.value : row.value / (row.batch * row.heads)],
    };
  }

  function metricsOf(files) {
    const names = new Set(files.filter((file) => file.form === "traffic").flatMap((file) => file.rows.map((row) => row.metric)));
    const inBytes = [...names].filter((name) => /bytes/.test(name) && !/peak|per_second/.test(name)).sort();
    return { ...MEASURED, ...Object.fromEntries(inBytes.map((name) => [name, counted(name)])) };
  }

  // ---- rows ----------------------------------------------------------------------------------------------------------

  const distinct = (rows, of) => [...new Set(rows.map(of))];
  const keyOf = (form, row) => (form === "traffic" ? [row.n, row.d] : [row.n, row.d, row.batch, row.heads]).join();
  // Shapes that a line can join: the same number of tokens.
  const familyOf = (form, row) => (form === "traffic" ? ["all", row.d] : ["all", row.d, row.batch * row.n, row.heads]).join();

  function machineOf(row, file) {
    const origin = [...(file.own ? [file.name] : []), ...(row.gpu && row.source !== "measured" ? [row.source] : [])];
    return (row.gpu || row.source) + (origin.length ? ` (${origin.join(", ")})` : "");
  }

  function kindOf(row) {
    if (row.kind === "peer" || row.kind === "ceiling") return row.kind;
    return row.stage.includes("[") ? "variant" : "stage";
  }

  function shapesOf(form, rows) {
    const several = distinct(rows, (row) => `${row.d},${row.heads}`).length > 1 && form === "results";
    const tail = (row) => (several ? `, ${row.heads} heads, d = ${row.d}` : "");
    const byKey = (of) => [...new Map(rows.map((row) => [of(form, row), row]))];
    const families = byKey(familyOf).filter(([key]) => {
      return distinct(rows.filter((row) => familyOf(form, row) === key), (row) => row.n).length > 2;
    });
    const single = byKey(keyOf).sort(([, a], [, b]) => a.n - b.n || a.batch - b.batch);
    return [
      ...families.map(([key, row]) => [key, `all N${form === "traffic" ? "" : `, batch × N = ${row.batch * row.n}`}${tail(row)}`]),
      ...single.map(([key, row]) => [key, `N = ${row.n}${form === "traffic" ? "" : `, batch ${row.batch}`}${tail(row)}`]),
    ];
  }

  // ---- state -----------------------------------------------------------------------------------------------------------

  // null is the default, which may depend on the rest. `only` names who is shown, with ; between: contestants, all that begin with a
  // name before *, or the parts of the ladder. `switched` says of contestants whether they were put on or off.
  lab.fresh = () => ({
    metric: "tflops", gpu: null, shape: null, causal: "0", regime: "turns", inputs: null, dtype: null, problem: null, y: null, x: null, only: null,
    switched: {},
  });

  // Questions that the first view does not answer, each an address. What was not measured yet is left out of them.
  lab.PRESETS = [
    ["The climb", ""],
    ["02: swizzle or tile?", "only=01_base*;02_swizzle*"],
    ["What causal saves", "metric=ms&causal=both&only=p10_causal;31_masked;fa2;fa3;cudnn_bhnd"],
    ["Past FA2", "metric=vs_fa2&only=06_batched;past_fa2;fa2"],
    ["Hopper", "only=16_store;hopper;fa3;cudnn_bhnd;wgmma"],
    ["In turns or alone?", "regime=both&only=16_store;hopper;fa3;cudnn_bhnd;mma_sync;wgmma"],
  ];

  lab.fromAddress = (hash) => {
    const state = lab.fresh();
    for (const [name, value] of new URLSearchParams(hash)) {
      if (name === "show" || name === "hide") state.switched[value] = name === "show";
      else if (name !== "switched" && Object.hasOwn(state, name)) state[name] = value;
    }
    return state;
  };

  lab.toAddress = (state) => {
    const initial = lab.fresh(), address = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) {
      if (name !== "switched" && value !== initial[name]) address.set(name, value);
    }
    for (const [name, on] of Object.entries(state.switched)) address.append(on ? "show" : "hide", name);
    return String(address);
  };

  // Hidden until asked for: what counts no operations, and the second of two loops that agree; where there are too many rungs to be
  // seen at once, those beside the line.
  const HIDDEN = ["ex2", "l2_read", "dram_read", "wgmma_rs"], MOST = 24;
  lab.isShown = (state, stage, kind, { parts, line }, crowded) => {
    if (Object.hasOwn(state.switched, stage)) return state.switched[stage];
    if (state.only) {
      const part = kind === "stage" ? parts[stage] : undefined;
      return state.only.split(";").some((name) => name === stage || name === part || (name.endsWith("*") && stage.startsWith(name.slice(0, -1))));
    }
    if (kind === "stage") return !crowded || line.includes(stage);
    return kind === "peer" ? stage === "fa2" : kind !== "variant" && !HIDDEN.includes(stage);
  };

  // The ladder's order; what is no rung of it comes behind.
  lab.placeOf = (stage, { rungs }) => {
    const place = rungs.indexOf(stage.split("[")[0].trim());
    return place < 0 ? rungs.length : place;
  };

  // What can be chosen, what is, and the rows that belong to it. A choice that the data do not have falls back.
  lab.look = (files, state, data) => {
    const metrics = metricsOf(files);
    const metricKey = Object.hasOwn(metrics, state.metric) ? state.metric : "tflops";
    const metric = metrics[metricKey], { form } = metric, measured = form === "results";
    const rows = files.filter((file) => file.form === form).flatMap((file) => file.rows.filter(metric.takes).map((row) => {
      return Object.assign(row, { card: machineOf(row, file), variety: kindOf(row), place: lab.placeOf(row.stage, data) });
    }));
    // Two masks or two regimes stand side by side as two cards would.
    const sides = (row) => [...(state.causal === "both" ? [row.causal ? "causal" : "dense"] : []),
      ...(measured && state.regime === "both" ? [row.regime === "alone" ? "alone" : "in turns"] : [])];
    for (const row of rows) row.machine = [row.card, ...sides(row)].join(", ");
    const machines = distinct(rows, (row) => row.card).map((name) => [name, name]);
    const words = (name) => (measured ? distinct(rows, (row) => row[name]).filter(Boolean).map((word) => [word, word]) : []);
    const axes = [["linear", "linear"], ["log", "logarithmic"]];
    const options = {
      metric: Object.entries(metrics).map(([key, { name }]) => [key, name]),
      gpu: machines.length > 1 ? [...machines, ["all", "all, side by side"]] : machines,
      shape: shapesOf(form, rows),
      causal: [["0", "dense"], ["1", "causal"], ["both", "dense and causal"]],
      regime: measured ? [["turns", "in turns"], ["alone", "alone"], ["both", "in turns and alone"], ["burst", "burst"]] : [],
      inputs: words("inputs"), dtype: words("dtype"),
      problem: measured ? distinct(rows, (row) => row.problem || "").map((text) => [text, text || "attention"]) : [], y: axes, x: axes,
    };
    const otherwise = {  // bytes are first looked at over N: a file of them need not hold the headline's
      metric: metricKey, shape: (measured ? keyOf : familyOf)(form, data.headline), inputs: "normal", dtype: "fp16", problem: "",
      y: metric.log ? "log" : "linear", x: "log",
    };
    const chosen = {};
    for (const [name, list] of Object.entries(options)) {
      chosen[name] = [state[name], otherwise[name], list[0]?.[0]].find((key) => list.some(([known]) => known === key));
    }
    const family = Boolean(chosen.shape?.startsWith("all,")), shape = family ? familyOf : keyOf;
    const takes = (name, value) => value === chosen[name] || (name === "regime" && chosen.regime === "both" && ["turns", "alone"].includes(value));
    const fits = rows.filter((row) => (chosen.gpu === "all" || row.card === chosen.gpu) && shape(form, row) === chosen.shape &&
      (chosen.causal === "both" || row.causal === (chosen.causal === "1")) &&
      (row.problem || "") === (chosen.problem || "") &&
      (!measured || ["regime", "inputs", "dtype"].every((name) => !row[name] || takes(name, row[name]))));
    // Of two that stand side by side, who has only one says nothing about the other.
    const two = (name) => chosen[name] === "both" ? distinct(fits, (row) => row[name]).length : 1;
    const wanted = two("causal") * two("regime"), had = new Map();
    for (const row of fits) had.set(row.stage, (had.get(row.stage) ?? new Set()).add(row.machine));
    const here = fits.filter((row) => had.get(row.stage).size >= wanted);
    const crowded = distinct(here.filter((row) => row.variety === "stage"), (row) => row.stage).length > MOST;
    return { data, rows, options, chosen, family, here, metric, crowded };
  };

  // ---- series ------------------------------------------------------------------------------------------------------------

  const PLACES = { stage: 0, variant: 0, peer: 1, ceiling: 2 };
  const compare = (a, b) => {
    const i = a.findIndex((value, i) => value !== b[i]);
    return i < 0 ? 0 : a[i] < b[i] ? -1 : 1;
  };
  lab.letter = (i) => String.fromCharCode(65 + i);

  // One for each contestant and machine, in the order of the ladder. `without`: who has no such figure. A point that is `off` the
  // axis, as 0 is off a logarithmic one, is in the table and the download alone.
  lab.seriesOf = ({ data, here, chosen, family, metric, crowded }, state) => {
    const machines = distinct(here, (row) => row.machine), groups = new Map(), without = new Set();
    const rungs = distinct(here.filter((row) => row.variety === "stage").sort((a, b) => compare([a.place, a.stage], [b.place, b.stage])), (row) => row.stage);
    const order = (row) => [PLACES[row.variety], row.place, row.stage, machines.indexOf(row.machine), row.n, -row.batch * row.heads];
    const sorted = here.filter((row) => lab.isShown(state, row.stage, row.variety, data, crowded)).sort((a, b) => compare(order(a), order(b)));
    const stages = distinct(sorted, (row) => row.stage);
    for (const row of sorted) {
      const [value, low, high] = metric.of(row), log = chosen.y === "log";
      if (value === null) {
        without.add(row.stage);
        continue;
      }
      const key = `${row.stage}\n${row.machine}`, machine = machines.indexOf(row.machine);
      const suffix = machines.length > 1 ? ` ${lab.letter(machine)}` : "";
      if (!groups.has(key)) {
        groups.set(key, {
          stage: row.stage, kind: row.variety === "variant" ? "stage" : row.variety, gpu: row.machine, machine,
          label: row.stage + suffix, short: (row.variety === "stage" ? row.stage.split("_")[0] : row.stage) + suffix,
          tone: rungs.length > 1 ? Math.max(0, rungs.indexOf(row.stage.split("[")[0])) / (rungs.length - 1) : 1,
          shape: stages.indexOf(row.stage), across: PLACES[row.variety] > 0 && !family && metric.form === "results", points: [],
        });
      }
      const { points } = groups.get(key);
      if (points.at(-1)?.n === row.n) continue;  // the same rung at a smaller batch
      const known = typeof low === "number" && typeof high === "number" && (!log || low > 0);
      const spoken = known ? `, ${metric.interval} ${metric.write(low)} to ${metric.write(high)}` : "";
      const over = metric.verdict && row.previous ? `, which is ${row.previous}` : "";
      const verdict = metric.verdict && row.verdict ? `, verdict ${row.verdict}` : "";
      points.push({
        n: row.n, value, row, off: log && value <= 0, ...(known ? { low, high } : {}),
        text: `${row.stage}, ${row.machine}, N = ${row.n}: ${metric.write(value)} ${metric.name}${over}${spoken}${verdict}`,
      });
    }
    for (const { stage } of groups.values()) without.delete(stage);
    return { series: [...groups.values()], machines, without: [...without] };
  };

  // What of them is drawn. `apart`: not joined to the point before, for one between them is off the axis.
  lab.drawn = (series) => series.map((one) => ({
    ...one, points: one.points.map((point, i) => ({ ...point, apart: one.points[i - 1]?.off ?? true })).filter((point) => !point.off),
  })).filter((one) => one.points.length);

  lab.describe = ({ chosen, family, here, metric, crowded }, { machines, without, series }, state) => {
    const [row] = here, measured = metric.form === "results";
    const parts = [machines.length > 1 ? machines.map((name, i) => `${lab.letter(i)}: ${name}`).join("; ") : machines[0] ?? chosen.gpu];
    if (row && measured) parts.push(family ? `batch × N = ${row.batch * row.n}` : `batch ${row.batch}`, `heads ${row.heads}`);
    if (row) parts.push(...(family ? [] : [`N = ${row.n}`]), `d = ${row.d}`);
    parts.push({ 0: "dense", 1: "causal", both: "dense and causal" }[chosen.causal]);
    if (measured) parts.push(chosen.regime === "both" ? "in turns and alone" : chosen.regime === "turns" ? "in turns" : chosen.regime);
    if (measured && chosen.inputs !== "normal") parts.push(`${chosen.inputs} inputs`);
    if (measured && chosen.dtype !== "fp16") parts.push(chosen.dtype);
    if (chosen.problem) parts.push(chosen.problem);
    const said = [`${parts.join(", ")}.`];
    const shown = new Set([...series.map((one) => one.stage), ...without]);
    const beside = distinct(here.filter((row) => row.variety === "stage" && !shown.has(row.stage)), (row) => row.stage).length;
    if (crowded && !state.only && beside) said.push(`Under “Who is shown”: ${beside} more rungs.`);
    if (state.gpu && state.gpu !== chosen.gpu) said.push(`${state.gpu}: no such figure here.`);
    if (series.some((one) => one.points.some((point) => point.low !== undefined))) said.push(`Whiskers: ${metric.interval}.`);
    if (series.some((one) => one.kind === "peer")) said.push("Dashed: other implementations.");
    if (series.some((one) => one.kind === "ceiling")) said.push("Dotted: ceilings of the card.");
    const off = series.map((one) => one.points.filter((point) => point.off).length), count = off.reduce((a, b) => a + b, 0);
    const names = distinct(series.filter((_, i) => off[i]), (one) => one.stage).join(", ");
    if (count) said.push(`0 is not on a logarithmic axis: left out here and written in the table ${count > 1 ? "are" : "is"} ` +
      `${count} ${count > 1 ? "values" : "value"} of ${names}.`);
    if (without.length) said.push(`Without this figure: ${without.join(", ")}.`);
    return said.join(" ");
  };
}
