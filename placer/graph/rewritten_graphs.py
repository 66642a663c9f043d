"""The graph of a rewritten training step: clones, copies on the host, and who reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cost_models.op_info import OpInfo
from placer.errors import ModelError, UsageError
from placer.graph.op_graph import Op, OpGraph
from placer.graph.order import order_by_sources
from placer.graph.rewriting import Rewriting, recomputable_ops
from placer.graph.tensor_names import op_of, split_tensor

_JOIN = "IdentityN"


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
    if late.unread:
        raise UsageError(f"the plan adds {min(late.unread)}, which nothing would read")
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
