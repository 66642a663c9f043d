"""Name scopes: ``encoder/layer_0/dense/MatMul`` lies in ``encoder/layer_0/dense``."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass


def free_name(name: str, taken: Container[str], mark: str = "_") -> str:
    """``name``, with a number behind ``mark`` if it is taken.

    >>> free_name("dense", {"dense", "dense_1"})
    'dense_2'
    """
    free, number = name, 0
    while free in taken:
        number += 1
        free = f"{name}{mark}{number}"
    return free


PIECE = "piece"
"""Piece 3 of a batch that is run in pieces is everything in a scope ``piece_3``."""

_OF_PIECE = re.compile(rf"(?:(?<=/)|^){PIECE}_(\d+)(?=/)")


def piece_of(name: str) -> int | None:
    """The number of the piece of a batch that the op ``name`` works on.

    >>> piece_of("encoder/piece_3/dense/MatMul"), piece_of("masterpiece_3/MatMul")
    (3, None)
    """
    found = _OF_PIECE.search(name) if PIECE in name else None
    return int(found[1]) if found else None


def name_in_pieces(name: str) -> str:
    """Returns one name for the op ``name`` of a piece and its twins in the others.

    >>> name_in_pieces("encoder/piece_3/dense/MatMul")
    'encoder/piece/dense/MatMul'
    """
    return _OF_PIECE.sub(PIECE, name, count=1)


def scope_of(name: str, depth: int | None = None) -> str:
    """The scope that the op ``name`` lies in, cut to its outermost ``depth`` parts.

    ``""`` is the root.  ``depth=None`` keeps all parts.

    >>> scope_of("encoder/layer_0/dense/MatMul"), scope_of("encoder/layer_0/dense/MatMul", 1)
    ('encoder/layer_0/dense', 'encoder')
    """
    return "/".join(name.split("/", -1 if depth is None else depth)[:-1])


def sum_by_scope(amounts: Mapping[str, int], depth: int = 1) -> dict[str, int]:
    """The sum of ``amounts`` (op name to bytes, flops, ...) per scope of ``depth`` parts.

    Largest first, ties by name.  The sums add up to the sum of ``amounts``.

    >>> sum_by_scope({"a/x": 1, "b/y": 2, "b/z": 3})
    {'b': 5, 'a': 1}
    """
    sums: dict[str, int] = {}
    for name, amount in amounts.items():
        scope = scope_of(name, depth)
        sums[scope] = sums.get(scope, 0) + amount
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeTree:
    """All scopes by number, outer ones first; number 0 is the root, its name and parent ``""``, -1.

    ``names`` are the last parts, ``parents`` numbers; ``scope_of`` and ``leaves`` are by op: the
    scope it lies in, and the last part of its name.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    scope_of: tuple[int, ...]
    leaves: tuple[str, ...]

    def path(self, scope: int) -> str:
        """The full name of a scope, ``""`` for the root."""
        parts = []
        while scope > 0:
            parts.append(self.names[scope])
            scope = self.parents[scope]
        return "/".join(reversed(parts))

    def sums(self, amounts: Sequence[int]) -> list[int]:
        """Sums a per-op amount over every name scope, nested scopes included."""
        found = [0] * len(self.names)
        for scope, amount in zip(self.scope_of, amounts, strict=True):
            found[scope] += amount
        for scope in range(len(self.names) - 1, 0, -1):
            found[self.parents[scope]] += found[scope]
        return found


def build_scope_tree(op_names: Iterable[str]) -> ScopeTree:
    """The tree of ``op_names``: ``a/b/c`` lies in scope ``b`` of scope ``a``.

    >>> tree = build_scope_tree(["a/b/x", "a/y"])
    >>> [tree.path(scope) for scope in tree.scope_of], tree.sums([1, 2])
    (['a/b', 'a'], [3, 3, 1])
    """
    numbers: dict[tuple[int, str], int] = {}
    names, parents = [""], [-1]
    scope_of, leaves = [], []
    for op_name in op_names:
        *parts, leaf = op_name.split("/")
        scope = 0
        for part in parts:
            key = (scope, part)
            if key not in numbers:
                numbers[key] = len(names)
                names.append(part)
                parents.append(scope)
            scope = numbers[key]
        scope_of.append(scope)
        leaves.append(leaf)
    return ScopeTree(
        names=tuple(names), parents=tuple(parents), scope_of=tuple(scope_of), leaves=tuple(leaves)
    )
