"""Name scopes: ``encoder/layer_0/dense/MatMul`` lies in ``encoder/layer_0/dense``."""

from __future__ import annotations

from collections.abc import Mapping


def scope_of(name: str, depth: int | None = None) -> str:
    """The scope that the op ``name`` lies in, cut to its outermost ``depth`` parts.

    ``""`` is the root.  ``depth=None`` keeps all parts.
    """
    parts = name.split("/")[:-1]
    return "/".join(parts if depth is None else parts[:depth])


def sum_by_scope(amounts: Mapping[str, int], depth: int = 1) -> dict[str, int]:
    """The sum of ``amounts`` (op name to bytes, flops, ...) per scope of ``depth`` parts.

    Largest first, ties by name.  The sums add up to the sum of ``amounts``.
    """
    sums: dict[str, int] = {}
    for name, amount in amounts.items():
        scope = scope_of(name, depth)
        sums[scope] = sums.get(scope, 0) + amount
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))
