"""How a program is run for a verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """``on_hardware`` forbids a rehearsal, ``strict`` switches soft placement off, ``optimised``
    leaves graph optimisation on, ``seed`` is that of made-up inputs.  ``cluster`` are addresses of
    servers by job and task, whose devices the placed program uses."""

    on_hardware: bool = False
    strict: bool = False
    optimised: bool = False
    time_limit_seconds: float = 600.0
    seed: int = 0
    cluster: Mapping[str, Mapping[int, str]] | None = None
