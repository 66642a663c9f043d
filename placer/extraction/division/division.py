"""How a batch is divided: what a strategy asks for and a plan remembers."""

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
    ``inputs`` are the keys of the inputs that are divided, ``variables`` the handles of which every
    part has its own; both are empty until they are known.
    ``devices`` are those of the parts, each by the name of the undivided op (``""``: of all
    others); empty leaves the choice open.
    """

    parts: int
    in_flight: int = 0
    scope: str = PIECE
    inputs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    devices: tuple[Mapping[str, str], ...] = field(default=(), compare=False)

    @property
    def is_apart(self) -> bool:
        """Whether each part runs on devices of its own."""
        return self.scope != PIECE

    def as_json(self) -> DivisionFacts:
        """Returns what a plan keeps: all that the ops of the divided program depend on."""
        found: DivisionFacts = {
            "parts": self.parts,
            "in_flight": self.in_flight,
            "scope": self.scope,
            "inputs": list(self.inputs),
        }
        if self.variables:
            found["variables"] = list(self.variables)
        return found

    def copies(self, handle: str) -> list[str]:
        """The handles that the parts but the first have in place of ``handle``.

        >>> Division(parts=2, variables=("w",)).copies("w"), Division(parts=2).copies("w")
        (['w/replica_1'], [])
        """
        count = self.parts if handle in self.variables else 1
        return [copy_name(handle, number) for number in range(1, count)]


def copy_name(name: str, number: int) -> str:
    """The name of the copy of a variable that part ``number`` has."""
    return f"{name}/replica_{number}"


def planned_division(plan: Any) -> Division | None:
    """The division that ``plan`` was made for; ``None`` for none."""
    found = None if plan is None else plan.model.get("division")
    if not found:
        return None
    lists = {key: tuple(found.get(key, ())) for key in ("inputs", "variables")}
    return Division(**{**found, **lists})
