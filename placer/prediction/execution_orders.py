"""Orders in which TensorFlow's executor may run a graph, and the range of peaks they span.

On a GPU every kernel is cheap to launch: one thread runs what is ready, first in, first out.  On a
CPU an expensive kernel that became ready beside others is put on the thread pool, whose one thread
takes the last that came; cheap kernels run at once.  Ops that wait for nothing start in an order
that differs from process to process; constants come first in what was observed, fed values before
or after the variables.  ``ScheduleReady`` and ``Process`` of
``tensorflow/core/common_runtime/executor.cc``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.graph.order import predecessors
from placer.prediction.memory import predict_memory

_CHEAP_TYPES = (
    "Const HostConst Placeholder PlaceholderWithDefault NoOp ControlTrigger Assert "
    "Identity IdentityN StopGradient PreventGradient CheckNumerics Snapshot "
    "Reshape Squeeze ExpandDims Shape ShapeN Size Rank Pack "
    "VarHandleOp ReadVariableOp Variable VariableV2 VarIsInitializedOp IsVariableInitialized "
    "Switch RefSwitch Merge RefMerge Enter RefEnter Exit RefExit NextIteration RefNextIteration "
    "LoopCond TensorListElementShape TensorListReserve TensorListLength EmptyTensorList"
)
CHEAP = frozenset(_CHEAP_TYPES.split())
"""Op types whose CPU kernels say so themselves (``OpKernel::IsExpensive``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRange:
    """The least and the most peak bytes of a device over several orders."""

    least_bytes: int
    most_bytes: int


def predict_peak_ranges(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    device_names: Sequence[str],
    host: str = "CPU:0",
) -> dict[str, PeakRange]:
    """The range of each device's peak over the order of the graph and the executor's orders.

    Raises :class:`~placer.errors.UsageError` if ``placement`` does not fit the graph.
    """
    orders = [tuple(graph.ops), *executor_orders(graph).values()]
    found = [predict_memory(graph, costs, placement, device_names, host, order) for order in orders]
    return {
        name: PeakRange(
            least_bytes=min(timelines[name].peak_bytes for timelines in found),
            most_bytes=max(timelines[name].peak_bytes for timelines in found),
        )
        for name in found[0]
    }


def executor_orders(graph: OpGraph) -> dict[str, tuple[str, ...]]:
    """The orders of a CPU (``feeds_early``, ``feeds_late``) and of a GPU (``inline``)."""
    feeds = frozenset(graph.feeds)

    def rank(name: str, feeds_early: bool) -> int:
        if graph.ops[name].op_type == "Const":
            return 0
        return 1 if (name in feeds) == feeds_early else 2

    early = sorted(graph.ops, key=lambda name: rank(name, True))
    late = sorted(graph.ops, key=lambda name: rank(name, False))
    every_type = frozenset(op.op_type for op in graph.ops.values())
    return {
        "feeds_early": executor_order(graph, early),
        "feeds_late": executor_order(graph, late),
        "inline": _run_inline(graph, early, every_type),
    }


def executor_order(graph: OpGraph, roots: Iterable[str]) -> tuple[str, ...]:
    """The order in which one CPU thread runs the graph.

    Ops that wait for nothing are started in the order of ``roots`` (which may name others too).
    """
    run = _Run(graph)
    for root in roots:
        if root in run.ready_at_start:
            run.pool.append(root)
            while run.pool:
                run.process([run.pool.pop()], CHEAP)
    return tuple(run.order)


def _run_inline(graph: OpGraph, roots: Iterable[str], cheap: frozenset[str]) -> tuple[str, ...]:
    """The order in which one thread runs what is ready, first in, first out."""
    run = _Run(graph)
    run.process([root for root in roots if root in run.ready_at_start], cheap)
    return tuple(run.order)


class _Run:
    """One run of the executor: ``pool`` holds expensive ops that are ready, the last on top."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.waiting: dict[str, int] = {}
        self.after: dict[str, list[str]] = {name: [] for name in graph.ops}
        for op in graph.ops.values():
            before = predecessors(op, graph.ops)
            self.waiting[op.name] = len(before)
            for name in before:
                self.after[name].append(op.name)
        self.ready_at_start = frozenset(n for n, count in self.waiting.items() if not count)
        self.pool: list[str] = []
        self.order: list[str] = []

    def process(self, names: Iterable[str], cheap: frozenset[str]) -> None:
        """Runs ``names`` in a row, and what becomes ready and is cheap, or all that is left."""
        inline = deque(names)
        while inline:
            name = inline.popleft()
            self.order.append(name)
            expensive: list[str] = []
            for consumer in self.after[name]:
                self.waiting[consumer] -= 1
                if not self.waiting[consumer]:
                    is_cheap = self.graph.ops[consumer].op_type in cheap
                    (inline if is_cheap else expensive).append(consumer)
            if expensive and not inline:
                inline.append(expensive.pop())
            self.pool.extend(expensive)
