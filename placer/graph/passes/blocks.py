"""Scopes that repeat with a number: ``encoder/layer_7/dense/MatMul`` is of block ``layer_7``."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from placer.graph.passes.differentiation import differentiated

_NUMBER = re.compile(r"\d+")


@lru_cache(1 << 17)  # a search divides a model into blocks again and again
def numbered_scopes(name: str) -> tuple[str, ...]:
    """The beginnings of the scope of an op that end in a number, the outermost first.

    >>> numbered_scopes("resnet/conv4_block12_1_conv/Conv2D")
    ('resnet/conv4', 'resnet/conv4_block12', 'resnet/conv4_block12_1')
    """
    scope = differentiated(name)[1].rpartition("/")[0]
    ends = [found.end() for found in _NUMBER.finditer(scope)]
    return tuple([scope[:end] for end in ends])


def find_blocks(
    names: Sequence[str],
    sizes: Mapping[int, float],
    depth: Sequence[float],
    most_size: float = math.inf,
    widest: float = math.inf,
) -> list[str]:
    """The block of every op: its outermost repeated scope, ``""`` if it has none.

    ``sizes`` are what the ops to go by weigh, by op number; ``depth`` is where an op stands, from 0
    to 1.  A scope whose ops are spread over the depth (``tower_1``, ``head_3``) by more than
    ``widest``, as a standard deviation, is no block, and one of more than ``most_size`` is divided
    into those within it, if there are any.
    """
    scopes = [numbered_scopes(name) for name in names]
    spans = _spans(scopes, sizes, depth)
    kinds: dict[str, int] = {}
    for scope in spans:
        kind = _NUMBER.sub("#", scope)
        kinds[kind] = kinds.get(kind, 0) + 1
    blocks = []
    for inner in scopes:
        block = ""
        for scope in inner:
            # repeated are three and more
            if scope not in spans or kinds[_NUMBER.sub("#", scope)] < 3:
                continue
            size, spread = spans[scope]
            if spread <= widest:
                block = scope
                if size <= most_size:
                    break
        blocks.append(block)
    return blocks


def _spans(
    scopes: Sequence[Sequence[str]], sizes: Mapping[int, float], depth: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """The size of every scope, and the standard deviation of the depth of its ops."""
    sums: dict[str, list[float]] = {}
    for op, size in sizes.items():
        for scope in scopes[op]:
            found = sums.setdefault(scope, [0.0] * 4)
            for index, value in enumerate((size, 1.0, depth[op], depth[op] ** 2)):
                found[index] += value
    return {
        scope: (size, max(0.0, square / count - (total / count) ** 2) ** 0.5)
        for scope, (size, count, total, square) in sums.items()
    }
