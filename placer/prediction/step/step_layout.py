"""The tensors that every op of a step reads and writes, in which memory, and its use of buffers.

Ops and values are numbers here: one placement is simulated along many orders.  A value is a
tensor in one memory: where its producer writes it, or where a copy of it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, auto

from placer.prediction.step.step_arrays import NamedArrays, as_step_arrays, with_sample

Tuned = tuple[str, int]
"""A device, and a number for the type, shapes and attributes of an op."""


class Effect(IntEnum):
    """An op's use of buffers beyond writing its outputs."""

    PLAIN = auto()
    FED = auto()
    RESIDENT = auto()
    READ_VARIABLE = auto()
    UPDATE_VARIABLE = auto()
    ASSIGN_VARIABLE = auto()
    ADD_ITEM = auto()
    TAKE_ITEM = auto()
    READ_ITEM = auto()
    CUT_INTO_LIST = auto()
    ZERO_LIST = auto()
    JOIN_LISTS = auto()


@dataclass(frozen=True, slots=True)
class StepLayout:
    """One step of a graph under one placement; lists are by op, or by value from ``memory`` on.

    By op:

    - ``variables``: those that it updates or reads.
    - ``items``: the value that it puts into a list; ``item_counts``: into how many it cuts one.
    - ``temporary_chunks``: what of its temporary bytes it asks for before its outputs;
      ``later_chunks``: after them, where it asks more than once.
    - ``temporary_samples``: what it takes in several executions, where they differ.
    - ``replaced``: those whose output is in the end the last chunk that they asked for, and what
      was asked for as the output is given back.
    - ``workspace_bytes``: what it takes besides where it can be had.
    - ``tuned``: what it has in common with others for which algorithms are tried once, and the
      bytes of the copy that this takes.
    - ``idle``: it only says where something lasting is: a constant, a handle, a variable that
      nobody changes; ``lasting`` are its outputs.
    - ``inputs``: of one that is done when a copy is (:func:`find_arrivals`),
      also what was sent, last: it is held at home until then.  ``arrivals`` are those ops.
    - ``dead``: those of branches that do not run; ``dead_in`` has the same where the larger branch
      of each conditional runs, and where the smaller does.

    By value:

    - ``bytes``: zero for unsized tensors.
    - ``readers``: how many input slots read it; a fetch is one reader at home and one on the host.
    - ``shared``: the values whose buffer it may be (the first that has one); ``overwritten``: those
      that it may be written over, in order of preference.
    - ``copies``: the values that it is sent as.
    - ``transposed``, by op: (value, copy) in another order of its dimensions, where the value
      is once the op is done.
    """

    names: tuple[str, ...]
    devices: list[str] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    outputs: list[range] = field(default_factory=list)
    temporary_bytes: list[int] = field(default_factory=list)
    temporary_chunks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    later_chunks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    temporary_samples: dict[int, tuple[int, ...]] = field(default_factory=dict)
    replaced: frozenset[int] = frozenset()
    workspace_bytes: dict[int, int] = field(default_factory=dict)
    tuned: dict[int, tuple[Tuned, int]] = field(default_factory=dict)
    variables: dict[int, tuple[str, ...]] = field(default_factory=dict)
    items: dict[int, int] = field(default_factory=dict)
    item_counts: dict[int, int] = field(default_factory=dict)
    feeds: list[int] = field(default_factory=list)
    copied_on_read: frozenset[str] = frozenset()
    memory: list[str] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)
    shared: dict[int, tuple[int, ...]] = field(default_factory=dict)
    overwritten: dict[int, tuple[int, ...]] = field(default_factory=dict)
    copies: dict[int, list[int]] = field(default_factory=dict)
    transposed: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    fetched: frozenset[int] = frozenset()
    arrivals: list[int] = field(default_factory=list)
    idle: Sequence[bool] = ()
    lasting: tuple[int, ...] = ()
    dead: frozenset[int] = frozenset()
    dead_in: tuple[frozenset[int], ...] = ()
    known_arrays: list[NamedArrays] = field(default_factory=list)

    def arrays(self) -> NamedArrays:
        """The same as arrays, once the layout is done; samples of it share most of them."""
        if not self.known_arrays:
            self.known_arrays.append(as_step_arrays(self))
        return with_sample(self.known_arrays[0], self)

    def sampled(self, number: int) -> StepLayout:
        """The layout with sample ``number`` of every op's temporary bytes, and of branches."""
        found = self._with_temporaries(
            {op: found[(number + op) % len(found)] for op, found in self.temporary_samples.items()}
        )
        if not self.dead_in:
            return found
        return replace(found, dead=self.dead_in[number % len(self.dead_in)])

    def least(self) -> StepLayout:
        """The layout with the least temporary bytes of every op."""
        return self._with_temporaries({op: min(s) for op, s in self.temporary_samples.items()})

    def _with_temporaries(self, chosen: Mapping[int, int]) -> StepLayout:
        if not chosen:
            return self
        sizes = [chosen.get(op, size) for op, size in enumerate(self.temporary_bytes)]
        return replace(self, temporary_bytes=sizes)
