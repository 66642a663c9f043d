"""The requests of one step to the allocators of its devices, along one execution order.

The requests and frees behind the lifetimes of :mod:`placer.prediction.memory.lifetimes`, one by one
in the order in which the executor makes them: an op asks for its outputs, then for what its kernel
takes for itself and gives back at once; what it was the last to need is freed when it is done.

    x ---> conv ---> relu          conv   +y  +workspace  -workspace  -x
                                   relu   (writes over y: neither)

What is kept from step to step has chunks too: variables get them when first values are written,
constants after that, when the first step is made ready.  They move: the value that is assigned to a
variable becomes the variable's, and the chunk of the old value is freed.  Old values that lie side
by side leave one hole, which is split as later values need it; apart they leave holes of their own
sizes, and a smaller value takes one whole::

    | w | m | n | constants |      m and n reassigned: one hole for both
    | w | m | 5 | n | 7 |          constants between: two, each for what nearly fills it

Fed values are not asked for, their copies on GPUs are: TensorFlow reads them where NumPy has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cost_models.gpu_convolutions import RED_ZONES_BYTES
from placer.prediction.memory.allocation_arrays import AllocationArrays, as_arrays
from placer.prediction.memory.allocator import rounded_bytes
from placer.prediction.memory.chunks import MOST_PADDING_BYTES
from placer.prediction.memory.lifetimes import Simulation
from placer.prediction.memory.run import (
    CHUNKS,
    ELASTIC,
    EVENTS,
    NOTES,
    TUNED,
    VARIABLE_CHUNK,
    Wanted,
)
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step.routes import is_cpu
from placer.prediction.step.step_arrays import Ints, NamedArrays
from placer.prediction.step.step_layout import StepLayout


@dataclass(frozen=True, kw_only=True)
class Allocations:
    """The requests to one device's allocator in a step, or in several.

    A chunk is a number: ``sizes`` has the bytes that were asked for, ``events`` the chunks of the
    step in order, ``~chunk`` where one is freed.  ``kept`` are the events before the first step, as
    a program is loaded or built; ``moved`` are the chunks that end a step as another chunk.
    ``temporaries`` are what kernels take for themselves.  ``askers`` are the numbers of the ops
    that ask, by event that does.  ``restoring_bytes`` hold what is read from a file, in whatever
    order.  ``elastic`` are (number of the event before which it is, bytes): what a kernel takes
    besides where it can be had; ``tuned`` (number of the event, bytes of the copy, op) what takes
    red zones the first time; ``copied`` (the same, and a chunk of ``kept``) what the first update
    of a variable writes to.  ``peak_bytes`` is that of :meth:`StepMemory.peaks` along the same
    order.  ``later`` steps, if any, take other orders, or ask for nothing that is tuned.
    """

    kept: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    events: list[int] = field(default_factory=list)
    moved: dict[int, int] = field(default_factory=dict)
    temporaries: set[int] = field(default_factory=set)
    askers: list[int] = field(default_factory=list)
    elastic: list[tuple[int, int]] = field(default_factory=list)
    tuned: list[tuple[int, int, int]] = field(default_factory=list)
    copied: list[tuple[int, int, int, int]] = field(default_factory=list)
    peak_bytes: int = 0
    restoring_bytes: int = 0
    later: tuple[Allocations, ...] = ()

    @cached_property
    def arrays(self) -> AllocationArrays:
        """The same as arrays, once nothing is added any more."""
        return as_arrays(self.sizes, self.kept, self.events, self.moved)

    def in_step(self, number: int) -> Allocations:
        """Returns what is asked for in that step, counted from 0."""
        return self.later[min(number, len(self.later)) - 1] if number > 0 and self.later else self

    def loading(self) -> Allocations:
        """Loading or building alone."""
        return Allocations(kept=self.kept, sizes=self.sizes, restoring_bytes=self.restoring_bytes)

    def loaded(self) -> Allocations:
        """The same where what is kept is there without what computing it took."""
        given_back = {~event for event in self.kept if event < 0}
        kept = [event for event in self.kept if event >= 0 and event not in given_back]
        later = tuple(later.loaded() for later in self.later)
        return replace(self, kept=kept, restoring_bytes=0, later=later)

    def with_elastic(self) -> Allocations:
        """The same where libraries get the workspaces that they do without if need be."""
        if self.later:
            return self.in_step(1).with_elastic()
        events, sizes, done = list[int](), dict(self.sizes), 0
        for chunk, (index, size) in enumerate(self.elastic, max(sizes, default=0) + 1):
            events += [*self.events[done:index], chunk, ~chunk]
            sizes[chunk], done = size, index
        return replace(self, sizes=sizes, events=events + self.events[done:], askers=[])

    def with_tuning(self) -> Allocations:
        """The same where convolutions of shapes that are new are tuned in the first step: each
        asks for a copy of its result and for a workspace (of 0 bytes at the least), both with red
        zones, before it goes on.  It does without a copy that cannot be had, but fails where there
        is room for that and not for both: no limit is to be in between.  Variables that start as a
        constant move to another chunk, and the constant stays."""
        if not (self.tuned or self.copied):
            return self
        events, askers = list[int](), list[int]()
        sizes, done = dict(self.sizes), 0
        chunk, asked = max(sizes, default=0) + 1, 0
        moved, kept, tuning = dict(self.moved), list(self.kept), set[int]()
        for index, size, op, constant in sorted([*((*t, -1) for t in self.tuned), *self.copied]):
            before = self.events[done:index]
            count = sum(event >= 0 for event in before)
            events += before
            askers += self.askers[asked : asked + count]
            if constant >= 0:
                events.append(chunk)
                askers.append(op)
                sizes[chunk] = size
                moved[constant] = chunk
                kept.append(chunk)
            else:
                events += [chunk, chunk + 1, ~(chunk + 1), ~chunk]
                askers += [op, op]
                sizes |= {chunk: size + RED_ZONES_BYTES, chunk + 1: RED_ZONES_BYTES}
                tuning |= {chunk, chunk + 1}
            chunk, done, asked = chunk + 2, index, asked + count
        return replace(
            self,
            sizes=sizes,
            events=events + self.events[done:],
            askers=askers + self.askers[asked:],
            temporaries=self.temporaries | tuning,
            moved=moved,
            tuned=[],
            copied=[],
            later=(replace(self, sizes=sizes, kept=kept),),
        )


def find_allocations(
    step: StepMemory,
    order: Sequence[str],
    sample: int | None = None,
    lasts: Sequence[int] | None = None,
) -> dict[str, Allocations]:
    """Returns what the allocator of every device is asked for along ``order``; ``sample`` and
    ``lasts`` as for :meth:`StepMemory.peaks`. Variables get their first values in the order of the
    graph."""
    layout = step.layout if sample is None else step.layout.sampled(sample)
    requests = Requests(step, layout, step.numbers(order), lasts)
    found = requests.found
    for name, peak_bytes in step.peaks_of(requests.simulation).items():
        is_restored = not (step.initial or is_cpu(name))
        found[name] = replace(
            found[name],
            peak_bytes=peak_bytes,
            kept=requests.loading(_as_written(step, requests.kept, name)),
            restoring_bytes=_restoring_bytes(step, name) if is_restored else 0,
        )
    return {name: asked.with_tuning() for name, asked in found.items()}


def _restoring_bytes(step: StepMemory, device: str) -> int:
    """The least limit under which no order of what is restored loses anything: that which comes
    last gets a chunk that is split, as one is that is twice as large as what it is for.  A session
    restores variables in an order that differs between processes."""
    lasting, ops = step.resident.get(device, {}), step.graph.ops
    restored = [
        rounded_bytes(size - step.constants.get(op, 0))
        for op, size in lasting.items()
        if ops[op].op_type != "Const" and op not in step.folded
    ]
    restored += map(rounded_bytes, step.idle.get(device, ()))
    return sum(restored) + min(max(restored, default=0), MOST_PADDING_BYTES)


def _as_written(step: StepMemory, chunk_of: Mapping[str, int], device: str) -> list[int]:
    """The chunks of what lasts on ``device`` in the order in which they are asked for."""
    lasting, ops = step.resident.get(device, {}), step.graph.ops
    idle = [chunk_of[_idle(device, i)] for i in range(len(step.idle.get(device, ())))]
    constant = {op for op in lasting if ops[op].op_type == "Const" or op in step.folded}
    constants = [chunk_of[op] for op in lasting if op in constant]
    variables = [chunk_of[op] for op in lasting if op not in constant]
    return idle + variables + constants


def _idle(device: str, number: int) -> str:
    """A name that no op can have, for what is loaded and not used."""
    return f" {device} {number}"


class Requests:
    """The requests of a step that has run, by device in ``found``; ``kept`` has the chunk that
    every variable was in before."""

    def __init__(
        self,
        step: StepMemory,
        layout: StepLayout,
        order: Sequence[int],
        lasts: Sequence[int] | None = None,
    ) -> None:
        self.found = {name: Allocations() for name in step.device_names}
        self.sizes: list[int] = []
        self.kept: dict[str, int] = {}
        for device, sizes in step.idle.items():
            for number, size in enumerate(sizes if device in self.found else ()):
                self.kept[_idle(device, number)] = self._number(self.found[device], size)
        self.device_of: dict[str, str] = {}
        for device, held in step.resident.items():
            for op, size in held.items():
                self.kept[op] = self._number(self.found[device], size - step.constants.get(op, 0))
                self.device_of[op] = device
        self.initial = {self.kept[op]: op for op in step.initial if op in self.kept}
        self.initial_bytes = step.initial
        variables = self._variables(step, layout.arrays())
        wanted = Wanted(variables=variables, chunks=self.sizes)
        self.simulation = Simulation(layout, order, lasts=lasts, wanted=wanted)
        self._take_over(self.simulation)

    def loading(self, written: Sequence[int]) -> list[int]:
        """The events of loading, given what is kept in order: a random first value is made of two
        tensors of its size, which are there until it is."""
        events: list[int] = []
        for chunk in written:
            op = self.initial.get(chunk)
            if op is None or is_cpu(self.device_of[op]):
                events.append(chunk)
                continue
            found = self.found[self.device_of[op]]
            first, second = [self._number(found, self.initial_bytes[op]) for _ in range(2)]
            events += [first, second, chunk, ~second, ~first]
        return events

    def _number(self, found: Allocations, size: int) -> int:
        chunk = len(self.sizes)
        self.sizes.append(size)
        found.sizes[chunk] = size
        return chunk

    def _variables(self, step: StepMemory, known: NamedArrays) -> Ints:
        """The columns of ``variables`` of a run from the chunk on."""
        names, device = known.variable_names, {n: i for i, n in enumerate(known.device_names)}
        chunks = [self.kept.get(name, -1) for name in names]
        devices = [device.get(self.device_of.get(name, ""), -1) for name in names]
        constants = [step.constants.get(name, 0) for name in names]
        return np.array([chunks, chunks, devices, constants], np.int64).T

    def _take_over(self, simulation: Simulation) -> None:
        """Takes over what the simulation has written down."""
        run, names = simulation.run, simulation.device_names
        chunks = run.chunks[: run.counts[CHUNKS]]
        self.sizes = chunks[:, 0].tolist()
        events = run.events[: run.counts[EVENTS]]
        for number, name in enumerate(names):
            found, own = self.found[name], events[events[:, 0] == number]
            asked = own[own[:, 1] >= 0]
            asked_for = asked[:, 1]
            found.events.extend(own[:, 1].tolist())
            found.askers.extend(asked[:, 2].tolist())
            found.sizes.update(zip(asked_for.tolist(), chunks[asked_for, 0].tolist(), strict=True))
            found.temporaries.update(asked_for[chunks[asked_for, 1] > 0].tolist())
        for kind, device, index, size, op, chunk in run.notes[: run.counts[NOTES]].tolist():
            found = self.found[names[device]]
            if kind == ELASTIC:
                found.elastic.append((index, size))
            elif kind == TUNED:
                found.tuned.append((index, size, op))
            else:
                found.copied.append((index, size, op, chunk))
        now = dict(
            zip(simulation.variable_names, run.variables[:, VARIABLE_CHUNK].tolist(), strict=True)
        )
        for variable, kept in self.kept.items():
            if now.get(variable, kept) != kept:
                self.found[self.device_of[variable]].moved[kept] = now[variable]
