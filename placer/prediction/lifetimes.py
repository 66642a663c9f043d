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

from cost_models.op_cost import OpCost
from placer.graph.op_graph import Op, OpGraph
from placer.prediction.buffer_sharing import overwritten_inputs, shared_input
from placer.prediction.buffers import Buffer, Read
from placer.prediction.buffers import Lifetime as Lifetime
from placer.prediction.control_flow import LOOPS, loop_invariants
from placer.prediction.routes import Place, Routes
from placer.prediction.step_layout import Located, StepLayout, find_variables, lay_out_step
from placer.prediction.tensor_lists import added_item

_RESIDENT_OUTPUTS = frozenset(
    {"Const", "HostConst", "_HostConst", "Variable", "VariableV2", "AutoReloadVariable"}
)
_DENSE_UPDATES = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply")
_SPARSE_ACCESS = (
    "ResourceGather",
    "ResourceScatter",
    "ResourceSparseApply",
    "ResourceStridedSliceAssign",
)
_MERGES = frozenset({"Merge", "RefMerge"})


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
    layout = lay_out_step(graph, costs, routes, memory_of, order, host)
    simulation = _Simulation(graph, costs, routes.device_of, order, layout)
    simulation.run()
    return simulation.lifetimes


class _Simulation:
    """The buffers of one step, op by op."""

    def __init__(
        self,
        graph: OpGraph,
        costs: Mapping[str, OpCost],
        device_of: Mapping[str, str],
        order: Sequence[str],
        layout: StepLayout,
    ) -> None:
        self.graph = graph
        self.costs = costs
        self.device_of = device_of
        self.order = order
        self.layout = layout
        self.fetches = frozenset(graph.fetches)
        self.held: dict[Located, Buffer] = {}
        self.values: dict[str, Buffer] = {}
        self.invariants: dict[str, frozenset[int]] = {}
        self.variable_of = find_variables(graph)
        self.copied_on_read = {
            variable
            for op in graph.ops.values()
            if op.op_type.startswith(_SPARSE_ACCESS)
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

    def _feed(self, op: Op) -> None:
        """A fed value belongs to the caller, who holds it from the beginning to the end."""
        for output in self.layout.outputs[op.name]:
            self.held[output] = self._new(op, output, "feed", holders=1)

    def _run_op(self, op: Op, fed: bool) -> None:
        outputs = self.layout.outputs[op.name]
        if not fed:
            for index, output in enumerate(outputs):
                self.held[output] = self._output_buffer(op, index, output)
            self._record_temporary(op, self.costs[op.name].temporary_bytes)
        for output in outputs:
            self._deliver(op, output)
        self._update_variables(op)
        self._add_item(op)
        for source in self.layout.inputs[op.name]:
            buffer = self.held.get(source)
            if buffer is not None:
                buffer.reads.append(self._read(source[0]))
                buffer.holders -= 1
                self._let_go(buffer)
        for output in outputs:
            self._let_go(self.held[output])

    def _read(self, tensor: str) -> Read:
        """The current op's reading of ``tensor``."""
        layout = self.layout
        return Read(layout.position[tensor], self.now, self.now, layout.size_bytes[tensor])

    def _record_temporary(self, op: Op, size: int) -> None:
        if size:
            device = self.device_of[op.name]
            self.lifetimes.append(Lifetime(op.name, device, size, "temporary", self.now, self.now))

    def _output_buffer(self, op: Op, index: int, output: Located) -> Buffer:
        """The buffer of an output: resident, an input's, written over an input, or a new one."""
        if op.op_type in _RESIDENT_OUTPUTS:
            return self._new(op, output, "weights", resident=True)
        if op.op_type == "ReadVariableOp":
            return self._read_variable(op, output)
        shared = self._shared_buffer(op, index, output[1])
        if shared is not None:
            return shared
        for number in overwritten_inputs(op.info, index):
            source = self.layout.inputs[op.name][number]
            if source[1] == output[1] and self._is_last_holder(source):
                return self._overwrite(op, source, output)
        return self._new(op, output, "activation")

    def _shared_buffer(self, op: Op, index: int, memory: str) -> Buffer | None:
        """The input's buffer that output ``index`` shows again, if it lies where it should."""
        number = self._shared_input(op, index)
        if number is None:
            return None
        inputs = self.layout.inputs[op.name]
        sources = inputs if op.op_type in _MERGES else inputs[number : number + 1]
        buffers = (self.held.get(source) for source in sources if source[1] == memory)
        return next((buffer for buffer in buffers if buffer is not None), None)

    def _shared_input(self, op: Op, index: int) -> int | None:
        if op.op_type not in LOOPS:
            return shared_input(op.info, index)
        (body,) = op.bodies["body"]
        if body not in self.invariants:
            self.invariants[body] = loop_invariants(self.graph.functions[body])
        return index if index in self.invariants[body] else None

    def _is_last_holder(self, source: Located) -> bool:
        """May the buffer be written into by the one op that still holds it?"""
        buffer = self.held.get(source)
        return buffer is not None and buffer.holders == 1 and not buffer.resident

    def _overwrite(self, op: Op, source: Located, output: Located) -> Buffer:
        """The input's buffer, now the op's own, unless what is written is only a slice of it."""
        old = self.held[source]
        if old.bytes == self.layout.size_bytes[output[0]]:
            old.reads.append(self._read(source[0]))
            self._close(old, self.now - 1)
            self.held[source] = self._new(op, output, "activation", holders=1)
        return self.held[source]

    def _read_variable(self, op: Op, output: Located) -> Buffer:
        """The variable's own buffer, or a copy if the variable is also accessed row by row."""
        variable = self.variable_of[op.inputs[0]]
        if variable in self.copied_on_read:
            return self._new(op, output, "activation")
        if variable not in self.values:
            self.values[variable] = self._new(op, output, "weights", resident=True)
        return self.values[variable]

    def _variables(self, op: Op) -> Iterator[str]:
        """The variables whose handles the op reads."""
        return (self.variable_of[tensor] for tensor in op.inputs if tensor in self.variable_of)

    def _deliver(self, op: Op, output: Located) -> None:
        """Every reader becomes a holder, of the buffer at home or of a receive buffer."""
        tensor, layout = output[0], self.layout
        buffer = self.held[output]
        if tensor in self.fetches:
            size = layout.size_bytes[tensor]
            buffer.reads.append(Read(self.now, len(self.order), self.now, size))
        buffer.holders += layout.readers.get(output, 0)
        for memory in layout.sent_to.get(tensor, ()):
            there = tensor, memory
            self.held[there] = self._new(op, there, "transfer", holders=layout.readers[there])

    def _update_variables(self, op: Op) -> None:
        """Updates copy a variable that is still being read; an assigned value becomes its buffer.

        A variable that is accessed row by row keeps its buffer to itself: reads copied it, and
        what is assigned is copied into a new one.  ``PrepareToUpdateVariable``,
        ``EnsureSparseVariableAccess`` and ``AssignVariableOp`` of
        ``tensorflow/core/kernels/{training_op_helpers.h,resource_variable_ops.cc}``.
        """
        if op.op_type.startswith(_DENSE_UPDATES):
            for variable in self._variables(op):
                self._release_value(variable, self.now)
        elif op.op_type == "AssignVariableOp":
            variable = self.variable_of[op.inputs[0]]
            value = self.held[self.layout.inputs[op.name][1]]
            if variable in self.copied_on_read:
                self._record_temporary(op, value.bytes)
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

    def _add_item(self, op: Op) -> None:
        """A tensor that is put into a list lives as long as the list."""
        number = added_item(op.op_type)
        if number is not None:
            item = self.held[self.layout.inputs[op.name][number]]
            item.holders += 1
            self.held[self.layout.outputs[op.name][0]].items.append(item)

    def _let_go(self, buffer: Buffer) -> None:
        """The buffer is freed after this op if nobody holds it, and then what it holds."""
        if buffer.holders == 0 and not buffer.resident:
            self._close(buffer, self.now)
            for item in buffer.items:
                item.holders -= 1
                self._let_go(item)

    def _close(self, buffer: Buffer, last: int) -> None:
        self._record(buffer, last)
        buffer.holders = -1

    def _record(self, buffer: Buffer, last: int) -> None:
        if buffer.bytes and buffer.first <= last:
            self.lifetimes.append(buffer.lifetime(last))

    def _new(
        self, op: Op, output: Located, kind: str, *, holders: int = 0, resident: bool = False
    ) -> Buffer:
        tensor, memory = output
        return Buffer(
            owner=op.name,
            device=memory,
            bytes=self.layout.size_bytes[tensor],
            kind=kind,
            first=self.now,
            holders=holders,
            resident=resident,
        )
