"""Frames of v1 loops and branches of v1 conditionals, by op."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.op_definitions import attribute, decoded
from placer.graph.op_types import ENTERS, EXITS, MERGES, SWITCHES
from placer.graph.tensor_names import CONTROL, is_control, op_of, split_tensor

Branch = tuple[str, int]
"""The predicate of a ``Switch`` and the output that was taken."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where an op runs: the names of the frames around it, outermost first, and the branches.

    An ``Exit`` runs in the frame that it leaves, its output outside: ``frames`` is the latter.
    """

    frames: tuple[str, ...] = ()
    branches: frozenset[Branch] = frozenset()


NOWHERE = Context()


def find_contexts(nodes: Iterable[Any]) -> dict[str, Context]:
    """The context of every op, given in topological order (back edges aside).

    Raises :class:`ModelError` if an output of a ``Switch`` is read that it does not have, or if one
    has no predicate.
    """
    nodes = list(nodes)
    if not any(node.op in ENTERS or node.op in SWITCHES for node in nodes):
        return dict.fromkeys((node.name for node in nodes), NOWHERE)
    known: dict[str, Context] = {}
    types: dict[str, str] = {}
    for node in nodes:
        types[node.name] = node.op
        above = [_through(reference, known, types) for reference in node.input]
        frames = max((context.frames for context in above), key=len, default=())
        branches = _branches(node, above, known)
        if node.op in ENTERS:
            frames = (*frames, decoded(attribute(node.attr, "frame_name").s))
        elif node.op in EXITS:
            frames = frames[:-1]
            branches = frozenset(b for b in branches if types.get(b[0]) != "LoopCond")
        known[node.name] = NOWHERE
        if frames or branches or node.op in SWITCHES:
            known[node.name] = Context(frames, branches)
            if node.op in SWITCHES:
                if len(node.input) < 2:
                    raise ModelError(f"{node.name} is a {node.op} without a predicate")
                predicate = op_of(node.input[1])
                for taken in (0, 1):
                    inside = branches | {(predicate, taken)}
                    known[f"{node.name}:{taken}"] = Context(frames, inside)
    return known


def _through(reference: str, known: dict[str, Context], types: dict[str, str]) -> Context:
    name, index = split_tensor(reference.lstrip(CONTROL))
    if types.get(name) in SWITCHES and not is_control(reference):
        taken = f"{name}:{index}"
        if taken not in known:
            raise ModelError(
                f"{reference} is read, but a {types[name]} has the outputs 0 and 1 only"
            )
        return known[taken]
    return known.get(name, NOWHERE)


def _branches(node: Any, above: list[Context], known: dict[str, Context]) -> frozenset[Branch]:
    if node.op not in MERGES:
        return frozenset().union(*(context.branches for context in above))
    arriving = [
        context.branches
        for reference, context in zip(node.input, above, strict=True)
        if op_of(reference) in known  # neither a control nor a back edge
    ]
    return frozenset.intersection(*arriving) if arriving else frozenset()
