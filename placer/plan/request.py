"""What a placement can be asked for, and how a plan remembers what was asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

from cost_models.tensor_size import MOST_ELEMENTS
from placer.errors import UsageError
from placer.graph.op_graph import Op
from placer.plan.measured_costs import Costs

DeviceFunction = Callable[[Op], str]
"""From an op of the flat graph to a device string; ``""`` leaves it free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything a placement can be asked for; each field is the command-line option's namesake.

    ``shapes`` maps input names to shapes (a dimension may be a name out of ``dims``),
    ``max_memory`` devices to caps (``"8GiB"`` or bytes), ``pins`` and ``pin_types`` globs to
    devices; ``device_function`` gives device strings that take the place of the graph's own (ops
    without a kernel there, and groups that contradict, go elsewhere); ``costs`` are measured costs
    or a path of them, seconds by op name, or ``"grappler"``; ``strategy`` says in which other way
    than whole the batch is run (:mod:`placer.strategies.requests`).  ``order`` is ``"free"``,
    ``"fit"`` (control edges where the caps need them) or ``"memory"`` (for the lowest peaks).
    ``time_limit`` is in seconds; with ``work_limit`` each search ends after so many steps, and the
    plan is the same every time unless the time limit comes first.
    """

    tag_set: str | None = None
    signature: str | None = None
    outputs: tuple[str, ...] | None = None
    batch_size: int | None = None
    shapes: Mapping[str, tuple[int | str | None, ...]] | None = None
    dims: Mapping[str, int] | None = None
    allow_unsafe_keras: bool = False
    max_memory: str | Mapping[int | str, int | str] | None = None
    reserve: str | None = None
    spill: str = "auto"
    objective: str = "transfer"
    order: str = "free"
    pins: Mapping[str, str] = field(default_factory=dict)
    pin_types: Mapping[str, str] = field(default_factory=dict)
    keep_together: tuple[str, ...] = ()
    device_function: DeviceFunction | None = None
    clear_devices: bool = False
    colocate_gradients: bool = False
    costs: Costs = None
    trip_count: int | None = None
    strategy: str | None = None
    time_limit: float = 30.0
    work_limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ``UsageError`` for numbers out of range, and for one name in place of several."""
        for name, least in (("batch_size", 1), ("trip_count", 0), ("seed", 0), ("work_limit", 1)):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, SupportsIndex) or not least <= index(value) <= MOST_ELEMENTS:
                raise UsageError(f"{name} is {value!r}; give a whole number from {least} to 2^63-1")
            object.__setattr__(self, name, index(value))  # of numpy's, too, a plan keeps an int
        if not 0 < self.time_limit < math.inf:
            raise UsageError(f"time_limit is {self.time_limit!r}; give seconds above zero")
        for name in ("outputs", "keep_together"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise UsageError(f"{name} is a tuple of names; give ({value!r},)")


def describe_request(devices: str | Path, wanted: Options) -> dict[str, Any]:
    """The devices and all options that are not their defaults, as JSON holds them.

    Of costs only the path (or ``"grappler"``) can be kept: ``"given"`` stands for others, and for
    a device function.
    """
    defaults = Options()
    request: dict[str, Any] = {"devices": str(devices)}
    for item in fields(Options):
        value = getattr(wanted, item.name)
        if value == getattr(defaults, item.name):
            continue
        if item.name == "device_function":
            value = "given"
        elif item.name == "costs":
            value = str(value) if isinstance(value, str | Path) else "given"
        elif item.name == "max_memory" and isinstance(value, Mapping):
            value = ",".join(f"{_device_key(key)}={cap}" for key, cap in value.items())
        elif item.name == "shapes":
            value = {key: list(shape) for key, shape in value.items()}
        elif isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            value = list(value)
        request[item.name] = value
    return request


def _device_key(key: int | str) -> str:
    """A key of ``max_memory`` as the command line has it: a bare number is a GPU."""
    return f"GPU:{key}" if isinstance(key, int) else key


def requested_options(request: Mapping[str, Any]) -> Options:
    """The options that :func:`describe_request` described."""
    known = {item.name for item in fields(Options)}
    values = {key: value for key, value in request.items() if key in known}
    for key in ("outputs", "keep_together"):
        if key in values:
            values[key] = tuple(values[key])
    if "shapes" in values:
        values["shapes"] = {key: tuple(shape) for key, shape in values["shapes"].items()}
    for key in ("costs", "device_function"):
        if values.get(key) == "given":
            del values[key]
    return Options(**values)
