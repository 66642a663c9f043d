"""Which ops share a device: colocation of the graph, what the user asks for, and our own rules."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from cost_models.byte_sizes import format_count
from cost_models.tensor_size import tensor_bytes
from placer.errors import UsageError
from placer.graph.op_graph import ColocationGroup, OpGraph
from placer.graph.passes.differentiation import TAPE_GRADIENT, V1_GRADIENT, is_gradient_name
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import op_of
from placer.graph.union_find import UnionFind
from placer.problem.pins import hint_of

SMALL_CONSTANT_BYTES = 1024
"""A constant up to this size stays with its only reader."""


CPU_CODES = ("fed", "host_only_kernel")
"""Codes of restrictions to CPUs that no request can lift."""

OWN_REASONS = frozenset({"small_constant", "returned"})
"""Reasons of groups that nothing asks for: apart, their ops would only send more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """The devices an op may use, and why no others: ``code`` is one of ``fed``, ``pinned``,
    ``host_only_kernel``, ``device_string``, or ``""`` when only the op's kind decides.

    Of ``pinned`` and ``device_string``, ``request`` is how that was asked for, and ``unasked`` the
    devices if nobody had asked."""

    devices: tuple[str, ...]
    code: str = ""
    reason: str = ""
    request: str = field(default="", compare=False)
    unasked: tuple[str, ...] = field(default=(), compare=False)


def merged_groups(
    graph: OpGraph,
    restrictions: Mapping[str, Restriction],
    asked: Iterable[ColocationGroup] = (),
) -> tuple[ColocationGroup, ...]:
    """Every op in exactly one group, in graph order of the first members."""
    union = UnionFind[str]()
    reasons: dict[str, tuple[str, ...]] = {}
    own = (*_small_constants(graph, restrictions), *_returned(graph, restrictions))
    for group in (*graph.colocation_groups, *own, *asked):
        union.union(*group.ops)
        reasons[group.ops[0]] = (*reasons.get(group.ops[0], ()), *group.reasons)
    members: dict[str, list[str]] = {}
    for name in graph.ops:
        root = union.root(name) if name in union.parent else name
        members.setdefault(root, []).append(name)
    merged_reasons: dict[str, dict[str, None]] = {}
    for first, why in reasons.items():
        merged_reasons.setdefault(union.root(first), {}).update(dict.fromkeys(why))
    return tuple(
        ColocationGroup(ops=tuple(ops), reasons=tuple(merged_reasons.get(root, ())))
        for root, ops in members.items()
    )


def asked_groups(
    graph: OpGraph,
    keep_together: Sequence[str],
    colocate_gradients: bool,
    keep_colocation: bool,
) -> dict[str, tuple[ColocationGroup, ...]]:
    """The groups that the user asks for, by how they are asked for.

    Raises :class:`UsageError` for a glob that matches no op.
    """
    asked: dict[str, tuple[ColocationGroup, ...]] = {
        together_request(glob): (_kept_together(graph, glob),)
        for glob in dict.fromkeys(keep_together)
    }
    if colocate_gradients:
        asked[GRADIENTS] = gradient_groups(graph)
    if keep_colocation and graph.colocation_hints:
        asked[HINTS] = graph.colocation_hints
    return asked


GRADIENTS = "--colocate-gradients"
HINTS = "--keep-colocation"


def together_request(glob: str) -> str:
    """How a group was asked for, as one would type it."""
    return f"--keep-together {shlex.quote(glob)}"


def _kept_together(graph: OpGraph, glob: str) -> ColocationGroup:
    ops = tuple(name for name in graph.ops if fnmatchcase(name, glob))
    if not ops:
        raise UsageError(
            f"--keep-together {glob}: no op of the {len(graph.ops):,} in the graph matches"
            f"{hint_of(glob, graph.ops)}"
        )
    return ColocationGroup(ops=ops, reasons=("keep_together",))


def kept_on_host(
    asked: Mapping[str, Sequence[ColocationGroup]], restrictions: Mapping[str, Restriction]
) -> Iterator[Warning_]:
    """Warns of groups to keep together that one fed op, or one without a kernel, holds on CPUs."""
    for request, groups in asked.items():
        for group in groups if request not in (GRADIENTS, HINTS) else ():
            bound = [op for op in group.ops if restrictions[op].code in CPU_CODES]
            if 0 < len(bound) < len(group.ops):
                reason = restrictions[bound[0]].reason
                yield (
                    "together_on_host",
                    f"{request} keeps {format_count(len(group.ops), 'op')} off the accelerators, "
                    f"since {bound[0]} is one of them ({reason}): leave such ops out of the glob",
                    tuple(bound),
                )


def _small_constants(
    graph: OpGraph, restrictions: Mapping[str, Restriction]
) -> list[ColocationGroup]:
    """Small constants, each with the only op that reads it.

    Axes and shapes are a few bytes each: a solver that counts bytes alone parks hundreds of them
    where memory is left, and every step pays a message for each.
    """
    found = []
    for op in [op for op in graph.ops.values() if op.op_type == "Const"]:
        readers = graph.consumers.get(op.output_name(0), ())
        if len(readers) != 1:
            continue
        size = tensor_bytes(op.info.outputs[0]) or SMALL_CONSTANT_BYTES + 1
        if size <= SMALL_CONSTANT_BYTES:
            own, others = restrictions[op.name], restrictions[readers[0]]
            if own is others or own == others:
                found.append(
                    ColocationGroup(ops=(op.name, readers[0]), reasons=("small_constant",))
                )
    return found


def _returned(graph: OpGraph, restrictions: Mapping[str, Restriction]) -> Iterator[ColocationGroup]:
    """Yields ops that only hand a fetched tensor on, as every function does with its results, each
    with the op that gives it: apart from that, it could only send a tensor away that comes back."""
    for name in graph.fetches:
        op = graph.ops[op_of(name)]
        if op.op_type == "Identity" and op.inputs and not restrictions[op.name].code:
            producer = op_of(op.inputs[0])
            if producer in graph.ops and name not in graph.consumers:
                yield ColocationGroup(ops=(producer, op.name), reasons=("returned",))


def gradient_groups(graph: OpGraph) -> tuple[ColocationGroup, ...]:
    """Every gradient op together with its forward op, read from the names that TensorFlow gives;
    those without one are left out.

    A tape writes ``gradient_tape/SCOPE/...`` for the gradients of the ops in ``SCOPE``
    (``tensorflow/python/eager/backprop.py``), TensorFlow 1 ``gradients/OP_grad/...``
    (``tensorflow/python/ops/gradients_util.py``).
    """
    first_in_scope: dict[str, str] = {}
    for name in graph.ops:
        if not is_gradient_name(name):
            first_in_scope.setdefault(name.rpartition("/")[0], name)
    found = ((name, _forward_op(name, graph, first_in_scope)) for name in graph.ops)
    return tuple(
        ColocationGroup(ops=(forward, name), reasons=("gradient",))
        for name, forward in found
        if forward
    )


def _forward_op(name: str, graph: OpGraph, first_in_scope: dict[str, str]) -> str:
    """The op whose gradient ``name`` computes, ``""`` if it is no gradient op or none is found.

    A tape's scope may be that of several forward ops, and then the first of them stands for all.
    """
    v1 = V1_GRADIENT.fullmatch(name)
    if v1 is not None:
        return v1[1] if v1[1] in graph.ops else ""
    tape = TAPE_GRADIENT.fullmatch(name)
    scope = tape[1] if tape else ""
    while "/" in scope:
        scope = scope.rpartition("/")[0]
        if scope in graph.ops:
            return scope
        if scope in first_in_scope:
            return first_in_scope[scope]
    return ""
