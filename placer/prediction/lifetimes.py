"""From when to when every buffer lives, along one execution order.

Reference counting as TensorFlow's executor does it: every input slot of an op that has yet to run
holds its buffer; an op that overwrites an input needs to be the only holder; a tensor that is sent
holds the sender's buffer until its producer is done, and a receive buffer from then on.

    x ---> conv ---> relu ---> add ---> y           conv  |--|
                       |        ^                   relu     |-----|     (relu overwrites conv)
                       '-> pool-'                   pool        |--|
                                                    add            |---  (add overwrites relu)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cost_models.op_cost import OpCost
from placer.graph.op_graph import Op, OpGraph
from placer.prediction.buffer_sharing import overwritten_inputs, shared_input
from placer.prediction.control_flow import LOOPS, loop_invariants
from placer.prediction.routes import Place, Routes
from placer.prediction.tensor_lists import added_item

_RESIDENT_OUTPUTS = frozenset(
    {"Const", "HostConst", "_HostConst", "Variable", "VariableV2", "AutoReloadVariable"}
)
_DENSE_UPDATES = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply")
_SPARSE_UPDATES = ("ResourceScatter", "ResourceSparseApply")
_MERGES = frozenset({"Merge", "RefMerge"})


class Read(NamedTuple):
    """A buffer is kept from op number ``first``, which produced the tensor, to ``last``, and
    lies where op number ``holder`` is: the reader, or the producer of a fetched tensor.
    ``bytes`` are the tensor's, which may be a slice of the buffer."""

    first: int
    last: int
    holder: int
    bytes: int


class Lifetime(NamedTuple):
    """``bytes`` on ``device`` while ops number ``first`` to ``last`` of the order run.

    ``owner`` is the op that wrote them (for a receive buffer: the op whose output arrives);
    ``kind`` is ``activation``, ``temporary``, ``transfer`` (a receive buffer), ``feed``, or
    ``weights`` (the old value of a variable, still being read).  ``reads`` say who keeps it.
    """

    owner: str
    device: str
    bytes: int
    kind: str
    first: int
    last: int
    reads: tuple[Read, ...] = ()


def find_lifetimes(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    routes: Routes,
    memory_of: Mapping[Place, str],
    order: Sequence[str],
    host: str,
) -> list[Lifetime]:
    """The lifetimes of all buffers but the resident ones.

    ``memory_of`` names the device whose memory a place is in; ``order`` holds every op once;
    fetched values go to ``host``.  Tensors without a size count zero bytes.
    """
    simulation = _Simulation(graph, costs, routes, memory_of, order, host)
    simulation.run()
    return simulation.lifetimes


@dataclass(slots=True, kw_only=True, eq=False)
class _Buffer:
    """A buffer during the simulation; ``holders`` is the number of those who still need it.

    A resident buffer is a variable or constant: its bytes are counted elsewhere.  ``items`` are
    the buffers that a tensor list holds.
    """

    owner: str
    device: str
    bytes: int
    kind: str
    first: int
    holders: int = 0
    resident: bool = False
    items: list[_Buffer] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)


class _Simulation:
    """The buffers of one step, op by op."""

    def __init__(
        self,
        graph: OpGraph,
        costs: Mapping[str, OpCost],
        routes: Routes,
        memory_of: Mapping[Place, str],
        order: Sequence[str],
        host: str,
    ) -> None:
        self.graph = graph
        self.costs = costs
        self.order = order
        self.fetches = frozenset(graph.fetches)
        self.position = {name: index for index, name in enumerate(order)}
        self.home = {tensor: memory_of[place] for tensor, place in routes.home.items()}
        self.reads = {
            op: tuple(memory_of[place] for place in places) for op, places in routes.reads.items()
        }
        self.device_of = routes.device_of
        self.slots = self._count_slots(host)
        self.held: dict[tuple[str, str], _Buffer] = {}
        self.values: dict[str, _Buffer] = {}
        self.invariants: dict[str, frozenset[int]] = {}
        self.variable_of = _find_variables(graph)
        self.copied_on_read = {
            variable
            for op in graph.ops.values()
            if op.op_type.startswith(_SPARSE_UPDATES)
            for variable in self._variables(op)
        }
        self.now = 0
        self.lifetimes: list[Lifetime] = []

    def run(self) -> None:
        """Runs the step and closes what is held to the end of it."""
        feeds = frozenset(self.graph.feeds)
        for name in self.graph.feeds:
            self._feed(self.graph.ops[name])
        for now, name in enumerate(self.order):
            self.now = now
            self._run_op(self.graph.ops[name], fed=name in feeds)
        for buffer in dict.fromkeys(self.held.values()):
            if buffer.holders > 0 and not buffer.resident:
                self._close(buffer, self.now)

    def _count_slots(self, host: str) -> dict[str, dict[str, int]]:
        """How often each tensor is read in each memory.

        A fetch is a reader at home and on the host that is never done.  What is read before it is
        produced (the back edge of a v1 loop) is not waited for.
        """
        position = self.position
        slots: dict[str, dict[str, int]] = {tensor: {} for tensor in self.home}
        for name in self.order:
            for tensor, memory in zip(self.graph.ops[name].inputs, self.reads[name], strict=True):
                if position[tensor.rpartition(":")[0]] < position[name]:
                    slots[tensor][memory] = slots[tensor].get(memory, 0) + 1
        for tensor in dict.fromkeys(self.graph.fetches):
            for memory in dict.fromkeys((self.home[tensor], host)):
                slots[tensor][memory] = slots[tensor].get(memory, 0) + 1
        return slots

    def _feed(self, op: Op) -> None:
        """A fed value belongs to the caller, who holds it from the beginning to the end."""
        for tensor in _outputs(op):
            self.held[tensor, self.home[tensor]] = self._new(op, tensor, "feed", holders=1)

    def _run_op(self, op: Op, fed: bool) -> None:
        tensors = _outputs(op)
        if not fed:
            for index, tensor in enumerate(tensors):
                self.held[tensor, self.home[tensor]] = self._output_buffer(op, index, tensor)
            self._record_temporary(op)
        for tensor in tensors:
            self._deliver(op, tensor)
        self._update_variables(op)
        self._add_item(op)
        for key in zip(op.inputs, self.reads[op.name], strict=True):
            if key in self.held:
                self.held[key].reads.append(self._read(key[0]))
                self.held[key].holders -= 1
                self._let_go(self.held[key])
        for tensor in tensors:
            self._let_go(self.held[tensor, self.home[tensor]])

    def _read(self, tensor: str) -> Read:
        """The current op's reading of ``tensor``."""
        produced = self.position[tensor.rpartition(":")[0]]
        return Read(produced, self.now, self.now, self._bytes(tensor))

    def _record_temporary(self, op: Op) -> None:
        size = self.costs[op.name].temporary_bytes
        if size:
            device = self.device_of[op.name]
            self.lifetimes.append(Lifetime(op.name, device, size, "temporary", self.now, self.now))

    def _output_buffer(self, op: Op, index: int, tensor: str) -> _Buffer:
        """The buffer of an output: resident, an input's, written over an input, or a new one."""
        if op.op_type in _RESIDENT_OUTPUTS:
            return self._new(op, tensor, "weights", resident=True)
        if op.op_type == "ReadVariableOp":
            return self._read_variable(op, tensor)
        shared = self._shared_buffer(op, index, tensor)
        if shared is not None:
            return shared
        for source in overwritten_inputs(op.info, index):
            key = op.inputs[source], self.home[tensor]
            if self.reads[op.name][source] == self.home[tensor] and self._is_last_holder(key):
                return self._overwrite(op, key, tensor)
        return self._new(op, tensor, "activation")

    def _shared_buffer(self, op: Op, index: int, tensor: str) -> _Buffer | None:
        """The input's buffer that output ``index`` shows again, if it lies where it should."""
        source = self._shared_input(op, index)
        if source is None or self.reads[op.name][source] != self.home[tensor]:
            return None
        sources = op.inputs if op.op_type in _MERGES else (op.inputs[source],)
        buffers = (self.held.get((name, self.home[tensor])) for name in sources)
        return next((buffer for buffer in buffers if buffer is not None), None)

    def _shared_input(self, op: Op, index: int) -> int | None:
        if op.op_type not in LOOPS:
            return shared_input(op.info, index)
        (body,) = op.bodies["body"]
        if body not in self.invariants:
            self.invariants[body] = loop_invariants(self.graph.functions[body])
        return index if index in self.invariants[body] else None

    def _is_last_holder(self, key: tuple[str, str]) -> bool:
        """May the buffer be written into by the one op that still holds it?"""
        buffer = self.held.get(key)
        return buffer is not None and buffer.holders == 1 and not buffer.resident

    def _overwrite(self, op: Op, key: tuple[str, str], tensor: str) -> _Buffer:
        """The input's buffer, now the op's own, unless what is written is only a slice of it."""
        old = self.held[key]
        if old.bytes == self._bytes(tensor):
            old.reads.append(self._read(key[0]))
            self._close(old, self.now - 1)
            self.held[key] = self._new(op, tensor, "activation", holders=1)
        return self.held[key]

    def _read_variable(self, op: Op, tensor: str) -> _Buffer:
        """The variable's own buffer, or a copy if the variable is also updated row by row."""
        variable = self.variable_of[op.inputs[0]]
        if variable in self.copied_on_read:
            return self._new(op, tensor, "activation")
        if variable not in self.values:
            self.values[variable] = self._new(op, tensor, "weights", resident=True)
        return self.values[variable]

    def _variables(self, op: Op) -> Iterator[str]:
        """The variables whose handles the op reads."""
        return (self.variable_of[tensor] for tensor in op.inputs if tensor in self.variable_of)

    def _deliver(self, op: Op, tensor: str) -> None:
        """Every reader becomes a holder, of the buffer at home or of a receive buffer."""
        buffer = self.held[tensor, self.home[tensor]]
        if tensor in self.fetches:
            buffer.reads.append(Read(self.now, len(self.order), self.now, self._bytes(tensor)))
        for memory, count in self.slots[tensor].items():
            if memory == self.home[tensor]:
                buffer.holders += count
            else:
                self.held[tensor, memory] = _Buffer(
                    owner=op.name,
                    device=memory,
                    bytes=self._bytes(tensor),
                    kind="transfer",
                    first=self.now,
                    holders=count,
                )

    def _update_variables(self, op: Op) -> None:
        """Updates copy a variable that is still being read; an assigned value becomes its buffer.

        ``PrepareToUpdateVariable`` and ``AssignVariableOp`` of
        ``tensorflow/core/kernels/{training_op_helpers.h,resource_variable_ops.cc}``.
        """
        if op.op_type.startswith(_DENSE_UPDATES):
            for variable in self._variables(op):
                self._release_value(variable, self.now)
        elif op.op_type == "AssignVariableOp":
            variable = self.variable_of[op.inputs[0]]
            self._release_value(variable, self.now + 1)
            value = self.held[op.inputs[1], self.reads[op.name][1]]
            if value.kind in ("activation", "transfer") and not value.resident:
                self._record(value, self.now)
                value.resident = True
                self.values[variable] = value

    def _release_value(self, variable: str, first: int) -> None:
        """The old value is resident no more; from ``first`` on it lives while it is read."""
        old = self.values.pop(variable, None)
        if old is not None and old.holders > 0:
            old.resident, old.kind, old.first = False, "weights", first

    def _add_item(self, op: Op) -> None:
        """A tensor that is put into a list lives as long as the list."""
        source = added_item(op.op_type)
        if source is None:
            return
        item = self.held[op.inputs[source], self.reads[op.name][source]]
        item.holders += 1
        self.held[op.output_name(0), self.home[op.output_name(0)]].items.append(item)

    def _let_go(self, buffer: _Buffer) -> None:
        """The buffer is freed after this op if nobody holds it, and then what it holds."""
        if buffer.holders == 0 and not buffer.resident:
            self._close(buffer, self.now)
            for item in buffer.items:
                item.holders -= 1
                self._let_go(item)

    def _close(self, buffer: _Buffer, last: int) -> None:
        self._record(buffer, last)
        buffer.holders = -1

    def _record(self, buffer: _Buffer, last: int) -> None:
        if buffer.bytes and buffer.first <= last:
            place = buffer.owner, buffer.device, buffer.bytes, buffer.kind
            self.lifetimes.append(Lifetime(*place, buffer.first, last, tuple(buffer.reads)))

    def _new(
        self, op: Op, tensor: str, kind: str, *, holders: int = 0, resident: bool = False
    ) -> _Buffer:
        return _Buffer(
            owner=op.name,
            device=self.home[tensor],
            bytes=self._bytes(tensor),
            kind=kind,
            first=self.now,
            holders=holders,
            resident=resident,
        )

    def _bytes(self, tensor: str) -> int:
        producer, _, index = tensor.rpartition(":")
        cost = self.costs[producer]
        if cost.held_bytes:
            return cost.held_bytes[int(index)] or cost.output_bytes[int(index)] or 0
        return cost.output_bytes[int(index)] or 0


def _outputs(op: Op) -> list[str]:
    return [op.output_name(index) for index in range(len(op.info.outputs))]


def _find_variables(graph: OpGraph) -> dict[str, str]:
    """The op that each resource tensor comes from, however often the handle was passed on."""
    found: dict[str, str] = {}
    for op in graph.ops.values():
        for index, output in enumerate(op.info.outputs):
            if output.dtype == "resource":
                source = shared_input(op.info, index)
                handle = None if source is None else found.get(op.inputs[source])
                found[op.output_name(index)] = handle or op.name
    return found
