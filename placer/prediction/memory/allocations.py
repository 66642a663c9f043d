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
from typing import Any

from cost_models.gpu_convolutions import RED_ZONES_BYTES
from placer.prediction.memory.allocation_arrays import AllocationArrays, as_arrays
from placer.prediction.memory.allocator import rounded_bytes
from placer.prediction.memory.buffers import Buffer
from placer.prediction.memory.chunks import MOST_PADDING_BYTES
from placer.prediction.memory.timelines import Changes, StepMemory
from placer.prediction.step.routes import is_cpu
from placer.prediction.step.step_layout import Effect, StepLayout, Tuned


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
    numbers = step.numbers(order)
    simulation = Requests(step, layout, numbers, lasts)
    simulation.run()
    found = simulation.finished()
    for name, peak_bytes in step.peaks_of(simulation).items():
        is_restored = not (step.initial or is_cpu(name))
        found[name] = replace(
            found[name],
            peak_bytes=peak_bytes,
            kept=simulation.loading(_as_written(step, simulation.kept, name)),
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


class Requests(Changes):
    """The simulation of a step that writes down every request; ``chunks`` has the chunk that every
    buffer is in, ``chunk_of`` that of every variable, ``kept`` where it was before the step."""

    def __init__(
        self,
        step: StepMemory,
        layout: StepLayout,
        order: Sequence[int],
        lasts: Sequence[int] | None = None,
    ) -> None:
        super().__init__(layout, order, step.device_names, lasts)
        self.found = {name: Allocations() for name in step.device_names}
        self.count = 0
        self.chunks: dict[Buffer, int] = {}
        self.device_of: dict[str, str] = {}
        self.kept: dict[str, int] = {}
        for device, sizes in step.idle.items():
            for number, size in enumerate(sizes if device in self.found else ()):
                self.kept[_idle(device, number)] = self._number(self.found[device], size)
        for device, held in step.resident.items():
            found = self.found[device]
            for op, size in held.items():
                self.kept[op] = self._number(found, size - step.constants.get(op, 0))
                self.device_of[op] = device
        self.chunk_of = dict(self.kept)
        self.initial = {self.kept[op]: op for op in step.initial if op in self.kept}
        self.initial_bytes = step.initial
        self.constants = dict(step.constants)
        self.seen: set[Tuned] = set()

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

    def finished(self) -> dict[str, Allocations]:
        """Returns what was found, once the step has run."""
        for variable, chunk in self.chunk_of.items():
            if chunk != self.kept[variable]:
                self.found[self.device_of[variable]].moved[self.kept[variable]] = chunk
        return self.found

    def _number(self, found: Allocations, size: int) -> int:
        chunk = self.count
        self.count += 1
        found.sizes[chunk] = size
        return chunk

    def _ask(self, device: str, size: int) -> int:
        found = self.found[device]
        chunk = self._number(found, size)
        found.events.append(chunk)
        found.askers.append(self.order[self.now])
        return chunk

    def _new(self, op: int, value: int, kind: str, **more: Any) -> Buffer:
        buffer = super()._new(op, value, kind, **more)
        if buffer.bytes and not buffer.resident and kind != "feed":  # which is the caller's memory
            self.chunks[buffer] = self._ask(buffer.device, buffer.bytes)
        return buffer

    def _record(self, buffer: Buffer, last: int) -> None:
        super()._record(buffer, last)
        if buffer in self.chunks:
            self.found[buffer.device].events.append(~self.chunks.pop(buffer))

    def _start(self, op: int) -> None:
        super()._start(op)
        size = self.layout.workspace_bytes.get(op)
        if size:
            found = self.found[self.layout.devices[op]]
            found.elastic.append((len(found.events), size))
        if op in self.layout.replaced:
            self._replace_output(op)
        if op in self.layout.tuned:
            what, size = self.layout.tuned[op]
            if what not in self.seen:
                self.seen.add(what)
                found = self.found[self.layout.devices[op]]
                found.tuned.append((len(found.events), size, op))

    def _replace_output(self, op: int) -> None:
        """The chunk that came last is the output; the first is given back."""
        output, last = self.held[self.layout.outputs[op][0]], self.workspaces[op][-1]
        if output is not None and output in self.chunks:
            first, second = self.chunks[output], self.chunks[last]
            self.found[output.device].temporaries.symmetric_difference_update((first, second))
            self.chunks |= {output: second, last: first}

    def _workspace(self, op: int, size: int) -> Buffer:
        buffer = super()._workspace(op, size)
        self.chunks[buffer] = self._ask(buffer.device, size)
        self.found[buffer.device].temporaries.add(self.chunks[buffer])
        return buffer

    def _overwrite(self, op: int, source: int, old: Buffer, value: int) -> Buffer:  # noqa: ARG002
        """The chunk stays where it is, under another name."""
        if old.bytes == self.layout.bytes[value]:
            super()._record(old, self.now - 1)
            old.owner, old.kind, old.first = self.layout.names[op], "activation", self.now
        return old

    def _assign(self, op: int) -> None:
        variable = self.layout.variables[op][0]
        value = self.held[self.layout.inputs[op][1]]
        if (
            value is None
            or value not in self.chunks
            or variable in self.layout.copied_on_read
            or value.kind not in ("activation", "transfer")
            or self.device_of.get(variable) != value.device  # of unknown size: nothing to free
        ):
            super()._assign(op)
            return
        given = self.chunks.pop(value)  # the variable's from now on
        if not self._is_set_aside(variable):
            self.found[self.device_of[variable]].events.append(~self.chunk_of[variable])
        self.chunk_of[variable] = given
        super()._assign(op)

    def _change_state(self, op: int, effect: Effect) -> None:
        for variable in self.layout.variables.get(op, ()) if self.constants else ():
            size = self.constants.pop(variable, 0)
            if size and effect == Effect.UPDATE_VARIABLE:
                found = self.found[self.device_of[variable]]
                found.copied.append((len(found.events), size, op, self.kept[variable]))
        super()._change_state(op, effect)

    def _release_value(self, variable: str, first: int) -> None:
        """A variable that is still being read is copied before it changes."""
        old = self.values.get(variable)
        if old is not None and old not in self.chunks and self._is_set_aside(variable):
            size = self.found[old.device].sizes[self.chunks[old]]
            self.chunk_of[variable] = self._ask(old.device, size)
        super()._release_value(variable, first)

    def _is_set_aside(self, variable: str) -> bool:
        """Whether the value of a variable is still being read, where the variable is: then it keeps
        the chunk until it is not."""
        old = self.values.get(variable)
        if old is None or old.holders <= 0 or old.device != self.device_of.get(variable):
            return False
        self.chunks[old] = self.chunk_of[variable]
        return True
