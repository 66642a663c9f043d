"""The random numbers of a batch, drawn once for the whole and used again by its parts."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tensorflow.python.ops import (
    gen_random_ops,
    gen_stateful_random_ops,
    gen_stateless_random_ops,
    gen_stateless_random_ops_v2,
)

from placer.extraction.divisibility.batch_op import Undecided

_MODULES = (
    gen_random_ops,
    gen_stateful_random_ops,
    gen_stateless_random_ops,
    gen_stateless_random_ops_v2,
)
_DRAWING = re.compile("(stateless|stateful|random|truncated|multinomial|parameterized|non_)")
_OTHER = re.compile("seed|counter|get_|_alg|skip|_grad|_fallback")


class Draws:
    """The numbers that the functions of TensorFlow draw for a whole batch of so many
    ``examples``, in their order, and the rows of it that belong to a part."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self._drawn: list[Any] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Remembers what is drawn."""

        def record(draw: Callable[..., Any], *args: Any, **settings: Any) -> Any:
            self._drawn.append(draw(*args, **settings))
            return self._drawn[-1]

        with _drawing_by(record):
            yield

    @contextmanager
    def replayed(self, start: int, size: int) -> Iterator[None]:
        """Gives what was drawn, of ``size`` examples from ``start`` on.  Raises
        :class:`Undecided` if the draws are not those of the whole."""
        drawn = iter(self._drawn)

        def replay(draw: Callable[..., Any], *args: Any, **settings: Any) -> Any:
            own, whole = draw(*args, **settings), next(drawn, None)
            if whole is None or whole.dtype != own.dtype or whole.graph is not own.graph:
                raise Undecided("it draws other random numbers in parts, or draws them in a loop")
            return self._rows(whole, own.shape, start, size)

        with _drawing_by(replay):
            yield

    def _rows(self, whole: Any, shape: Any, start: int, size: int) -> Any:
        if not (whole.shape.is_fully_defined() and shape.is_fully_defined()):
            raise Undecided("it draws as many random numbers as it computes")
        sizes = list(zip(whole.shape.as_list(), shape.as_list(), strict=True))
        axes = [axis for axis, (all_, part) in enumerate(sizes) if all_ != part]
        if not axes:
            return whole
        (axis,) = axes if len(axes) == 1 else [-1]
        unit = sizes[axis][0] // self.examples
        if axis < 0 or sizes[axis] != (unit * self.examples, unit * size):
            raise Undecided("its random numbers are not drawn for each example")
        rows = slice(unit * start, unit * (start + size))
        return whole[(*[slice(None)] * axis, rows)]


@contextmanager
def _drawing_by(call: Callable[..., Any]) -> Iterator[None]:
    """Has ``call`` make every draw; it is given TensorFlow's function and the arguments."""
    before = [
        (module, name, function)
        for module in _MODULES
        for name, function in vars(module).items()
        if _DRAWING.match(name) and not _OTHER.search(name) and callable(function)
    ]
    for module, name, function in before:
        setattr(module, name, partial(call, function))
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)
