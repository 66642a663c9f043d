"""The layout of a step as arrays, for the compiled simulation of its buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from placer.prediction.step.routes import is_cpu

if TYPE_CHECKING:
    from placer.prediction.step.step_layout import StepLayout

Ints = npt.NDArray[np.int64]

MOST_BYTES = 1 << 50
"""More than any device has: sums of what is larger may be no 64-bit numbers."""


(
    OP_DEVICE,
    OP_EFFECT,
    OP_IDLE,
    OP_DEAD,
    OP_TEMPORARY,
    OP_INPUTS,
    OP_INPUTS_END,
    OP_OUTPUTS,
    OP_OUTPUTS_END,
    OP_EARLY,
    OP_EARLY_END,
    OP_LATE,
    OP_LATE_END,
    OP_VARIABLES,
    OP_VARIABLES_END,
    OP_TURNED,
    OP_TURNED_END,
    OP_ITEM,
    OP_ITEM_COUNT,
    OP_ELASTIC,
    OP_REPLACED,
    OP_TUNED,
    OP_TUNED_BYTES,
) = range(23)
"""The columns of ``StepArrays.ops``; of what an op has many of, the places in ``flat`` from one
column to the next."""

(
    VALUE_MEMORY,
    VALUE_BYTES,
    VALUE_PRODUCER,
    VALUE_READERS,
    VALUE_SHARED,
    VALUE_SHARED_END,
    VALUE_OVER,
    VALUE_OVER_END,
    VALUE_COPIES,
    VALUE_COPIES_END,
    VALUE_FETCHED,
) = range(11)
"""The columns of ``StepArrays.values``."""


class StepArrays(NamedTuple):
    """``ops[op, column]``, ``values[value, column]``, and ``flat``, which has what they have many
    of: values and variables, chunks in bytes, pairs of (value, copy)."""

    ops: Ints
    values: Ints
    flat: Ints


class NamedArrays(NamedTuple):
    """A :class:`~placer.prediction.step.step_layout.StepLayout` as arrays, in which devices and
    variables are numbers; ``is_cpu`` is by device, ``copied_on_read`` by variable; ``fed`` and
    ``lasting`` are values."""

    arrays: StepArrays
    device_names: tuple[str, ...]
    variable_names: tuple[str, ...]
    is_cpu: Ints
    copied_on_read: Ints
    fed: Ints
    lasting: Ints


def as_step_arrays(layout: StepLayout) -> NamedArrays:
    """The layout as arrays."""
    device_names = tuple(dict.fromkeys((*layout.devices, *layout.memory)))
    variable_names = tuple(dict.fromkeys(chain.from_iterable(layout.variables.values())))
    device = {name: number for number, name in enumerate(device_names)}
    variable = {name: number for number, name in enumerate(variable_names)}
    flat = _Flat()
    ops = np.zeros((len(layout.names), OP_TUNED_BYTES + 1), np.int64)
    ops[:, OP_DEVICE] = [device[name] for name in layout.devices]
    ops[:, OP_EFFECT] = layout.effects
    ops[:, OP_IDLE] = layout.idle or 0
    ops[[*layout.dead], OP_DEAD] = 1
    ops[:, OP_TEMPORARY] = _bytes(layout.temporary_bytes)
    ops[:, OP_OUTPUTS] = [outputs.start for outputs in layout.outputs]
    ops[:, OP_OUTPUTS_END] = [outputs.stop for outputs in layout.outputs]
    flat.add(ops, OP_INPUTS, layout.inputs)
    flat.add_some(ops, OP_EARLY, layout.temporary_chunks)
    flat.add_some(ops, OP_LATE, layout.later_chunks)
    variables = {op: [variable[v] for v in found] for op, found in layout.variables.items()}
    flat.add_some(ops, OP_VARIABLES, variables)
    turned = {op: [*chain.from_iterable(pairs)] for op, pairs in layout.transposed.items()}
    flat.add_some(ops, OP_TURNED, turned)
    _set(ops, OP_ITEM, layout.items)
    _set(ops, OP_ITEM_COUNT, layout.item_counts)
    _set(ops, OP_ELASTIC, layout.workspace_bytes)
    ops[[*layout.replaced], OP_REPLACED] = 1
    shapes = {what: n for n, what in enumerate(dict.fromkeys(w for w, _ in layout.tuned.values()))}
    ops[:, OP_TUNED] = -1
    _set(ops, OP_TUNED, {op: shapes[what] for op, (what, _) in layout.tuned.items()})
    _set(ops, OP_TUNED_BYTES, {op: size for op, (_, size) in layout.tuned.items()})

    values = np.zeros((len(layout.memory), VALUE_FETCHED + 1), np.int64)
    values[:, VALUE_MEMORY] = [device[name] for name in layout.memory]
    values[:, VALUE_BYTES] = _bytes(layout.bytes)
    values[:, VALUE_PRODUCER] = layout.producer
    values[:, VALUE_READERS] = layout.readers
    values[[*layout.fetched], VALUE_FETCHED] = 1
    flat.add_some(values, VALUE_SHARED, layout.shared)
    flat.add_some(values, VALUE_OVER, layout.overwritten)
    flat.add_some(values, VALUE_COPIES, layout.copies)
    return NamedArrays(
        arrays=StepArrays(ops, values, flat.array()),
        device_names=device_names,
        variable_names=variable_names,
        is_cpu=_ints(map(is_cpu, device_names)),
        copied_on_read=_ints(name in layout.copied_on_read for name in variable_names),
        fed=_ints(chain.from_iterable(layout.outputs[op] for op in layout.feeds)),
        lasting=_ints(layout.lasting),
    )


def with_sample(known: NamedArrays, layout: StepLayout) -> NamedArrays:
    """The arrays ``known`` of a layout of which ``layout`` is a sample."""
    ops = known.arrays.ops.copy()
    ops[:, OP_TEMPORARY] = _bytes(layout.temporary_bytes)
    ops[:, OP_DEAD] = 0
    ops[[*layout.dead], OP_DEAD] = 1
    return known._replace(arrays=known.arrays._replace(ops=ops))


def _bytes(sizes: Sequence[int]) -> list[int]:
    """The sizes, none so large that sums may be no 64-bit numbers."""
    return (
        [min(size, MOST_BYTES) for size in sizes]
        if max(sizes, default=0) > MOST_BYTES
        else [*sizes]
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _set(table: Ints, column: int, found: Mapping[int, int]) -> None:
    table[[*found], column] = [*found.values()]


class _Flat:
    """Holds what rows of tables have many of, end to end."""

    def __init__(self) -> None:
        self._parts: list[int] = []

    def add(self, table: Ints, column: int, found: Sequence[Sequence[int]]) -> None:
        """Adds what every row has; ``column`` and the next say where."""
        ends = [*accumulate(map(len, found), initial=len(self._parts))]
        table[:, column], table[:, column + 1] = ends[:-1], ends[1:]
        self._parts += chain.from_iterable(found)

    def add_some(self, table: Ints, column: int, found: Mapping[int, Sequence[int]]) -> None:
        """Adds what some rows have."""
        ends = [*accumulate(map(len, found.values()), initial=len(self._parts))]
        rows = [*found]
        table[rows, column], table[rows, column + 1] = ends[:-1], ends[1:]
        self._parts += chain.from_iterable(found.values())

    def array(self) -> Ints:
        """Returns all of it."""
        return np.array(self._parts, np.int64)
