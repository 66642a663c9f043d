"""Seeds for random ops, so that two runs of a program can be compared.

A random op with ``seed`` and ``seed2`` of 0 starts from the clock
(``core/util/guarded_philox_random.cc``).  In the copies that a verification runs, each gets a seed
that follows from its name in the function it is written in, the same placed and unplaced.
"""

from __future__ import annotations

import zlib
from typing import Any

from placer.extraction.graph_defs.messages import all_nodes
from placer.extraction.graph_defs.op_definitions import OpDefinitions

SEEDS = ("seed", "seed2")


def seed_random_ops(graph_def: Any) -> int:
    """Gives every random op of a GraphDef and its library that has no seed one, in place.

    Returns how many there were.
    """
    definitions, count = OpDefinitions(), 0
    for node in all_nodes(graph_def):
        if _is_unseeded(node, definitions):
            node.attr["seed"].i, node.attr["seed2"].i = 1, 1 + zlib.crc32(node.name.encode())
            count += 1
    return count


def _is_unseeded(node: Any, definitions: OpDefinitions) -> bool:
    definition = definitions.find(node.op)
    if definition is None or not definition.is_stateful:
        return False
    known = {attribute.name for attribute in definition.attr}
    return known.issuperset(SEEDS) and not any(
        node.attr[name].i for name in SEEDS if name in node.attr
    )
