"""Predicted memory of GPUs beside what was seen on real ones.

    python benchmarks/gpu_memory/run.py DIR [NAME ...]

DIR has ``oom.csv`` (batch sizes that ran and that ran out of memory), ``allocations/`` (traces of
one step, ``summary.csv``) and ``graphs/``.  A batch is predicted to fit where the need of an
allocator with one region (high) is at most TensorFlow's limit.  With names only the rows or traces
whose name starts so.
"""

from __future__ import annotations

import csv
import lzma
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from placer.pipeline.placement import predict_on_one_device
from placer.pipeline.workload import read_workload
from placer.plan.request import read_options
from placer.prediction.metrics import Metrics

MEBIBYTE = 2**20
CARD = "1xGPU:1TiB"
"""Memory of the device: no batch is refused."""

Row = dict[str, str]


def main() -> None:
    data, names = Path(sys.argv[1]), tuple(sys.argv[2:]) or ("",)
    with tempfile.TemporaryDirectory() as folder:
        cases = [row for row in read(data / "oom.csv") if row["id"].startswith(names)]
        traces = [
            row
            for row in read(data / "allocations" / "summary.csv")
            if f"{row['model']}-{row['run']}".startswith(names)
        ]
        print("| row | limit MiB | batch | need MiB, low to high | predicted | what happened |")
        print("|---|---|---|---|---|---|")
        for row in filter(lambda row: row["graph"], cases):
            for line in fits(row, data / "graphs", Path(folder)):
                print(line, flush=True)
        print("\n| trace | tensors MB | predicted | | with workspace MB | predicted | |")
        print("|---|---|---|---|---|---|---|")
        for row in traces:
            print(trace(row, data / "graphs", Path(folder)), flush=True)


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fits(row: Row, graphs: Path, folder: Path) -> Iterator[str]:
    """A line for the largest batch that ran and for the smallest that ran out of memory."""
    limit = int(row["tf_limit_mb"])
    compiled = "" if row["xla"] == "no" else " (XLA)"
    for column, truth in (("largest_fit", True), ("smallest_no_fit", False)):
        batch = int(row[column] or 0)
        if not batch:
            continue
        metrics = predicted(graphs / row["graph"], folder, batch, "train_op", "loss")
        need = metrics.needs["GPU:0"].need
        fit = need.high_bytes <= limit * MEBIBYTE
        yield (
            f"| {row['id']}{compiled} | {limit:,} | {batch} "
            f"| {need.low_bytes / MEBIBYTE:,.0f} to {need.high_bytes / MEBIBYTE:,.0f} "
            f"| {word(fit)} | {word(truth)}{'' if fit == truth else ' **wrong**'} |"
        )


def trace(row: Row, graphs: Path, folder: Path) -> str:
    """The most bytes in use in a step, without and with workspaces of cuDNN: what the process held
    before the step is taken off, and what the model holds is added."""
    metrics = predicted(graphs / f"t4_{row['model']}.savedmodel", folder, 256)
    held = metrics.timelines["GPU:0"].resident_bytes - int(row["persistent_bytes_before_step"])
    need = metrics.needs["GPU:0"]
    found = []
    for column, most in (
        ("peak_without_workspace_bytes", need.in_use.expected_bytes),
        ("peak_bytes", need.with_workspace_bytes),
    ):
        seen = int(row[column]) + held
        found.append(f"{seen / 1e6:.1f} | {most / 1e6:.1f} | {most / seen - 1:+.1%}")
    return f"| {row['model']}-{row['run']} | {' | '.join(found)} |"


def predicted(model: Path, folder: Path, batch: int, *outputs: str) -> Metrics:
    """What is predicted of a step of the model on one device."""
    path = folder / model.name
    options: dict[str, object] = {"batch_size": batch}
    if model.suffix == ".savedmodel":
        path = folder / model.stem
        if not path.exists():
            with tarfile.open(model.with_suffix(".savedmodel.tar.xz")) as packed:
                packed.extractall(folder, filter="data")
        options["signature"] = "train"
    else:
        if not path.exists():
            packed_graph = model.with_suffix(".pb.xz")
            path.write_bytes(
                lzma.decompress(packed_graph.read_bytes())
                if packed_graph.exists()
                else model.read_bytes()
            )
        loss = "total_loss" if model.stem.startswith(("resnet50_fp", "resnet152")) else "loss"
        options["outputs"] = [*outputs[:-1], loss]
    return predict_on_one_device(read_workload(str(path), CARD, read_options(options))).metrics


def word(fit: bool) -> str:
    return "fits" if fit else "runs out"


if __name__ == "__main__":
    main()
