"""Predicted busy time of a step against published throughputs on GPUs.

    python benchmarks/gpu_times/run.py evaluate --data DIR --cache CACHE [--rows]
    python benchmarks/gpu_times/run.py fit      --data DIR --cache CACHE

DIR has ``throughput.csv``, ``predictions_today.csv`` and ``graphs`` with their ``index.json``.
``evaluate`` predicts every row of one GPU and synthetic data.  ``fit`` fits the efficiencies of
``cost_models/data/gpu_efficiency.toml`` to the fitted rows and then, to see how much hangs on
what was held out, to all but one model or GPU.  What an op costs at a batch size is kept in CACHE.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import math
import pickle
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cost_models.clusters import parse_cluster
from cost_models.devices import DeviceProperties, Efficiency
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds, usual_efficiencies
from placer.pipeline.placement import predict_on_one_device
from placer.pipeline.workload import read_workload
from placer.plan.request import read_options

HELD_OUT_GPUS = ("Tesla V100-SXM3-32GB", "Quadro RTX 6000")
HELD_OUT_MODELS = ("inception3", "resnet152")

DESCRIPTIONS: Mapping[str, tuple[float, float]] = {
    "GeForce RTX 2070 with Max-Q Design": (5.5e12, 384e9),
    "GeForce RTX 2080 with Max-Q Design": (6.4e12, 384e9),
    "GeForce RTX 3080": (29.8e12, 760e9),
    "RTX A6000": (77.4e12, 768e9),
}
"""FLOP/s and bytes/s as the vendor publishes them: what a user would write."""

PRESETS: Mapping[str, str] = {
    "Tesla V100-SXM3-32GB": "V100-32GB",
    "GeForce RTX 2080 Ti": "RTX-2080Ti",
    "Quadro RTX 6000": "Quadro-RTX-6000",
    "A100-PCIE-40GB": "A100-40GB",
}

PRIORS: Mapping[str, tuple[float, float]] = {
    "memory": (0.8, 0.05),
    "normalisation": (0.5, 0.25),
    "pooling": (0.65, 0.2),
    "convolution": (0.85, 0.2),
    "small-window": (2.25, 0.15),
    "tensor": (0.45, 0.4),
    "matmul": (0.8, 0.15),
}
"""What was expected before fitting, and by how much (in logarithms) that may be wrong.  Small
windows: what Winograd's F(2 x 2, 3 x 3) saves, times what convolutions reach."""

_ROW_DEVIATION = 0.07
"""How far a good prediction of a row may be off, in logarithms."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model at one batch on one GPU: seconds measured (the median of the machines with that
    GPU) and as predicted before the rates were fitted; ``work`` is what runs on the GPU."""

    gpu: str
    model: str
    precision: str
    mode: str
    batch: int
    compiled: bool
    measured: float
    before: float
    work: Sequence[tuple[OpCost, int]]

    @property
    def held_out(self) -> bool:
        return self.gpu in HELD_OUT_GPUS or self.model in HELD_OUT_MODELS

    def predicted(self, efficiency: Mapping[str, Efficiency] | None = None) -> float:
        """Seconds of all ops on the GPU, with other efficiencies than those in the package."""
        device = replace(_device(self.gpu), efficiency=efficiency or {})
        return sum(count * op_seconds(cost, device) for cost, count in self.work)


def _device(gpu: str) -> DeviceProperties:
    if gpu in PRESETS:
        return parse_cluster(PRESETS[gpu]).device("GPU:0")
    peak_flops, bandwidth = DESCRIPTIONS[gpu]
    generic = parse_cluster("GPU:0:8GiB").device("GPU:0")
    return replace(
        generic, peak_flops=peak_flops, memory_bandwidth=bandwidth, compute_capability=""
    )


def read_cases(data: Path, cache: Path) -> list[Case]:
    """All rows of one NVIDIA GPU with synthetic data; equal ones on several machines are one."""
    index = json.loads((data / "graphs" / "index.json").read_text())
    graphs = {(row.get("model"), row.get("precision"), row.get("mode")): row for row in index}
    measured = _grouped(data / "throughput.csv", "step_ms")
    before = _grouped(data / "predictions_today.csv", "predicted_busy_ms")
    cases = []
    for key, milliseconds in sorted(measured.items()):
        gpu, model, precision, mode, batch, compiled = key
        cases.append(
            Case(
                gpu=gpu,
                model=model,
                precision=precision,
                mode=mode,
                batch=batch,
                compiled=compiled,
                measured=statistics.median(milliseconds) / 1e3,
                before=statistics.median(before.get(key, [math.nan])) / 1e3,
                work=_work(data / "graphs", graphs[model, precision, mode], batch, cache),
            )
        )
    return cases


def _grouped(path: Path, column: str) -> dict[tuple[str, str, str, str, int, bool], list[float]]:
    """The column by GPU, model, precision, mode, batch and whether XLA compiled."""
    found: dict[tuple[str, str, str, str, int, bool], list[float]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            plain = row["core"] == "1"
            alone = row.get("gpu_count", "1") == "1" and row.get("data", "synthetic") == "synthetic"
            compiled = row["xla"] == "1" and alone
            known = row["gpu"] in DESCRIPTIONS or row["gpu"] in PRESETS
            if row["status"] == "ok" and known and (plain or compiled) and row[column]:
                batch = int(row.get("batch_size_per_gpu") or row["batch_size"])
                key = row["gpu"], row["model"], row["precision"], row["mode"], batch, compiled
                found.setdefault(key, []).append(float(row[column]))
    return found


def _work(
    graphs: Path, row: Mapping[str, object], batch: int, cache: Path
) -> Sequence[tuple[OpCost, int]]:
    """What runs on the GPU, equal ops counted."""
    kept = cache / f"{row['name']}-{batch}.pickle"
    if kept.exists():
        found: Sequence[tuple[OpCost, int]] = pickle.loads(kept.read_bytes())
        return found
    model = graphs / str(row["file"])
    if model.suffix == ".xz":
        plain = cache / model.stem
        plain.write_bytes(lzma.decompress(model.read_bytes()))
        model = plain
    wanted = read_options({"batch_size": batch, "outputs": row["fetches"]})
    workload = read_workload(str(model), "V100-32GB", wanted)
    placement = predict_on_one_device(workload).placement
    counts: dict[str, tuple[OpCost, int]] = {}
    for name in workload.graph.ops:
        cost = workload.costs[name]
        if placement[name] == "GPU:0" and (cost.flops or cost.bytes_accessed):
            alike = repr(replace(cost, output_bytes=(), persistent_bytes=0))
            counts[alike] = cost, counts.get(alike, (cost, 0))[1] + 1
    kept.write_bytes(pickle.dumps(list(counts.values())))
    return list(counts.values())


def efficiencies(parameters: Mapping[str, float]) -> dict[str, Efficiency]:
    """The table that the parameters stand for; kinds that are not fitted stay as they are."""
    memory = parameters["memory"]
    table = {
        kind: replace(row, memory=memory) if math.isfinite(row.memory) else row
        for kind, row in usual_efficiencies().items()
    }
    changed = {
        "convolution": {"compute": parameters["convolution"]},
        "small-window": {"compute": parameters["convolution"] * parameters["small-window"]},
        "convolution-tensor": {"compute": parameters["tensor"]},
        "matmul-tensor": {"compute": parameters["tensor"]},
        "matmul": {"compute": parameters["matmul"]},
        "normalisation": {"memory": parameters["normalisation"]},
        "pooling": {"memory": parameters["pooling"]},
        "side-input": {"memory": 3 * memory},
    }
    for kind, values in changed.items():
        table[kind] = replace(table[kind], **values)
    families = ("elementwise", "reductions", "optimizers", "data_movement", "losses", "random")
    return table | dict.fromkeys(families, table["usual"])


def fit(cases: Sequence[Case]) -> dict[str, float]:
    """The parameters with the least squares of logarithmic errors, deviations from what was
    expected counted too (Levenberg and Marquardt's method)."""
    import numpy

    names = list(PRIORS)

    def parameters(point: Any) -> dict[str, float]:
        return {n: PRIORS[n][0] * math.exp(x) for n, x in zip(names, point, strict=True)}

    def residuals(point: Any) -> list[float]:
        table = efficiencies(parameters(point))
        rows = [math.log(c.predicted(table) / c.measured) / _ROW_DEVIATION for c in cases]
        return rows + [x / PRIORS[n][1] for n, x in zip(names, point, strict=True)]

    point, damping, step = numpy.zeros(len(names)), 1e-2, 1e-3
    now = numpy.array(residuals(point))
    for _ in range(30):
        moved = [residuals(point + step * row) for row in numpy.eye(len(names))]
        slope = ((numpy.array(moved) - now) / step).T
        change = numpy.linalg.solve(
            slope.T @ slope + damping * numpy.eye(len(names)), -slope.T @ now
        )
        then = numpy.array(residuals(point + change))
        if then @ then >= now @ now:
            damping *= 10
            continue
        gained = now @ now - then @ then
        point, now, damping = point + change, then, damping / 3
        if gained < 1e-4 * (now @ now):
            break
    return parameters(point)


def errors(cases: Iterable[Case], predicted: Callable[[Case], float]) -> str:
    """``median, 90th percentile, worst`` of the relative errors."""
    found = sorted(abs(predicted(case) / case.measured - 1) for case in cases)
    if not found:
        return "- | - | -"
    tenth = found[max(0, math.ceil(0.9 * len(found)) - 1)]
    return f"{statistics.median(found):.1%} | {tenth:.1%} | {found[-1]:.1%}"


def show(cases: Sequence[Case], rows: bool) -> None:
    """Tables of errors, and with ``rows`` every case."""
    plain = [case for case in cases if not case.compiled]
    parts = {
        "held out": [case for case in plain if case.held_out],
        "fitted": [case for case in plain if not case.held_out],
        "with XLA": [case for case in cases if case.compiled],
    }
    print("| rows | GPU | precision | mode | rows | median | 90th percentile | worst | before |")
    print("|---|---|---|---|---:|---:|---:|---:|---:|")
    for part, found in parts.items():
        _line(part, "all", "all", "all", found)
        _line(part, "no laptops", "all", "all", [c for c in found if "Max-Q" not in c.gpu])
        if part == "held out":
            both = [c for c in found if c.gpu in HELD_OUT_GPUS and c.model in HELD_OUT_MODELS]
            _line(part, "held-out GPU and model", "all", "all", both)
        for precision in ("fp32", "fp16"):
            for mode in ("training", "inference"):
                some = [c for c in found if (c.precision, c.mode) == (precision, mode)]
                _line(part, "all", precision, mode, some)
        for gpu in sorted({case.gpu for case in found}):
            for precision in ("fp32", "fp16"):
                some = [c for c in found if (c.gpu, c.precision) == (gpu, precision)]
                _line(part, gpu, precision, "both", some)
    if rows:
        print(
            "\n| GPU | model | precision | mode | batch | XLA | measured ms | predicted | before |"
        )
        print("|---|---|---|---|---:|---|---:|---:|---:|")
        for case in cases:
            print(
                f"| {case.gpu} | {case.model}{'' if case.held_out else ' (fitted)'} "
                f"| {case.precision} | {case.mode} | {case.batch} | {'yes' * case.compiled} "
                f"| {1e3 * case.measured:.1f} | {case.predicted() / case.measured:.2f} "
                f"| {case.before / case.measured:.2f} |"
            )


def _line(part: str, gpu: str, precision: str, mode: str, cases: Sequence[Case]) -> None:
    before = errors(cases, lambda case: case.before).split(" | ")[0]
    after = errors(cases, Case.predicted)
    print(f"| {part} | {gpu} | {precision} | {mode} | {len(cases)} | {after} | {before} |")


def show_fits(cases: Sequence[Case]) -> None:
    """The fit, and fits that leave out one model or GPU at a time."""
    plain = [case for case in cases if not case.compiled]
    fitted = [case for case in plain if not case.held_out]
    print("| fitted to | tried on | median | 90th percentile | worst | parameters |")
    print("|---|---|---:|---:|---:|---|")
    parts = [("the fitted rows", "held out", fitted, [c for c in plain if c.held_out])]
    for name in sorted({c.model for c in plain}) + sorted({c.gpu for c in plain}):
        some = [c for c in plain if name in (c.model, c.gpu)]
        parts.append((f"all but {name}", name, [c for c in plain if c not in some], some))
    for title, on, to, tried in parts:
        found = fit(to)
        table = efficiencies(found)
        shown = ", ".join(f"{name} {value:.3g}" for name, value in found.items())
        after = errors(tried, lambda case, table=table: case.predicted(table))  # type: ignore[misc]
        print(f"| {title} | {on} | {after} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("evaluate", "fit"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--rows", action="store_true", help="print every row")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    cases = read_cases(arguments.data, arguments.cache)
    if arguments.what == "fit":
        show_fits(cases)
    else:
        show(cases, arguments.rows)


if __name__ == "__main__":
    main()
