"""Costs of all ops of a graph: the bodies of control flow and the variables included."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from statistics import median_low

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import estimate
from cost_models.tensor_size import tensor_bytes
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import ANONYMOUS, BRANCHES, CONTROL_FLOW, LOOPS, VARIABLES
from placer.graph.rewriting import Rewriting
from placer.prediction.costs.variants import copied_reads, fused_costs, in_place_costs
from placer.prediction.memory.buffers import peak_without_feeds
from placer.prediction.memory.lifetimes import Simulation
from placer.prediction.memory.live_moments import activation_peak
from placer.prediction.memory.run import Wanted
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step.control_flow import TripCount, find_trip_count, loop_invariants
from placer.prediction.step.executor import prepare, run_once
from placer.prediction.step.frames import find_loops
from placer.prediction.step.loop_bodies import BodyLayout
from placer.prediction.step.tensor_lists import list_costs


def estimate_costs(
    graph: OpGraph, trip_count: int | None = None, *, in_place: bool = False
) -> dict[str, OpCost]:
    """The cost of one execution of every op of ``graph``.

    ``in_place`` also finds the ops that write over an input, which takes a fifth longer: only
    calibrated devices know how much faster that is.

    A loop costs its condition and body times the trip count that follows from the graph, else
    ``trip_count``, else once and flagged inaccurate, and so do the ops of a loop of TensorFlow 1; a
    branch op costs the dearest branch; any other op with bodies costs them once, flagged.
    Variables weigh on the op ``handle``, each once.
    """
    costs = _costs_beside_bodies(graph, in_place=in_place)
    costs.update(_variable_costs(graph, costs))
    bodies = _Bodies(graph, trip_count)
    for op in graph.ops.values():
        if op.bodies:
            costs[op.name] = bodies.cost_of(op, graph, costs[op.name])
        elif op.op_type in CONTROL_FLOW:  # of unknown shapes, so that its bodies are not known
            costs[op.name] = replace(costs[op.name], unmodelled=True, inaccurate=True)
    costs.update(_repeated_costs(graph, costs, trip_count))
    return costs


def _costs_beside_bodies(graph: OpGraph, *, in_place: bool) -> dict[str, OpCost]:
    """The cost of one execution of every op, bodies and the bytes of variables aside."""
    costs = estimate({op.name: op.info for op in graph.ops.values()})
    costs.update(list_costs(graph, costs))
    costs.update(copied_reads(graph, costs))
    costs.update(fused_costs(graph, costs))
    if in_place:
        costs.update(in_place_costs(graph, costs))
    return costs


def _repeated_costs(
    graph: OpGraph, costs: Mapping[str, OpCost], trip_count: int | None
) -> dict[str, OpCost]:
    """The costs of the ops in loops of TensorFlow 1: what they do in all iterations, and the memory
    of one."""
    found = {}
    for name, loops in find_loops(graph).items():
        cost, runs = costs[name], [_trips(trips, trip_count) for trips in loops]
        times = prod(count for count, _ in runs)
        found[name] = replace(
            cost,
            flops=times * cost.flops,
            tiled_flops=times * cost.tiled_flops,
            bytes_accessed=times * cost.bytes_accessed,
            packed_bytes=times * cost.packed_bytes,
            launches=times * cost.launches,
            repeats=times * cost.repeats,
            inaccurate=cost.inaccurate or not all(exact for _, exact in runs),
        )
    return found


def _trips(found: TripCount | None, given: int | None) -> tuple[int, bool]:
    """How often a loop runs whose count is ``found``, or else is ``given``, and whether that is
    known."""
    if found is not None and found.exact:
        return found.count, True
    if given is not None:
        return given, True
    return (1, False) if found is None else (found.count, False)


def rewritten_costs(
    costs: Mapping[str, OpCost], graph: OpGraph, rewriting: Rewriting
) -> dict[str, OpCost]:
    """``costs`` with those of the ops that a rewriting added to ``graph``: a clone costs what its
    original does, what is on the host for a swap next to nothing."""
    added = {clone.name: costs[clone.op] for clone in rewriting.clones}
    on_host = [name for swap in rewriting.swaps for name in (swap.arrival, swap.name)]
    return {**costs, **added, **estimate({name: graph.ops[name].info for name in on_host})}


def estimate_body_costs(graph: OpGraph) -> dict[str, Mapping[str, OpCost]]:
    """The costs of the ops of every function that ``graph`` reaches, by function."""
    bodies = _Bodies(graph, None)
    for op in graph.ops.values():
        for names in op.bodies.values():
            for name in names:
                bodies.body(name)
    return {name: body.costs for name, body in bodies.found.items()}


def _variable_costs(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
    """Costs of the handles: the bytes of each variable on its first handle, none on others."""
    found: dict[str, OpCost] = {}
    counted: set[str] = set()
    for variable in graph.variables:
        size = tensor_bytes(TensorProperties(dtype=variable.dtype, shape=variable.shape))
        cost = costs[variable.handle]
        if variable.name in counted:
            size = 0
        elif size is None:
            size, cost = cost.persistent_bytes, replace(cost, inaccurate=True)
        counted.add(variable.name)
        found[variable.handle] = _keeping(cost, size)
    shared = {_shared_name(graph.ops[name]) for name in found}
    for op in graph.ops.values():
        if op.op_type in VARIABLES and op.name not in found:
            if _shared_name(op) in shared:
                found[op.name] = _keeping(costs[op.name], 0)
            shared.add(_shared_name(op))
    return found


def _keeping(cost: OpCost, size: int) -> OpCost:
    """``cost`` with so many bytes that stay, which it mostly has already."""
    return cost if cost.persistent_bytes == size else replace(cost, persistent_bytes=size)


def _shared_name(op: Op) -> tuple[object, object]:
    """Returns the key that two handle ops have in common if they stand for one variable."""
    name = op.info.attributes.get("shared_name", "")
    own = name in ("", ANONYMOUS)
    return op.info.attributes.get("container", ""), f"//{op.name}" if own else name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """One execution of a function: the ``costs`` of its ops, and their ``total``, whose temporary
    bytes are the most that they hold at once, arguments aside."""

    total: OpCost
    costs: Mapping[str, OpCost]


class _Bodies:
    """Costs of functions, each estimated once."""

    def __init__(self, graph: OpGraph, trip_count: int | None) -> None:
        self.functions = graph.functions
        self.trip_count = trip_count
        self.found: dict[str, _Body] = {}

    def cost_of(self, op: Op, graph: OpGraph, own: OpCost) -> OpCost:
        """The cost of an op with bodies; ``own`` is that of the op without them."""
        bodies = [self.body(name) for names in op.bodies.values() for name in names]
        if not bodies:
            return own
        if op.op_type in LOOPS:
            return self._loop(op, graph, own, bodies)
        output_bytes = sum(size or 0 for size in own.output_bytes)
        totals = [body.total for body in bodies]
        temporary = [max(0, total.temporary_bytes - output_bytes) for total in totals]
        dearest = max(bodies, key=lambda body: (body.total.flops, body.total.bytes_accessed))
        cost = replace(
            _with_bodies(own, totals),
            flops=max(total.flops for total in totals),
            bytes_accessed=max(total.bytes_accessed for total in totals),
            launches=max(total.launches for total in totals),
            inner=tuple(dearest.costs.values()),
            temporary_bytes=max(temporary),
            temporary_samples=tuple(temporary) if len(set(temporary)) > 1 else (),
        )
        return cost if op.op_type in BRANCHES else replace(cost, inaccurate=True)

    def _loop(self, op: Op, graph: OpGraph, own: OpCost, bodies: list[_Body]) -> OpCost:
        """Trips times the condition and the body.

        Of what the iterations hold at once, the last results are the op's outputs, and what they
        put into lists is held by these.
        """
        found = find_trip_count(op, replace(graph, functions=self.functions))
        trips, exact = _trips(found, self.trip_count)
        memory = follow_loop(
            op,
            self.functions,
            {name: self.body(name).costs for names in op.bodies.values() for name in names},
            trips,
        )
        kept = loop_invariants(self.functions[op.bodies["body"][0]])
        held = tuple(
            size if output.dtype == "variant" else 0
            for output, size in zip(op.info.outputs, memory.result_bytes, strict=True)
        )
        sizes = [size or 0 for index, size in enumerate(own.output_bytes) if index not in kept]
        temporary = [max(0, peak - sum(sizes) - sum(held)) for peak in memory.peak_bytes]
        totals = [body.total for body in bodies]
        cost = replace(
            _with_bodies(own, totals),
            flops=trips * sum(total.flops for total in totals),
            bytes_accessed=trips * sum(total.bytes_accessed for total in totals),
            launches=trips * sum(total.launches for total in totals),
            inner=tuple(cost for body in bodies for cost in body.costs.values()),
            repeats=trips,
            temporary_bytes=median_low(temporary),
            temporary_samples=tuple(temporary) if len(set(temporary)) > 1 else (),
            held_bytes=held if any(held) else (),
        )
        return cost if exact else replace(cost, inaccurate=True)

    def body(self, name: str) -> _Body:
        if name not in self.found:
            self.found[name] = self._estimate_body(self.functions[name])
        return self.found[name]

    def _estimate_body(self, function: OpGraph) -> _Body:
        body = replace(function, functions=self.functions)
        costs = _costs_beside_bodies(body, in_place=True)
        for op in body.ops.values():
            if op.bodies:
                costs[op.name] = self.cost_of(op, body, costs[op.name])
        costs.update(_repeated_costs(body, costs, self.trip_count))
        total = replace(
            _with_bodies(OpCost(), costs.values()),
            flops=sum(cost.flops for cost in costs.values()),
            bytes_accessed=sum(cost.bytes_accessed for cost in costs.values()),
            launches=sum(c.launches for c in costs.values() if c.flops or c.bytes_accessed),
            temporary_bytes=activation_peak(body, costs),
        )
        return _Body(total=total, costs=costs)


def _with_bodies(own: OpCost, inner: Collection[OpCost]) -> OpCost:
    """``own`` with the constants of what runs in it, and as sure as the least sure of that."""
    return replace(
        own,
        persistent_bytes=own.persistent_bytes + sum(cost.persistent_bytes for cost in inner),
        inaccurate=any(cost.inaccurate for cost in inner),
        unmodelled=any(cost.unmodelled for cost in inner),
    )


_DEVICE = "CPU:0"
_MOST_OPS = 20_000
"""A loop of more ops is followed for some iterations, from which the others are concluded."""

_MOST_ORDERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMemory:
    """The most that the iterations hold at once, arguments aside, in each of some orders that they
    may run in, and of that what each result holds in the end (the elements of tensor lists
    included, each tensor once)."""

    peak_bytes: tuple[int, ...]
    result_bytes: tuple[int, ...]


def follow_loop(
    op: Op, functions: Mapping[str, OpGraph], costs: Mapping[str, Mapping[str, OpCost]], trips: int
) -> LoopMemory:
    """The memory of ``trips`` iterations of the loop ``op``.

    ``costs`` has the costs of the ops of its condition and of its body, by function.
    """
    (condition,), (body,) = op.bodies["cond"], op.bodies["body"]
    size = len(functions[condition].ops) + len(functions[body].ops)
    followed = max(1, min(trips, _MOST_OPS // max(size, 1)))
    found = _follow(op, functions, costs, followed)
    if followed == trips or followed < 2:
        return found
    before = _follow(op, functions, costs, followed - 1)
    more = trips - followed
    growth = [max(0, b - a) for a, b in zip(before.result_bytes, found.result_bytes, strict=True)]
    return LoopMemory(
        peak_bytes=tuple(peak + more * sum(growth) for peak in found.peak_bytes),
        result_bytes=tuple(
            size + more * added for size, added in zip(found.result_bytes, growth, strict=True)
        ),
    )


def _follow(
    op: Op, functions: Mapping[str, OpGraph], costs: Mapping[str, Mapping[str, OpCost]], trips: int
) -> LoopMemory:
    graph, cost_of = _unroll(op, functions, costs, trips)
    step = StepMemory(graph, cost_of, dict.fromkeys(graph.ops, _DEVICE), (_DEVICE,), _DEVICE)
    prepared = prepare(graph)
    peaks = []
    for seed in range(max(1, min(_MOST_ORDERS, 2 * _MOST_OPS // len(graph.ops)))):
        order = step.numbers(run_once(prepared, seed))
        simulation = Simulation(step.layout, order, wanted=Wanted(records=True))
        peaks.append(peak_without_feeds(simulation.lifetimes(), len(graph.ops)))
    home = {
        tensor: value
        for name, values in zip(step.layout.names, step.layout.outputs, strict=True)
        for tensor, value in zip(graph.output_names[name], values, strict=True)
    }
    return LoopMemory(
        peak_bytes=tuple(peaks),
        result_bytes=tuple(simulation.held_bytes([home[tensor] for tensor in graph.fetches])),
    )


def _unroll(
    op: Op, functions: Mapping[str, OpGraph], costs: Mapping[str, Mapping[str, OpCost]], trips: int
) -> tuple[OpGraph, dict[str, OpCost]]:
    """The graph of the iterations, fed with the loop's arguments, and its costs."""
    layout = BodyLayout(functions, costs)
    feeds = [f"argument{index}" for index in range(len(op.info.inputs))]
    inputs = tuple(
        layout.add(Op(name=name, info=OpInfo(op="Placeholder", outputs=(properties,))))
        for name, properties in zip(feeds, op.info.inputs, strict=True)
    )
    results = layout.add_loop(replace(op, inputs=inputs, control_inputs=()), trips)
    graph = OpGraph(ops=layout.ops, feeds=tuple(feeds), fetches=tuple(results), functions=functions)
    return graph, layout.cost_of
