"""Plan and run side by side: every difference gets a code."""

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from placer.application.devices.device_mapping import HOST
from placer.application.devices.node_kernels import has_kernel
from placer.application.running.generated_inputs import Array, default_shapes
from placer.application.verifying.partition_graphs import ActualTransfer, Execution
from placer.application.verifying.verification_result import (
    UNEXPLAINED,
    OpRow,
    OutputRow,
    TransferRow,
)
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.rewritten_nodes import is_added
from placer.extraction.reading.companions import touched_handles
from placer.graph.op_types import CONTROL_FLOW
from placer.graph.rewriting import kind_of_added
from placer.graph.tensor_names import is_control, source_of
from placer.prediction.metrics import Transfer

TOLERANCE = 1e-3
"""Share of the largest value of an output: a first guess, not yet measured on accelerators."""

SUMS_TOLERANCE = 1e-5
"""The same, where nothing differs but the order in which numbers are added."""

TransferKey = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """The things compared: the flat program, requested devices by op, and what ran (in the plan's
    device names).  ``session``: it ran in a session, which fetches its outputs to the host."""

    program: FlatProgram
    requested: Mapping[str, str]
    execution: Execution
    session: bool
    optimised: bool

    @cached_property
    def readers(self) -> Mapping[str, Set[str]]:
        """The ops that read an output of each op or wait for it."""
        readers: dict[str, set[str]] = {}
        for node in self.program.graph_def.node:
            for source in map(source_of, node.input):
                readers.setdefault(source, set()).add(node.name)
        return readers

    @cached_property
    def fed(self) -> Set[str]:
        """Ops that are fed, and those that only compute a tensor which is fed over."""
        fed = self.program.fed_ops | {f"{name}/shape" for name in default_shapes(self.program)}
        ends = {*self.program.output_ops, *self.program.targets}
        return fed | self._only_read_by(fed, ends | fed)

    @cached_property
    def pruned(self) -> Set[str]:
        """Ops that did not run and that only control flow reads.

        A session prunes after it has lowered loops, so what an unused loop variable needs goes too.
        """
        loops = {n.name for n in self.program.graph_def.node if n.op in CONTROL_FLOW}
        return self._only_read_by(loops, self.execution.devices.keys()) - loops

    @cached_property
    def fused(self) -> Set[str]:
        """Ops that did not run by themselves but as a part of one of their readers' kernels."""
        kernels = set(self.execution.fused)
        for node in reversed(self.program.graph_def.node):
            ran = node.name in self.execution.devices
            if not ran and not kernels.isdisjoint(self.readers.get(node.name, ())):
                kernels.add(node.name)
        return kernels - self.execution.devices.keys()

    @cached_property
    def constants(self) -> Set[str]:
        """The constants of the program."""
        return {node.name for node in self.program.graph_def.node if node.op == "Const"}

    def _only_read_by(self, readers: Set[str], excluded: Set[str]) -> set[str]:
        """The ops, ``excluded`` ones aside, that ``readers`` and such ops alone read."""
        found: set[str] = set()
        for node in reversed(self.program.graph_def.node):
            reading = self.readers.get(node.name, ())
            if node.name in excluded or not reading:
                continue
            if all(name in readers or name in found for name in reading):
                found.add(node.name)
        return found


def compare_ops(run: PlannedRun) -> tuple[OpRow, ...]:
    """A row for every op of the flat graph."""
    handles = dict(touched_handles(run.program.graph_def.node))
    rows = []
    for node in run.program.graph_def.node:
        requested = run.requested.get(node.name, "")
        actual = _actual_device(run, node, requested)
        same = actual == requested or (actual and not requested)
        code = "" if same else _op_code(run, node, handles.get(node.name, ()), actual)
        added = kind_of_added(node.name) if is_added(node) else ""
        row = OpRow(op=node.name, requested=requested, actual=actual, code=code, added=added)
        rows.append(row)
    return tuple(rows)


def _actual_device(run: PlannedRun, node: Any, requested: str) -> str:
    """Where an op ran: a lowered one where it was asked to, if some of it ran there."""
    inner = run.execution.inner_devices.get(node.name, frozenset())
    if node.name in run.execution.devices or node.op not in CONTROL_FLOW or not inner:
        return run.execution.devices.get(node.name, "")
    return requested if requested in inner else min(inner)


def _op_code(run: PlannedRun, node: Any, handles: Iterable[str], actual: str) -> str:
    """Why an op is not where it was asked to be."""
    if node.name in run.fed:
        return "fed"
    if not actual:
        return _absence_code(run, node.name)
    for handle in handles:
        if run.execution.devices.get(handle) == actual:
            return f"colocated_with:{handle}"
    if not run.session and node.op == "Const" and not run.program.call_path[node.name]:
        return "fed"  # a constant of the main graph that a TensorFlow 2 signature captures
    if node.op in CONTROL_FLOW:
        return "inside_control_flow"
    if actual == HOST and not has_kernel(node, run.requested.get(node.name, "")):
        return "host_only_kernel"
    return "moved_by_optimiser" if run.optimised else UNEXPLAINED


def _absence_code(run: PlannedRun, name: str) -> str:
    """The code of an op that was not seen at all."""
    if name in run.fused:
        return "fused"
    if name in run.constants and name in run.execution.inner_devices:
        return "replicated"
    if run.optimised:
        return "removed_by_optimiser"
    return "inside_control_flow" if name in run.pruned else UNEXPLAINED


def compare_transfers(
    run: PlannedRun, predicted: Iterable[Transfer] | None
) -> tuple[TransferRow, ...]:
    """Predicted and seen transfers, one row per tensor and destination.

    ``predicted`` are a plan's rows, ``None`` where there is no plan to hold them against.
    """
    seen: dict[TransferKey, ActualTransfer] = {
        (item.tensor, item.source, item.target): item for item in run.execution.transfers
    }
    forwarded = {(item.tensor, item.target) for item in seen.values() if item.forwarded}
    found = []
    for row in predicted or ():
        key, code = (row.tensor, row.source, row.target), ""
        if key not in seen:
            sent_on = (row.tensor, row.target) in forwarded
            code = "forwarded" if sent_on else _missing_code(run, row.kind, key)
        found.append((key, row.kind, code))
    known = {key for key, _, _ in found}
    feeds = {item.tensor for item in run.program.inputs}
    for key, item in sorted(seen.items()):
        if key not in known:
            code = "" if predicted is None else _extra_code(run, item)
            found.append((key, _kind(item, feeds), code))
    return tuple(
        TransferRow(
            tensor=key[0],
            source=key[1],
            target=key[2],
            kind=kind,
            predicted=key in known,
            actual=key in seen,
            code=code,
        )
        for key, kind, code in found
    )


def _kind(item: ActualTransfer, feeds: set[str]) -> str:
    if is_control(item.tensor):
        return "control"
    if item.tensor in feeds:
        return "feed"
    return "fetch" if item.fetch else "data"


def _missing_code(run: PlannedRun, kind: str, key: TransferKey) -> str:
    """The code of a predicted transfer that was not seen."""
    if kind == "fetch" and not run.session:
        return "returned"
    producer = source_of(key[0])
    readers = run.readers.get(producer, ())
    there = {name for name in readers if run.requested[name] == key[2]}
    if there and there <= run.fed:
        return "fed"
    if run.optimised:
        return "removed_by_optimiser"
    if producer in run.constants and producer in run.execution.inner_devices:
        return "replicated"
    if producer in run.pruned or (there and there <= run.pruned):
        return "inside_control_flow"
    return _off_device(run, producer)


def _extra_code(run: PlannedRun, item: ActualTransfer) -> str:
    """The code of a transfer that was seen and not predicted."""
    if item.forwarded:
        return "forwarded"
    if item.inside and item.inside != "?":
        return "inside_control_flow"
    if run.program.chosen_outputs and item.inside == "?":
        return "not_planned"
    if run.optimised:
        return "added_by_optimiser"
    if run.program.chosen_outputs and not run.session:
        return "not_planned"
    return _off_device(run, source_of(item.tensor))


def _off_device(run: PlannedRun, producer: str) -> str:
    """``off_device`` if the producer or one of its readers ran elsewhere than requested."""
    devices, requested = run.execution.devices, run.requested
    moved = any(
        devices.get(name, requested.get(name)) != requested.get(name)
        for name in (producer, *run.readers.get(producer, ()))
    )
    return "off_device" if moved else UNEXPLAINED


def compare_outputs(
    placed: Mapping[str, Array], unplaced: Mapping[str, Array], tolerance: float = 0.0
) -> tuple[OutputRow, ...]:
    """A row for every output: how far apart the values are.

    On CPUs they are equal if they are so bit by bit (NaN equals NaN).  Kernels of other devices,
    fused ones, and those of a part of the batch round otherwise: a difference of ``tolerance``
    times the largest value is equal.
    """
    return tuple(
        _output_row(key, placed[key], unplaced[key], tolerance) for key in sorted(unplaced)
    )


def _output_row(key: str, placed: Any, unplaced: Any, tolerance: float) -> OutputRow:
    import numpy

    left, right = numpy.asarray(placed), numpy.asarray(unplaced)
    if left.shape != right.shape or left.dtype.kind in "OSU":
        equal = left.shape == right.shape and bool((left == right).all())
        return OutputRow(
            output=key, equal=equal, max_absolute_difference=None, max_relative_difference=None
        )
    if left.dtype.kind == "V":  # bfloat16 and smaller floats
        left, right = left.astype(numpy.float32), right.astype(numpy.float32)
    kind = numpy.complex128 if left.dtype.kind == "c" else numpy.float64
    wide_left, wide_right = left.astype(kind), right.astype(kind)
    same = (wide_left == wide_right) | (numpy.isnan(wide_left) & numpy.isnan(wide_right))
    with numpy.errstate(invalid="ignore"):
        absolute = numpy.where(same, 0.0, numpy.abs(wide_left - wide_right))
    scale = numpy.maximum(numpy.abs(wide_right), numpy.finfo(numpy.float32).tiny)
    return OutputRow(
        output=key,
        equal=bool((same | (absolute <= tolerance * numpy.abs(wide_right).max(initial=0))).all()),
        max_absolute_difference=_largest(absolute),
        max_relative_difference=_largest(numpy.where(same, 0.0, absolute / scale)),
        all_finite=bool(numpy.isfinite(wide_right).all()),
    )


def _largest(distances: Any) -> float | None:
    """The largest of the distances; ``None`` where one of them is from a number to none."""
    largest = float(distances.max(initial=0.0))
    return largest if math.isfinite(largest) else None
