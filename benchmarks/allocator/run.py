"""What TensorFlow's allocator handed out, and needed, beside what is predicted.

    python benchmarks/allocator/run.py FOLDER [NAME ...] [--measure | --at-needs [--optimised]]

builds the graphs of ``cases.py`` in ``FOLDER`` and prints a row per case, and the summary of either
half, against ``measured.json``.  ``--measure`` asks TensorFlow again for those that ``FOLDER`` has
no measurement of, and writes that file; ``--at-needs`` runs every case under its predicted need,
with graph optimisation on under the larger one of the graph and of what Grappler makes of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cost_models.clusters import parse_cluster
from placer.application.measuring.optimised_graphs import optimise
from placer.extraction import extract
from placer.graph.op_graph import OpGraph
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.metrics import MemoryNeed
from placer.prediction.prediction import predict

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import build_apart
from graphs import is_held_back

HERE = Path(__file__).parent
MEASURED = HERE / "measured.json"
DEVICE = "CPU:0"
MEBIBYTE = 2**20
LARGE_BYTES = 64 * MEBIBYTE
MODE = "growth"
"""What CPUs do; measured.json has the other mode, too."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One case: peaks in use in bytes, one per step without a limit, the smallest limit that
    serves, and what is predicted."""

    name: str
    held_back: bool
    peaks: Sequence[int]
    smallest_bytes: int
    predicted: MemoryNeed

    @property
    def inside(self) -> int:
        """How many peaks are from low to high."""
        in_use = self.predicted.in_use
        return sum(in_use.low_bytes <= peak <= in_use.high_bytes for peak in self.peaks)

    @property
    def in_use_error(self) -> float:
        """Of the expected peak, against the median of those measured."""
        return self.predicted.in_use.expected_bytes / median(self.peaks) - 1

    @property
    def ratio(self) -> float:
        """The predicted need over the smallest limit."""
        return self.predicted.need.high_bytes / self.smallest_bytes

    @property
    def is_served(self) -> bool:
        """Whether no try with so much or more failed, and one has served with no more."""
        return limit_mib(self.predicted) * MEBIBYTE >= self.smallest_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--at-needs", action="store_true")
    parser.add_argument("--optimised", action="store_true", help="with graph optimisation")
    arguments = parser.parse_args()
    paths = build_apart(arguments.folder, arguments.names)
    if arguments.measure:
        measure(paths)
    if arguments.at_needs:
        run_at_needs(paths, optimised=arguments.optimised)
        return
    measured = json.loads(MEASURED.read_text())
    print("| case | in use, MB | predicted | error | inside | smallest, MB | need | ratio |")
    print("|" + "---|" * 8)
    found = []
    for path in paths:
        if path.stem in measured:
            found.append(compare(path, measured[path.stem][MODE]))
            print(row(found[-1]), flush=True)
    for held_back in (True, False):
        half = [comparison for comparison in found if comparison.held_back == held_back]
        if half:
            print(f"\n{'held back' if held_back else 'used for tuning'}: {summary(half)}")


def measure(paths: Sequence[Path]) -> None:
    """Asks TensorFlow, and keeps the peaks and the tries."""
    subprocess.run([sys.executable, HERE / "measure.py", *paths], check=True, stdout=sys.stderr)
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    for path in paths:
        found = json.loads(path.with_suffix(".memory.json").read_text())
        measured[path.stem] = {mode: summary_of(content) for mode, content in found.items()}
    rows = (f"{json.dumps(name)}: {json.dumps(measured[name])}" for name in sorted(measured))
    MEASURED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def run_at_needs(paths: Sequence[Path], *, optimised: bool) -> None:
    """Runs every case under its predicted need (high, rounded up to a MiB), and says how many were
    served; of those that were not, in which step and at which op memory ran out."""
    needs = {path: [limit_mib(need) for need in predicted_needs(path, optimised)] for path in paths}
    limits = [str(max(found)) for found in needs.values()]
    command = [sys.executable, HERE / "measure.py", *paths, "--at", *limits]
    command += ["--optimised"] if optimised else []
    served = {True: [0, 0], False: [0, 0]}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            found = json.loads(line)
            runs, name = found["runs"], found["name"]
            failed = [f"step {len(run.get('peaks', ()))} at {run.get('op')}" for run in runs
                      if not run["served"]]  # fmt: skip
            half = served[is_held_back(name.rpartition("-b")[0])]
            half[0] += len(runs) - len(failed)
            half[1] += len(runs)
            print(
                f"| {name} | {found['limit_mib']} | {'; '.join(failed) or 'served'} |", flush=True
            )
    for held_back, (good, count) in served.items():
        print(f"{'held back' if held_back else 'used for tuning'}: {good} of {count} runs served")


def limit_mib(need: MemoryNeed) -> int:
    """The predicted need, high, rounded up to a MiB."""
    return -(-need.need.high_bytes // MEBIBYTE)


def summary_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of one mode: bytes held between steps, peaks, limits that were tried."""
    return {
        "held": [free["held"][-1] for free in found["free"]],
        "peaks": [peak for free in found["free"] for peak in free["peaks"]],
        "tries": [[tried["limit_mib"], tried["served"]] for tried in found["tries"]],
        "smallest_mib": found["smallest_mib"],
    }


def predicted_need(path: Path) -> MemoryNeed:
    """What the graph is predicted to need on one CPU."""
    return next(predicted_needs(path, optimised=False))


def predicted_needs(path: Path, optimised: bool) -> Iterator[MemoryNeed]:
    """The same, then what Grappler's graph is predicted to need, if it is asked for."""
    outputs = json.loads(path.with_suffix(".json").read_text())["outputs"]
    fetches = [name if ":" in name else f"^{name}" for name in outputs]
    extraction = extract(str(path), outputs=fetches)
    yield need_of(extraction.graph)
    if optimised:
        placement = dict.fromkeys(extraction.graph.ops, DEVICE)
        found = optimise(str(path), extraction, parse_cluster(DEVICE), placement)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "optimised.pb"
            target.write_bytes(found.graph)
            yield need_of(extract(str(target), outputs=found.outputs).graph)


def need_of(graph: OpGraph) -> MemoryNeed:
    """What a graph needs with every op on one CPU."""
    placement = dict.fromkeys(graph.ops, DEVICE)
    return predict(graph, estimate_costs(graph), placement, parse_cluster(DEVICE)).needs[DEVICE]


def compare(path: Path, measured: Mapping[str, Any]) -> Comparison:
    """The comparison of one case."""
    return Comparison(
        name=path.stem,
        held_back=is_held_back(path.stem.rpartition("-b")[0]),
        peaks=measured["peaks"],
        smallest_bytes=measured["smallest_mib"] * MEBIBYTE,
        predicted=predicted_need(path),
    )


def row(c: Comparison) -> str:
    """The comparison as a line of a table; bytes in MB."""
    in_use, need = c.predicted.in_use, c.predicted.need
    cells = (
        c.name + ("" if c.held_back else " *"),
        f"{min(c.peaks) / 1e6:.1f} to {max(c.peaks) / 1e6:.1f}",
        f"{in_use.low_bytes / 1e6:.1f} to {in_use.high_bytes / 1e6:.1f}",
        f"{c.in_use_error:+.1%}",
        f"{c.inside}/{len(c.peaks)}",
        f"{c.smallest_bytes / 1e6:.1f}",
        f"{need.low_bytes / 1e6:.1f} to {need.high_bytes / 1e6:.1f}",
        f"{c.ratio:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def summary(found: Sequence[Comparison]) -> str:
    """The figures of one half."""
    errors = [abs(c.in_use_error) for c in found]
    ratios = [c.ratio for c in found if c.smallest_bytes >= LARGE_BYTES]
    return (
        f"{len(found)} cases; peaks in use inside {sum(c.inside for c in found)} of "
        f"{sum(len(c.peaks) for c in found)}; expected: median error {median(errors):.1%}, worst "
        f"{max(errors):.1%}; need at least the smallest limit: "
        f"{sum(c.is_served for c in found)} of {len(found)}; "
        f"need over it, above 64 MiB ({len(ratios)}): "
        f"median {median(ratios) if ratios else 0:.2f}, worst {max(ratios, default=0):.2f}"
    )


if __name__ == "__main__":
    main()
