"""From when to when every buffer lives, along one execution order.

Reference counting as TensorFlow's executor does it: every input slot of an op that has yet to run
holds its buffer; an op that overwrites an input needs to be the only holder; a tensor that is sent
has a receive buffer as soon as its producer runs, and a GPU holds it until it is there
(:mod:`placer.prediction.memory.sends`).

    x ---> conv ---> relu ---> add ---> y           conv  |--|
                       |        ^                   relu     |-----|     (relu overwrites conv)
                       '-> pool-'                   pool        |--|
                                                    add            |---  (add overwrites relu)

Where several ops run at once, an op holds what it reads, what it writes and what its kernel takes
for itself until it is done, while others start.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from placer.prediction.memory.buffers import Buffer, Lifetime, Read
from placer.prediction.memory.sends import Sends
from placer.prediction.step.step_layout import Effect, StepLayout


def find_lifetimes(
    layout: StepLayout, order: Sequence[int], *, with_reads: bool = False
) -> list[Lifetime]:
    """The lifetimes of all buffers but the resident ones, if the ops run in ``order`` (numbers,
    each once).  ``with_reads`` also says who keeps each buffer."""
    simulation = Simulation(layout, order, with_reads)
    simulation.run()
    return simulation.lifetimes


class Simulation:
    """The buffers of one step, op by op.  ``held`` has the buffer of every value, ``values`` that
    of every variable, ``workspaces`` what the kernels of running ops took for themselves.

    ``lasts`` has, by position in ``order``, that of the last op that starts while that one runs:
    its own where ops run one after another, as all do without ``lasts``.
    """

    def __init__(
        self,
        layout: StepLayout,
        order: Sequence[int],
        with_reads: bool = False,
        lasts: Sequence[int] | None = None,
    ) -> None:
        self.layout = layout
        self.order = order
        self.with_reads = with_reads
        self.lasts = range(len(order)) if lasts is None else lasts
        self.workspaces: dict[int, list[Buffer]] = {}
        self.position = [0] * len(layout.names)
        self.held: list[Buffer | None] = [None] * len(layout.memory)
        self.values: dict[str, Buffer] = {}
        self.now = 0
        self.sends = Sends()
        self.lifetimes: list[Lifetime] = []

    def run(self) -> None:
        """Runs the step and closes what is held to the end of it."""
        if self.with_reads:
            for now, op in enumerate(self.order):
                self.position[op] = now
        self._begin()
        idle, lasts = self.layout.idle, self.lasts
        running: list[tuple[int, int, int]] = []
        for now, op in enumerate(self.order):
            while running and running[0][0] < now:
                self.now, _, done = heappop(running)
                self._finish(done)
            self.now = now
            if idle[op]:
                continue
            if op in self.layout.dead:
                self._pass_by(op)
                continue
            self._start(op)
            if lasts[now] == now:
                self._finish(op)
            else:
                heappush(running, (lasts[now], now, op))
        while running:
            self.now, _, done = heappop(running)
            self._finish(done)
        self._end()

    def _end(self) -> None:
        """Closes what is held to the end of the step."""
        for buffer in self.held:
            if buffer is not None and buffer.holders > 0 and not buffer.resident:
                self._close(buffer, self.now)

    def _begin(self) -> None:
        """Takes in what is there before any op runs: what is fed, and what lasts."""
        layout = self.layout
        for op in layout.feeds:
            for value in layout.outputs[op]:
                self.held[value] = self._new(op, value, "feed", holders=1)
        alike: dict[tuple[str, int], Buffer] = {}
        for value in layout.lasting:
            key = layout.memory[value], layout.bytes[value]
            if self.with_reads or key not in alike:  # nobody asks which of them it is
                alike[key] = self._new(layout.producer[value], value, "weights", resident=True)
            self.held[value] = alike[key]

    def held_bytes(self, values: Sequence[int]) -> list[int]:
        """Returns what each of the values holds in the end, elements of lists included; what
        several of them hold counts for the first, what is fed or resident for none."""
        seen: set[int] = set()

        def bytes_of(buffer: Buffer | None) -> int:
            if buffer is None or id(buffer) in seen:
                return 0
            seen.add(id(buffer))
            own = 0 if buffer.resident or buffer.kind == "feed" else buffer.bytes
            return own + sum(map(bytes_of, buffer.items))

        return [bytes_of(self.held[value]) for value in values]

    def _start(self, op: int) -> None:
        """The op's outputs and temporaries, and what it does to variables and lists."""
        layout, held = self.layout, self.held
        effect, outputs = layout.effects[op], layout.outputs[op]
        arrived = self._receive_inputs(op) if layout.copies else []
        if effect != Effect.FED:
            if op in layout.temporary_chunks:
                chunks = layout.temporary_chunks[op]
                self.workspaces[op] = [self._workspace(op, size) for size in chunks]
            for value in outputs:
                held[value] = self._output_buffer(op, effect, value)
            if layout.temporary_bytes[op] and op not in layout.temporary_chunks:
                sizes = layout.later_chunks.get(op) or (layout.temporary_bytes[op],)
                self.workspaces[op] = [self._workspace(op, size) for size in sizes]
        for value in outputs:
            buffer = held[value]
            assert buffer is not None
            buffer.holders += layout.readers[value]
            if value in layout.copies:
                self._send(op, value)
            if self.with_reads and value in layout.fetched:
                size = layout.bytes[value]
                buffer.reads.append(Read(self.now, len(self.order), self.now, size))
        for received in arrived:
            received.holders -= 1
        if effect >= Effect.UPDATE_VARIABLE:
            self._change_state(op, effect)

    def _pass_by(self, op: int) -> None:
        """A dead op writes nothing, and lets go what it would have read."""
        for received in self._receive_inputs(op) if self.layout.copies else ():
            received.holders -= 1
        self._finish(op)

    def _finish(self, op: int) -> None:
        """The op needs its temporaries and inputs no more; what nobody reads is freed with them."""
        layout, held = self.layout, self.held
        if op in self.workspaces:
            for workspace in self.workspaces.pop(op):
                self._record(workspace, self.now)
        for value in layout.inputs[op]:
            buffer = held[value]
            if buffer is not None:
                if self.with_reads:
                    buffer.reads.append(self._read(value))
                buffer.holders -= 1
                if not buffer.holders and not buffer.resident:
                    self._let_go(buffer)
        for value, copy in layout.transposed.get(op, ()):
            self._transpose(op, value, copy)
        for value in layout.outputs[op]:
            buffer = held[value]
            if buffer is not None and not buffer.holders and not buffer.resident:
                self._let_go(buffer)

    def _read(self, value: int) -> Read:
        """The current op's reading of ``value``."""
        layout = self.layout
        written = self.position[layout.producer[value]]
        return Read(written, self.now, self.now, layout.bytes[value])

    def _workspace(self, op: int, size: int) -> Buffer:
        """Returns what the op's kernel takes for itself."""
        layout = self.layout
        return Buffer(layout.names[op], layout.devices[op], size, "temporary", self.now)

    def _output_buffer(self, op: int, effect: Effect, value: int) -> Buffer:
        """The buffer of an output: resident, an input's, written over an input, or a new one."""
        if effect != Effect.PLAIN:
            if effect == Effect.RESIDENT:
                return self._new(op, value, "weights", resident=True)
            if effect == Effect.READ_VARIABLE:
                return self._read_variable(op, value)
            if effect >= Effect.ADD_ITEM:
                return self._list_output(op, effect, value)
        for source in self.layout.shared.get(value, ()):
            buffer = self.held[source]
            if buffer is not None:
                return buffer
        for source in self.layout.overwritten.get(value, ()):
            buffer = self.held[source]
            if buffer is not None and buffer.holders == 1 and not buffer.resident:
                return self._overwrite(op, source, buffer, value)
        return self._new(op, value, "activation")

    def _list_output(self, op: int, effect: Effect, value: int) -> Buffer:
        """A list, or the element taken out of it; ``list_kernels.h``."""
        layout = self.layout
        given = [self.held[source] for source in layout.inputs[op]]
        if effect >= Effect.CUT_INTO_LIST:
            return self._new_list(op, effect, value, given)
        old = next(
            (b for s in layout.shared.get(value, ()) if (b := self.held[s]) is not None), None
        )
        if old is None:
            return self._new(op, value, "activation")
        if effect == Effect.READ_ITEM:
            return self._read_item(old)
        taken = effect == Effect.TAKE_ITEM and bool(old.items)
        if taken and value != layout.outputs[op][0]:
            return old.items[-1]
        if old.holders == 1 or not (old.items or old.resident):
            return old
        return self._list_of(op, value, old.items[:-1] if taken else old.items, old.capacity)

    def _new_list(
        self, op: int, effect: Effect, value: int, given: Sequence[Buffer | None]
    ) -> Buffer:
        """Elements cut out of a tensor, zeros as many as there are, or the sum of lists."""
        lists = [buffer for buffer in given if buffer is not None]
        if effect == Effect.JOIN_LISTS:
            return self._joined_lists(op, value, lists)
        if effect == Effect.CUT_INTO_LIST:
            count = self.layout.item_counts[op]
            sizes = [self.layout.bytes[value] // count] * count
        else:
            sizes = [item.bytes for item in lists[0].items]
            if lists[0].bytes:
                sizes.append(lists[0].bytes)
        return self._list_of(op, value, self._new_items(op, value, sizes), len(sizes))

    def _joined_lists(self, op: int, value: int, lists: Sequence[Buffer]) -> Buffer:
        """The elements that one of the lists has, and sums of those that both have."""
        capacity = max((source.capacity or 0 for source in lists), default=0) or None
        items: list[Buffer] = []
        for source in lists:
            both = len(items) + len(source.items) - (capacity or len(items) + len(source.items))
            both = max(0, min(both, len(items), len(source.items)))
            sums = self._new_items(op, value, [item.bytes for item in source.items[:both]])
            items = items[both:] + source.items[both:] + sums
        return self._list_of(op, value, items, capacity)

    def _new_items(self, op: int, value: int, sizes: Sequence[int]) -> list[Buffer]:
        return [self._new(op, value, "activation", size=size) for size in sizes]

    def _read_item(self, holder: Buffer) -> Buffer:
        """The element that is read: one after the other, as loops do."""
        if not holder.items:
            return holder
        holder.items_read += 1
        return holder.items[(holder.items_read - 1) % len(holder.items)]

    def _list_of(
        self, op: int, value: int, items: Sequence[Buffer], capacity: int | None = None
    ) -> Buffer:
        found = self._new(op, value, "activation", size=0)
        found.items, found.capacity = list(items), capacity
        for item in items:
            item.holders += 1
        return found

    def _overwrite(self, op: int, source: int, old: Buffer, value: int) -> Buffer:
        """The input's buffer, now the op's own, unless what is written is only a slice of it."""
        if old.bytes != self.layout.bytes[value]:
            return old
        if self.with_reads:
            old.reads.append(self._read(source))
        self._close(old, self.now - 1)
        new = self._new(op, value, "activation", holders=1)
        self.held[source] = new
        return new

    def _read_variable(self, op: int, value: int) -> Buffer:
        """The variable's own buffer, or a copy if the variable is also accessed row by row."""
        (variable,) = self.layout.variables[op]
        if variable in self.layout.copied_on_read:
            return self._new(op, value, "activation")
        if variable not in self.values:
            self.values[variable] = self._new(op, value, "weights", resident=True)
        return self.values[variable]

    def _send(self, op: int, value: int) -> None:
        """The receive buffers of what is read elsewhere, held by the readers; a GPU holds what it
        sends."""
        source = self.held[value]
        for copy in self.layout.copies[value]:
            readers = self.layout.readers[copy]
            self.held[copy] = self._new(op, copy, "transfer", holders=readers)
            if source is not None:
                self.sends.begin(op, copy, self.layout.memory[copy], source)

    def _receive_inputs(self, op: int) -> list[Buffer]:
        """Lets go what the op reads from elsewhere, which has arrived; returns what
        the rendezvous still holds as the op begins, which on a GPU is what nobody read before."""
        found, inputs = [], self.layout.inputs[op]
        given_back = self.sends.start(op, self.layout.devices[op])
        for value in inputs:
            given_back += self.sends.end(value)
        for source in given_back:
            if not source.holders and not source.resident:
                self._let_go(source, self.now - 1)
        for value in inputs:
            received = self.held[value] if self.sends.is_new(value) else None
            if received is not None:
                received.holders += 1
                found.append(received)
        return found

    def _transpose(self, op: int, value: int, copy: int) -> None:
        """The copy in another order of its dimensions, made as soon as the op is done."""
        source = self.held[value]
        if op in self.layout.dead:
            return
        self.held[copy] = self._new(op, copy, "activation", holders=self.layout.readers[copy])
        if source is None:
            return
        source.holders -= 1
        if not source.holders and not source.resident and value not in self.layout.outputs[op]:
            self._let_go(source)

    def _change_state(self, op: int, effect: Effect) -> None:
        """Updates copy a variable that is still being read; an assigned value becomes its buffer;
        a tensor that is put into a list lives as long as the list.

        A variable that is accessed row by row keeps its buffer to itself: reads copied it, and
        what is assigned is copied into a new one.  ``PrepareToUpdateVariable``,
        ``EnsureSparseVariableAccess`` and ``AssignVariableOp`` of
        ``tensorflow/core/kernels/{training_op_helpers.h,resource_variable_ops.cc}``.
        """
        layout = self.layout
        if effect == Effect.UPDATE_VARIABLE:
            for variable in layout.variables[op]:
                self._release_value(variable, self.now)
        elif effect == Effect.ASSIGN_VARIABLE:
            self._assign(op)
        elif effect == Effect.ADD_ITEM:
            self._add_item(op)
        elif effect == Effect.TAKE_ITEM:
            self._take_item(op)

    def _add_item(self, op: int) -> None:
        item, holder = self.held[self.layout.items[op]], self.held[self.layout.outputs[op][0]]
        assert item is not None
        assert holder is not None
        item.holders += 1
        holder.items.append(item)
        if holder.capacity is not None and len(holder.items) > holder.capacity:
            self._drop(holder.items.pop(0))
            holder.items_read = max(holder.items_read - 1, 0)

    def _take_item(self, op: int) -> None:
        """Takes the element out, unless the list was copied without it."""
        rest, item = (self.held[value] for value in self.layout.outputs[op])
        if rest is not None and rest is not item and rest.items and rest.items[-1] is item:
            self._drop(rest.items.pop())

    def _assign(self, op: int) -> None:
        variable = self.layout.variables[op][0]
        value = self.held[self.layout.inputs[op][1]]
        assert value is not None
        if variable in self.layout.copied_on_read:
            self._record(self._workspace(op, value.bytes), self.now)
            return
        self._release_value(variable, self.now + 1)
        if value.kind in ("activation", "transfer") and not value.resident:
            self._record(value, self.now)
            value.resident = True
            self.values[variable] = value

    def _release_value(self, variable: str, first: int) -> None:
        """The old value is resident no more; from ``first`` on it lives while it is read."""
        old = self.values.pop(variable, None)
        if old is not None and old.holders > 0:
            old.resident, old.kind, old.first = False, "weights", first

    def _let_go(self, buffer: Buffer, last: int | None = None) -> None:
        """The buffer that nobody holds is freed after this op, or the ``last`` that did, and then
        what it holds."""
        self._close(buffer, self.now if last is None else last)
        for item in buffer.items:
            self._drop(item)

    def _drop(self, item: Buffer) -> None:
        """A list holds the element no more."""
        item.holders -= 1
        if not item.holders and not item.resident:
            self._let_go(item)

    def _close(self, buffer: Buffer, last: int) -> None:
        self._record(buffer, last)
        buffer.holders = -1

    def _record(self, buffer: Buffer, last: int) -> None:
        if buffer.bytes and buffer.first <= last:
            self.lifetimes.append(buffer.lifetime(last))

    def _new(
        self,
        op: int,
        value: int,
        kind: str,
        *,
        holders: int = 0,
        resident: bool = False,
        size: int | None = None,
    ) -> Buffer:
        layout = self.layout
        return Buffer(
            layout.names[op],
            layout.memory[value],
            layout.bytes[value] if size is None else size,
            kind,
            self.now,
            holders,
            resident,
        )
