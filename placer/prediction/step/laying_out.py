"""The layout of a step, made of its graph: what every op reads and writes, and in which memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, chain, compress
from typing import TypeVar

from cost_models.devices import task_of
from cost_models.gpu_convolutions import replaces_output
from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, ask_once
from placer.graph.buffer_sharing import Sharing, find_copied_variables, find_variables, sharing_of
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import LIST_ITEM_INPUT, LOOPS, MERGES, READ_VARIABLE, REF_VARIABLES
from placer.graph.order import is_back_edge
from placer.graph.rewriting import find_arrivals
from placer.prediction.step.branches import find_dead
from placer.prediction.step.control_flow import loop_invariants
from placer.prediction.step.image_orders import ImageOrder, find_image_order
from placer.prediction.step.routes import Place, Routes, is_cpu
from placer.prediction.step.step_layout import Effect, StepLayout, Tuned
from placer.prediction.step.tensor_lists import CUT, cut_items

RESIDENT_OUTPUTS = REF_VARIABLES | {"Const", "HostConst", "_HostConst"}

T = TypeVar("T")

_VARIABLE_EFFECTS = (Effect.READ_VARIABLE, Effect.UPDATE_VARIABLE, Effect.ASSIGN_VARIABLE)

_SHARING_EFFECTS = (
    Effect.PLAIN,
    Effect.UPDATE_VARIABLE,
    Effect.ADD_ITEM,
    Effect.TAKE_ITEM,
    Effect.READ_ITEM,
)

_EFFECTS = {
    **dict.fromkeys(RESIDENT_OUTPUTS, Effect.RESIDENT),
    **dict.fromkeys(LIST_ITEM_INPUT, Effect.ADD_ITEM),
    READ_VARIABLE: Effect.READ_VARIABLE,
    "AssignVariableOp": Effect.ASSIGN_VARIABLE,
    "TensorListPopBack": Effect.TAKE_ITEM,
    "TensorListGetItem": Effect.READ_ITEM,
}

_LIST_ARITHMETIC = {"ZerosLike": Effect.ZERO_LIST, "AddN": Effect.JOIN_LISTS}


def lay_out_step(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    routes: Routes,
    memory_of: Mapping[Place, str],
    host: str,
    folded: Collection[str] = (),
) -> StepLayout:
    """The layout of the step; ``memory_of`` names the device whose memory a place is in.  Ops that
    are ``folded`` have run before it.  Of a v1 loop one iteration is simulated."""
    found = [costs[name] for name in graph.ops]
    outputs = graph.output_names.values()
    ends = [*accumulate(map(len, outputs), initial=0)]
    devices = [routes.device_of[name] for name in graph.ops]
    on_gpu = [not is_cpu(device) for device in devices]
    ran = [*zip(found, on_gpu, strict=True)]
    layout = StepLayout(
        names=tuple(graph.ops),
        devices=devices,
        effects=ask_once(_effect, graph.infos),
        fetched=frozenset(graph.tensor_numbers[tensor] for tensor in graph.fetches),
        copied_on_read=find_copied_variables(graph, graph.ask_once(find_variables)),
        outputs=[*map(range, ends, ends[1:])],
        temporary_bytes=[cost.temporary_bytes_on(gpu=gpu) for cost, gpu in ran],
        temporary_chunks=_some(cost.temporary_chunks for cost in found),
        later_chunks=_some(cost.gpu_temporary_chunks if gpu else () for cost, gpu in ran),
        temporary_samples=_some(cost.temporary_samples for cost in found),
        replaced=frozenset(
            number
            for number, (info, (cost, gpu)) in enumerate(zip(graph.infos, ran, strict=True))
            if gpu and cost.gpu_temporary_chunks and replaces_output(info, cost)
        ),
        workspace_bytes=_some(cost.workspace_bytes if gpu else 0 for cost, gpu in ran),
        tuned=_find_tuned(graph, ran, devices),
        memory=[memory_of[place] for place in routes.home.values()],
        bytes=[
            held or size or 0
            for cost, tensors in zip(found, outputs, strict=True)
            for held, size, _ in zip(
                cost.held_bytes or cost.output_bytes, cost.output_bytes, tensors, strict=True
            )
        ],
        producer=[*graph.tensor_producers],
        readers=[0] * len(graph.tensor_producers),
    )
    first = find_image_order(graph, found, on_gpu, layout.bytes)
    _add_readers(layout, graph, routes, memory_of, host, first, folded)
    _add_effects(layout, graph, folded)
    idle = _find_idle(layout, graph)
    dead_in = find_dead(graph, [sum(layout.bytes[v] for v in o) for o in layout.outputs])
    return replace(
        layout,
        idle=idle,
        lasting=tuple(chain.from_iterable(compress(layout.outputs, idle))),
        dead_in=dead_in,
        dead=next(iter(dead_in), frozenset()),
    )


def _find_tuned(
    graph: OpGraph, ran: Sequence[tuple[OpCost, bool]], devices: Sequence[str]
) -> dict[int, tuple[Tuned, int]]:
    """The ops on GPUs for which algorithms are tried; ``ran`` has the cost of each op, and whether
    it is on one."""
    rows = zip(graph.infos, ran, devices, strict=True)
    return {
        number: ((device, id(info)), cost.tuned_bytes)
        for number, (info, (cost, gpu), device) in enumerate(rows)
        if gpu and cost.tuned_bytes
    }


def _some(values: Iterable[T]) -> dict[int, T]:
    """The values that are not empty or zero, by number."""
    return {number: value for number, value in enumerate(values) if value}


def _add_readers(
    layout: StepLayout,
    graph: OpGraph,
    routes: Routes,
    memory_of: Mapping[Place, str],
    host: str,
    first: ImageOrder,
    folded: Collection[str],
) -> None:
    """Notes what every op reads, and the copies that this takes."""
    copies = _Copies(layout, first)

    # readers by input slot; a merge does not wait for its back edge
    at, readers, home = layout.memory, layout.readers, graph.tensor_numbers
    arrivals = graph.ask_once(find_arrivals)
    wanted = ask_once(lambda places: [memory_of[p] for p in places], routes.reads.values())
    for op, values, memories in zip(graph.ops.values(), graph.input_numbers, wanted, strict=True):
        if op.name in folded:
            layout.inputs.append(())
            continue
        turned = first.turned.get(len(layout.inputs), ())
        read = tuple(
            [
                value if at[value] == memory else copies.of(value, memory)
                for value, memory in zip(values, memories, strict=True)
            ]
            if not turned
            else [
                copies.turned(value, memory) if slot in turned else copies.of(value, memory)
                for slot, (value, memory) in enumerate(zip(values, memories, strict=True))
            ]
        )
        if arrivals and op.name in arrivals and read[0] != values[0]:
            layout.arrivals.append(len(layout.inputs))
            read = (*read, values[0])
        layout.inputs.append(read)
        if op.info.op in MERGES:
            producers = [graph.ops[name].op_type for name in op.producers]
            read = tuple(
                [v for v, p in zip(read, producers, strict=True) if not is_back_edge(p, op.op_type)]
            )
        for value in read:
            readers[value] += 1
    # fetched values are read at home and on the host
    for tensor in dict.fromkeys(graph.fetches):
        number = home[tensor]
        is_first = number in first.values and at[number] != host
        there = copies.turned(number, host) if is_first else copies.of(number, host)
        for value in dict.fromkeys((number, there)):
            readers[value] += 1


class _Copies:
    """The copies of values: in other memory, and in another order of their dimensions."""

    def __init__(self, layout: StepLayout, order: ImageOrder) -> None:
        self.layout, self.order = layout, order
        self.known: dict[tuple[int, str], int] = {}

    def of(self, value: int, memory: str) -> int:
        """The value in that memory."""
        if self.layout.memory[value] == memory:
            return value
        if (value, memory) not in self.known:
            self.known[value, memory] = copy = self._new(value, memory)
            self.layout.copies.setdefault(value, []).append(copy)
        return self.known[value, memory]

    def turned(self, value: int, memory: str) -> int:
        """The image in that memory, in the other order: it is sent as it is if its channels come
        last, and turned before if they come first."""
        if value not in self.order.values:
            source = self.of(value, memory)
            return self._made_of(source, memory, "turned")
        turned = self._made_of(value, self.layout.memory[value], "turned")
        is_there = self.layout.memory[value] == memory
        return turned if is_there else self._made_of(turned, memory, memory)

    def _made_of(self, source: int, memory: str, how: str) -> int:
        """Returns what is made of ``source`` as soon as its producer is done."""
        layout = self.layout
        if (source, how) not in self.known:
            self.known[source, how] = copy = self._new(source, memory)
            layout.transposed.setdefault(layout.producer[source], []).append((source, copy))
            layout.readers[source] += 1
        return self.known[source, how]

    def _new(self, value: int, memory: str) -> int:
        layout = self.layout
        layout.memory.append(memory)
        layout.bytes.append(layout.bytes[value])
        layout.producer.append(layout.producer[value])
        layout.readers.append(0)
        return len(layout.memory) - 1


def _add_effects(layout: StepLayout, graph: OpGraph, folded: Collection[str]) -> None:
    """Notes what every op does to buffers."""
    variable_of = graph.ask_once(find_variables)
    sharing = graph.ask_once(sharing_of)
    numbers = {name: number for number, name in enumerate(layout.names)}
    layout.feeds.extend(numbers[name] for name in graph.feeds)
    for number in layout.feeds:
        layout.effects[number] = Effect.FED
    for name in folded:
        layout.effects[numbers[name]] = Effect.RESIDENT
        layout.temporary_bytes[numbers[name]] = 0
    networked = _find_networked(layout)
    known = {id(found): found for found in sharing}
    apart = {key for key, (shared, over) in known.items() if not any(over) and {*shared} <= {None}}
    for number, (op, effect) in enumerate(zip(graph.ops.values(), layout.effects, strict=True)):
        if effect is Effect.PLAIN and id(sharing[number]) in apart and op.op_type not in LOOPS:
            continue
        if effect in _VARIABLE_EFFECTS:
            layout.variables[number] = tuple(
                [variable_of[t] for t in op.inputs if t in variable_of]
            )
        elif effect == Effect.ADD_ITEM:
            layout.items[number] = layout.inputs[number][LIST_ITEM_INPUT[op.op_type]]
        elif effect == Effect.CUT_INTO_LIST:
            layout.item_counts[number] = cut_items(op.info) or 1
        if effect in _SHARING_EFFECTS and op.op_type in LOOPS:
            _add_sharing(layout, number, _loop_sharing(op, graph), networked)
        elif effect in _SHARING_EFFECTS:
            merges = op.op_type in MERGES
            _add_sharing(layout, number, sharing[number], networked, of_merge=merges)


def _find_idle(layout: StepLayout, graph: OpGraph) -> list[bool]:
    """The ops that neither use memory in a step nor send anything."""
    changing = set(layout.copied_on_read)
    for number, variables in layout.variables.items():
        if layout.effects[number] != Effect.READ_VARIABLE:
            changing.update(variables)
    found = []
    for number, (info, effect) in enumerate(zip(graph.infos, layout.effects, strict=True)):
        if effect is Effect.READ_VARIABLE:
            lasts = changing.isdisjoint(layout.variables[number])
        else:
            lasts = effect is Effect.RESIDENT or (
                effect is Effect.PLAIN and info.op == "VarHandleOp"
            )
        found.append(
            lasts
            and not layout.temporary_bytes[number]
            and layout.copies.keys().isdisjoint(layout.outputs[number])
            and number not in layout.transposed
        )
    return found


def _effect(info: OpInfo) -> Effect:
    """The effect of an op that is not fed."""
    effect = _effect_of_type(info.op)
    if effect is not None:
        return effect
    if cut_items(info):
        return Effect.CUT_INTO_LIST
    if info.op in _LIST_ARITHMETIC and info.outputs[0].dtype == "variant":
        return _LIST_ARITHMETIC[info.op]
    return Effect.PLAIN


@cache
def _effect_of_type(op_type: str) -> Effect | None:
    """The effect of all ops of a type, ``None`` where shapes or dtypes decide."""
    if op_type in _EFFECTS:
        return _EFFECTS[op_type]
    if op_type.startswith(("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply")):
        return Effect.UPDATE_VARIABLE
    return None if op_type in (*_LIST_ARITHMETIC, *CUT) else Effect.PLAIN


def _loop_sharing(op: Op, graph: OpGraph) -> Sharing:
    """The results of a loop that are what was given to it."""
    bodies = op.bodies.get("body", ())  # none where shapes could not be inferred
    invariants = loop_invariants(graph.functions[bodies[0]]) if bodies else ()
    numbers = range(len(op.info.outputs))
    return Sharing(
        shared=tuple([index if index in invariants else None for index in numbers]),
        overwritten=((),) * len(numbers),
    )


def _find_networked(layout: StepLayout) -> frozenset[int]:
    """The values that are sent to another process, and those that were received from one."""
    apart = [
        (value, copy)
        for value, copies in layout.copies.items()
        for copy in copies
        if task_of(layout.memory[value]) != task_of(layout.memory[copy])
    ]
    return frozenset(chain.from_iterable(apart))


def _add_sharing(
    layout: StepLayout,
    number: int,
    sharing: Sharing,
    networked: Collection[int],
    *,
    of_merge: bool = False,
) -> None:
    """Which inputs the outputs may be, or may be written over: those in the same memory.  What is
    sent to another process is to be in memory that a network card reaches, and is not written over
    what need not be (``InferAllocAttr`` of ``tensorflow/core/common_runtime/graph_view.cc``,
    ``OpKernelContext::forward_input``)."""
    inputs, memory = layout.inputs[number], layout.memory
    for value, source, slots in zip(layout.outputs[number], *sharing, strict=True):
        if source is not None:
            sources = inputs if of_merge else inputs[source : source + 1]
            layout.shared[value] = tuple([s for s in sources if memory[s] == memory[value]])
        if slots:
            home = memory[value]
            layout.overwritten[value] = tuple(
                [
                    source
                    for source in [inputs[slot] for slot in slots]
                    if memory[source] == home and (value not in networked or source in networked)
                ]
            )
