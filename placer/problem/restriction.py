"""The devices that one op may use, and why no others."""

from __future__ import annotations

from dataclasses import dataclass, field


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
