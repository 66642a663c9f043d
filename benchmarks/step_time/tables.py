"""The tables of this benchmark in markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import exp, log
from typing import Any

OURS = "placer"
NAMED = ("m-sct", "m-etf", "m-topo", "heft", "first-fit", "balanced")
"""The baselines that the geometric means are taken against."""

FIGURES = {"step-time": "step_seconds", "throughput": "bottleneck_seconds"}
NOISE = 1.001
Row = dict[str, Any]
Value = Callable[[dict[str, Any]], float | None]


def tables(rows: Sequence[Row], objective: str = "step-time") -> str:
    """Ours beside all baselines by our predictor, beside the best by Grappler's; the peaks."""
    rows = sorted(rows, key=lambda row: (row["percent"], row["ops"]))

    def predicted(strategy: dict[str, Any]) -> float | None:
        return strategy[FIGURES[objective]] if strategy["fits"] else None

    lines = [*_seconds(rows, predicted), "", *_summary(rows, predicted)]
    if objective == "step-time":
        lines += ["", "By our predictor and by Grappler's virtual cluster:", ""]
        lines += [*_side_by_side(rows, predicted), "", "By Grappler's, with links:", ""]
        lines += [*_summary(rows, _by_grappler("links")), "", "By Grappler's, transfers free:", ""]
        lines += _summary(rows, _by_grappler("free"))
    return "\n".join([*lines, "", "Peaks:", "", *_peaks(rows)])


def _by_grappler(kind: str) -> Value:
    """Grappler's seconds of what fits, with ``links`` or with ``free`` transfers."""

    def seconds(strategy: dict[str, Any]) -> float | None:
        return strategy["grappler"] and strategy["fits"] and strategy["grappler"][kind]

    return seconds


def _side_by_side(rows: Sequence[Row], predicted: Value) -> Iterator[str]:
    """Ours and the best other by three judges."""
    judges = {"": predicted, " links": _by_grappler("links"), " free": _by_grappler("free")}
    heads = ["graph", "caps"]
    for name in judges:
        heads += [f"placer{name}", f"best other{name}", f"ratio{name}"]
    yield _line(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        cells = [row["graph"], _caps(row)]
        for judge in judges.values():
            values = {name: judge(strategy) for name, strategy in row["strategies"].items()}
            ours = values.pop(OURS)
            best = min(
                (n for n, v in values.items() if v), key=lambda n: values[n] or 0, default=""
            )
            least = values.get(best)
            cells += [_milliseconds(ours), f"{_milliseconds(least)} {best}".strip()]
            cells.append(f"{ours / least:.3f}" if ours and least else "")
        yield _line(cells)


def _seconds(rows: Sequence[Row], value: Value) -> Iterator[str]:
    names = list(dict.fromkeys(name for row in rows for name in row["strategies"]))
    heads = ["graph", "ops", "caps", *names, "best other", "ratio", "gap"]
    yield _line(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        values = {name: value(strategy) for name, strategy in row["strategies"].items()}
        best = min((v for n, v in values.items() if n != OURS and v), default=None)
        ours = values[OURS]
        cells = [row["graph"], f"{row['ops']:,}", _caps(row)]
        cells += [_milliseconds(values.get(name)) for name in names]
        cells += [_milliseconds(best), f"{ours / best:.3f}" if ours and best else ""]
        least = row["solver"].get("lower_bound")
        cells.append(f"{1 - least / ours:.0%}" if ours and least else "")
        yield _line(cells)


def _summary(rows: Sequence[Row], value: Value) -> Iterator[str]:
    ratios = []
    against: dict[str, list[float]] = {name: [] for name in NAMED}
    for row in rows:
        values = {name: value(strategy) for name, strategy in row["strategies"].items()}
        ours = values.pop(OURS)
        if not ours:
            continue
        ratios.append(ours / min(v for v in values.values() if v) if any(values.values()) else 0.0)
        for name, found in against.items():
            found += [ours / values[name]] if values.get(name) else []
    yield f"Above the best other: {sum(r > NOISE for r in ratios)} of {len(ratios)}."
    for name, found in against.items():
        yield f"- against {name}: {_mean(found):.3f} on geometric mean of {len(found)}"


def _peaks(rows: Sequence[Row]) -> Iterator[str]:
    heads = ["graph", "caps", "status", "cap, MB", "fullest, share of its cap"]
    heads += ["Grappler's, share of ours, per device"]
    yield _line(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        ours = row["strategies"][OURS]
        shares = [ours["peak_bytes"].get(d, 0) / cap for d, cap in row["caps"].items() if cap]
        devices = [name for name in row["caps"] if name.startswith("GPU")]
        theirs = (ours["grappler"] or {}).get("peak_bytes", {})
        yield _line(
            [
                row["graph"],
                _caps(row),
                row["solver"]["status"],
                f"{row['caps'][devices[0]] / 1e6:,.1f}",
                f"{max(shares):.1%}",
                ", ".join(
                    f"{theirs.get(d, 0) / ours['peak_bytes'][d]:.2f}"
                    for d in devices
                    if ours["peak_bytes"].get(d)
                ),
            ]
        )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _caps(row: Row) -> str:
    return f"{row['percent']}%" if row["percent"] else "own"


def _milliseconds(seconds: float | None) -> str:
    return "" if not seconds else f"{seconds * 1e3:,.3f}"


def _mean(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else float("nan")
