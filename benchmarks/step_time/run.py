"""The seconds of a step by this solver, by every baseline, and by Grappler's virtual cluster.

    python benchmarks/step_time/run.py FOLDER [NAME ...] [--data DIR] [--objective step-time]

places every graph on four T4, with their own memory and with caps of ``--percents`` of an equal
share of what TensorFlow's allocator needs on one device.  With ``--costs grappler`` the seconds of
every op are Grappler's estimates, for all who place, so that only scheduling and search decide.
What has run is kept in ``FOLDER/OBJECTIVE/COSTS/`` and is not run again; ``--table`` prints the
tables of what is there and runs nothing.  With ``--peaks`` caps are shares of the peak and hold for
peaks alone, as they did in the first tables; these rows are kept in ``peaks/`` below that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from cases import CASES, DEVICES, MACHINE, Case, find_model
from m_sct import M_SCT
from referee import judge, seconds_of_ops
from tables import tables

from cost_models.op_cost import with_measured
from placer.pipeline import predicted_placement
from placer.pipeline.formulation import constraints_of
from placer.pipeline.preparation import prepare
from placer.pipeline.workload import Workload
from placer.plan import plan
from placer.plan.request import Options
from placer.prediction.memory.live_moments import widest_op
from placer.prediction.orders import step_peaks
from placer.prediction.prediction import predict
from placer.questions.comparison import compare_workload
from placer.solving.baselines import BASELINES

GRAPPLER = "grappler"
GPUS = ("GPU:0", "GPU:1")
PERCENTS = (0, 130)
"""Caps as a share of an equal share; 0: the memory that the devices have."""

LEAST_PERCENT = 110
"""Caps are at least this share of what the widest op, or the heaviest colocation group, needs alone
on a device."""


def cell(
    case: Case, percent: int, path: Path, options: Options, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One graph under one cap."""
    wanted = replace(
        options,
        objective=arguments.objective,
        time_limit=arguments.time_limit,
        clear_devices=True,
    )
    work = workload(path, wanted, arguments.costs)
    constraints = constraints_of(work)
    graph, costs = work.graph, work.costs
    together = constraints.first_choice
    need = need_bytes(work, together)
    if percent:
        heaviest = max(
            (group.ops for group in constraints.groups),
            key=lambda ops: sum(costs[op].persistent_bytes for op in ops),
        )
        apart = [
            {op: GPUS[op not in ops] if place in GPUS else place for op, place in together.items()}
            for ops in ({widest_op(graph, costs)[0]}, set(heaviest))
        ]
        least = max(need_bytes(work, placement) for placement in apart)
        cap = max(need * percent // (100 * DEVICES), least * LEAST_PERCENT // 100)
        wanted = replace(wanted, max_memory={number: cap for number in range(DEVICES)})
        work = work.on(MACHINE, wanted)
    found = compare_workload(work, solvers=(*BASELINES, M_SCT))
    placements = {s.name: dict(s.placement) for s in found.strategies if s.placement}
    return {
        "placements": placements,
        "graph": case.name,
        "ops": len(graph.ops),
        "percent": percent,
        "need_bytes": need,
        "caps": dict(found.caps),
        "solver": found.plan.solver.to_json(),
        "strategies": {
            s.name: {
                "step_seconds": s.step_seconds,
                "bottleneck_seconds": s.bottleneck_seconds,
                "transfer_bytes": s.transfer_bytes,
                "peak_bytes": dict(s.peak_bytes),
                "fits": s.fits,
                "note": s.note,
            }
            for s in found.strategies
        },
    }


def need_bytes(work: Workload, placement: Mapping[str, str]) -> int:
    """What the allocator of the first GPU needs, or with ``--peaks`` its peak."""
    found = predict(work.graph, work.costs, placement, work.cluster)
    peak = found.peaks[GPUS[0]].high_bytes
    if peak < step_peaks.LEAST_LIMIT_BYTES:
        return peak
    return max(found.needs[GPUS[0]].need.high_bytes, peak)


def hold_for_peaks() -> None:
    """No cap is an allocator's limit from here on."""
    for module in (step_peaks, predicted_placement, plan):
        module.LEAST_LIMIT_BYTES = sys.maxsize


def workload(path: Path, wanted: Options, costs: str) -> Workload:
    """The program with our costs, or with the times that Grappler gives its ops."""
    work = prepare(path, MACHINE, wanted)
    if costs == GRAPPLER:
        for kind, seconds in seconds_of_ops(path, work.extraction, work.cluster).items():
            work = replace(work, costs=with_measured(work.costs, seconds, kind))
    return work


def run(case: Case, percent: int, path: Path, arguments: argparse.Namespace) -> None:
    """One graph under one cap, as far as it has not run: our prediction, then Grappler's."""
    model = find_model(case, arguments.folder, arguments.data)
    if model is None:
        return
    if not path.exists():
        path.write_text(json.dumps(cell(case, percent, *model, arguments), indent=1))
    if not judgement(path).exists():
        placements = json.loads(path.read_text())["placements"]
        work = prepare(model[0], MACHINE, model[1])
        found = judge(model[0], work.extraction, work.costs, work.cluster, placements)
        judgement(path).write_text(json.dumps(found, indent=1))


def judgement(path: Path) -> Path:
    """Where Grappler's figures are, beside ours."""
    return path.with_suffix(".grappler")


def read(path: Path) -> dict[str, Any]:
    """A row with all figures."""
    row: dict[str, Any] = json.loads(path.read_text())
    found = json.loads(judgement(path).read_text()) if judgement(path).exists() else {}
    for name, strategy in row["strategies"].items():
        strategy["grappler"] = found.get(name)
    return row


def _is_asked(case: Case, arguments: argparse.Namespace) -> bool:
    if arguments.only:
        return case.name == arguments.only
    return not arguments.names or case.name in arguments.names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path, help="folder of the graph files")
    parser.add_argument("--objective", choices=("step-time", "throughput"), default="step-time")
    parser.add_argument("--costs", choices=("placer", GRAPPLER), default="placer")
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--percents", default=",".join(map(str, PERCENTS)))
    parser.add_argument("--peaks", action="store_true", help="caps hold for peaks alone")
    parser.add_argument("--table", action="store_true", help="print the tables and run nothing")
    parser.add_argument("--only", metavar="NAME", help="one graph, in this process")
    arguments = parser.parse_intermixed_args()
    rows = arguments.folder / arguments.objective / arguments.costs
    if arguments.peaks:
        hold_for_peaks()
        rows /= "peaks"
    rows.mkdir(parents=True, exist_ok=True)
    percents = [int(percent) for percent in arguments.percents.split(",")]
    cases = [case for case in CASES if _is_asked(case, arguments)]
    for case in cases if not arguments.table else ():
        for percent in percents:
            path = rows / f"{case.name}-{percent}.json"
            if arguments.only:
                run(case, percent, path, arguments)
                continue
            if path.exists() and judgement(path).exists():
                continue
            again = [sys.executable, *sys.argv, f"--percents={percent}", f"--only={case.name}"]
            code = subprocess.run(again, check=False).returncode
            print(path.stem, "done" if code == 0 else f"ended with {code}", flush=True)
    if not arguments.only:
        print(
            tables(
                [read(path) for path in sorted(rows.glob("*.json"))],
                arguments.objective,
            )
        )


if __name__ == "__main__":
    main()
