"""Why nothing fits, and what would, as records that plans keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from placer.problem.limits import Limited
from placer.problem.rows import Kept

OVERFULL, TOO_LARGE, CONTRADICTION, UNDIVIDABLE = (
    "overfull",
    "too_large",
    "contradiction",
    "undividable",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapInConflict(Kept):
    """The cap of a device; ``peak_bytes`` is what a placement that breaks it needs there,
    ``limit_bytes`` the limit that ``usable_bytes`` and a reserve are."""

    device: str = ""
    peak_bytes: int | None = None
    usable_bytes: int | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsInConflict(Kept):
    """The demand of a request, or of a colocation group (without ``request``), on ops: to be on one
    of ``devices``, or together.  ``ops`` are the largest few of ``op_count``; together they need
    ``bytes``, what an earlier row of the conflict asks for too not counted."""

    request: str | None = None
    devices: tuple[str, ...] | None = None
    ops: tuple[str, ...] | None = None
    op_count: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix(Kept):
    """A change of the request under which there is a placement.

    ``kind`` is ``caps``, ``devices``, ``batch``, ``pin``, ``group``, ``spill``, ``split``, ``fit``
    or ``unused``; ``change`` is what to ask for instead, as an option of the command line;
    ``note`` says how near to the least it is, or what it takes.  What the problem alone shows to
    fit names the ``requests`` to drop or the ``caps`` in bytes by device.  Advice that was not
    tried is a sentence in ``change``, without a ``kind``.
    """

    kind: str = ""
    change: str
    note: str | None = None
    requests: tuple[str, ...] | None = None
    caps: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict(Kept):
    """``caps``, ``pins`` and ``groups`` that no placement keeps together (``pins`` are all requests
    about devices); with ``is_smallest`` it is proven that each of them is needed for that.

    ``reason`` is ``overfull`` (what is confined to ``devices`` needs ``needed_bytes`` there, of
    which ``other_bytes`` are of ops that may go nowhere else anyway, and they can hold
    ``usable_bytes``), ``too_large`` (``ops`` must share a device, and need ``needed_bytes`` where
    the largest of ``devices`` holds ``usable_bytes``: if 0, ``other_bytes`` of what no op
    uses fill it), ``contradiction`` (``ops`` may run nowhere)
    or ``undividable`` (in sum ``needed_bytes`` would fit, but in no division).  Without a
    ``reason`` a placement is known, which breaks the caps.
    """

    caps: tuple[CapInConflict, ...] = ()
    pins: tuple[OpsInConflict, ...] = ()
    groups: tuple[OpsInConflict, ...] = ()
    is_smallest: bool | None = None
    reason: str | None = None
    devices: tuple[str, ...] | None = None
    needed_bytes: int | None = None
    usable_bytes: int | None = None
    other_bytes: int | None = None
    ops: tuple[str, ...] | None = None
    op_count: int | None = None
    fixes: tuple[Fix, ...] = ()

    def with_limits(self, devices: Iterable[Limited]) -> Conflict:
        """The conflict with the limits of the devices beside what is usable of them."""
        limits = {device.name: device.memory_limit_bytes for device in devices}
        caps = (replace(row, limit_bytes=limits.get(row.device)) for row in self.caps)
        return replace(self, caps=tuple(caps))

    def to_json(self) -> dict[str, Any]:
        """The conflict as ``plan.json`` holds it: what is not known is left out."""
        rows = [fix_to_json(fix) for fix in self.fixes]
        return {**asdict(self, dict_factory=_known), "fixes": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Conflict:
        """The conflict written by :meth:`to_json`, or by another version."""
        rows = {
            "caps": tuple(map(CapInConflict.read, data.get("caps", ()))),
            "pins": tuple(map(OpsInConflict.read, data.get("pins", ()))),
            "groups": tuple(map(OpsInConflict.read, data.get("groups", ()))),
            "fixes": tuple(
                Fix(change=row) if isinstance(row, str) else Fix.read({"change": "", **row})
                for row in data.get("fixes", ())
            ),
        }
        return cls.read({**data, **rows})


def fix_to_json(fix: Fix) -> dict[str, Any] | str:
    """The fix as ``plan.json`` holds it: advice as a sentence."""
    return asdict(fix, dict_factory=_known) if fix.kind else fix.change


def _known(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value is not None}
