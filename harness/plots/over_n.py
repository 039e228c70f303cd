"""What the figures over N share: panels of lines, and the same as a table."""
from __future__ import annotations

import figure

ALIKE = 0.10
MODEL_DASHES = ("--", ":", "-.", (0, (1, 4)), (0, (6, 2)), (0, (3, 1, 1, 1, 1, 1)))


def number_of(stage: str) -> str:
    return stage.split("_")[0]


def together(names: list[str], order: list[str]) -> str:
    """What a line of several stages is called: "01 02 03", and "01 to 04, 06" where more than three are neighbours in `order`."""
    if len(names) == 1:
        return names[0]
    runs: list[list[str]] = []
    for name in names:
        if runs and order.index(name) == order.index(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{number_of(run[0])} to {number_of(run[-1])}" if len(run) > 3 else " ".join(map(number_of, run)) for run in runs)


def merged(lines: dict[str, dict[int, float]], step: float = 0) -> list[list]:
    """[name, "measured", points] of each stage; stages that differ by at most 10 % everywhere share the first one's line, as do
    those that differ by one `step` in which the values are counted."""
    groups: list[tuple[list[str], dict[int, float]]] = []
    for stage, points in lines.items():
        for names, known in groups:
            if known.keys() == points.keys() and all(abs(points[n] - known[n]) <= max(ALIKE * known[n], step) for n in points):
                names.append(stage)
                break
        else:
            groups.append(([stage], points))
    return [[together(names, list(lines)), "measured",
             [[n, float(f"{value:.6g}")] for n, value in points.items()]] for names, points in groups]


def separate(lines: dict[str, dict[int, float]]) -> list[list]:
    """The same without sharing: what the table shows."""
    return [[stage, "measured", [[n, float(f"{value:.6g}")] for n, value in points.items()]] for stage, points in lines.items()]


def render(axes: list, points: figure.Points) -> None:
    for panel, axis in zip(points["panels"], axes if isinstance(axes, list) else [axes]):
        styled = modelled = 0
        for name, kind, line in panel["lines"]:
            n, y = zip(*line)
            if kind == "model":
                axis.plot(n, y, label=name, color=figure.INK, linewidth=2.2, alpha=0.45, linestyle=MODEL_DASHES[modelled % len(MODEL_DASHES)])
                modelled += 1
                continue
            peer = kind == "peer"
            axis.plot(n, y, label=name, **figure.mark(styled), markersize=5, linewidth=1.8 if peer else 1.3,
                      markerfacecolor="white" if peer else None, linestyle=":" if peer else figure.DASHES[styled % 3])
            styled += 1
        lengths = sorted({n for *_, line in panel["lines"] for n, _ in line})
        axis.set_xscale("log" if panel["log_n"] else "linear", **({"base": 2} if panel["log_n"] else {}))
        axis.set_xticks(lengths if panel["log_n"] else lengths[-3:])
        axis.set_xticklabels([str(n) for n in (lengths if panel["log_n"] else lengths[-3:])])
        axis.minorticks_off()
        axis.set_yscale("log" if panel["log_y"] else "linear")
        axis.set_xlabel("sequence length N")
        axis.set_ylabel(panel["y"])
        axis.set_title(panel["title"], fontsize=9)
        axis.legend(fontsize=6.5, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.12), labelspacing=0.3, handlelength=3.5)
    (axes[0] if isinstance(axes, list) else axes).figure.suptitle(points["title"], fontsize=9)


def table(points: figure.Points) -> list[tuple[str, list[str], list[list[str]]]]:
    """For each different panel: what its values are, the head, and a row for each N."""
    tables = []
    for panel in points["panels"]:
        if any(panel["table"] == other["table"] for other in points["panels"][:points["panels"].index(panel)]):
            continue  # the same lines on another scale
        lines = [(name, dict(map(tuple, line))) for name, _, line in panel["table"]]
        lengths = sorted({n for _, line in lines for n in line})
        rows = [[str(n), *(f"{line[n]:.4g}" if n in line else "" for _, line in lines)] for n in lengths]
        tables.append((", ".join(filter(None, (panel["y"], panel["of"]))), ["N", *(name for name, _ in lines)], rows))
    return tables
