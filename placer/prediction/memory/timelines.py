"""Memory of every device over one step.

A simulation of TensorFlow's buffers along one order of the ops.  With the order and the graph
that really ran it agrees with TensorFlow's own allocation records; for another order it is the
peak of that order.  Beyond its reach are what a kernel allocates past the allocator (packing
buffers of Eigen, workspaces of cuDNN), and fragmentation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from cost_models.op_cost import OpCost
from placer.errors import UsageError
from placer.graph.op_graph import OpGraph
from placer.graph.passes.constant_folding import find_consumed, find_folded
from placer.graph.passes.roles import UNUSED, UNUSED_VARIABLES, Roles, find_roles
from placer.prediction.memory.buffers import Lifetime, bytes_in_use
from placer.prediction.memory.lifetimes import Simulation, find_lifetimes
from placer.prediction.metrics import LiveBuffer, MemoryTimeline
from placer.prediction.step.laying_out import lay_out_step
from placer.prediction.step.routes import Place, Routes, find_routes, host_of, is_cpu
from placer.prediction.step.step_arrays import Ints


def predict_memory(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    device_names: Sequence[str],
    host: str = "CPU:0",
    order: Sequence[str] | None = None,
) -> dict[str, MemoryTimeline]:
    """The memory of every device of ``device_names`` in bytes, op by op of ``order``.

    All devices run along the one ``order`` (every op of the graph once, producers first; the
    order of the graph by default).  A tensor arrives elsewhere when its producer runs.  Host
    memory of a GPU belongs to the CPU of its task.  Fed values live on the host for the whole
    step, fetched ones until its end.  Tensors without a size count zero bytes.

    Raises :class:`UsageError` if ``order`` or ``placement`` does not fit the graph.
    """
    return StepMemory(graph, costs, placement, device_names, host).timelines(order)


class StepMemory:
    """The memory of one placement, along any order; see :func:`predict_memory`.

    ``owner`` maps ops to the names that timelines give them, if these are others.
    """

    def __init__(
        self,
        graph: OpGraph,
        costs: Mapping[str, OpCost],
        placement: Mapping[str, str],
        device_names: Sequence[str],
        host: str = "CPU:0",
        owner: Mapping[str, str] | None = None,
    ) -> None:
        self.owner = owner or {}
        self.routes = routes = find_routes(graph, placement, host)
        memory_of = _memories(routes, device_names, host)
        self.graph = graph
        self.folded = {
            name: outputs
            for name, outputs in graph.ask_once(find_folded).items()
            if not is_cpu(routes.device_of[name]) and name not in self.owner
        }
        self.layout = lay_out_step(graph, costs, routes, memory_of, host, self.folded)
        self.resident = _resident_bytes(graph, costs, routes, memory_of)
        for name, outputs in self.folded.items():
            for index in outputs:
                where = self.resident.setdefault(memory_of[routes.home[f"{name}:{index}"]], {})
                where[name] = where.get(name, 0) + (costs[name].output_bytes[index] or 0)
        for name in graph.ask_once(find_consumed):
            if any(reader in self.folded for reader in graph.tensors[f"{name}:0"].consumers):
                for held in self.resident.values():
                    held.pop(name, None)
        self.initial = {
            name: cost.initial_bytes for name, cost in costs.items() if cost.initial_bytes
        }
        self.constants = {
            name: cost.constant_bytes for name, cost in costs.items() if cost.constant_bytes
        }
        self.idle = graph.idle_bytes
        self.device_names = tuple(
            dict.fromkeys((*device_names, *self.resident, *self.layout.memory))
        )
        self.number = {name: index for index, name in enumerate(graph.ops)}

    @cached_property
    def roles(self) -> Roles:
        """Returns what the memory of every op is for."""
        return self.graph.ask_once(find_roles)

    def timelines(self, order: Sequence[str] | None = None) -> dict[str, MemoryTimeline]:
        """The memory of every device along ``order``.  Raises :class:`UsageError`."""
        names = checked_order(self.graph, order)
        lifetimes: dict[str, list[Lifetime]] = {name: [] for name in self.device_names}
        for lifetime in find_lifetimes(self.layout, self.numbers(names)):
            lifetimes[lifetime.device].append(lifetime)
        return {name: _timeline(self, name, names, found) for name, found in lifetimes.items()}

    def peaks(
        self, order: Sequence[str], sample: int | None = None, lasts: Sequence[int] | None = None
    ) -> dict[str, int]:
        """The peak bytes of every device along ``order``; ``sample`` numbers one of the executions
        of ops whose temporary bytes differ from one to the next, ``None`` is the median.  ``lasts``
        say which ops run at once (:class:`~placer.prediction.memory.lifetimes.Simulation`)."""
        layout = self.layout if sample is None else self.layout.sampled(sample)
        return self.peaks_of(Simulation(layout, self.numbers(order), lasts=lasts))

    def fullest(self, order: Sequence[str]) -> dict[str, str]:
        """The op at which every device first peaks along ``order``: that of :meth:`timelines`,
        without them; in a laid out loop, the loop."""
        found = {}
        for name, in_use in self.in_use(self.numbers(order)).items():
            op = order[int(in_use.argmax())] if len(in_use) else ""
            found[name] = self.owner.get(op, op)
        return found

    def in_use(self, order: Sequence[int]) -> dict[str, Ints]:
        """The bytes that live on every device while each op of the order runs, resident ones
        aside."""
        changes = Simulation(self.layout, order).changes()
        none = np.zeros(len(order), np.int64)
        found = {name: np.cumsum(change[:-1]) for name, change in changes.items()}
        return {name: found.get(name, none) for name in self.device_names}

    def peaks_of(self, simulation: Simulation) -> dict[str, int]:
        """The peak bytes of every device in a step that has run."""
        changes = simulation.changes()
        highest = {name: int(np.cumsum(change).max()) for name, change in changes.items()}
        return {
            name: self.resident_bytes(name) + highest.get(name, 0) for name in self.device_names
        }

    def resident_bytes(self, device: str) -> int:
        """Bytes of the variables and constants on ``device``, used or not."""
        return sum(self.resident.get(device, {}).values()) + sum(self.idle.get(device, ()))

    def kept(self, device: str) -> Mapping[tuple[str, str], int]:
        """The bytes of every used variable and constant on ``device`` by op and kind.  What is kept
        of the ops of a laid out loop is that loop's; the constant that a variable starts as is
        apart from it."""
        found: Counter[tuple[str, str]] = Counter()
        for name, size in self.resident.get(device, {}).items():
            op, first = self.owner.get(name, name), self.constants.get(name, 0)
            found[op, self.roles.of_state(name)] += size - first
            found[op, "constant"] += first
        return +found

    def numbers(self, order: Sequence[str]) -> list[int]:
        """The ops of ``order`` by number."""
        return [self.number[name] for name in order]


def checked_order(graph: OpGraph, order: Sequence[str] | None) -> tuple[str, ...]:
    """``order``, or that of the graph.  Raises :class:`UsageError` if it does not fit."""
    if order is None:
        return tuple(graph.ops)
    if len(order) != len(graph.ops) or set(order) != set(graph.ops):
        raise UsageError(
            f"an order of {len(order):,} ops does not fit a graph of {len(graph.ops):,}: "
            "it must hold every op once"
        )
    return tuple(order)


def _memories(routes: Routes, names: Iterable[str], host: str) -> dict[Place, str]:
    """The device whose memory each place is in; ``host`` stands in for hosts without a name."""
    known = {*names, *routes.device_of.values()}
    return {
        (device, memory): place if place in known else host
        for device in {host, *routes.device_of.values()}
        for memory, place in (("device", device), ("host", host_of(device)))
    }


def _resident_bytes(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    routes: Routes,
    memory_of: Mapping[Place, str],
) -> dict[str, dict[str, int]]:
    """Resident bytes of each op by device; a constant lies where its output does."""
    resident: dict[str, dict[str, int]] = {}
    for op in graph.ops.values():
        size = costs[op.name].persistent_bytes
        if size:
            constant = op.op_type == "Const"
            place = (
                routes.home[f"{op.name}:0"] if constant else (routes.device_of[op.name], "device")
            )
            resident.setdefault(memory_of[place], {})[op.name] = size
    return resident


def _timeline(
    step: StepMemory, device: str, order: tuple[str, ...], lifetimes: Iterable[Lifetime]
) -> MemoryTimeline:
    """The sum of all buffers of one device, moment by moment."""
    # bytes in use, moment by moment, and their peak
    roles, owner = step.roles, step.owner
    resident_bytes = step.resident_bytes(device)
    in_use = tuple([resident_bytes + size for size in bytes_in_use(lifetimes, len(order))])
    peak_bytes = max(in_use, default=resident_bytes)
    moment = in_use.index(peak_bytes) if in_use else -1
    # what is alive at the peak; ops of one laid out loop count as that loop
    order_of_owners = tuple([owner.get(name, name) for name in order]) if owner else order
    alive = [(op, size, kind, "") for (op, kind), size in step.kept(device).items()]
    alive += [
        (found.owner, found.bytes, roles.of_buffer(found.owner, found.kind), until)
        for found in lifetimes
        if found.first <= moment <= found.last
        for until in (order_of_owners[found.last],)
    ]
    summed: Counter[tuple[str, str, str, int]] = Counter()
    for number, (op, size, kind, until) in enumerate(alive):
        summed[owner.get(op, op), kind, until, -1 if op in owner else number] += size
    if step.idle.get(device):
        summed[UNUSED_VARIABLES, UNUSED, "", -1] = sum(step.idle[device])
    live = [
        LiveBuffer(op=op, bytes=size, kind=kind, until=until)
        for (op, kind, until, _), size in summed.items()
    ]
    return MemoryTimeline(
        device=device,
        resident_bytes=resident_bytes,
        peak_bytes=peak_bytes,
        peak_op=order_of_owners[moment] if in_use else "",
        live_at_peak=tuple(sorted(live, key=lambda buffer: (-buffer.bytes, buffer.op))),
        order=order_of_owners,
        bytes=in_use,
    )
