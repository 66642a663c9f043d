"""How a program is run for a verification."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """``on_hardware`` forbids a rehearsal, ``strict`` switches soft placement off, ``optimised``
    leaves graph optimisation on, ``seed`` is that of made-up inputs."""

    on_hardware: bool = False
    strict: bool = False
    optimised: bool = False
    time_limit_seconds: float = 600.0
    seed: int = 0
