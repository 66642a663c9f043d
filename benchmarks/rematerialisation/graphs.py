"""Training steps made to fit: peak against extra time, predicted, recorded and served.

    python benchmarks/rematerialisation/graphs.py FOLDER [NAME ...] [--shares 0.8,0.6,0.5,0.4,0.3]
        [--seconds 0] [--run]
    python benchmarks/rematerialisation/graphs.py FOLDER [NAME ...] --measure [--shares 0.5]

builds training steps of ``benchmarks/graphs.py`` in ``FOLDER`` (the larger batch) and makes each
fit on one device.  A budget is a share of the transient peak of the free step, for what is in use;
what is resident or fed comes on top.  A row is the quickest plan found for its budget or a smaller
one, so that no peak rises when the budget falls; where there is none, the lowest peak of all that
was tried is named.  Six budgets are tried in any case, more in ``--seconds``: with 0 the rows are
the same on every machine.

With ``--run`` a step of each plan is recorded, and run under TensorFlow's own allocator (one
region, as cards have) with the need that is predicted as its limit, Grappler off.

With ``--measure`` there is one row for each graph and share, as soon as it is there: the extra
time that is measured, steps of both in turns, and whether 20 steps train the same (``compare.py``).
What is planned and measured is kept in ``FOLDER/fitted``, and the next run goes on from there:
plan while the machine is busy (``--measure --plan-only``), measure when it is idle.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from cost_models.clusters import parse_cluster
from placer.extraction import extract
from placer.fitting.fitted_step import FitRequest, FittedStep
from placer.fitting.step_fitting import fit_step
from placer.fitting.working_sets import working_sets
from placer.graph.control_edges import add_control_edges
from placer.graph.rewritten_graphs import rewrite_graph
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.memory.allocations import find_allocations
from placer.prediction.memory.need import find_need
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.execution_orders import range_of
from placer.prediction.orders.possible_steps import PossibleSteps

sys.path.insert(0, str(Path(__file__).parents[1]))
from graphs import build_apart

HERE = Path(__file__).parent
DEVICE = "CPU:0"
MEBIBYTE = 2**20
_ORDERS_OF_NEEDS = 8
NAMES = (
    *("transformer_adam", "decoder_sgd", "small_resnet_adam", "resnet50_momentum", "unet_adam"),
    *("mobilenet_v2_sgd", "densenet121_momentum", "vision_transformer_adam"),
    *("bidirectional_lstm_adam", "recommender_adagrad", "perceptron_adam"),
)
MEASURED = (
    *("transformer_adam", "decoder_sgd", "mobilenet_v2_sgd", "resnet50_momentum"),
    *("vision_transformer_adam", "densenet121_momentum", "perceptron_adam"),
)
COLUMNS = (
    *("graph", "budget", "peak", "extra time", "computed again", "released", "edges"),
    *("need, one region", "recorded", "served at the need", "CPU s"),
)
MEASURED_COLUMNS = (
    *("graph", "budget", "peak", "extra time predicted", "measured", "one op at a time", "ms"),
    *("ms rewritten", "pairs", "losses of 20 steps", "variables", "optimised: losses within"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--shares")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--plan-only", action="store_true")
    arguments = parser.parse_args()
    measures = arguments.measure
    names = arguments.names or list(MEASURED if measures else NAMES)
    paths: dict[str, Path] = {}
    for path in build_apart(arguments.folder, names):
        name, _, batch = path.stem.rpartition("-b")  # the larger batch
        known = paths.get(name)
        if known is None or int(known.stem.rpartition("-b")[2]) < int(batch):
            paths[name] = path
    given = arguments.shares or ("0.5" if measures else "0.8,0.6,0.5,0.4,0.3")
    shares = sorted(map(float, given.split(",")), reverse=True)
    columns = MEASURED_COLUMNS if measures else COLUMNS
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for path in paths.values():
        found = (
            measured_rows(path, shares, arguments.seconds, only_plans=arguments.plan_only)
            if measures
            else rows(path, shares, arguments.seconds, runs=arguments.run)
        )
        for row in found:
            print("| " + " | ".join(row) + " |", flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan with the peak that is predicted, the need of an allocator with one region (both
    without what is resident or fed) and the processor time that it took."""

    step: FittedStep
    peak_bytes: int
    need_bytes: int
    seconds: float


class Graph:
    """One training step on one device."""

    def __init__(self, path: Path) -> None:
        facts = json.loads(path.with_suffix(".json").read_text())
        outputs = [name if ":" in name else f"^{name}" for name in facts["outputs"]]
        self.path, self.graph = path, extract(str(path), outputs=outputs).graph
        self.costs = estimate_costs(self.graph)
        self.placement = dict.fromkeys(self.graph.ops, DEVICE)
        step = StepMemory(self.graph, self.costs, self.placement, (DEVICE,))
        fed = sum(size or 0 for name in self.graph.feeds for size in self.costs[name].output_bytes)
        self.aside = step.resident_bytes(DEVICE) + fed
        self.free = self.judged(FittedStep(), 0.0)
        self.least = working_sets(step.layout)[DEVICE][1]

    def planned(self, share: float, seconds: float) -> Planned:
        """What comes of one budget."""
        begun = process_time()
        cap = int(self.aside + share * self.free.peak_bytes)
        cluster = parse_cluster(f"CPU:{cap}B", None, None)
        request = FitRequest(seconds=seconds, with_needs=False)
        found = fit_step(self.graph, self.costs, self.placement, cluster, request)
        return self.judged(found, process_time() - begun)

    def judged(self, step: FittedStep, seconds: float) -> Planned:
        """The highest peak along the orders of the executor, and the highest need along some of
        them and along those in which ops run at once, as they do where the plan is served."""
        added = {name: self.costs[source] for name, source in step.rewriting.sources.items()}
        costs = {**self.costs, **added}
        placement = step.rewriting.extend_placement(self.placement, DEVICE)
        graph = add_control_edges(rewrite_graph(self.graph, step.rewriting), step.control_edges)
        steps = PossibleSteps(graph, costs, accelerated=False)
        memory = steps.memory(placement, [DEVICE], DEVICE)
        peaks = [memory.peaks(order, sample)[DEVICE] for sample, order in enumerate(steps.orders)]
        requests = [
            find_allocations(memory, order, sample)
            for sample, order in enumerate(steps.orders[:_ORDERS_OF_NEEDS])
        ]
        requests += [
            find_allocations(memory, threaded.order.names, sample, threaded.order.lasts)
            for sample, threaded in enumerate(steps.threaded_steps)
        ]
        needs = [find_need(asked[DEVICE]).need_bytes for asked in requests]
        return Planned(
            step=step,
            peak_bytes=max(peaks) - self.aside,
            need_bytes=range_of(needs, memory.resident_bytes(DEVICE)).high_bytes - self.aside,
            seconds=seconds,
        )


def rows(path: Path, shares: Sequence[float], seconds: float, *, runs: bool) -> Iterator[list[str]]:
    """The rows of one graph; the first is the step as it is."""
    graph = Graph(path)
    tried = [graph.planned(share, seconds) for share in shares]
    first = mb(graph.free.peak_bytes)
    need = mb(graph.free.need_bytes)
    yield [path.stem, f"free, bound {graph.least / graph.free.peak_bytes:.0%}", f"{first} MB",
           *[""] * 4, f"{need} MB", *[""] * 3]  # fmt: skip
    known: dict[int, list[str]] = {}
    for share, own in zip(shares, tried, strict=True):
        budget = share * graph.free.peak_bytes
        fitting = [found for found in (graph.free, *tried) if found.peak_bytes <= budget]
        if not fitting:
            lowest = min(tried, key=lambda found: found.peak_bytes)
            reached = f"lowest found {lowest.peak_bytes / graph.free.peak_bytes:.1%}"
            if graph.least > budget:
                reached = f"below the bound; {reached}"
            extra = f"({lowest.step.slowdown:+.1%})"
            yield ["", f"{share:.0%}", reached, extra, *[""] * 6, f"{own.seconds:.0f}"]
            continue
        best = min(fitting, key=lambda found: (found.step.slowdown, found.peak_bytes))
        number = fitting.index(best) if best is graph.free else 1 + tried.index(best)
        if number not in known:
            known[number] = run(graph, best, share) if runs and best.step.is_rewritten else ["", ""]
        rewriting = best.step.rewriting
        yield [
            *("", f"{share:.0%}", f"{best.peak_bytes / graph.free.peak_bytes:.1%}"),
            *(f"{best.step.slowdown:+.1%}", str(len(rewriting.clones))),
            *(str(len(rewriting.released)), str(len(best.step.control_edges))),
            *(f"{best.need_bytes / graph.free.peak_bytes:.1%}", *known[number]),
            f"{own.seconds:.0f}",
        ]


def run(graph: Graph, planned: Planned, share: float) -> list[str]:
    """The recorded peak as a share of the free one, and whether the allocator serves the need."""
    target = write(graph, planned, share)
    (recorded,) = lines(Path(__file__).parents[1] / "memory_order" / "measure.py", [target])
    limit = -(-(planned.need_bytes + graph.aside) // MEBIBYTE)
    (served,) = lines(HERE / "serve.py", [target, limit])
    share_of_free = recorded["peak_bytes"] / graph.free.peak_bytes
    said = f"yes, {limit} MiB" if served["served"] else f"no, {limit} MiB"
    return [f"{share_of_free:.1%}", said]


def target_of(path: Path, share: float) -> Path:
    """Where the graph rewritten for a budget is written."""
    return path.parent / "fitted" / f"{path.stem}-{round(100 * share)}.pb"


def write(graph: Graph, planned: Planned, share: float) -> Path:
    """Writes the graph rewritten."""
    target = target_of(graph.path, share)
    target.parent.mkdir(exist_ok=True)
    plan = target.with_suffix(".plan.json")
    edges = [list(edge) for edge in planned.step.control_edges]
    plan.write_text(json.dumps({"rewriting": planned.step.rewriting.to_json(), "edges": edges}))
    lines(HERE / "write.py", [graph.path, plan, target])
    return target


def measured_rows(
    path: Path, shares: Sequence[float], seconds: float, *, only_plans: bool
) -> Iterator[list[str]]:
    """A row for each budget; what is known already is not done again."""
    for share in shares:
        target = target_of(path, share)
        known = target.with_suffix(".measured.json")
        facts = json.loads(known.read_text()) if known.exists() else {}
        if not facts:
            graph = Graph(path)
            planned = graph.planned(share, seconds)
            write(graph, planned, share)
            facts["peak"] = planned.peak_bytes / graph.free.peak_bytes
            facts["extra"] = planned.step.slowdown
            facts["clones"] = len(planned.step.rewriting.clones)
            facts["edges"] = len(planned.step.control_edges)
            facts["planning_cpu_seconds"] = planned.seconds
            known.write_text(json.dumps(facts))
        for mode in () if only_plans else ("timed", "in-line", "exact", "optimised"):
            if mode not in facts:
                (facts[mode],) = lines(HERE / "compare.py", [mode, path, target])
                known.write_text(json.dumps(facts))
        row = [path.stem, f"{share:.0%}", f"{facts['peak']:.1%}", f"{facts['extra']:+.1%}"]
        if not only_plans:
            timed, exact, optimised = (facts[mode] for mode in ("timed", "exact", "optimised"))
            row += [f"{found['extra']:+.1%}" for found in (timed, facts["in-line"])]
            row += [f"{1e3 * took:.1f}" for took in timed["seconds"]]
            row += [str(timed["pairs"]), "equal" if exact["losses_equal"] else "differ"]
            equal = "equal" if exact["variables_equal"] else "differ"
            row += [f"{exact['variables']} {equal}", f"{optimised['largest_difference']:.1e}"]
        yield row + [""] * (len(MEASURED_COLUMNS) - len(row))


def lines(program: Path, words: Sequence[object]) -> list[dict]:
    """What a program prints."""
    command = [sys.executable, str(program), *map(str, words)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def mb(size: float) -> str:
    return f"{size / 1e6:.1f}"


if __name__ == "__main__":
    main()
