"""A flat TensorFlow graph: ops, tensors, colocation groups, loop bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

from cost_models.op_info import OpInfo, TensorProperties, ask_once
from placer.graph.tensor_names import op_of

if TYPE_CHECKING:
    import networkx

    from cost_models.kernels import KernelMatch

Answer = TypeVar("Answer")


Bodies = Mapping[str, tuple[str, ...]]
"""The names of the functions that an op runs, by attribute."""

# What a graph has thousands of goes without slots: those are pickled three times slower.


@dataclass(frozen=True, kw_only=True)
class Op:
    """One op of the flat graph.

    ``name`` is its call path.  ``inputs`` are tensor names (``"producer:0"``), as many and in the
    same order as ``info.inputs``; ops that differ in nothing a cost rule sees may have one ``info``
    between them.  ``control_inputs`` are op names.  ``device`` is the device string found in the
    file, ``""`` if none; several with ``|`` between them ask for one of them.
    ``bodies`` maps the function attributes of ``While``, ``If`` and ``Case`` (``"body"``,
    ``"cond"``, ``"then_branch"``, ...) to names in ``OpGraph.functions``.
    """

    name: str
    info: OpInfo
    inputs: tuple[str, ...] = ()
    control_inputs: tuple[str, ...] = ()
    device: str = ""
    bodies: Bodies = field(default_factory=dict)

    @property
    def op_type(self) -> str:
        """TensorFlow's op type, such as ``MatMul``."""
        return self.info.op

    @property
    def producers(self) -> list[str]:
        """The ops that compute its inputs, input by input."""
        return [tensor.partition(":")[0] for tensor in self.inputs]

    def output_name(self, index: int) -> str:
        """The name of output ``index``."""
        return f"{self.name}:{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One output of an op with the ops that read it, each once, in graph order."""

    name: str
    producer: str
    index: int
    properties: TensorProperties
    consumers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """State that lives from step to step: a variable or a table.

    ``handle`` is the op of the flat graph that stands for it (``VarHandleOp``, ``VariableV2``, or
    the placeholder of a captured handle).  ``shape`` is ``None`` where it is unknown.
    """

    name: str
    handle: str
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, kw_only=True)
class ColocationGroup:
    """Ops that share a device, and why (``resource``, ``reference``, ``colocation_hint``, ...)."""

    ops: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OpGraph:
    """A flat graph in a topological order (back edges of v1 loops left out of the order).

    ``feeds`` are the ops whose values come from the host at every step, ``fetches`` the tensors
    that go back to it, ``targets`` the ops that run for their side effects.  ``functions`` holds
    the flat bodies of functional control flow; there ``feeds`` are all arguments and ``fetches``
    all results of the function, in order.  ``colocation_groups`` are ops that must share a device
    by what they are, ``colocation_hints`` pairs of ops that the graph alone asks to (``_class``).
    ``stateful_types`` are the op types in it that TensorFlow registers as stateful or as writing
    references, or does not know.  ``idle_bytes`` are by device the sizes of what loaders put there
    that no op of the graph uses.
    """

    ops: Mapping[str, Op]
    feeds: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    functions: Mapping[str, OpGraph] = field(default_factory=dict)
    variables: tuple[Variable, ...] = ()
    colocation_groups: tuple[ColocationGroup, ...] = ()
    colocation_hints: tuple[ColocationGroup, ...] = ()
    stateful_types: frozenset[str] = frozenset()
    fingerprint: str = ""
    idle_bytes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def with_idle(self, idle_bytes: Mapping[str, tuple[int, ...]]) -> OpGraph:
        """The same graph beside what is loaded and not used; what it was asked still holds."""
        found = replace(
            self, idle_bytes={name: sizes for name, sizes in idle_bytes.items() if sizes}
        )
        known = {key: value for key, value in self.__dict__.items() if key not in found.__dict__}
        found.__dict__.update(known)
        return found

    def ask_once(self, function: Callable[[OpGraph], Answer]) -> Answer:
        """Returns the answer of ``function`` for this graph, which is computed once."""
        if function not in self._answers:
            self._answers[function] = function(self)
        return cast(Answer, self._answers[function])

    @cached_property
    def _answers(self) -> dict[Callable[[OpGraph], object], object]:
        return {}

    @cached_property
    def infos(self) -> tuple[OpInfo, ...]:
        """The view that cost rules have of every op, in graph order."""
        return tuple([op.info for op in self.ops.values()])

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """The ops that read each tensor, each once, in graph order; none where nobody does."""
        found: dict[str, list[str]] = {}
        for name, op in self.ops.items():
            for tensor in op.inputs:
                readers = found.get(tensor)
                if readers is None:
                    found[tensor] = [name]
                elif readers[-1] != name:
                    readers.append(name)
        return {tensor: tuple(readers) for tensor, readers in found.items()}

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every output of every op by name, in graph order."""
        return {
            name: Tensor(
                name=name,
                producer=op.name,
                index=index,
                properties=properties,
                consumers=self.consumers.get(name, ()),
            )
            for op in self.ops.values()
            for index, properties in enumerate(op.info.outputs)
            for name in (op.output_name(index),)
        }

    @cached_property
    def output_names(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the outputs of every op."""
        return {
            name: tuple([f"{name}:{index}" for index in range(len(op.info.outputs))])
            for name, op in self.ops.items()
        }

    @cached_property
    def tensor_numbers(self) -> Mapping[str, int]:
        """The outputs of all ops by name, numbered in graph order."""
        names = chain.from_iterable(self.output_names.values())
        return {tensor: number for number, tensor in enumerate(names)}

    @cached_property
    def tensor_producers(self) -> Sequence[int]:
        """The number of the op that computes each tensor, by the number of that."""
        counts = map(len, self.output_names.values())
        return [op for op, count in enumerate(counts) for _ in range(count)]

    @cached_property
    def input_numbers(self) -> Sequence[Sequence[int]]:
        """The numbers of the tensors that every op reads, input by input."""
        numbers = self.tensor_numbers
        return [[numbers[tensor] for tensor in op.inputs] for op in self.ops.values()]

    @cached_property
    def producer_numbers(self) -> Sequence[Sequence[int]]:
        """The numbers of the ops that compute what every op reads, input by input."""
        producers = self.tensor_producers
        return [[producers[tensor] for tensor in read] for read in self.input_numbers]

    @cached_property
    def handle_reads(self) -> tuple[tuple[str, str], ...]:
        """Every op that reads a resource handle, with the handle's tensor."""
        slots = ask_once(_handle_slots, self.infos)
        return tuple(
            [
                (op.name, op.inputs[slot])
                for op, found in zip(self.ops.values(), slots, strict=True)
                for slot in found
            ]
        )

    @cached_property
    def gpu_kernels(self) -> Mapping[str, KernelMatch | None]:
        """The kernel that would run each op on a GPU, ``None`` where there is none."""
        from cost_models.kernels import gpu_kernel

        return dict(zip(self.ops, ask_once(gpu_kernel, self.infos), strict=True))

    @cached_property
    def networkx(self) -> networkx.MultiDiGraph[str]:
        """The graph for researchers: nodes carry ``op``, edges ``tensor`` (``None``: control)."""
        from networkx import MultiDiGraph

        graph: MultiDiGraph[str] = MultiDiGraph()
        graph.add_nodes_from((op.name, {"op": op}) for op in self.ops.values())
        for op in self.ops.values():
            graph.add_edges_from(
                (op_of(name), op.name, {"tensor": self.tensors[name]}) for name in op.inputs
            )
            graph.add_edges_from((name, op.name, {"tensor": None}) for name in op.control_inputs)
        return graph


def _handle_slots(info: OpInfo) -> tuple[int, ...]:
    """The inputs that are resource handles."""
    return tuple([slot for slot, read in enumerate(info.inputs) if read.dtype == "resource"])
