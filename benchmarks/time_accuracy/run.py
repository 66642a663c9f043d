"""Predicted against measured step and per-op times on this machine's CPU.

    python benchmarks/time_accuracy/run.py measure  --out DIR [--steps 20] [NAME ...]
    python benchmarks/time_accuracy/run.py evaluate --out DIR [--clock wall|processor]
    python benchmarks/time_accuracy/run.py all      --out DIR

``measure`` writes the graphs of ``benchmarks/graphs.py`` and a costs file of each (``placer
profile``) to DIR, and goes on where it was stopped.  ``evaluate`` fits a device to the graphs
whose name has an even sha256 and predicts all of them with it: nothing is measured again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import graphs

from cost_models.cluster_files import cluster_toml
from cost_models.devices import Cluster, DeviceProperties
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.application.measuring.profiling import profile
from placer.extraction import extract
from placer.graph.op_graph import OpGraph
from placer.plan.measured_costs import MeasuredCosts
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.prediction import predict
from placer.questions.calibration import fit_steps, measured_step

COUNTED_SHARE = 0.95
"""Ranks are compared over the largest ops that make up this share of the measured time."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One graph at one batch size, with what was measured and what the cost rules say."""

    name: str
    kind: str
    held_back: bool
    graph: OpGraph
    costs: dict[str, OpCost]
    measured: MeasuredCosts


@dataclass(frozen=True, kw_only=True)
class Row:
    """Seconds of a step, measured and predicted, and the rank correlation of its ops."""

    name: str
    kind: str
    held_back: bool
    measured: float
    predicted: float
    rank_correlation: float
    counted_ops: int

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def measure(out: Path, names: list[str], steps: int) -> None:
    for graph, batch in graphs.chosen(names):
        model = graphs.write_graph(graph, batch, out / "graphs")
        target = out / "costs" / f"{model.stem}.json"
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        facts = json.loads(model.with_suffix(".json").read_text())
        found = profile(model, outputs=facts["outputs"], steps=steps)
        found.save(target)
        step = found.step
        print(
            f"{model.stem:32} {step['median_seconds'] * 1e3:9.2f} ms wall-clock "
            f"{step['median_processor_seconds'] * 1e3:9.2f} ms processor",
            flush=True,
        )


def read_cases(out: Path) -> list[Case]:
    found = []
    for path in sorted((out / "costs").glob("*.json")):
        model = out / "graphs" / f"{path.stem}.pb"
        facts = json.loads(model.with_suffix(".json").read_text())
        graph = extract(model, outputs=facts["outputs"]).graph
        measured = MeasuredCosts.load(path)
        measured.check_graph(graph.fingerprint, str(path))
        found.append(
            Case(
                name=path.stem,
                kind=facts["kind"],
                held_back=graphs.is_held_back(path.stem.rpartition("-b")[0]),
                graph=graph,
                costs=estimate_costs(graph, in_place=True),
                measured=measured,
            )
        )
    return found


def evaluate(cases: Sequence[Case], clock: str) -> tuple[list[Row], DeviceProperties]:
    tuned = [measured_step(case.costs, case.measured) for case in cases if not case.held_back]
    device = fit_steps(tuned).device
    return [_row(case, device, clock) for case in cases], device


def _row(case: Case, device: DeviceProperties, clock: str) -> Row:
    cluster = Cluster(devices=(device,))
    placement = dict.fromkeys(case.graph.ops, device.name)
    schedule = predict(case.graph, case.costs, placement, cluster).schedule
    key = "median_seconds" if clock == "wall" else "median_processor_seconds"
    correlation, count = _rank_correlation(case, device)
    return Row(
        name=case.name,
        kind=case.kind,
        held_back=case.held_back,
        measured=case.measured.step[key],
        predicted=schedule.step_seconds,
        rank_correlation=correlation,
        counted_ops=count,
    )


def _rank_correlation(case: Case, device: DeviceProperties) -> tuple[float, int]:
    """Spearman's coefficient of predicted and measured op times, and of how many ops."""
    seconds = case.measured.op_seconds
    left, counted = COUNTED_SHARE * sum(seconds.values()), []
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        if left <= 0:
            break
        counted.append(name)
        left -= seconds[name]
    predicted = [op_seconds(case.costs[name], device) for name in counted]
    return spearman([seconds[name] for name in counted], predicted), len(counted)


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Pearson's correlation of the ranks, ties sharing their mean rank; 1 for fewer than 3."""
    if len(left) < 3:
        return 1.0
    return statistics.correlation(_ranks(left), _ranks(right))


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            ranks[index] = (start + end) / 2
        start = end + 1
    return ranks


def show(rows: Sequence[Row]) -> None:
    print("| graph | kind | measured ms | predicted ms | error | rank correlation | of ops |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for held_back in (True, False):
        for row in (row for row in rows if row.held_back == held_back):
            print(
                f"| {row.name}{'' if held_back else ' (tuned)'} | {row.kind} "
                f"| {row.measured * 1e3:.2f} | {row.predicted * 1e3:.2f} | {row.error:+.1%} "
                f"| {row.rank_correlation:.3f} | {row.counted_ops} |"
            )
    for title, some in (
        ("held back", [row for row in rows if row.held_back]),
        ("tuned", [row for row in rows if not row.held_back]),
    ):
        errors = [abs(row.error) for row in some]
        ranks = [row.rank_correlation for row in some]
        if some:
            print(
                f"\n{title}: {len(some)} cases, step error median {statistics.median(errors):.1%}, "
                f"worst {max(errors):.1%}; rank correlation median {statistics.median(ranks):.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "evaluate", "all"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="graphs to measure (all)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    arguments = parser.parse_intermixed_args()
    if arguments.what != "evaluate":
        measure(arguments.out, arguments.names, arguments.steps)
    if arguments.what != "measure":
        rows, device = evaluate(read_cases(arguments.out), arguments.clock)
        (arguments.out / "device.toml").write_text(cluster_toml(Cluster(devices=(device,))))
        show(rows)


if __name__ == "__main__":
    main()
