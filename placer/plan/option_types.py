"""Types of the options that people give wrongly in Python."""

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from placer.errors import UsageError

_TYPES: Mapping[str, tuple[Any, str]] = {
    "signature": (str, "a name such as 'serving_default'"),
    "outputs": (Iterable, "a list of names such as ['logits']"),
    "batch_size": (Integral, "a whole number such as 32"),
    "shapes": (Mapping, "a mapping such as {'ids': (8, 128)}"),
    "ragged": (Mapping, "a mapping such as {'ids': (None, 50)}"),
    "dims": (Mapping, "a mapping such as {'T': 128}"),
    "max_memory": ((str, Mapping), "such as {'GPU:0': '8GiB'}"),
    "reserve": (str, "a text such as '1GiB+10%' or '5%'"),
    "pins": (Mapping, "a mapping such as {'users*': 'CPU:0'}"),
    "pin_types": (Mapping, "a mapping such as {'Gather*': 'CPU:0'}"),
    "keep_together": (Iterable, "a list of names such as ['users*']"),
    "fit": (str, "a text such as 'auto'"),
    "strategy": (str, "a text such as 'replicas:2'"),
    "time_limit": (Real, "a number of seconds such as 30"),
}
"""Types of values that people give wrongly, and an example of each."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "offload": ("auto", "never"),
    "objective": ("transfer", "step-time", "throughput"),
    "order": ("free", "fit", "memory"),
}


def require_types(given: Mapping[str, Any]) -> None:
    """Raises ``UsageError`` for a value of another type than its option takes, with an example."""
    for name, value in given.items():
        types, example = _TYPES.get(name, (object, ""))
        if value is not None and not isinstance(value, types):
            raise UsageError(f"{name} must be {example}; got {value!r}")
        sizes = value.values() if name == "shapes" and value else ()
        if wrong := [size for size in sizes if not isinstance(size, Iterable)]:
            raise UsageError(f"{name} must be {example}; got {wrong[0]!r} for a shape")
    for name, known in _CHOICES.items():
        if name in given and given[name] not in known:
            raise UsageError(f"{name} must be {' or '.join(map(repr, known))}; got {given[name]!r}")
