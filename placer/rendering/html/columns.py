"""A predicted step as columns of numbers, as small as JSON gets without packing.

Names are told once: an op is its scope and the last part of its name, both numbers.  Times are
whole picoseconds.  Long
columns of places and times are told as differences (:func:`_steps`), which are shorter.
``static/model.js`` reads what is written here.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, pairwise
from typing import Any

from placer.graph.name_scopes import ScopeTree, build_scope_tree
from placer.graph.tensor_names import split_tensor
from placer.prediction.predicted_step import KINDS, PredictedStep
from placer.rendering.html.folded_step import find_passes
from placer.rendering.html.layer_tree import build_layer_tree

_PICOSECONDS = 1e12


class _Strings:
    """Strings by number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def column(self, texts: Iterable[str]) -> list[int]:
        return [self.number(text) for text in texts]


def step_columns(step: PredictedStep) -> dict[str, object]:
    """Every column of the step; lists are by op, by buffer or by transfer."""
    strings = _Strings()
    return {
        "devices": list(step.devices),
        "kinds": list(KINDS),
        **_names(step.scopes, strings),
        "op_type": strings.column(step.op_types),
        "device": list(step.device_of),
        "flops": list(step.flops),
        "bytes_accessed": list(step.bytes_accessed),
        "output_bytes": [sum(size or 0 for size in sizes) for sizes in step.output_bytes],
        "persistent_bytes": list(step.persistent_bytes),
        "temporary_bytes": list(step.temporary_bytes),
        "start": _steps(_times(step.start_seconds)),
        "seconds": _times(
            finish - start
            for start, finish in zip(step.start_seconds, step.finish_seconds, strict=True)
        ),
        "read_count": [len(edges) for edges in step.edges],
        "reads": [op - edge.producer for op, edges in enumerate(step.edges) for edge in edges],
        "read_bytes": _read_bytes(step),
        "order": _steps(step.order),
        "layers": _layers(step, strings),
        "buffers": {
            "op": _steps(buffer.op for buffer in step.buffers),
            "device": [buffer.device for buffer in step.buffers],
            "bytes": [buffer.bytes for buffer in step.buffers],
            "kind": [KINDS.index(buffer.kind) for buffer in step.buffers],
            "first": _steps(buffer.first for buffer in step.buffers),
            "length": [buffer.last - buffer.first for buffer in step.buffers],
        },
        "sent": _sent(step),
        "unused": list(step.unused_bytes),
        "step": round(step.step_seconds * _PICOSECONDS),
        "strings": list(strings.numbers),
    }


def placement_columns(placement: Mapping[str, str]) -> dict[str, object]:
    """Names and devices alone: what is known without the graph."""
    strings = _Strings()
    devices = sorted(set(placement.values()))
    number = {name: index for index, name in enumerate(devices)}
    return {
        "devices": devices,
        **_names(build_scope_tree(placement), strings),
        "device": [number[name] for name in placement.values()],
        "strings": list(strings.numbers),
    }


def _names(tree: ScopeTree, strings: _Strings) -> dict[str, list[int]]:
    return {
        "scope_name": strings.column(tree.names),
        "scope_parent": list(tree.parents),
        "scope": list(tree.scope_of),
        "leaf": strings.column(tree.leaves),
    }


def _layers(step: PredictedStep, strings: _Strings) -> dict[str, object]:
    """The layers of the model in the order of its depth.

    ``op`` are the ops that have a place of their own, ``group`` where each of them is; by op
    ``anchor`` is how far behind it the op stands that it is shown with, and ``pass`` a digit.
    """
    passes = find_passes(step)
    tree = build_layer_tree(step, passes)
    return {
        "group_name": strings.column(tree.names),
        "group_parent": list(tree.parents),
        "op": _steps(tree.ops),
        "group": _steps(tree.group_of),
        "anchor": [at - op for op, at in enumerate(passes.anchor)],
        "pass": "".join(map(str, passes.pass_of)),
    }


def _steps(numbers: Iterable[int]) -> list[int]:
    """Every number less the one before.

    >>> _steps([7, 8, 5])
    [7, 1, -3]
    """
    return [later - earlier for earlier, later in pairwise(chain([0], numbers))]


def _times(seconds: Iterable[float]) -> list[int]:
    return [round(value * _PICOSECONDS) for value in seconds]


def _read_bytes(step: PredictedStep) -> list[int]:
    """Bytes of what each edge carries: 0 without a size, -1 for a control edge."""
    return [
        -1 if edge.index < 0 else step.output_bytes[edge.producer][edge.index] or 0
        for edges in step.edges
        for edge in edges
    ]


def _sent(step: PredictedStep) -> dict[str, list[Any]]:
    number = {name: index for index, name in enumerate(step.devices)}
    rows = step.sent
    return {
        "op": [row.op for row in rows],
        "index": [
            -1 if row.transfer.kind == "control" else split_tensor(row.transfer.tensor)[1]
            for row in rows
        ],
        "source": [number[row.transfer.source] for row in rows],
        "target": [number[row.transfer.target] for row in rows],
        "bytes": [row.transfer.bytes for row in rows],
        "kind": [row.transfer.kind for row in rows],
        "start": _times(row.start_seconds for row in rows),
        "seconds": _times(row.finish_seconds - row.start_seconds for row in rows),
        "readers": [list(row.readers) for row in rows],
    }
