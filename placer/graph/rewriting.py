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

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cost_models.op_info import OpInfo
from placer.errors import ModelError, UsageError
from placer.graph.control_edges import joinable_ops
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import HANDLES, REF_VARIABLES
from placer.graph.order import order_by_sources
from placer.graph.tensor_names import op_of, split_tensor

RECOMPUTED = "recomputed"
SWAPPED = "swapped"
ARRIVED = "arrived"
_ARRIVAL = f"/{ARRIVED}"
_JOIN = "IdentityN"


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
    def changed(self) -> frozenset[str]:
        """The ops that are added, and those whose values they have."""
        return frozenset((*self.sources, *self.sources.values()))

    def extend_placement(self, placement: Mapping[str, str], host: str) -> dict[str, str]:
        """``placement`` with the ops that are added: clones where their originals are, what is
        swapped on the ``host``; where it has a device for one already, that stays."""
        added = {clone.name: placement[clone.op] for clone in self.clones}
        swaps = [name for swap in self.swaps for name in (swap.arrival, swap.name)]
        return {**added, **dict.fromkeys(swaps, host), **placement}

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
    named_so = [op for name, op in graph.ops.items() if _ARRIVAL in name]
    return frozenset(
        op.name
        for op in named_so
        if op.op_type == "Identity" and Swap(tensor=op.inputs[0]).arrival == op.name
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The tensors that an op of the type ``op_type`` reads (tensors with the number of the output)
    and waits for; an op that a rewriting adds has the name of its ``source``, one on the host that
    of the ``tensor``."""

    op_type: str
    inputs: tuple[str, ...]
    control_inputs: tuple[str, ...] = ()
    source: str = ""
    tensor: str = ""


def rewrite_graph(graph: OpGraph, rewriting: Rewriting) -> OpGraph:
    """``graph`` rewritten, in a topological order again; a join that is released stays where it is
    fetched or waited for.

    Raises :class:`UsageError` for what the graph lacks, for a clone of an op that must not run
    twice (:func:`recomputable_ops`), for one that nobody reads, and for a cycle.
    """
    if not rewriting:
        return graph
    allowed = recomputable_ops(graph)
    for clone in rewriting.clones:
        if clone.op in graph.ops and clone.op not in allowed:
            raise UsageError(
                f"the plan computes {clone.op} ({graph.ops[clone.op].op_type}) twice, which would "
                "change the step: it has state, reads some, or does not run once in every step"
            )
    wirings = {
        op.name: Wiring(op_type=op.op_type, inputs=op.inputs, control_inputs=op.control_inputs)
        for op in graph.ops.values()
    }
    rewired = rewire(wirings, rewriting, {*map(op_of, graph.fetches), *graph.targets})
    ops = {name: _rewritten_op(graph, name, found) for name, found in rewired.items()}
    return replace(graph, ops=ops)


def _rewritten_op(graph: OpGraph, name: str, found: Wiring) -> Op:
    op = graph.ops[found.source or name]
    if not found.source and (found.inputs, found.control_inputs) == (op.inputs, op.control_inputs):
        return op
    info = op.info
    if found.tensor:  # swapped
        value = op.info.outputs[split_tensor(found.tensor)[1]]
        info = OpInfo(
            op=found.op_type, inputs=(value,), outputs=(value,), attributes={"T": value.dtype}
        )
    return replace(
        op, name=name, info=info, inputs=found.inputs, control_inputs=found.control_inputs
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


def rewire(
    wirings: Mapping[str, Wiring], rewriting: Rewriting, kept: Collection[str] = ()
) -> dict[str, Wiring]:
    """The rewritten ops of a graph by name, in a topological order: those added come right before
    who reads them first.  A released join that nothing reads any more goes, unless it is ``kept``.

    Raises :class:`UsageError` as :func:`rewrite_graph` does, but for what must not run twice.
    """
    _check(wirings, rewriting)
    late = _LateValues(rewriting)
    waited_for = {name for late in rewriting.late_values for name in late.after}
    first = _release(wirings, rewriting.released, waited_for.union(kept))
    found = dict(first)
    for reader, ops in rewriting.late_readers.items():
        found[reader] = replace(first[reader], inputs=late.read(reader, first[reader].inputs, ops))
    for clone in rewriting.clones:
        inputs = late.read(clone.name, first[clone.op].inputs, clone.reads)
        found[clone.name] = Wiring(
            op_type=first[clone.op].op_type,
            inputs=inputs,
            control_inputs=clone.after,
            source=clone.op,
        )
    for swap in rewriting.swaps:
        on_host = Wiring(
            op_type="Identity", inputs=(swap.tensor,), source=swap.op, tensor=swap.tensor
        )
        found[swap.arrival] = on_host
        found[swap.name] = replace(
            on_host, inputs=(f"{swap.arrival}:0",), control_inputs=swap.after
        )
    late.check_all_read()
    return _sorted(found, wirings, rewriting)


class _LateValues:
    """The late values by tensor, and which of them nobody has read yet."""

    def __init__(self, rewriting: Rewriting) -> None:
        self.clones = {clone.op: clone.name for clone in rewriting.clones}
        self.swaps = {swap.tensor: swap.name for swap in rewriting.swaps}
        self.ops = {*self.clones, *(swap.op for swap in rewriting.swaps)}
        self.unread = {*self.clones.values(), *self.swaps.values()}

    def read(self, reader: str, inputs: Sequence[str], ops: Collection[str]) -> tuple[str, ...]:
        """``inputs`` of ``reader`` with the late values of ``ops``.

        Raises :class:`UsageError` if it reads nothing of one of them, or that has none.
        """
        if wrong := sorted({*ops} - self.ops) or sorted({*ops} - {*map(op_of, inputs)}):
            raise UsageError(
                f"the plan lets {reader} read {wrong[0]} late, which "
                + ("it does not read" if wrong[0] in self.ops else "has no late value")
            )
        return tuple([self._late(tensor) if op_of(tensor) in ops else tensor for tensor in inputs])

    def _late(self, tensor: str) -> str:
        op, index = split_tensor(tensor)
        name = self.clones.get(op) or self.swaps.get(tensor)
        if name is None:
            return tensor
        self.unread.discard(name)
        return f"{name}:{index if op in self.clones else 0}"

    def check_all_read(self) -> None:
        """Raises :class:`UsageError` if a late value is computed for nobody."""
        if self.unread:
            raise UsageError(f"the plan adds {min(self.unread)}, which nothing would read")


def _check(wirings: Mapping[str, Wiring], rewriting: Rewriting) -> None:
    """Raises :class:`UsageError` for names that the graph lacks or that are taken."""
    sources = rewriting.sources
    waits = [name for late in rewriting.late_values for name in late.after]
    for name in (*sources.values(), *rewriting.late_readers, *rewriting.released):
        if name not in wirings:
            raise UsageError(f"the plan rewrites {name}, which the model lacks")
    for name in waits:
        if name not in wirings and name not in sources:
            raise UsageError(f"the plan lets an op wait for {name}, which the model lacks")
    for name in sources:
        if name in wirings:
            raise UsageError(f"the plan adds {name}, and the model has an op of that name already")
    cloned = [clone.op for clone in rewriting.clones]
    tensors = [swap.tensor for swap in rewriting.swaps]
    twice = Counter([*cloned, *tensors, *{swap.op for swap in rewriting.swaps}])
    if twice and (most := twice.most_common(1)[0])[1] > 1:
        raise UsageError(f"the plan gives {most[0]} two late values: one clone or swap is enough")
    _check_released(wirings, rewriting)


def _check_released(wirings: Mapping[str, Wiring], rewriting: Rewriting) -> None:
    for name in rewriting.released:
        if wirings[name].op_type != _JOIN:
            raise UsageError(f"the plan releases {name}, a {wirings[name].op_type} and no {_JOIN}")
    both = {*rewriting.released} & {*rewriting.late_readers, *rewriting.sources.values()}
    if both:
        raise UsageError(f"the plan releases {min(both)}, and lets it be read or read others late")


def _release(
    wirings: Mapping[str, Wiring], joins: Collection[str], kept: Collection[str]
) -> dict[str, Wiring]:
    """The ops as they are when all read what the ``joins`` read."""
    direct = {f"{join}:{n}": t for join in joins for n, t in enumerate(wirings[join].inputs)}
    if not direct:
        return dict(wirings)
    found = dict(wirings)
    waited_for = {name for op in wirings.values() for name in op.control_inputs}
    for name, op in wirings.items():
        if name in joins and name not in kept and name not in waited_for:
            del found[name]
        elif not direct.keys().isdisjoint(op.inputs):
            inputs = list(op.inputs)
            for slot, tensor in enumerate(inputs):
                while tensor in direct:  # a join of a join
                    tensor = direct[tensor]
                inputs[slot] = tensor
            found[name] = replace(op, inputs=tuple(inputs))
    return found


def _sorted(
    found: Mapping[str, Wiring], wirings: Mapping[str, Wiring], rewriting: Rewriting
) -> dict[str, Wiring]:
    """``found`` in a topological order in which little moves.  Raises :class:`UsageError` for a
    cycle."""
    place = {name: (number, 1, 0) for number, name in enumerate(wirings)}
    first: dict[str, int] = {}
    for reader, ops in rewriting.late_readers.items():
        for op in ops:
            first[op] = min(first.get(op, len(wirings)), place[reader][0])
    # from the last clone to the first: a clone runs before those that read it
    for clone in sorted(rewriting.clones, key=lambda clone: -place[clone.op][0]):
        for op in clone.reads:
            first[op] = min(first.get(op, len(wirings)), first[clone.op])
    for late in rewriting.late_values:
        place[late.name] = first[late.op], 0, place[late.op][0]
    for swap in rewriting.swaps:
        place[swap.arrival] = place[swap.op][0], 2, 0
    names = sorted(found, key=place.__getitem__)
    sources = {name: (*map(op_of, op.inputs), *op.control_inputs) for name, op in found.items()}
    try:
        order = order_by_sources({name: found[name].op_type for name in names}, sources)
    except ModelError as error:
        raise UsageError(f"what the plan rewrites cannot run: {error}") from error
    return {name: found[name] for name in order}
