"""Named dimensions: one size for several inputs, as in ``ids:BxT`` and ``mask:BxT`` with B=8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placer.errors import UsageError

NamedShape = Sequence[int | str | None]
"""A shape whose dimensions may be names; ``None`` leaves one as it is declared."""


def resolve_shapes(
    shapes: Mapping[str, NamedShape] | None, dims: Mapping[str, int] | None
) -> tuple[dict[str, tuple[int | None, ...]], dict[str, dict[str, object]]]:
    """``shapes`` with sizes for names, and for every name its ``size`` and what it is ``of``.

    The latter are axes such as ``"ids:0"``, so that a plan says which dimensions were tied.
    Raises :class:`UsageError` for a name without a size, and for a size that no shape uses.

    >>> resolve_shapes({"ids": ["B", 128]}, {"B": 8})
    ({'ids': (8, 128)}, {'B': {'size': 8, 'of': ['ids:0']}})
    """
    sizes, axes = dict(dims or {}), dict[str, list[str]]()
    found: dict[str, tuple[int | None, ...]] = {}
    for key, shape in (shapes or {}).items():
        found[key] = tuple(_size(key, size, sizes) for size in shape)
        for axis, size in enumerate(shape):
            if isinstance(size, str):
                axes.setdefault(size, []).append(f"{key}:{axis}")
    unused = [name for name in sizes if name not in axes]
    if unused:
        raise UsageError(
            f"--dim {unused[0]}={sizes[unused[0]]} is the size of no dimension: name it in a "
            f"shape, as in --shape INPUT:{unused[0]}x128"
        )
    return found, {name: {"size": sizes[name], "of": uses} for name, uses in axes.items()}


def _size(key: str, size: int | str | None, sizes: Mapping[str, int]) -> int | None:
    if not isinstance(size, str):
        return size
    if size not in sizes:
        raise UsageError(
            f"the shape of {key!r} has a dimension {size!r} without a size: add --dim {size}=128"
        )
    return sizes[size]
