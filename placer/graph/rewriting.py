"""Rewritings of a training step that lower its memory, kept as a record.

A forward tensor that waits for the backward pass has a *late value*, which some ops of the backward
pass read instead: it is computed a second time by a clone (rematerialisation), or comes back from
the host (a swap).

    x ── conv ── relu ─────────── ... loss        x ── conv ── relu ── ... loss
                  │                                │                      │
                  └── relu's gradient              └ ─ relu/recomputed ┄┄ ┤ waits (``after``)
                                                         └── relu's gradient

What is cloned waits for its trigger, an op of the backward pass: without it the clone is ready at
once and runs in the forward pass.  The copies out and back of a swap are the sends of TensorFlow
itself, which wait for nothing, between two ``Identity`` ops on the host: one has the tensor as soon
as it has arrived, so that who waits for that op knows the copy out to be done; the other one waits
for its trigger and is sent back.

    accelerator   relu ──┬─ ... later ─┄─ trigger ┄ relu's gradient
                         │     ┆             ┆      │
    host            relu/arrived ───────── relu/swapped

Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placer.graph.control_edges import joinable_ops
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import HANDLES, REF_VARIABLES
from placer.graph.tensor_names import op_of, split_tensor

RECOMPUTED = "recomputed"
SWAPPED = "swapped"
ARRIVED = "arrived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """``op`` is computed a second time, by the op ``name``.

    Of the ops in ``reads`` it reads the late values, of its other producers the first ones.  It
    waits for the ops ``after``, by their names in the rewritten graph.
    """

    op: str
    reads: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The op that computes it again."""
        return f"{self.op}/{RECOMPUTED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """``tensor`` (``"relu:0"``) is sent to the host, where the ``Identity`` called ``arrival``
    has it at once; the one called ``name`` holds it until the ops ``after`` have run, then it is
    sent back to who reads it late."""

    tensor: str
    after: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        """The op that computes the tensor."""
        return op_of(self.tensor)

    @property
    def name(self) -> str:
        """The op on the host that is sent back."""
        return self._on_host(SWAPPED)

    @property
    def arrival(self) -> str:
        """The op on the host that is done when the copy out is."""
        return self._on_host(ARRIVED)

    def _on_host(self, leaf: str) -> str:
        op, index = split_tensor(self.tensor)
        return f"{op}/{leaf}" + (f"_{index}" if index else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """The ops that are cloned and swapped, each once, in the order in which they run.

    ``late_readers`` maps ops of the graph to the ops of which they read the late values.
    ``released`` are joins of gradients (``IdentityN``) whose readers read its inputs instead, so
    that a gradient is free after its own update.
    """

    clones: tuple[Clone, ...] = ()
    swaps: tuple[Swap, ...] = ()
    late_readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    released: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.clones or self.swaps or self.released)

    @property
    def late_values(self) -> tuple[Clone | Swap, ...]:
        """The clones, then the swaps."""
        return (*self.clones, *self.swaps)

    @property
    def sources(self) -> dict[str, str]:
        """The ops that are added, each with the op whose value it has."""
        found = {late.name: late.op for late in self.late_values}
        return found | {swap.arrival: swap.op for swap in self.swaps}

    @property
    def on_host(self) -> tuple[str, ...]:
        """The ops that hold on the host what is swapped."""
        return tuple(name for swap in self.swaps for name in (swap.arrival, swap.name))

    @property
    def changed(self) -> frozenset[str]:
        """The ops that are added, and those whose values they have."""
        return frozenset((*self.sources, *self.sources.values()))

    def extend_placement(self, placement: Mapping[str, str], host: str) -> dict[str, str]:
        """``placement`` with the ops that are added: clones where their originals are, what is
        swapped on the ``host``; where it has a device for one already, that stays."""
        added = {clone.name: placement[clone.op] for clone in self.clones}
        return {**added, **dict.fromkeys(self.on_host, host), **placement}

    def changes_of(self, op: str) -> tuple[str, ...]:
        """Returns what becomes of the outputs of ``op``, or what an op that is added is for."""
        found = [f"it is computed twice, again by {c.name}" for c in self.clones if c.op == op]
        found += [f"it computes {c.op} again" for c in self.clones if c.name == op]
        for swap in self.swaps:
            if swap.op == op:
                found.append(f"{swap.tensor} is swapped to the host and back, by {swap.name}")
            elif op in (swap.name, swap.arrival):
                found.append(f"it is where {swap.tensor} is swapped to, until it is sent back")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and mappings, for JSON; what is empty is left out."""
        clones = [
            {"op": clone.op, "reads": clone.reads, "after": clone.after} for clone in self.clones
        ]
        found = {
            "clones": clones,
            "swaps": [{"tensor": swap.tensor, "after": swap.after} for swap in self.swaps],
            "late_readers": dict(self.late_readers),
            "released": self.released,
        }
        return {key: value for key, value in found.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rewriting:
        """Reads back the JSON of :meth:`to_json`."""
        return cls(
            clones=tuple(
                Clone(
                    op=row["op"],
                    reads=tuple(row.get("reads", ())),
                    after=tuple(row.get("after", ())),
                )
                for row in data.get("clones", ())
            ),
            swaps=tuple(
                Swap(tensor=row["tensor"], after=tuple(row.get("after", ())))
                for row in data.get("swaps", ())
            ),
            late_readers={
                reader: tuple(ops) for reader, ops in data.get("late_readers", {}).items()
            },
            released=tuple(data.get("released", ())),
        )


NO_REWRITING = Rewriting()


def kind_of_added(name: str) -> str:
    """Returns the kind of an op that a rewriting added.

    >>> kind_of_added("relu/recomputed"), kind_of_added("relu/swapped_1")
    ('recomputed', 'swapped')
    """
    return name.rpartition("/")[2].partition("_")[0]


def find_arrivals(graph: OpGraph) -> frozenset[str]:
    """The ops that are done when the copy out of a swap is."""
    named_so = [op for name, op in graph.ops.items() if f"/{ARRIVED}" in name]
    return frozenset(
        op.name
        for op in named_so
        if op.op_type == "Identity" and Swap(tensor=op.inputs[0]).arrival == op.name
    )


def recomputable_ops(graph: OpGraph) -> frozenset[str]:
    """The ops that may be computed twice: run once in every step, without state, of plain tensors.

    A variable must be read once: a second ``ReadVariableOp`` or ``ResourceGather`` could come after
    the update.  Random ops with state draw other numbers the second time; those of Keras
    (``StatelessRandomUniformV2``) draw the same.  What a loop or branch is made of stays.
    """
    references = {op.name for op in graph.ops.values() if _gives_reference(op)}
    return frozenset(
        name
        for name in joinable_ops(graph)
        if (op := graph.ops[name]).op_type not in graph.stateful_types
        and references.isdisjoint(op.producers)
        and HANDLES.isdisjoint(t.dtype for t in (*op.info.inputs, *op.info.outputs))
    )


def _gives_reference(op: Op) -> bool:
    """Whether who reads ``op`` reads a variable of TensorFlow 1 itself, when it runs."""
    return op.op_type in REF_VARIABLES or op.op_type.startswith(("Assign", "Ref"))
