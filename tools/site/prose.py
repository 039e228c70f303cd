"""Numbers in prose, computed from what was measured. A number is an expression with a format, as in an f-string:

    h200('02').tflops / h200('01').tflops:.2f

A page is read where the repository is hosted too, so numbers stand in it as they are, each with its formula in a comment that no reader
sees; `chapters.py` renews them, and tables whose cells follow one formula by column:

    is worth <!--=h200('02').tflops / h200('01').tflops:.2f-->1.25<!--/--> times

    <!-- table N
    512: n=512, batch=32
    1024: n=1024, batch=16
    |
    34: {h200('34', ROW).tflops:.0f}
    over cuDNN: {beside('34', 'cudnn_bhnd', ROW).ratio:.2f} times
    -->
    | N | 34 | over cuDNN |
    <!-- /table -->
"""
from __future__ import annotations

import ast
import functools
import itertools
import json
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

from tools import changes, results, rungs
from tools.paths import DOCS, ROOT

_taken: list["Taken"] = []  # what the formula that is being computed has read so far
HOLE = re.compile(r"\{([^{}]+)\}")
INLINE = re.compile(r"<!--=(.+?)-->(.*?)<!--/-->", re.S)
TABLE = re.compile(r"^(<!-- table (.*)\n((?:.+\n)*?)-->\n)(?:\|.*\n)*<!-- /table -->$", re.M)
TRIALS = ("h200_trials.csv", "h200_trials_hopper.csv", "h200_trials_backward.csv", "h200_trials_backward_clocks.csv", "h200_trials_backward_d64.csv",
          "h200_trials_walk.csv", "h200_trials_ninetysix.csv", "h200_trials_fp8.csv")
SMS = 132  # of the H200 that all files here are of
METRICS = {
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "shared_busy": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "tensor_busy": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "waits_global": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "waits_shared": "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
}


class NoRows(results.NotMeasured):
    """A rung of the ladder of which a file has no row at all: prose that speaks of it stands as it was written."""


@dataclass(frozen=True)
class Taken:
    """Where a figure of a formula is from: rows of one run are of one file and commit, and what ran in turns has one heat."""

    card: str
    commit: str
    heat: str  # empty: timed apart, beside nobody
    selection: results.Selection


def _only(found: list, what: str):
    if len(found) != 1:
        kind = results.ResultsError if found else results.NotMeasured
        raise kind(f"{'several rows' if found else 'no row'} of {what}")
    return found[0]


def _full(name: str) -> str:
    """'02_swizzle[64x32, 2 warps]' for '02[64x32, 2 warps]': the number of a rung, or its word, becomes its name;
    others stay."""
    base, variant = rungs.split(name)
    rung = rungs.find(base)
    return rung.name + variant if rung else name


def _of(name: str, rows: list, file: str) -> list:
    """The rows of a rung, a variant, a peer or a ceiling. What has rows of just this name is meant before a rung of
    this word."""
    full = name if any(row.stage == name for row in rows) else _full(name)
    found = [row for row in rows if row.stage == full]
    if not found:
        rung, others = rungs.find(rungs.split(name)[0]), [row for row in rows if rungs.split(row.stage)[0] == rungs.split(full)[0]]
        kind = results.ResultsError if rung is None else results.NotMeasured if others else NoRows
        raise kind(f"no row of {name} in {file}")
    return found


def _row(card: str, file: str, name: str, shape: dict) -> results.Row:
    """A row of a file of this card: a rung by name or number, a variant, a peer or a ceiling; at the README's shape unless told."""
    selection, where = results.Selection(**shape), f"docs/results/{file}"
    found = [row for row in _of(name, results.recorded(file), where) if row.source == "measured" and selection.takes(row)]
    row = _only(found, f"{name} at {selection} in {where}")
    heat = row.values.get("heat")
    _taken.append(Taken(card, row.commit, "" if heat is None else str(heat), selection))
    return row


def h200(name: str, **shape) -> results.Row:
    return _row("h200", "h200.csv", name, shape)


def h100(name: str, **shape) -> results.Row:
    return _row("h100", "h100.csv", name, shape)


def repeat(name: str, **shape) -> results.Row:
    """The same of an earlier run."""
    return _row("h200", "h200_repeat.csv", name, shape)


def _selection_of(row: dict[str, str]) -> results.Selection:
    problem = row.get("problem") or ""
    said = f"b={row['batch']} h={row['heads']} n={row['n']} d={row['d']} {row.get('dtype')}{' causal' if row['causal'] == '1' else ''}"
    return results.Selection(int(row["batch"]), int(row["heads"]), int(row["n"]), int(row["d"]), row["causal"] == "1", row["regime"], row["inputs"],
                             row.get("dtype") or "fp16", "" if problem == said else problem)


@functools.cache
def _groups(card: str) -> dict[tuple, dict[str, dict[int, tuple[str, float, float]]]]:
    """Kind, milliseconds of a launch and MHz by round, by contestant, by heat: what a Selection names, the commit and the heat."""
    found: dict[tuple, dict[str, dict[int, tuple[str, float, float]]]] = {}
    for file in sorted(results.RESULTS.glob(f"{card}_rounds_*.csv")):  # one a part
        for line, row in enumerate(results.table(file.name), 2):
            shape = _selection_of(row)
            rounds = found.setdefault((shape, row["commit"], row["heat"]), {}).setdefault(row["contestant"], {})
            if int(row["round"]) in rounds:
                raise results.ResultsError(f"docs/results/{file.name}:{line}: a second group of {row['contestant']} in heat {row['heat']}, "
                                           f"round {row['round']}, commit {row['commit']}, {shape}")
            rounds[int(row["round"])] = row["kind"], float(row["ms"]), float(row["clock_mhz"])
    return found


@dataclass(frozen=True)
class Beside:
    """A contestant in a heat: its .ms, .clock_mhz, .tflops and .flop_per_clk_sm, medians over the rounds; and of the paired ratio of
    another over it .ratio, the median, with .least and .most of all rounds."""

    name: str
    groups: list[tuple[str, float, float]]
    attention_flops: float
    ratios: list[float]

    @property
    def flops(self) -> float:
        if self.groups[0][0] == "ceiling":
            raise results.ResultsError(f"{self.name} is a ceiling: its launches have FLOPs of their own, not those of an attention")
        return self.attention_flops

    @property
    def ms(self) -> float:
        return statistics.median(ms for _, ms, _ in self.groups)

    @property
    def clock_mhz(self) -> float:
        return statistics.median(mhz for _, _, mhz in self.groups)

    @property
    def tflops(self) -> float:
        return self.flops / self.ms / 1e9

    @property
    def flop_per_clk_sm(self) -> float:
        return self.flops / statistics.median(ms * mhz * 1e3 for _, ms, mhz in self.groups) / SMS

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def least(self) -> float:
        return min(self.ratios)

    @property
    def most(self) -> float:
        return max(self.ratios)


@functools.cache
def _heats(card: str) -> dict[tuple, tuple[str, str]]:
    """By what a Selection names and the contestant: the commit and the heat of the row of h200.csv, or of another card's."""
    return {(_selection_of(row), row["stage"]): (row["commit"], row.get("heat", "")) for row in results.table(f"{card}.csv")}


def beside(name: str, other: str, commit: str | None = None, card: str = "h200", **shape) -> Beside:
    """`other` in the heat that it shares with `name`, by the card's CARD_rounds_*.csv, of this commit if one is named. Of several such heats: the one that
    CARD.csv has the row of `name` from, or else the last of that run, or else the last of all. Its ratios are those of `name` over it."""
    selection = results.Selection(**shape)
    known = {stage for heat in _groups(card).values() for stage in heat}
    stages = [stage if stage in known else _full(stage) for stage in (name, other)]  # wgmma is the loop, not 20_wgmma
    what = f"{name} beside {other} at {selection}{f', commit {commit}' if commit else ''} in docs/results/{card}_rounds_*.csv"
    found = {(run, heat_of): [heat[stage] for stage in stages] for (of, run, heat_of), heat in _groups(card).items()
             if of == selection and commit in (None, run) and heat.keys() >= set(stages)}
    row = _heats(card).get((selection, stages[0]))
    if len(found) > 1 and row is not None and any((of, run) == (selection, row[0]) for of, run, _ in _groups(card)):
        of_run = [key for key in found if key[0] == row[0]] or list(found)  # runs stand in the order in which they came
        chosen = row if row in of_run else of_run[-1]
        found = {chosen: found[chosen]}
    mine, others = _only(list(found.values()), what)
    run, heat_of = next(iter(found))
    _taken.append(Taken(card, run, heat_of, selection))
    paired = mine.keys() & others.keys() or _only([], f"a common round of {what}")
    flops = 4 * selection.batch * selection.heads * selection.n**2 * selection.d / (2 if selection.causal else 1)
    return Beside(stages[1], list(others.values()), flops, [others[at][1] / mine[at][1] for at in paired])


def rates_of(name: str, selection: results.Selection, commit: str, card: str = "h200") -> list[float]:
    """TFLOPS of a contestant in a run, the least and the most of its heats; none where it was not in it."""
    flops = 4 * selection.batch * selection.heads * selection.n**2 * selection.d / (2 if selection.causal else 1)
    found = sorted(flops / statistics.median(ms for _, ms, _ in heat[name].values()) / 1e9 for (of, run, _), heat in _groups(card).items()
                   if of == selection and run == commit and name in heat)
    return [found[0], *found[-1:]] if len(found) > 1 and f"{found[0]:.0f}" != f"{found[-1]:.0f}" else found[:1]


def drift(name: str, commit: str, card: str = "h200", **shape) -> float:
    """By how many percent the rates of a contestant in the heats of one run differ at most."""
    least, *most = rates_of(name, results.Selection(**shape), commit, card) or _only([], f"{name} of commit {commit} in docs/results/{card}_rounds_*.csv")
    return apart(most[0], least) if most else 0.0


def _repeated(regime: str) -> Iterator[tuple[results.Row, results.Row]]:
    """Ratios over the rung before in h200_repeat.csv, each with that of h200.csv; 32's aside, whose card was too hot."""
    def ratios(file: str) -> dict[tuple, results.Row]:
        shape = ("stage", "batch", "heads", "n", "d", "causal", "regime", "inputs")
        return {tuple(row.values[name] for name in shape): row for row in results.recorded(file) if row.is_rung and row.vs_previous}

    now = ratios("h200.csv")
    return ((then, now[of]) for of, then in ratios("h200_repeat.csv").items()
            if of in now and then.regime == regime and not then.stage.startswith("32_"))


def repeated(regime: str = "turns") -> float:
    """By how many percent these ratios differ at most."""
    return max(abs(apart(then.vs_previous, now.vs_previous)) for then, now in _repeated(regime))


def turned(regime: str = "turns") -> int:
    """How many verdicts of these are others."""
    return sum(then.verdict != now.verdict for then, now in _repeated(regime))


def sweep(name: str, column: str, regime: str) -> list[float]:
    """A column at every N of the sweep, in which batch x N is constant."""
    found = [row.values[column] for row in _of(name, results.recorded("h200.csv"), "docs/results/h200.csv") if row.source == "measured"
             and row.regime == regime and row.batch * row.n == results.SWEEP_TOKENS and not row.causal and row.is_plain]
    return found or _only(found, f"the sweep of {name}, {regime}, in docs/results/h200.csv")


@functools.cache
def _counters() -> dict[str, dict[str, dict[str, float]]]:
    return results.counters(results.RESULTS / "h200_counters.csv")


def ncu(name: str, metric: str, kernel: str | None = None) -> float:
    """A value of h200_counters.csv: of a rung's default kernel, of flash_attention<KERNEL>, or of KERNEL."""
    metric = METRICS.get(metric, metric)
    kernels = _counters().get(_full(name))
    if kernels is None:
        raise (NoRows if rungs.find(name) else results.ResultsError)(f"no row of {name} in docs/results/h200_counters.csv")
    chosen = kernels.get(f"flash_attention<{kernel}>", kernels.get(kernel)) if kernel else next(iter(kernels.values()))
    if chosen is None or metric not in chosen:
        raise results.ResultsError(f"no {metric} of {name} {kernel or ''} in docs/results/h200_counters.csv")
    return chosen[metric]


def waits(name: str) -> float:
    """Clocks that a warp waits for each instruction that it issues, whatever for."""
    kernels = _counters().get(_full(name)) or _only([], f"counters of {name} in docs/results/h200_counters.csv")
    return sum(value for metric, value in next(iter(kernels.values())).items() if "_issue_stalled_" in metric)


def traffic(name: str, metric: str, n: int, causal: bool = False) -> float:
    """A value of h200_traffic.csv, in bytes or events per head: traffic('06', 'lts__t_bytes.sum', 4096)."""
    found = _of(name, results.recorded("h200_traffic.csv", "traffic"), "docs/results/h200_traffic.csv")
    return _only([row for row in found if (row.metric, row.n, row.causal) == (metric, n, causal)],
                 f"{metric} of {name} at N = {n}{', causal' if causal else ''} in docs/results/h200_traffic.csv").per_head


def _cells(file: str, **wanted: str) -> dict[str, str]:
    """The one line of a file of docs/results in which these columns have these words."""
    found = [row for row in results.table(file) if all(row[name] == word for name, word in wanted.items())]
    return _only(found, f"{', '.join(wanted.values())} in docs/results/{file}")


def latency(what: str) -> SimpleNamespace:
    """latency('L2').clocks and .ns."""
    row = _cells("h200_latencies.csv", what=what)
    return SimpleNamespace(clocks=float(row["clocks"]), ns=float(row["ns"]))


def adder(instruction: str, experiment: str, s: int, sign: int = 1) -> SimpleNamespace:
    """A sum of h200_adder.csv: adder('wgmma.e4m3', 'kept of a product', 13).value. With sign -1 that of a negative small term."""
    found = [row for row in results.table("h200_adder.csv") if (row["instruction"], row["experiment"], row["s"]) == (instruction, experiment, str(s))]
    row = _only(found[:1] if sign > 0 else found[1:], f"{experiment} of {instruction} at {s} in docs/results/h200_adder.csv")
    return SimpleNamespace(value=float(row["value"]))


def quantised(form: str, column: str) -> float:
    """Of the small trained model with its cache in a format: quantised('int4', 'perplexity')."""
    return float(_cells("h200_quantised.csv", format=form)[column])


def formats(name: str, per: str, inputs: str) -> float:
    """What a type of keys and values costs, in percent of O: formats('int8', 'channel', 'outliers'); or formats('q and k in int8', 'row', 'shifted')."""
    return 100 * float(_cells("format_errors.csv", type=name, per=per, inputs=inputs)["error"])


def offsets(offset: float, inputs: str = "normal", tiles: int = 64) -> SimpleNamespace:
    """Where a row's largest weight stands in e4m3: offsets(3.75, 'sink').rms and .max, in percent of O, .rms_over_plain; .again, in percent."""
    row = _cells("weight_offsets.csv", offset=f"{offset:g}", inputs=inputs, tiles=f"{tiles}")
    numbers = {name: float(cell) for name, cell in row.items() if name != "inputs" and cell}
    return SimpleNamespace(**numbers | {name: 100 * numbers[name] for name in ("rms", "max", "again") if name in numbers})


def prefill(attention: str, tokens: int, column: str) -> float:
    """prefill('flash_ladder', 32768, 'tokens_per_s')."""
    return float(_cells("h200_prefill.csv", attention=attention, tokens=str(tokens))[column])


def generation(attention: str, sequences: int, tokens: int, column: str = "tokens_per_s", how: str = "graph") -> float:
    """Of so many sequences as were asked for: generation('flash_ladder', 8, 32768, 'over_sdpa')."""
    return float(_cells("h200_generation.csv", attention=attention, how=how, asked=str(sequences), tokens=str(tokens))[column])


def overhead(call: str, dtype: str = "float16", column: str = "us_median", card: str = "h200") -> float:
    """Of a card's host: overhead('flash_ladder', 'bfloat16', 'us_least')."""
    return float(_cells(f"{card}_overhead.csv", call=call, dtype=dtype)[column])


def _figure(card: str, row: dict[str, str], column: str) -> float:
    _taken.append(Taken(card, row["commit"], "", results.Selection(problem=row["problem"])))
    return float(row[column])


def page(problem: str, attention: str = "flash_ladder", column: str = "rate", card: str = "h200") -> float:
    """A figure of CARD_peers.csv: page('b=4 h=16 n=4096 d=96 bf16', 'fa3', 'us_median')."""
    return _figure(card, _cells(f"{card}_peers.csv", attention=attention, problem=problem), column)


def decoding(attention: str, problem: str, column: str = "us_median", beside: str = "d02") -> float:
    """A figure of h200_decoding.csv, of one query in bf16, of the run in which `beside` was the last rung, by their numbers: decoding('fa3', 'b=8 kv=8 nk=8192')."""
    words = set(problem.split()) | {"d=128", "bf16", *({"nq=1"} if "nq=" not in problem else set())}
    short = lambda name: " ".join([name.split()[0].partition("_")[0], *name.split()[1:]])  # "d06 pages=16"
    found = [row for row in results.table(results.DECODING)
             if (short(row["attention"]), short(row["last"])) == (attention, beside) and words <= set(row["problem"].split())]
    return _figure("h200", _only(found, f"{attention} with {problem} in docs/results/{results.DECODING}"), column)


def functions(function: str, problem: str, rung: str = "89", column: str = "over") -> float:
    """A figure of h200_functions.csv: of a rung with this function of the score, or with none, the rate over that of the rung without: functions('softcap', 'n=16384')."""
    found = [row for row in results.table(results.FUNCTIONS)
             if (row["function"], row["rung"].partition("_")[0]) == (function, rung) and set(problem.split()) <= set(row["problem"].split())]
    return _figure("h200", _only(found, f"{rung} with {function or 'no function'}, {problem}, in docs/results/{results.FUNCTIONS}"), column)


def race(kind: str, dtype: str, what: str, card: str = "h200") -> float:
    """Of the problems of a kind that flash_ladder takes in CARD_peers.csv, by the median of each one's rounds over the fastest library:
    how many there are (all), in how many it is ahead, and the least, the median and the most of these ratios."""
    from tools.plots import which

    found = [which.best(each) for problem, each in which.races(results.table(f"{card}_peers.csv")).items()
             if which.kind_of(problem) == kind and dtype in problem.split()]
    ratios = [float(row["over"]) for row in found if row is not None] or [_only([], f"{kind} in {dtype} in docs/results/{card}_peers.csv")]
    return {"all": len(ratios), "refused": len(found) - len(ratios), "ahead": sum(ratio > 1 for ratio in ratios), "least": min(ratios),
            "median": statistics.median(ratios), "most": max(ratios)}[what]


def types(what: str, card: str = "h200", percent: float = 3) -> float:
    """Of the problems of CARD_peers.csv whose forward pass FlashAttention-3 and flash_ladder ran in f16 and in bf16, both in one run: how many there
    are (all), in how many the two ratios over FlashAttention-3 are within so many percent of each other (within), and by how many they differ at most."""
    from tools.plots import which

    rows = [row for row in results.table(f"{card}_peers.csv") if row["attention"] == "fa3" and which.kind_of(row["problem"]) == "forward"]
    over = {(row["commit"], *(word for word in row["problem"].split() if word not in which.TYPES), "fp16" in row["problem"].split()): float(row["over"]) for row in rows if row["over"]}
    gaps = [abs(apart(over[*of, True], ratio)) for (*of, is_f16), ratio in over.items() if not is_f16 and (*of, True) in over]
    gaps = gaps or [_only([], f"fa3 in both types in docs/results/{card}_peers.csv")]
    return {"all": len(gaps), "within": sum(gap <= percent for gap in gaps), "most": max(gaps)}[what]


def choice(rung: str, problem: str, column: str = "over", card: str = "h200") -> float:
    """A figure of CARD_choice.csv, of the rungs that take a problem, in turns: choice('m08', 'b=1 h=16 n=4096 d=96 bf16'), its time over that of the
    rung which the package took in that run."""
    rows = [row for row in results.table(f"{card}_choice.csv") if row["problem"] == problem and row["rung"].partition("_")[0] == rung]
    row = _only(rows, f"{rung} with {problem} in docs/results/{card}_choice.csv")
    return _figure(card, row if row["rounds"] != "1" else _only([], f"{rung} with {problem}, which raced, in docs/results/{card}_choice.csv"), column)


def cells(what: str, words: str = "", card: str = "h200") -> float:
    """Of CARD_grid_peers.csv, of the problems and inputs with these words, by the fastest library's time over flash_ladder's: how many there are
    (all), how many are below 1.02 (below), and the least, the median and the most."""
    from tools.plots import which

    ratios = [float(row["over"]) for row in which.cells(results.table(f"{card}_grid_peers.csv"), words).values()]
    ratios = ratios or [_only([], f"{words} in docs/results/{card}_grid_peers.csv")]
    return {"all": len(ratios), "below": sum(round(ratio, 2) < 1.02 for ratio in ratios), "least": min(ratios), "median": statistics.median(ratios), "most": max(ratios)}[what]


def ring(contestant: str, n: int, column: str, causal: bool = False, beside: str = "gather") -> float:
    """A figure of h200_ring.csv, of the heat in which another one took part: ring('ring', 131072, 'over_one', causal=True)."""
    rows = [row for row in results.table("h200_ring.csv") if (row["n"], row["causal"]) == (str(n), str(int(causal)))]
    heats = {row["heat"] for row in rows if row["contestant"] == beside}
    found = [row for row in rows if row["contestant"] == contestant and row["heat"] in heats]
    return float(_only(found, f"{contestant} beside {beside} at n = {n}{', causal' if causal else ''} in docs/results/h200_ring.csv")[column])


def cards(contestant: str, count: int, n: int = 0, column: str = "over_one", causal: bool = False, backward: bool = False, each: int = 0) -> float:
    """A figure of ring_of_four.csv, of so many cards that share a sequence, of n tokens or of so many for each: cards('ring', 4, 131072, causal=True).
    Of its first heat, where there are several."""
    n = n or each * count
    file, wanted = "ring_of_four.csv", (contestant if count > 1 else "one", str(count), str(n), str(int(causal)), "backward" if backward else "forward")
    rows = results.table(file) if (results.RESULTS / file).exists() else []
    found = [row for row in rows if (row["contestant"], row["ranks"], row["n"], row["causal"], row["direction"]) == wanted]
    if not found:
        raise NoRows(f"no row of {', '.join(wanted)} in docs/results/{file}")
    return float(found[0][column])


def first(name: str, of: str = "") -> float:
    """What came of a rung's prediction, or of the half of it that is called so, in the first run that timed it: docs/prediction_halves.csv."""
    halves = results.table(DOCS / "prediction_halves.csv")
    found = [row["came"] for row in halves if (row["stage"], row["of"]) == (_full(name), of) and row["came"]]
    return float(_only(found, f"{name} {of} in docs/prediction_halves.csv"))


def apart(one: float, other: float) -> float:
    """By how many percent figures of two runs differ. It is the only way in which a formula may divide them, and says that it does."""
    return 100 * one / other - 100


@functools.cache
def slowed() -> set[tuple[str, str, str, str, str]]:
    """Groups of rounds in which the card slowed itself down, so that their rates are none: card, commit, heat, problem, contestant."""
    return {(row["card"], row["commit"], row["heat"], row["problem"], row["contestant"]) for row in results.table("row_slowed.csv")}


@functools.cache
def _spreads(card: str) -> list[tuple[float, str, results.Selection, str, str]]:
    """How much the rate of a peer or a ceiling differs from one run to another on a card of this kind, in percent; who, at what, and the two commits.
    (A rung may have changed in between.)"""
    rates: dict[tuple, dict[str, list[float]]] = {}
    for (selection, commit, heat), contestants in _groups(card).items():
        for name, rounds in contestants.items():
            if next(iter(rounds.values()))[0] != "stage" and (card, commit, heat, selection.problem, name) not in slowed():
                rates.setdefault((name, selection), {}).setdefault(commit, []).append(statistics.median(ms for _, ms, _ in rounds.values()))
    pairs = [(name, selection, *pair) for (name, selection), runs in rates.items() for pair in itertools.combinations(sorted(runs.items()), 2)]
    return sorted((100 * max(statistics.median(one[1]), statistics.median(two[1])) / min(statistics.median(one[1]), statistics.median(two[1])) - 100,
                   name, str(selection), one[0], two[0]) for name, selection, one, two in pairs)


def spread(card: str = "h200", share: float = 1.0) -> float:
    """Of all pairs of runs that timed the same peer or ceiling at the same problem: by how many percent the rates of so large a share of them
    differ at most. 1 is all of them."""
    found = _spreads(card)
    return found[max(0, min(len(found), round(share * len(found))) - 1)][0]


def spreads(card: str = "h200") -> int:
    """How many such pairs there are."""
    return len(_spreads(card))


def hit(said: float, *row, **more) -> str:
    """Whether a prediction lies between the least and the most of the rounds of a row of ring_of_four.csv, as printed: hit(3.75, 'ring', 4, 131072)."""
    least, most = (round(cards(*row, column=f"over_one_{end}", **more), 2) for end in ("least", "most"))
    return "hit" if least <= said <= most else "missed"


def timeline(rank: int, kernel: str, number: int = 0, name: str = "h200_ring_timeline") -> float:
    """Milliseconds of a kernel in a recorded call of the ring, by a part of its name, the first one or a later one."""
    file = results.RESULTS / f"{name}.json"
    if not file.exists():
        raise NoRows(f"no docs/results/{file.name}")
    found = [each for each in json.loads(file.read_text(encoding="utf-8"))["us"][rank] if kernel in each["name"]]
    if number >= len(found):
        raise results.NotMeasured(f"{kernel} number {number} of rank {rank} in docs/results/{file.name}")
    return (found[number]["end"] - found[number]["begin"]) / 1e3


def tried(what: str, column: str = "TFLOPS", problem: str = "") -> float:
    """A figure of a file of trials, of the row whose first cell begins so: tried('three warpgroups'), or with the column 'without it'."""
    found = [row for file in TRIALS for row in results.table(file) if row["tried"].startswith(what) and problem in ("", row.get("problem"))]
    return float(_only(found, f"{what!r} in docs/results/{' or '.join(TRIALS)}")[column])


def told(what: str) -> float:
    """A figure of trials_told.csv: of a run that was not kept, or that a later one has replaced, as a page told it first."""
    return float(_cells("trials_told.csv", id=what)["value"])


def costs(instruction: str, column: str) -> float:
    """A figure of h100_costs.csv: costs('MUFU.EX2', 'beside products')."""
    return float(_only([row for row in results.table("h100_costs.csv") if row["instruction"].startswith(instruction)], f"{instruction} in docs/results/h100_costs.csv")[column])


def sass(name: str, opcodes: str, kernel: str | None = None) -> float:
    """How often instructions stand in the machine code: sass('08', 'MOV IMAD')."""
    return sum(ncu(name, f"sass.{opcode}", kernel) for opcode in opcodes.split())


def changed(name: str) -> int:
    """Lines of kernel.cuh that differ from the rung that it starts from."""
    return _only([lines for rung, (_, lines) in changes.since_previous().items() if rung == _full(name)], f"{name} with a rung before it")


def steps(most: int = sys.maxsize) -> int:
    """How many rungs change so many lines of the one that they start from, at most."""
    return sum(lines <= most for _, lines in changes.since_previous().values())


def stand(how: str = "") -> int:
    """How many rows of rungs row_stands.csv holds to the kernel of today; or of those how many are of the "same" machine code, or of "other".
    A change that is told to be of none of a commit's rows is none."""
    none = {(row["stage"], row["commit"]) for row in results.table("row_changes.csv") if row["of"] == "none"}
    other = lambda row: row["how"] == "other machine code" and (row["stage"], row["commit"]) not in none
    return sum(int(row["rows"]) for row in results.table("row_stands.csv") if not how or other(row) == (how == "other"))


def mutants(column: str) -> int:
    """A column of mutants.csv, summed over its rungs: mutants('survived')."""
    rows = results.table("mutants.csv")
    if not rows or column not in rows[0]:
        raise results.ResultsError(f"no column {column} in docs/results/mutants.csv")
    return sum(int(row[column]) for row in rows)


def count(path: str, pattern: str = "") -> int:
    """How many lines of a file match: what prose says of the code itself."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return sum(bool(re.search(pattern, line)) for line in lines) or _only([], f"a line like {pattern!r} in {path}")


NAMES = {function.__name__: function for function in (h200, h100, repeat, beside, sweep, ncu, waits, traffic, latency, adder, generation, quantised, formats, offsets, prefill, overhead, page, functions, decoding, race, types, choice, cells, ring, cards, hit, first, apart, spread, spreads, drift, repeated, turned, timeline, tried, told, costs, sass, changed, steps, stand, mutants, count, min, max)}


def value(expression: str):
    return eval(expression, {"__builtins__": {}}, NAMES)


def taken(expression: str) -> list[Taken]:
    """Where the figures of a formula are from."""
    _taken.clear()
    value(expression)
    return list(dict.fromkeys(_taken))


def compares_two_runs(expression: str) -> str:
    """What is wrong with a formula that divides or subtracts figures of two runs, or of two heats of one problem, as if they were of one; empty if it
    does not. Two problems of one run, dense and causal for instance, have no heat in common; and what was timed apart has none."""
    for node in ast.walk(ast.parse(expression, mode="eval")):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Sub)):
            sources = taken(ast.unparse(node))
            if len({(source.card, source.commit) for source in sources}) > 1:
                return f"{ast.unparse(node)} compares two runs: {', '.join(sorted({f'{source.commit} on an {source.card.upper()}' for source in sources}))}"
            heats = {source.heat for source in sources if source.heat}
            if len(heats) > 1 and len({source.selection for source in sources}) == 1:
                return f"{ast.unparse(node)} compares two heats of commit {sources[0].commit}: {', '.join(sorted(heats))}"
    return ""


def formulas(text: str) -> Iterator[str]:
    """Every expression of a page, of its prose and of each cell of its tables."""
    for match in INLINE.finditer(text):
        yield match[1].rpartition(":")[0]
    for match in TABLE.finditer(text):
        for words, template in itertools.product(*_lines(match[2], match[3])):
            yield from (hole[1].replace("ROW", words[1] or words[0]).rpartition(":")[0] for hole in HOLE.finditer(template[1]))


def _lines(corner: str, spec: str) -> list[list[list[str]]]:
    """Of a table its rows and its columns, each as a label and what stands behind it."""
    above, bar, below = spec.partition("\n|\n")
    if not bar:
        raise results.ResultsError(f"table {corner}: no line | between its rows and its columns")
    return [[[part.strip() for part in line.partition(":")[::2]] for line in part.strip().splitlines()] for part in (above, below)]


def number(text: str) -> str:
    """The value of EXPRESSION:FORMAT. Raises ResultsError, whatever is wrong with it; NotMeasured where a row is
    missing."""
    expression, _, form = text.rpartition(":")
    try:
        return format(value(expression), form)
    except results.NotMeasured as error:
        raise type(error)(f"{text}: {error}") from None
    except (results.ResultsError, rungs.RungsError, SyntaxError, NameError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
        raise results.ResultsError(f"{text}: {error}") from None


def renewed(text: str, where: str) -> str:
    """A page in which every number and table that has its formula beside it is computed anew. A number of a rung that was not measured
    yet stays as it is."""
    def inline(match: re.Match) -> str:
        try:
            return f"<!--={match[1]}-->{number(match[1])}<!--/-->"
        except NoRows as error:
            print(f"{where}: not measured yet: {error}", file=sys.stderr)
            return match[0]

    try:
        text = TABLE.sub(lambda match: f"{match[1]}{table(match[2], match[3])}<!-- /table -->", text)
        return INLINE.sub(inline, text)
    except results.ResultsError as error:
        raise type(error)(f"{where}: {error}") from None


def table(corner: str, spec: str) -> str:
    """Lines of LABEL: WORDS make the rows and, behind a line of `|`, LABEL: TEMPLATE the columns: a template has numbers in braces, and
    for ROW the words of the row, or its label where there are none."""
    rows, columns = _lines(corner, spec)

    def cell(words: str, template: str) -> str:
        try:
            return HOLE.sub(lambda hole: number(hole[1].replace("ROW", words)), template)
        except NoRows:
            return ""

    lines = [[corner, *(label for label, _ in columns)], ["---", *(["---:"] * len(columns))]]
    lines += [[label, *(cell(words or label, template) for _, template in columns)] for label, words in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
