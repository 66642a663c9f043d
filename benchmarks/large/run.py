"""Large training steps under caps on peaks: what placer finds, and what is found without it.

    python benchmarks/large/run.py FOLDER [GRAPH ...] [--devices 4,8,16] [--caps 105,115,130,200]
        [--time-limit 60] [--others layers,contiguous] [--table]

takes ``FOLDER/GRAPH.pb`` with ``GRAPH.json`` beside it (``graphs.py`` writes them; ``gpt`` is
unpacked from the folder ``large`` of ``PLACER_TEST_DATA``) and places each on equal devices, every
one with a cap of so many percent of an equal share of what the step peaks at on one device;
nothing spills.  A row is kept in ``FOLDER/rows.json`` as soon as it is there and is not run again;
``--table`` prints what is there and runs nothing.  Times are those of an idle machine or of no use.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

GPT = "gpt"
GPT_FILE = "large/gpt3_like_13b_train_b1s2048.pb.xz"
GRAPHS = (GPT, "resnet152", "t5_11b", "lstm_unrolled", "switch_moe", "recommender")
DEVICES, PERCENTS = (4, 8, 16), (105, 115, 130, 200)
CARD, HOST = "H100-80GB", "CPU:1TiB"
GIB = 1024**3
WORSE = 1.001
COLUMNS = (
    *("graph", "ops", "devices", "caps", "placer, GiB", "bound, GiB", "gap", "best other, GiB"),
    *("layers, GiB", "s", "CPU s", "used", "highest share", "step, s", "debris"),
)


def model_file(name: str, folder: Path) -> tuple[Path, tuple[str, ...] | None]:
    """The GraphDef of a graph, and what to fetch from it (``None``: what nobody reads)."""
    path, facts = folder / f"{name}.pb", folder / f"{name}.json"
    if name == GPT and not path.exists():
        packed = Path(os.environ["PLACER_TEST_DATA"], GPT_FILE)
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    outputs = json.loads(facts.read_text()).get("outputs") if facts.exists() else None
    return path, tuple(outputs) if outputs else None


def request(outputs: tuple[str, ...] | None, **more: Any) -> Any:
    """A request with nothing spilled and no reserve."""
    from placer.plan.request import read_options

    fetched = {"outputs": outputs} if outputs else {}
    return read_options({**fetched, **more, "spill": "never", "reserve": "0"})


def cpu_seconds() -> float:
    """Of this process and of those that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


def peak_together(workload: Any) -> int:
    """The peak of the step with everything on one device."""
    from placer.pipeline.model_report import predict_together

    peaks = predict_together(workload).metrics.peaks
    return max(peak.high_bytes for name, peak in peaks.items() if "GPU" in name)


def measure(workload: Any, together: int, cell: tuple[int, int], asked: Any) -> dict[str, Any]:
    """One row: the plan under the caps of a cell, and the other placements that fit them."""
    from placer.pipeline.formulation import formulate
    from placer.pipeline.placement import place_workload
    from placer.solving.tidying import tidy

    count, percent = cell
    cap = together * percent // (100 * count)
    caps = {f"GPU:{device}": cap for device in range(count)}
    wanted = request(
        workload.wanted.outputs,
        max_memory=dict(enumerate(caps.values())),
        time_limit=asked.time_limit,
        seed=asked.seed,
    )
    there = workload.on(f"{count}x{CARD},{HOST}", wanted)
    began, worked = time.perf_counter(), cpu_seconds()
    plan = place_workload(there)
    seconds, worked = time.perf_counter() - began, cpu_seconds() - worked
    formulation = formulate(there)
    names = formulation.problem.device_names
    device_of = [names.index(device) for device in plan.placement.values()]
    moved = tidy(formulation.problem, device_of) if plan.fits else device_of
    peaks = [d.peak_memory_bytes or 0 for d in plan.devices if d.name in caps]
    return {
        "ops": len(there.graph.ops),
        "devices": count,
        "percent": percent,
        "cap": cap,
        "together": together,
        "status": plan.solver.status,
        "fits": plan.fits,
        "value": plan.solver.value,
        "bound": plan.solver.lower_bound,
        "others": baselines(formulation, asked.others),
        "seconds": seconds,
        "cpu_seconds": worked,
        "used": len(set(plan.placement.values()) & caps.keys()),
        "share": max(peaks, default=0) / cap,
        "step_seconds": plan.metrics.step_seconds,
        "debris": sum(a != b for a, b in zip(moved, device_of, strict=True)),
    }


def baselines(formulation: Any, names: list[str]) -> dict[str, int | None]:
    """What every baseline transfers, made to fit as ``compare`` does it; ``None``: it does not."""
    from placer.prediction.orders.step_peaks import StepPeaks
    from placer.solving.baselines import BASELINES
    from placer.solving.caps.tightening import BASELINE_SECONDS, solve_under_peaks
    from placer.solving.solution import SolverParameters

    problem = formulation.problem
    peaks = StepPeaks(formulation.graph, formulation.workload.costs, problem)
    limit = SolverParameters(time_limit_seconds=BASELINE_SECONDS)
    found = {}
    for name in names or [each for each in BASELINES if each != "tensorflow-default"]:
        solution = solve_under_peaks(problem, peaks, limit, solver=name)
        found[name] = solution.value if solution.status.value in ("OPTIMAL", "FEASIBLE") else None
    return found


def table(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The table in markdown, and what follows from it."""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    worse, debris = [], []
    for key, row in rows.items():
        others = {name: value for name, value in row["others"].items() if value is not None}
        best = min(others, key=lambda name: others[name], default="")
        value = row["value"] if row["fits"] else math.inf
        worse += [key] if best and value > WORSE * others[best] else []
        debris += [key] if row["debris"] else []
        bound, layers = row["bound"] or 0.0, others.get("layers")
        yield (
            "| "
            + " | ".join(
                (
                    *(key.split()[0], f"{row['ops']:,}", str(row["devices"]), f"{row['percent']}%"),
                    f"{value / GIB:.3f}" if row["fits"] else row["status"],
                    f"{bound / GIB:.3f}",
                    f"{1.0 - bound / value:.0%}" if row["fits"] and value else "",
                    f"{others[best] / GIB:.3f} {best}" if best else "none fits",
                    f"{layers / GIB:.3f}" if layers is not None else "does not fit",
                    *(f"{row['seconds']:.0f}", f"{row['cpu_seconds']:.0f}", str(row["used"])),
                    *(
                        f"{row['share']:.1%}",
                        f"{row['step_seconds'] or 0.0:.3f}",
                        str(row["debris"]),
                    ),
                )
            )
            + " |"
        )
    yield ""
    yield f"Worse than the best of the others by more than 0.1%: {', '.join(worse) or 'none'}."
    yield f"With debris: {', '.join(debris) or 'none'}."


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers between commas."""
    return tuple(map(int, text.split(",")))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("graphs", nargs="*", metavar="GRAPH")
    parser.add_argument("--devices", type=numbers, default=DEVICES)
    parser.add_argument("--caps", type=numbers, default=PERCENTS)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--others", type=lambda text: text.split(","), default=[])
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


def main() -> None:
    from placer.pipeline.preparation import prepare

    asked = parse()
    kept = asked.folder / "rows.json"
    rows: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    for name in () if asked.table else asked.graphs or GRAPHS:
        cells = [(count, percent) for count in asked.devices for percent in asked.caps]
        missing = [cell for cell in cells if f"{name} {cell[0]} {cell[1]}" not in rows]
        if not missing:
            continue
        path, outputs = model_file(name, asked.folder)
        workload = prepare(path, f"1x{CARD},{HOST}", request(outputs))
        together = peak_together(workload)
        for cell in missing:
            key = f"{name} {cell[0]} {cell[1]}"
            rows[key] = measure(workload, together, cell, asked)
            kept.write_text(json.dumps(rows, indent=1))
            print(key, json.dumps(rows[key]), flush=True)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
