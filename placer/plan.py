"""The plan: a placement with everything needed to apply, check and explain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "placer.plan/1"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What ``plan.json`` holds, field by field (see ``docs/plan.md`` and the JSON Schema).

    ``placement`` maps every op of the flat graph to a device name, ``variables`` every variable.
    """

    model: Mapping[str, Any]
    bindings: Mapping[str, Any]
    devices: tuple[Mapping[str, Any], ...]
    placement: Mapping[str, str]
    variables: Mapping[str, str]
    transfers: tuple[Mapping[str, Any], ...]
    metrics: Mapping[str, Any]
    solver: Mapping[str, Any]
    unmodelled: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[Mapping[str, Any], ...] = ()
    conflict: Mapping[str, Any] | None = None
    tensorflow_version: str = ""
    tool_version: str = ""

    @property
    def device_function(self) -> Callable[[Any], str]:
        """A function from an op (anything with ``.name``) to its full device string, for
        ``tf.compat.v1.device``; ops the plan does not know get ``""``."""
        raise NotImplementedError
