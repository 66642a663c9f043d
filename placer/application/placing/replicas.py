"""Variables of which every replica has its own, while a model is bound.

The first replica's is the model's: it is read and saved, and whatever assigns it from outside of a
step (a checkpoint, a callback that changes the learning rate) is assigned to the others too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import tensorflow as tf

_ASSIGNING = ("assign", "assign_add", "assign_sub", "_restore_from_tensors")
"""How a ``tf.Variable`` is given a value outside of a step, by Keras and by checkpoints."""


class Replicas:
    """The other replicas of some variables, by the first one's."""

    def __init__(self) -> None:
        self._others: dict[int, tuple[Any, list[Any]]] = {}

    def add(self, first: Any, other: Any) -> None:
        """``other`` follows ``first`` from now on."""
        if id(first) not in self._others:
            self._others[id(first)] = first, []
            for name in _ASSIGNING:
                vars(first)[name] = partial(self._assigned, first, getattr(first, name))
        self._others[id(first)][1].append(other)

    def spread(self, only: Iterable[Any] | None = None) -> None:
        """Gives the others the values of the first ones, by default all of them."""
        wanted = None if only is None else {id(variable) for variable in only}
        for key, (first, others) in self._others.items():
            for other in others if wanted is None or key in wanted else ():
                other.assign(first.read_value())

    def pairs(self) -> list[tuple[Any, list[Any]]]:
        """Every first one with the others."""
        return list(self._others.values())

    def release(self) -> None:
        """Nothing follows any more."""
        for first, _ in self._others.values():
            for name in _ASSIGNING:
                vars(first).pop(name, None)
        self._others.clear()

    def _assigned(self, first: Any, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found = method(*args, **kwargs)
        if tf.executing_eagerly():
            self.spread([first])
        return found
