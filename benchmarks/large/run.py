"""Large training steps under caps on needs: what placer finds, and what is found without it.

    python benchmarks/large/run.py FOLDER [GRAPH ...] [--devices 4,8,16] [--caps 105,115,130,200]
        [--time-limit 60] [--others layers,contiguous] [--table]

takes ``FOLDER/GRAPH.pb`` with ``GRAPH.json`` beside it (``graphs.py`` writes them; ``gpt`` is
unpacked from the folder ``large`` of ``PLACER_TEST_DATA``) and places each on equal devices, every
one with a cap of so many percent of an equal share of what the step peaks at on one device;
nothing spills.  A row is kept in ``FOLDER/rows.json`` as soon as it is there and is not run again;
``--table`` prints what is there and runs nothing.  It fails (exit code 1) if a plan is worse than
the best of the others by more than 0.1%, or has debris.  Times are those of an idle machine or of
no use.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import resource
import time
from collections.abc import Iterator, Sequence
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
    *("layers, GiB", "s", "CPU s", "used", "highest peak", "highest need", "step, s", "debris"),
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
    return read_options({**fetched, **more, "offload": "never", "reserve": "0"})


def cpu_seconds() -> float:
    """Of this process and of those that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


def peak_together(workload: Any) -> int:
    """The peak of the step with everything on one device."""
    from placer.pipeline.placement import predict_on_one_device

    peaks = predict_on_one_device(workload).metrics.peaks
    return max(peak.high_bytes for name, peak in peaks.items() if "GPU" in name)


def measure(workload: Any, together: int, cell: tuple[int, int], asked: Any) -> dict[str, Any]:
    """One row: the plan under the caps of a cell, and the other placements that fit them."""
    from placer.pipeline.formulation import formulate
    from placer.pipeline.placement import place_workload
    from placer.processes import collection_paused

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
    with collection_paused():  # as the command does it
        plan = place_workload(there)
    seconds, worked = time.perf_counter() - began, cpu_seconds() - worked
    formulation = formulate(there)
    names = formulation.problem.device_names
    device_of = [names.index(device) for device in plan.placement.values()]
    peaks = {d.name: d.peak_memory_bytes or 0 for d in plan.devices}
    held = [max(peaks[name], plan.required_bytes.get(name, 0)) for name in names]
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
        "share": max(peaks[name] for name in caps) / cap,
        "need_share": max(plan.required_bytes.get(name, 0) for name in caps) / cap,
        "step_seconds": plan.metrics.step_seconds,
        "debris": debris(formulation.problem, device_of, held) if plan.fits else 0,
    }


def debris(problem: Any, device_of: list[int], peaks: list[int]) -> int:
    """How many ops sit where they need not, by what nobody can doubt (the search is not asked):

    - devices that together peak under the cap of one;
    - pieces that send to or read from another device whose peak leaves room for all they keep,
      write and receive.

    ``peaks`` are what caps hold for: what the allocators need, where that is more.
    """
    from placer.prediction.times.step_time import list_messages

    messages = [(m.bytes, (m.producer, *m.consumers)) for m in list_messages(problem)]
    piece_of = pieces(problem.group, [ends for _, ends in messages], device_of)
    allowed: dict[int, set[int]] = {}
    size = dict.fromkeys(piece_of, 0)
    for op, footprint in enumerate(problem.footprint_bytes()):
        size[piece_of[op]] += footprint
        allowed.setdefault(piece_of[op], set(problem.allowed[op])).intersection_update(
            problem.allowed[op]
        )
    near: dict[int, set[int]] = {piece: set() for piece in size}
    for sent, ends in messages:
        devices = {device_of[op] for op in ends}
        for piece in {piece_of[op] for op in ends} if len(devices) > 1 else ():
            size[piece] += sent
            near[piece] |= devices - {device_of[piece], problem.host}
    caps = problem.capacity_bytes
    found = {
        piece
        for piece in size
        if device_of[piece] != problem.host
        for target in near[piece] & allowed[piece]
        if peaks[target] + size[piece] <= caps[target]
    }
    used = sorted(set(device_of) - {problem.host}, key=lambda device: peaks[device])
    if len(used) > 1 and peaks[used[0]] + peaks[used[1]] <= caps[used[1]]:
        lightest = {piece for piece in size if device_of[piece] == used[0]}
        if all(used[1] in allowed[piece] for piece in lightest):
            found |= lightest
    return sum(piece in found for piece in piece_of)


def pieces(
    groups: Sequence[int], messages: Sequence[Sequence[int]], device_of: Sequence[int]
) -> list[int]:
    """An op that stands for the piece of every op: what hangs together on a device by tensors,
    control edges (``messages``, each with its ops) and colocation (``groups``)."""
    root = list(range(len(device_of)))

    def find(op: int) -> int:
        while root[op] != op:
            root[op] = root[root[op]]
            op = root[op]
        return op

    first: dict[tuple[str, int, int], int] = {}
    for number, ends in enumerate(messages):
        for op in ends:
            root[find(op)] = find(first.setdefault(("message", number, device_of[op]), op))
    for op, group in enumerate(groups):
        root[find(op)] = find(first.setdefault(("group", group, 0), op))
    return [find(op) for op in range(len(root))]


def baselines(formulation: Any, names: list[str]) -> dict[str, float | None]:
    """What every baseline transfers, made to fit as ``compare`` does it; ``None``: it does not."""
    from placer.prediction.orders.step_peaks import StepPeaks
    from placer.solving.baselines import BASELINES
    from placer.solving.caps.schedule import SCHEDULE
    from placer.solving.caps.stages import solve_under_peaks
    from placer.solving.solution import SolverParameters

    problem = formulation.problem
    workload = formulation.workload
    peaks = StepPeaks(workload.graph, workload.costs, problem, needs_on=workload.cluster)
    limit = SolverParameters(time_limit_seconds=SCHEDULE.baseline_seconds)
    found = {}
    for name in names or [each for each in BASELINES if each != "tensorflow-default"]:
        solution = solve_under_peaks(problem, peaks, limit, solver=name)
        found[name] = solution.value if solution.status.value in ("OPTIMAL", "FEASIBLE") else None
    return found


def failures(rows: dict[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Which rows are worse than another placement that fits, and which have debris."""
    worse = []
    for key, row in rows.items():
        others = [value for value in row["others"].values() if value is not None]
        value = row["value"] if row["fits"] else math.inf
        worse += [key] if others and value > WORSE * min(others) else []
    return worse, [key for key, row in rows.items() if row["debris"]]


def table(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The table in markdown, and what follows from it."""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    worse, littered = failures(rows)
    for key, row in rows.items():
        others = {name: value for name, value in row["others"].items() if value is not None}
        best = min(others, key=lambda name: others[name], default="")
        value = row["value"] if row["fits"] else math.inf
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
                        f"{row['need_share']:.1%}" if "need_share" in row else "",
                        f"{row['step_seconds'] or 0.0:.3f}",
                        str(row["debris"]),
                    ),
                )
            )
            + " |"
        )
    yield ""
    yield f"Worse than the best of the others by more than 0.1%: {', '.join(worse) or 'none'}."
    yield f"With debris: {', '.join(littered) or 'none'}."


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
    if any(failures(rows)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
