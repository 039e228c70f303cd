"""What the figures over N share: panels of lines, and the same as a table."""
from __future__ import annotations

from tools.plots import figure

ALIKE = 0.10
MODEL_DASHES = ("--", ":", "-.", (0, (1, 4)), (0, (6, 2)), (0, (3, 1, 1, 1, 1, 1)))


def number_of(stage: str) -> str:
    return stage.split("_")[0]


def together(names: list[str], order: list[str]) -> str:
    """What a line of several stages is called: "01 02 03", and "01 to 04, 06" where more than three are neighbours in
    `order`."""
    if len(names) == 1:
        return names[0]
    runs: list[list[str]] = []
    for name in names:
        if runs and order.index(name) == order.index(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{number_of(run[0])} to {number_of(run[-1])}" if len(run) > 3 else " ".join(map(number_of, run)) for run in runs)


def merged(lines: dict[str, dict[int, float]], step: float = 0, of: dict[str, str] | None = None) -> list[list]:
    """[name, "measured", points] of each stage, with the letters `of` its runs behind the name; stages that differ by at most 10 % everywhere share the first one's
    line, as do those that differ by one `step` in which the values are counted."""
    groups: list[tuple[list[str], dict[int, float]]] = []
    for stage, points in lines.items():
        for names, known in groups:
            if known.keys() == points.keys() and all(abs(points[n] - known[n]) <= max(ALIKE * known[n], step) for n in points):
                names.append(stage)
                break
        else:
            groups.append(([stage], points))
    letters = lambda names: "".join(sorted(set("".join((of or {}).get(name, "") for name in names))))
    return [[f"{together(names, list(lines))} {letters(names)}".rstrip(), "measured",
             [[n, float(f"{value:.6g}")] for n, value in points.items()]] for names, points in groups]


def separate(lines: dict[str, dict[int, float]], of: dict[str, str] | None = None) -> list[list]:
    """The same without sharing: what the table shows."""
    return [[f"{stage} {(of or {}).get(stage, '')}".rstrip(), "measured", [[n, float(f"{value:.6g}")] for n, value in points.items()]] for stage, points in lines.items()]


def heights(points: figure.Points) -> list[float]:
    """A legend of two columns below each panel."""
    return [3.4 + 0.19 * ((len(panel["lines"]) + 1) // 2) for panel in points["panels"]]


def render(axes: list, points: figure.Points) -> None:
    for panel, axis in zip(points["panels"], axes):
        styled = modelled = 0
        for name, kind, line in panel["lines"]:
            n, y = zip(*line)
            if kind == "model":
                axis.plot(n, y, label=name, color=figure.SOFT, linewidth=2.2, linestyle=MODEL_DASHES[modelled % len(MODEL_DASHES)])
                modelled += 1
                continue
            peer = kind == "peer"
            axis.plot(n, y, label=name, **figure.mark(styled), markersize=5, linewidth=1.8 if peer else 1.3,
                      markerfacecolor=figure.PAPER if peer else None, linestyle=":" if peer else figure.DASHES[styled % 3])
            styled += 1
        lengths = sorted({n for *_, line in panel["lines"] for n, _ in line})
        ticks = lengths if panel["log_n"] else lengths[-3:]
        axis.set_xscale("log" if panel["log_n"] else "linear", **({"base": 2} if panel["log_n"] else {}))
        axis.set_xticks(ticks, [str(n) for n in ticks])
        axis.minorticks_off()
        axis.set_yscale("log" if panel["log_y"] else "linear")
        if panel["log_y"]:
            figure.powers_of_ten(axis.yaxis)
        axis.set_xlabel("sequence length N")
        axis.set_ylabel(panel["y"])
        axis.set_title(panel["title"].replace(": ", ":\n"))
        handles, labels = axis.get_legend_handles_labels()
        last = {name: line[-1][1] for name, _, line in panel["lines"]}
        ordered = sorted(zip(handles, labels), key=lambda entry: -last[entry[1]])  # top to bottom as the lines end
        handles, labels = zip(*ordered)
        figure.legend_below(axis, 0.45, handles=handles, labels=labels, ncols=2, handlelength=2.6, columnspacing=1.2)
    axes[0].figure.suptitle("\n".join(filter(None, (points["title"].replace(". ", ".\n"), points.get("runs")))), fontsize=figure.TYPE)


def plain(value: float) -> str:
    """Four digits that count, and no power of ten to multiply in one's head."""
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e4 or not value else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.3e}"


def table(points: figure.Points) -> list[tuple[str, list[str], list[list[str]]]]:
    """For each different panel: what its values are, the head, and a row for each line: many rows scroll better than
    many columns."""
    tables = []
    for panel in points["panels"]:
        if any(panel["table"] == other["table"] for other in points["panels"][:points["panels"].index(panel)]):
            continue  # the same lines on another scale
        lines = [(name, dict(map(tuple, line))) for name, _, line in panel["table"]]
        lengths = sorted({n for _, line in lines for n in line})
        rows = [[name, *(plain(line[n]) if n in line else "" for n in lengths)] for name, line in lines]
        tables.append((", ".join(filter(None, (panel["y"], panel["of"]))), ["N =", *map(str, lengths)], rows))
    return tables
