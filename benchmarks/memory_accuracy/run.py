"""Predicted peaks beside those that TensorFlow's own allocation records add up to.

    python benchmarks/memory_accuracy/run.py FOLDER [NAME ...] [--processes 5]

builds the graphs of ``benchmarks/graphs.py`` in ``FOLDER``, records a step of each in processes of
their own (training steps in ``--processes`` of them, inference in one), and prints a row per graph
and the summary of either half.  What ``FOLDER`` holds already is not done again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from cost_models.op_cost import OpCost
from placer.extraction import extract
from placer.graph.op_graph import OpGraph
from placer.prediction.costs.op_costs import estimate_body_costs, estimate_costs
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import PeakRange
from placer.prediction.orders.possible_steps import PossibleSteps

sys.path.insert(0, str(Path(__file__).parents[1]))
from graphs import build_apart
from recorded_orders import RecordedLayout, recorded_order, taken_branches

HERE = Path(__file__).parent
DEVICE = "CPU:0"
LINE = "| {:26} | {:>6} | {:>15} | {:>8} | {:>8} | {:>8} | {:>8} | {:>6} | {:>5} | {:>7} |"
COLUMNS = (
    *("graph", "ops", "recorded", "replay", "plain"),
    *("low", "expected", "high", "inside", "ratio"),
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One graph: bytes of activations, gradients, temporaries and received tensors at the peak.

    ``replayed`` are the predictions in the orders that were recorded, ``peak`` is predicted
    without knowing any; ``graph_order`` along the order of the graph.
    """

    name: str
    kind: str
    held_back: bool
    op_count: int
    recorded: Sequence[int]
    replayed: Sequence[int]
    peak: PeakRange
    graph_order: int
    variables_exact: bool

    @property
    def is_training(self) -> bool:
        """Is it a training step, whose order differs from process to process?"""
        return "training" in self.kind

    @property
    def replay_errors(self) -> list[float]:
        """Relative errors in the recorded orders."""
        return [p / r - 1 for p, r in zip(self.replayed, self.recorded, strict=True)]

    @property
    def order_error(self) -> float:
        """Relative error of the expected peak, against the median of the recorded ones."""
        return self.peak.expected_bytes / median(self.recorded) - 1

    @property
    def inside(self) -> int:
        """How many recorded peaks are from low to high."""
        return sum(self.peak.low_bytes <= peak <= self.peak.high_bytes for peak in self.recorded)

    @property
    def ratio(self) -> float:
        """High over low."""
        return self.peak.high_bytes / self.peak.low_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--processes", type=int, default=5)
    arguments = parser.parse_args()
    paths = build_apart(arguments.folder, arguments.names)
    record(paths, arguments.processes)
    print(LINE.format(*COLUMNS))
    print("|" + "---|" * 10)
    found = []
    for path in paths:
        found.append(compare(path))
        print(row(found[-1]), flush=True)
    for held_back in (True, False):
        print(f"\n{'held back' if held_back else 'used for tuning'}")
        print("\n".join(summary([c for c in found if c.held_back == held_back])))


def record(paths: Iterable[Path], processes: int) -> None:
    """The recordings of all graphs beside them."""
    training = [path for path in paths if "training" in facts_of(path)["kind"]]
    for number in range(processes):
        wanted = paths if number == 0 else training
        command = [sys.executable, HERE / "record.py", str(number), *wanted]
        subprocess.run(command, check=True, stdout=sys.stderr)


def facts_of(path: Path) -> Mapping[str, Any]:
    return json.loads(path.with_suffix(".json").read_text())


def compare(path: Path) -> Comparison:
    """The comparison of one graph, all its recordings included."""
    facts = facts_of(path)
    outputs = [name if ":" in name else f"^{name}" for name in facts["outputs"]]
    graph = extract(str(path), outputs=outputs).graph
    costs, body_costs = estimate_costs(graph), estimate_body_costs(graph)
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, DEVICE), (DEVICE,))
    recordings = [
        json.loads(file.read_text())
        for file in sorted(path.parent.glob(f"{path.stem}.*.record.json"))
    ]
    steps = PossibleSteps(graph, costs, accelerated=False)
    if steps.owner:  # as a session lays the loops out, which is asked to run ops by name
        layout = RecordedLayout(graph.functions, body_costs, None, graph.targets)
        steps.graph = layout.laid_out(graph, costs)
        steps.costs, steps.owner = layout.cost_of, layout.owner
    # Neither constants and variables nor fed values are in the records.
    aside = step.resident_bytes(DEVICE)
    aside += sum(size or 0 for name in graph.feeds for size in costs[name].output_bytes)
    peak = steps.ranges(dict.fromkeys(graph.ops, DEVICE), (DEVICE,))[DEVICE]
    variable_bytes = sum(costs[variable.handle].persistent_bytes for variable in graph.variables)
    return Comparison(
        name=path.stem,
        kind=facts["kind"],
        held_back=facts["held_back"],
        op_count=len(graph.ops),
        recorded=[recording["peak_bytes"] for recording in recordings],
        replayed=[
            replayed_peak(graph, costs, body_costs, recording["started"])
            for recording in recordings
        ],
        peak=PeakRange(
            low_bytes=peak.low_bytes - aside,
            expected_bytes=peak.expected_bytes - aside,
            high_bytes=peak.high_bytes - aside,
        ),
        graph_order=step.peaks(tuple(graph.ops))[DEVICE] - aside,
        variables_exact=all(r["variable_bytes"] == variable_bytes for r in recordings),
    )


def replayed_peak(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    body_costs: Mapping[str, Mapping[str, OpCost]],
    started: Sequence[str],
) -> int:
    """The peak in the order that was recorded, with the loops and branches laid out."""
    taken = taken_branches(started)
    layout = RecordedLayout(graph.functions, body_costs, taken, graph.targets)
    laid_out = layout.laid_out(graph, costs)
    placement = dict.fromkeys(laid_out.ops, DEVICE)
    step = StepMemory(laid_out, layout.cost_of, placement, (DEVICE,))
    order = step.numbers(recorded_order(laid_out, started))
    change = [0] * (len(order) + 1)
    for lifetime in find_lifetimes(step.layout, order):
        if lifetime.kind != "feed":
            # An updated variable's new buffer stays in the records; that of the old is in none.
            replaced = lifetime.kind == "weights"
            change[lifetime.first] += lifetime.bytes
            change[-1 if replaced else lifetime.last + 1] -= lifetime.bytes
    return max(accumulate(change))


def row(comparison: Comparison) -> str:
    """The comparison as a line of a table; bytes in MB."""
    c = comparison
    low, high = min(c.recorded), max(c.recorded)
    spread = f"{low / 1e6:.2f}" + (f" to {high / 1e6:.2f}" if high / low > 1.001 else "")
    return LINE.format(
        c.name + ("" if c.held_back else " *"),
        c.op_count,
        spread,
        f"{max(c.replay_errors, key=abs):+.2%}",
        f"{c.graph_order / median(c.recorded) - 1:+.1%}",
        f"{c.peak.low_bytes / 1e6:.2f}",
        f"{c.order_error:+.1%}",
        f"{c.peak.high_bytes / 1e6:.2f}",
        f"{c.inside}/{len(c.recorded)}",
        f"{c.ratio:.2f}",
    )


def summary(found: Sequence[Comparison]) -> list[str]:
    """The figures of one half."""
    replays = [abs(error) for c in found for error in c.replay_errors]
    inference = [abs(c.order_error) for c in found if not c.is_training]
    training = [c for c in found if c.is_training]
    lines = [f"graphs {len(found)}, recordings {len(replays)}"]
    if replays:
        lines.append(f"recorded order: median {median(replays):.2%}, worst {max(replays):.2%}")
    if inference:
        lines.append(
            f"inference, no order: median {median(inference):.2%}, worst {max(inference):.2%}"
        )
    if training:
        errors = [abs(c.order_error) for c in training]
        lines.append(
            f"training, no order: {sum(c.inside for c in training)} of "
            f"{sum(len(c.recorded) for c in training)} recorded peaks inside, high/low median "
            f"{median(c.ratio for c in training):.2f}, worst {max(c.ratio for c in training):.2f}; "
            f"expected: median {median(errors):.2%}, worst {max(errors):.2%}"
        )
    lines.append(f"variables exact: {sum(c.variables_exact for c in found)} of {len(found)}")
    return lines


if __name__ == "__main__":
    main()
