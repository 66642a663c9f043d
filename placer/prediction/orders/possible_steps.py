"""The steps that a graph may take: its loops laid out, along the orders of the executor."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.graph.op_types import LOOPS
from placer.graph.passes.neutral_constants import rearrange_constants
from placer.prediction.costs.op_costs import estimate_body_costs
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import PeakRange, Transfer
from placer.prediction.orders.execution_orders import (
    executor_orders,
    peaks_along,
    ranges_of_peaks,
    threaded_steps,
    uses_accelerator,
)
from placer.prediction.orders.running_ahead import order_of_late_readers, orders_running_ahead
from placer.prediction.orders.thread_orders import orders_on_threads
from placer.prediction.step.loop_bodies import BodyLayout
from placer.prediction.step.thread_pool import ThreadedStep

_MOST_OPS = 50_000
"""Loops that would make a graph larger stay one op: what their iterations hold is then followed
for one loop at a time (:mod:`placer.prediction.costs.op_costs`)."""


def predict_peak_ranges(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    device_names: Sequence[str],
    host: str = "CPU:0",
) -> dict[str, PeakRange]:
    """The range of each device's peak over the executor's orders, loops laid out.

    Raises :class:`~placer.errors.UsageError` if ``placement`` does not fit the graph.
    """
    steps = PossibleSteps(graph, costs, accelerated=uses_accelerator(device_names))
    return steps.ranges(placement, device_names, host)


def as_it_runs(graph: OpGraph, *, accelerated: bool) -> OpGraph:
    """The graph as TensorFlow's optimizer rearranges it where some device is no CPU."""
    if not accelerated:
        return graph
    found = graph.ask_once(rearrange_constants)  # perhaps of the same graph beside other idle bytes
    return found if found.idle_bytes == graph.idle_bytes else found.with_idle(graph.idle_bytes)


class PossibleSteps:
    """The graph whose memory is followed, and the orders in which it may run, for any placement.

    ``accelerated`` says that some device is no CPU; ``owner`` maps the ops of laid out loops to
    the loop, which they run with.
    """

    def __init__(self, graph: OpGraph, costs: Mapping[str, OpCost], *, accelerated: bool) -> None:
        graph = as_it_runs(graph, accelerated=accelerated)
        self.graph, self.costs, self.accelerated = graph, costs, accelerated
        self.owner: Mapping[str, str] = {}
        if any(op.bodies and op.op_type in LOOPS for op in graph.ops.values()):
            layout = BodyLayout(graph.functions, estimate_body_costs(graph), _MOST_OPS)
            self.graph = layout.laid_out(graph, costs)
            self.costs, self.owner = layout.cost_of, layout.owner

    @cached_property
    def orders(self) -> list[tuple[str, ...]]:
        """The orders in which the ops of ``graph`` may run, one after another."""
        laid_out = len(self.owner)
        return executor_orders(self.graph, accelerated=self.accelerated, laid_out=laid_out)

    @cached_property
    def threaded_steps(self) -> list[ThreadedStep]:
        """How the ops of ``graph`` may overlap; not at all with accelerators, whose kernels are
        launched one after another."""
        if self.accelerated:
            return []
        return threaded_steps(self.graph, self.costs, laid_out=len(self.owner))

    def running_ahead(
        self, step: StepMemory, cluster: Cluster, transfers: Sequence[Transfer] | None = None
    ) -> Iterator[tuple[str, ...]]:
        """Yields the orders of ``step`` in which the devices begin their ops each by itself,
        readers of what was received are late, or a few threads run all; its ``transfers`` where
        they are known."""
        yield from orders_running_ahead(
            self.graph, self.costs, step.routes, cluster, transfers=transfers
        )
        if self.accelerated:
            if late := order_of_late_readers(self.graph, step.routes):
                yield late
            yield from orders_on_threads(self.graph, step.routes)

    def memory(
        self, placement: Mapping[str, str], device_names: Sequence[str], host: str = "CPU:0"
    ) -> StepMemory:
        """The memory of a placement of the ops that the graph had before."""
        own = {name: placement[self.owner.get(name, name)] for name in self.graph.ops}
        return StepMemory(self.graph, self.costs, own, device_names, host, self.owner)

    def ranges(
        self, placement: Mapping[str, str], device_names: Sequence[str], host: str = "CPU:0"
    ) -> dict[str, PeakRange]:
        """The range of every device's peak."""
        step = self.memory(placement, device_names, host)
        return ranges_of_peaks(step, peaks_along(step, self.orders))
