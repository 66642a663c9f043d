"""One op with two sizes of the batch, and what is known of where its tensors hold the examples."""

from collections.abc import Sequence
from dataclasses import dataclass

from placer.graph.op_graph import Op


@dataclass(frozen=True, slots=True)
class Examples:
    """A tensor that holds the examples along ``axis``, as many rows in a run for each; of a
    TensorList (``in_list``) each element does."""

    axis: int
    in_list: bool = False


@dataclass(frozen=True, slots=True)
class Total:
    """A mean over the examples, times their number to the ``power``: 0 for means, 1 for sums."""

    power: int


@dataclass(frozen=True, slots=True)
class Count:
    """A constant times the number of examples to the ``power``, which is not 0."""

    power: int


SIZE = "size"
"""A shape, or what is computed from one: it depends on the batch by its size alone."""

State = Examples | Total | Count | str | None
"""Facts about a tensor; ``None``: it does not depend on the batch."""


class MixesExamples(Exception):
    """The op mixes examples, or may; the message says how, to be read after its name."""


class Undecided(MixesExamples):
    """No rule says whether the op mixes examples."""


class UnknownSizes(Undecided):
    """The op cannot be judged while a dimension of its results is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOp:
    """One op with two sizes of the batch: ``small`` has ``sizes[0]`` examples, ``large``
    ``sizes[1]``; ``states`` are those of its inputs."""

    small: Op
    large: Op
    sizes: tuple[int, int]
    states: tuple[State, ...]

    @property
    def batched(self) -> list[tuple[int, Examples]]:
        """The inputs that hold examples, by number."""
        return [(n, state) for n, state in enumerate(self.states) if isinstance(state, Examples)]

    def rank(self, number: int) -> int:
        """The rank of an input.  Raises :class:`MixesExamples` where it is unknown."""
        shape = self.small.info.inputs[number].shape
        if shape is None:
            raise UnknownSizes("reads a tensor of unknown rank")
        return len(shape)

    def examples(self, number: int) -> Examples:
        """The state of an input that must hold examples."""
        state = self.states[number]
        if not isinstance(state, Examples):
            raise Undecided("depends on the examples by a shape or an index")
        return state

    def value(self, number: int) -> tuple[int, ...]:
        """The elements of a small constant input; raises :class:`MixesExamples` if unknown."""
        found = self.small.info.inputs[number].value
        if found is None or self.states[number] is not None:
            raise Undecided("works along axes that are not known before it runs")
        return tuple(int(each) for each in found)

    def grown(self, number: int = 0) -> Examples | None:
        """Where a result holds the examples by its shape; ``None`` if nothing grows with them.

        Raises :class:`MixesExamples` where the growth is not that of the batch.
        """
        small, large = self.small.info.outputs[number].shape, self.large.info.outputs[number].shape
        axis = grown_axis(small, large, self.sizes)
        return None if axis is None else Examples(axis)

    def guessed(self, number: int = 0) -> Examples | None:
        """As :meth:`grown`; ``None`` also where that is not known."""
        try:
            return self.grown(number)
        except MixesExamples:
            return None

    def held(self, number: int = 0) -> Examples:
        """As :meth:`grown`, where there must be an axis."""
        found = self.grown(number)
        if found is None:
            raise MixesExamples("combines the examples: its result has no batch dimension")
        return found

    def unit(self, shape: Sequence[int | None] | None, axis: int) -> int:
        """Rows per example along ``axis``."""
        assert shape is not None
        return (shape[axis] or 0) // self.sizes[0]

    def keeps_rows(self, source: int, target: int = 0) -> Examples:
        """The state of a result with as many rows per example as input ``source``."""
        found, state = self.held(target), self.examples(source)
        before = self.unit(self.small.info.inputs[source].shape, state.axis)
        if before != self.unit(self.small.info.outputs[target].shape, found.axis):
            raise MixesExamples("takes a part of the batch")
        return found

    def only(self, *numbers: int) -> None:
        """Raises :class:`MixesExamples` if other inputs than these depend on the batch."""
        if any(state is not None and n not in numbers for n, state in enumerate(self.states)):
            raise MixesExamples("combines the examples: they are in its weights or indices")


def grown_axis(
    small: Sequence[int | None] | None,
    large: Sequence[int | None] | None,
    sizes: tuple[int, int],
) -> int | None:
    """The axis along which a shape grows in proportion to the batch; ``None`` for none.

    Raises :class:`MixesExamples` for an unknown shape, two such axes, or another growth.

    >>> grown_axis((4, 128), (8, 128), sizes=(4, 8)), grown_axis((128,), (128,), sizes=(4, 8))
    (0, None)
    """
    if small is None or large is None or None in small or None in large:
        raise UnknownSizes("has a result of unknown shape")
    if len(small) != len(large):
        raise MixesExamples("has a result whose rank depends on the batch")
    grown = [n for n, (a, b) in enumerate(zip(small, large, strict=True)) if a != b]
    if not grown:
        return None
    first, second = small[grown[0]] or 0, large[grown[0]] or 0
    if len(grown) > 1:
        raise MixesExamples("combines the examples: its result has two batch dimensions")
    if first % sizes[0] or first * sizes[1] != second * sizes[0]:
        raise Undecided("does not give one row (or a fixed number) per example")
    return grown[0]


def join_states(first: State, second: State) -> State:
    """Returns the state of a tensor that is one or the other.

    Raises :class:`MixesExamples` where the two contradict.

    >>> join_states(None, Examples(0))
    Examples(axis=0, in_list=False)
    """
    counted = any(
        isinstance(s, Count) or (isinstance(s, Total) and s.power) for s in (first, second)
    )
    if first == second or (not counted and (first is None or second is None)):
        return second if first is None else first
    raise MixesExamples("holds the examples along one axis here and along another there")
