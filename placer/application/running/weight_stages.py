"""A flat inference program cut into stages whose weights fit a budget.

    stage 1: x --> MatMul(w1) --> Relu --.        w1, w2 in memory
             ...                         |
    stage 2:        .--------------------'        w3 in memory, w1 and w2 gone
                    '--> MatMul(w3) --> y

Reading a variable becomes an input of the stage, which the weights are fed to.  Nothing in it has
side effects, so that control edges go, and with them what runs for its effects alone (assertions).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.byte_sizes import format_bytes, spell_bytes
from cost_models.op_info import TensorProperties
from cost_models.tensor_size import tensor_bytes
from placer.application.placing.function_graphs import FunctionEnds
from placer.errors import UsageError
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import dtype_number, fill_constant, without_nodes
from placer.extraction.graph_defs.tensor_types import output_types
from placer.graph.op_graph import Variable
from placer.graph.op_types import READ_VARIABLE
from placer.graph.tensor_names import data_inputs, full_tensor, op_of, split_tensor

_HANDLE, _GATHER = "VarHandleOp", "ResourceGather"


@dataclass(frozen=True, kw_only=True)
class WeightStage:
    """One stage: its GraphDef, the tensors it takes and gives (names of the whole), and the
    placeholders of the variables it reads, by handle."""

    graph_def: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, str]
    weight_bytes: int

    @property
    def ends(self) -> FunctionEnds:
        """The fed and returned tensors: inputs first, then weights in order."""
        fed = [f"{_placeholder(name)}:0" for name in self.inputs]
        fed += [f"{name}:0" for name in self.weights.values()]
        return FunctionEnds(inputs=tuple(fed), outputs=self.outputs, sinks=())


class StageCutter:
    """Cuts ``program`` into stages with at most ``stage_bytes`` of weights each.

    ``pulled`` are the ops that belong to whoever reads them: constants and reads.  Raises
    :class:`UsageError` for a variable of unknown size, and for a program that does more with
    variables than to read them.
    """

    def __init__(self, program: FlatProgram, stage_bytes: int) -> None:
        self.program = program
        self.stage_bytes = stage_bytes
        self.nodes = {node.name: node for node in program.graph_def.node}
        self.sizes = {v.handle: _bytes_of(v) for v in program.variables}
        self.definitions = program.definitions
        self.fed = program.fed_ops
        self.pulled: set[str] = set()
        for name, node in self.nodes.items():
            sources = self._sources(node)
            passes_on = not sources or node.op in (READ_VARIABLE, "Identity")
            if name not in self.fed and passes_on and self.pulled.issuperset(sources):
                self.pulled.add(name)
        self._check()

    def _check(self) -> None:
        for node in self.nodes.values():
            handles = [name for name in node.input if op_of(name) in self.sizes]
            if handles and node.op not in (READ_VARIABLE, _GATHER):
                raise UsageError(
                    f"{node.name} is a {node.op} on the variable {handles[0]}: placer.stream takes "
                    "programs that read their variables and do nothing else with them"
                )

    def _sources(self, node: Any) -> list[str]:
        """The producers of what an op reads."""
        return [op_of(name) for name in data_inputs(node.input)]

    def needs(self, name: str) -> dict[str, None]:
        """The pulled ops that an op reads, itself last."""
        found: dict[str, None] = {}
        for producer in self._sources(self.nodes[name]):
            if producer in self.pulled:
                found |= self.needs(producer)
        found[name] = None
        return found

    def stages(self) -> list[WeightStage]:
        """The stages in order.  Raises :class:`UsageError` for a variable that alone is larger."""
        parts: list[dict[str, None]] = [{}]
        held: dict[str, None] = {}
        ends = set(self.program.output_ops)
        for name, node in self.nodes.items():
            if name in self.fed or (name in self.pulled and name not in ends):
                continue
            needed = self.needs(name)
            weights = {op: None for op in needed if self.nodes[op].op == _HANDLE}
            size = sum(self.sizes[handle] for handle in weights)
            if size > self.stage_bytes:
                raise UsageError(
                    f"{node.name} reads {format_bytes(size)} of weights, and a stage may hold half "
                    f"of what resident allows, {format_bytes(self.stage_bytes)}: give "
                    f"resident='{spell_bytes(2 * size)}'"
                )
            if sum(self.sizes[handle] for handle in held | weights) > self.stage_bytes:
                parts.append({})
                held = {}
            held |= weights
            parts[-1] |= needed
        return list(self._built(parts))

    def _built(self, parts: Sequence[Mapping[str, None]]) -> Iterator[WeightStage]:
        wanted = {full_tensor(tensor) for _, tensor in self.program.outputs}
        read_later: list[set[str]] = [set()] * (len(parts) + 1)
        read_later[len(parts)] = wanted
        for number in range(len(parts) - 1, -1, -1):
            read_later[number] = read_later[number + 1] | self._read(parts[number])
        for number, part in enumerate(parts):
            outputs = {t for t in read_later[number + 1] if op_of(t) in part}
            own = {t for t in outputs if op_of(t) not in self.pulled or t in wanted}
            yield self._stage(part, tuple(sorted(own)))

    def _read(self, part: Mapping[str, None]) -> set[str]:
        """The tensors of others that the ops of a part read."""
        return {
            tensor
            for name in part
            for tensor in map(full_tensor, data_inputs(self.nodes[name].input))
            if op_of(tensor) not in part
        }

    def _stage(self, part: Mapping[str, None], outputs: tuple[str, ...]) -> WeightStage:
        inputs = tuple(sorted(self._read(part)))
        graph_def = without_nodes(self.program.graph_def)
        weights: dict[str, str] = {}
        for tensor in inputs:
            graph_def.node.add(name=_placeholder(tensor), op="Placeholder").attr[
                "dtype"
            ].type = self._dtype(tensor)
        for name in part:
            node = self.nodes[name]
            if node.op == _HANDLE:
                self._add_weight(graph_def, name)
                weights[name] = f"{name}/weights"
                continue
            copy = graph_def.node.add()
            copy.CopyFrom(node)
            copy.device = ""
            copy.input[:] = [self._inner(tensor, inputs) for tensor in data_inputs(node.input)]
            self._take_weight(graph_def, copy)
        return WeightStage(
            graph_def=graph_def,
            inputs=inputs,
            outputs=outputs,
            weights=weights,
            weight_bytes=sum(self.sizes[handle] for handle in weights),
        )

    def _inner(self, source: str, inputs: Sequence[str]) -> str:
        tensor = full_tensor(source)
        if tensor in inputs:
            return _placeholder(tensor)
        return f"{source}/weights" if source in self.sizes else source

    def _add_weight(self, graph_def: Any, handle: str) -> None:
        node = self.nodes[handle]
        added = graph_def.node.add(name=f"{handle}/weights", op="Placeholder")
        added.attr["dtype"].CopyFrom(node.attr["dtype"])
        added.attr["shape"].CopyFrom(node.attr["shape"])

    def _take_weight(self, graph_def: Any, node: Any) -> None:
        """A read passes the weights on, a gather reads rows of them."""
        if node.op == READ_VARIABLE:
            dtype = node.attr["dtype"].type
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = dtype
        elif node.op == _GATHER:
            axis = graph_def.node.add(name=f"{node.name}/axis")
            fill_constant(axis, 0)
            dtype, indices = node.attr["dtype"].type, node.attr["Tindices"].type
            node.op = "GatherV2"
            node.attr.clear()
            node.attr["Tparams"].type = dtype
            node.attr["Tindices"].type = indices
            node.attr["Taxis"].type = dtype_number("int32")
            node.input.append(axis.name)

    def _dtype(self, tensor: str) -> int:
        """The dtype number of a tensor, from the definition of its op."""
        name, index = split_tensor(tensor)
        types = output_types(self.nodes[name], self.definitions) or ()
        return dtype_number(types[index].dtype)


def _bytes_of(variable: Variable) -> int:
    size = tensor_bytes(TensorProperties(dtype=variable.dtype, shape=variable.shape))
    if size is None:
        raise UsageError(f"variable {variable.name} has no known size: it cannot be streamed")
    return size


def _placeholder(tensor: str) -> str:
    return "input/" + tensor.replace(":", "_")
