"""Which program of a file is measured, and what its unknown dimensions are bound to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from placer.extraction.extraction import ProgramChoice
from placer.extraction.shapes.binding import resolve_shapes
from placer.graph.program_source import Access

Dims = Mapping[str, tuple[int | None, ...]]


class ProgramOptions(NamedTuple):
    """``choice`` names the program, ``access`` is what it may do; ``shapes`` and ``ragged`` bind
    inputs by name."""

    choice: ProgramChoice
    access: Access
    shapes: Dims
    ragged: Dims


def pop_program_options(options: dict[str, Any]) -> ProgramOptions:
    """Takes these out of ``options``, as keyword arguments of :func:`placer.extract`.

    Raises :class:`UsageError` for shapes that contradict themselves.
    """
    choice = ProgramChoice(
        tag_set=options.pop("tag_set", None),
        signature=options.pop("signature", None),
        outputs=options.pop("outputs", None),
    )
    access = Access(
        allow_unsafe=options.pop("allow_unsafe", False),
        follow_links=options.pop("follow_links", False),
    )
    named = (options.pop(key, None) for key in ("shapes", "dims", "ragged"))
    shapes, ragged, _ = resolve_shapes(*named)
    return ProgramOptions(choice, access, shapes, ragged)
