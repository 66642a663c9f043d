"""The graphs of this benchmark, what binds their shapes, and the machine."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "graphs"))

from graphs import write_graph
from problems import BUILT

from placer.plan.request import Options

DEVICES = 4
MACHINE = f"{DEVICES}xT4,CPU:64GiB"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph: ``path`` in the folder of graph files, or one that is built (``path`` empty)."""

    name: str
    path: str = ""
    options: Options = field(default_factory=Options)


STORED = (
    Case(
        name="inceptionv3_infer",
        path="zoo-inceptionv3_infer_dynbatch/graph.pb",
        options=Options(batch_size=32),
    ),
    Case(
        name="bert_base_infer",
        path="zoo-bert_base_infer_dynamic/graph.pb",
        options=Options(shapes={"input_ids": (8, 128), "attention_mask": (8, 128)}),
    ),
    Case(name="gpt2_medium_infer", path="zoo-gpt2_medium_infer_b8s1024/graph.pb"),
    Case(name="gnmt_infer", path="zoo-gnmt_2l_t20_infer/graph.pb"),
    Case(name="dlrm_train", path="zoo-dlrm_multihot_sharded_train/graph.pb"),
    Case(
        name="resnet50_train",
        path="zoo-resnet50_train_adam_b32/graph.pb",
        options=Options(outputs=("train_op",)),
    ),
    Case(
        name="bilstm_while",
        path="zoo-sm_bilstm_while_v2_train_k3/saved_model",
        options=Options(shapes={"x": (8, 32)}),
    ),
    Case(
        name="ssd_mobilenet_infer",
        path="ssd-mobilenet-hand/model.ckpt.meta",
        options=Options(
            outputs=(
                *("detection_boxes", "detection_scores"),
                *("detection_classes", "num_detections"),
            ),
            shapes={"image_tensor": (1, 128, 128, 3)},
        ),
    ),
    Case(
        name="openpose_infer",
        path="openpose-mobilenet/mobilenet_thin/graph.pb",
        options=Options(outputs=("Openpose/concat_stage7",), shapes={"image": (1, 128, 128, 3)}),
    ),
    Case(
        name="lstm_crf_train",
        path="tfnet-lstm-crf-ner/lstm_crf_ner.meta",
        options=Options(
            batch_size=4,
            shapes={
                "word_ids": (4, 8),
                "char_ids": (4, 8, 8),
                "word_lengths": (4, 8),
                "labels": (4, 8),
            },
        ),
    ),
)

_LEFT_OUT = ("densenet201_adam", "recommender_adagrad")
"""A second convolutional step of that size says little more; shapes that depend on data."""

_BUILT = {graph.name: graph for graph in BUILT if graph.name not in _LEFT_OUT}
CASES = (*STORED, *(Case(name=name) for name in _BUILT))


def find_model(case: Case, folder: Path, data: Path | None) -> tuple[Path, Options] | None:
    """The file of a graph, written to ``folder`` if it is built, and its options; ``None`` for a
    graph file without the folder ``data``."""
    if case.path:
        return None if data is None else (data / case.path, case.options)
    graph = _BUILT[case.name]
    model = write_graph(graph, graph.batches[0], folder / "models")
    outputs = tuple(json.loads(model.with_suffix(".json").read_text())["outputs"])
    return model, replace(case.options, outputs=outputs)
