"""How a batch is divided: what a strategy asks for and a plan remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placer.graph.name_scopes import PIECE
from placer.graph.program_source import DivisionFacts

REPLICA = "replica"


@dataclass(frozen=True, kw_only=True)
class Division:
    """How a batch is divided.

    ``parts`` parts, of which ``in_flight`` run at a time (0: all); ``scope`` is what the ops of a
    part are called after: ``PIECE`` (they share devices) or ``REPLICA`` (each has its own;
    ``tower`` in older plans).
    ``inputs`` are the keys of the inputs that are divided; empty until they are known.
    ``devices`` are those of the parts, each by the name of the undivided op (``""``: of all
    others); empty leaves the choice open.
    """

    parts: int
    in_flight: int = 0
    scope: str = PIECE
    inputs: tuple[str, ...] = ()
    devices: tuple[Mapping[str, str], ...] = field(default=(), compare=False)

    @property
    def is_apart(self) -> bool:
        """Whether each part runs on devices of its own."""
        return self.scope != PIECE

    def as_json(self) -> DivisionFacts:
        """Returns what a plan keeps: all that the ops of the divided program depend on."""
        return {
            "parts": self.parts,
            "in_flight": self.in_flight,
            "scope": self.scope,
            "inputs": list(self.inputs),
        }


def planned_division(plan: Any) -> Division | None:
    """The division that ``plan`` was made for; ``None`` for none."""
    found = None if plan is None else plan.model.get("division")
    if not found:
        return None
    return Division(**{**found, "inputs": tuple(found["inputs"])})
