"""The bytes alive in every memory while ops are tried, run and taken back.

The buffers of :mod:`placer.prediction.memory.lifetimes` by reference counts alone: what is aliased,
written over and copied is followed, elements of tensor lists are not.  Every change can be undone,
so that a search may look at what comes next.
"""

from collections.abc import Sequence

from placer.prediction.step.step_layout import Effect, StepLayout

_NONE = -1


class LiveBytes:
    """``live`` has the bytes in use by memory, in the order of ``memories``; resident and fed
    ones aside.

    ``held`` has the buffer of every value, ``current`` that of every variable that was read;
    buffers have their ``bytes``, their ``place`` (a memory) and how many ``holders`` need them.
    """

    def __init__(self, layout: StepLayout, memories: Sequence[str]) -> None:
        self.layout = layout
        self.live = [0] * len(memories)
        self.number = {name: number for number, name in enumerate(memories)}
        names = dict.fromkeys(name for some in layout.variables.values() for name in some)
        number = {name: index for index, name in enumerate(names)}
        self.variables = {op: [number[n] for n in some] for op, some in layout.variables.items()}
        self.variable_bytes = [0] * len(number)
        self.current = [_NONE] * len(number)
        for op, (first, *_) in self.variables.items():
            if layout.effects[op] == Effect.READ_VARIABLE:
                self.variable_bytes[first] = layout.bytes[layout.outputs[op][0]]
        self.held = [_NONE] * len(layout.memory)
        self.bytes: list[int] = []
        self.place: list[int] = []
        self.holders: list[int] = []
        self._changes: list[tuple[list[int], int, int]] = []
        for op in layout.feeds:
            for value in layout.outputs[op]:
                self.held[value] = self._new(0, 0)
                self.holders[self.held[value]] = layout.readers[value]

    def run(self, op: int) -> list[int]:
        """The bytes in use by memory while ``op`` runs, which then has run."""
        layout, held = self.layout, self.held
        if layout.effects[op] != Effect.FED:
            for value in layout.outputs[op]:
                self._set(held, value, self._output(op, value))
            for value in layout.outputs[op]:
                self._hold(held[value], layout.readers[value])
                for copy in layout.copies.get(value, ()):
                    memory = self.number[layout.memory[copy]]
                    self._set(held, copy, self._new(layout.bytes[copy], memory))
                    self._hold(held[copy], layout.readers[copy])
        if layout.effects[op] == Effect.UPDATE_VARIABLE:
            self._update(op)
        peak = list(self.live)
        peak[self.number[layout.devices[op]]] += layout.temporary_bytes[op]
        touched = {held[value] for value in (*layout.inputs[op], *layout.outputs[op])} - {_NONE}
        for value in layout.inputs[op]:
            if held[value] != _NONE:
                self._hold(held[value], -1)
        for buffer in touched:
            if not self.holders[buffer] and self.bytes[buffer]:
                self._add(self.place[buffer], -self.bytes[buffer])
        return peak

    def mark(self) -> tuple[int, int]:
        """Where things are, for :meth:`undo`."""
        return len(self._changes), len(self.bytes)

    def undo(self, mark: tuple[int, int]) -> None:
        """Takes back what ran since ``mark``."""
        changes, buffers = mark
        while len(self._changes) > changes:
            values, index, old = self._changes.pop()
            values[index] = old
        del self.bytes[buffers:], self.place[buffers:], self.holders[buffers:]

    def keep(self) -> None:
        """Makes all that ran so far final."""
        self._changes.clear()

    def _output(self, op: int, value: int) -> int:
        """The buffer of an output; see ``Simulation._output_buffer``."""
        layout, held, effect = self.layout, self.held, self.layout.effects[op]
        if effect == Effect.RESIDENT:
            return self._new(0, 0)
        is_read = effect == Effect.READ_VARIABLE
        if is_read and layout.variables[op][0] not in layout.copied_on_read:
            variable = self.variables[op][0]
            if self.current[variable] == _NONE:
                memory = self.number[layout.memory[value]]
                self._set(self.current, variable, self._new(0, memory))
            return self.current[variable]
        for source in layout.shared.get(value, ()):
            if held[source] != _NONE:
                return held[source]
        for source in layout.overwritten.get(value, ()):
            buffer = held[source]
            if buffer != _NONE and self.holders[buffer] == 1 and self.bytes[buffer]:
                return buffer
        return self._new(layout.bytes[value], self.number[layout.memory[value]])

    def _update(self, op: int) -> None:
        """The old values of the variables live on while they are read."""
        for variable in self.variables[op]:
            old = self.current[variable]
            if old != _NONE:
                self._set(self.current, variable, _NONE)
                if self.holders[old]:
                    self._set(self.bytes, old, self.variable_bytes[variable])
                    self._add(self.place[old], self.variable_bytes[variable])

    def _new(self, size: int, place: int) -> int:
        self.bytes.append(size)
        self.place.append(place)
        self.holders.append(0)
        if size:
            self._add(place, size)
        return len(self.bytes) - 1

    def _hold(self, buffer: int, count: int) -> None:
        self._set(self.holders, buffer, self.holders[buffer] + count)

    def _add(self, place: int, size: int) -> None:
        self._set(self.live, place, self.live[place] + size)

    def _set(self, values: list[int], index: int, value: int) -> None:
        self._changes.append((values, index, values[index]))
        values[index] = value
