"""Problem files of TensorFlow graphs, the same for every solver that is compared.

    python benchmarks/graphs/problems.py FOLDER [NAME ...] [--data DIR]

writes ``FOLDER/NAME.json`` (``placer.problem/1`` with one device).  The weight of an op is its
resident bytes and those of its outputs; groups are TensorFlow's colocation groups.  ``DIR`` has the
graph files of the names that begin with ``zoo-``; the others are built from public layers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

from equal_devices import on_devices
from graphs import GRAPHS, BenchmarkGraph, application, image, transformer, write_graph

from placer.pipeline.formulation import formulate
from placer.pipeline.workload import read_workload
from placer.plan.request import Options
from placer.problem.placement_problem import PlacementProblem, to_json


@dataclass(frozen=True, kw_only=True)
class StoredGraph:
    """A graph file of the data folder, and what binds its shapes."""

    name: str
    options: Options


def training(name: str, function: str, size: int, batch: int) -> BenchmarkGraph:
    """A training step of one of ``keras.applications``."""
    return BenchmarkGraph(
        name=name,
        kind="convolutional training",
        build=application(function, size),
        inputs=image(size),
        batches=(batch, batch),
        optimizer="Adam",
    )


STORED = (
    StoredGraph(name="zoo-inceptionv3_infer_dynbatch", options=Options(batch_size=32)),
    StoredGraph(
        name="zoo-bert_base_infer_dynamic",
        options=Options(shapes={"input_ids": (8, 128), "attention_mask": (8, 128)}),
    ),
    StoredGraph(name="zoo-gpt2_medium_infer_b8s1024", options=Options()),
    StoredGraph(name="zoo-gnmt_2l_t20_infer", options=Options()),
    StoredGraph(name="zoo-dlrm_multihot_sharded_train", options=Options()),
    StoredGraph(name="zoo-resnet50_train_adam_b32", options=Options()),
)

BUILT = (
    *(graph for graph in GRAPHS if graph.name in ("unet_adam", "recommender_adagrad")),
    BenchmarkGraph(
        name="decoder_adam_12",
        kind="transformer training",
        build=transformer(256, 512, 8, 12, vocabulary=16000, causal=True),
        inputs=(((256,), "int32"),),
        labels=((256,), "int32"),
        batches=(8, 8),
        optimizer="Adam",
    ),
    training("efficientnet_b0_adam", "EfficientNetB0", 224, 32),
    training("densenet201_adam", "DenseNet201", 224, 16),
    training("nasnet_mobile_adam", "NASNetMobile", 224, 16),
)


def problem_of(source: Any, options: Options) -> PlacementProblem:
    """The problem of a model on one device that holds anything, all ops free to be anywhere."""
    problem = formulate(read_workload(source, "1xA100-80GB,CPU:1TiB", options)).problem
    weights = list(problem.resident_bytes)
    for tensor in problem.tensors:
        weights[tensor.producer] += tensor.bytes
    return on_devices(replace(problem, resident_bytes=tuple(weights)), 1, sum(weights))


def write_problem(graph: StoredGraph | BenchmarkGraph, folder: Path, data: Path | None) -> str:
    """Write the problem file of ``graph`` if it is not there; a line about it."""
    path = folder / f"{graph.name}.json"
    if path.exists():
        return f"{path}: there already"
    if isinstance(graph, StoredGraph):
        if data is None:
            return f"{graph.name}: left out without --data"
        problem = problem_of(data / graph.name / "graph.pb", graph.options)
    else:
        model = write_graph(graph, graph.batches[0], folder / "models")
        outputs = tuple(json.loads(model.with_suffix(".json").read_text())["outputs"])
        problem = problem_of(model, Options(outputs=outputs))
    path.write_text(to_json(problem))
    return f"{path}: {len(problem.op_names):,} ops, {len(set(problem.group)):,} groups"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path, help="folder of folders with graph.pb")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for graph in (*STORED, *BUILT):
        if not arguments.names or graph.name in arguments.names:
            print(write_problem(graph, arguments.folder, arguments.data), flush=True)


if __name__ == "__main__":
    main()
