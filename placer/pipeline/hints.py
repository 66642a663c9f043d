"""Colocation hints that a placement does not follow.

TensorFlow 2's ``tf.gradients`` has nearly every backward op ask (``_class``) for the device of its
forward op, and every sum of gradients for that of one of them: along a residual stream, layer after
layer is asked to one device.  Nothing in the ops needs that, so a placement leaves hints out unless
they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from placer.graph.op_graph import OpGraph
from placer.graph.program_source import Warning_

HINTS_LEFT_OUT = "colocation_hints"
"""The code of the warning that a placement does not follow every hint."""


def hints_apart(graph: OpGraph, placement: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The pairs of ops that a hint ties and ``placement`` parts."""
    pairs = [(group.ops[0], group.ops[1]) for group in graph.colocation_hints]
    return tuple(pair for pair in pairs if placement[pair[0]] != placement[pair[1]])


def hint_warnings(graph: OpGraph, placement: Mapping[str, str]) -> Iterator[Warning_]:
    """A warning if ``placement`` does not follow all hints: how many there are, and what those tie
    that are left out."""
    apart = hints_apart(graph, placement)
    if not apart:
        return
    tied = dict.fromkeys(chain.from_iterable(apart))
    devices = {placement[name] for name in tied}
    count = f"{len(apart):,} of {len(graph.colocation_hints):,}"
    message = (
        f"{count} colocation hints (_class) are left out, of {len(tied):,} ops on {len(devices)} "
        "devices that nothing else ties; --keep-colocation makes hints law (not tried)"
    )
    yield HINTS_LEFT_OUT, message, tuple(tied)
