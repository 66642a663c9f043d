"""Everything that is predicted of a placement, at once."""

from collections.abc import Iterable, Mapping, Sequence

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.memory.timelines import StepMemory, checked_order
from placer.prediction.metrics import Metrics
from placer.prediction.orders.execution_orders import (
    peaks_along,
    ranges_of_peaks,
    typical_order,
    uses_accelerator,
)
from placer.prediction.orders.needs import (
    needs_along,
    parts_of_needs,
    peaks_at_once,
    peaks_in,
    requests_along,
    with_orders_ahead,
)
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.prediction.step.routes import find_routes
from placer.prediction.times.schedule import predict_schedule, ring_bytes
from placer.prediction.transfers import largest_first, list_transfers
from placer.processes import collection_paused


@collection_paused()
def predict(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    cluster: Cluster,
    order: Sequence[str] | None = None,
    *,
    with_needs: bool = True,
    with_parts: bool = False,
) -> Metrics:
    """The transfers, the memory of every device and the times of one step of ``graph``.

    Memory is followed along ``order``, by default along the orders in which the executor may run.
    Needs are left out where ``with_needs`` is false, and divided into loading, first and later
    steps ``with_parts``.  Raises :class:`~placer.errors.UsageError` if ``placement``, devices of
    ``cluster`` by op, or ``order`` do not fit the graph.
    """
    host = cluster.host.name
    names = [device.name for device in cluster.devices]
    steps = None
    if order is None:
        steps = PossibleSteps(graph, costs, accelerated=uses_accelerator(names))
        step, orders = steps.memory(placement, names, host), steps.orders
    else:
        step = StepMemory(graph, costs, placement, names, host)
        orders = [checked_order(graph, order)]
    routes = step.routes if step.graph is graph else find_routes(graph, placement, host)
    transfers = tuple(list_transfers(graph, costs, routes, host))
    ahead: Iterable[tuple[str, ...]] = ()
    if steps is not None and with_needs:
        known = transfers if routes is step.routes else None
        ahead = steps.running_ahead(step, cluster, known)
    requests = requests_along(step, orders) if with_needs and uses_accelerator(names) else []
    peaks = [*map(peaks_in, requests)] or peaks_along(step, orders)
    ranges = ranges_of_peaks(step, peaks)
    needs = {}
    if with_needs:
        at_once = peaks_at_once(step, steps.threaded_steps if steps else ())
        along = needs_along(step, requests, [*peaks, *at_once])
        needs = with_orders_ahead(step, along, ahead, requests)
    if with_parts:
        needs = parts_of_needs(step, needs, ranges, requests, cluster.caps)
    return Metrics(
        transfers=largest_first(transfers),
        timelines=step.timelines(typical_order(orders, peaks)),
        peaks=ranges,
        schedule=predict_schedule(graph, costs, routes, transfers, cluster),
        needs=needs,
        collective_bytes=ring_bytes(graph, costs),
    )


def predict_step_seconds(
    graph: OpGraph, costs: Mapping[str, OpCost], placement: Mapping[str, str], cluster: Cluster
) -> float:
    """The predicted time of one step alone, in seconds; errors as for :func:`predict`."""
    host = cluster.host.name
    routes = find_routes(graph, placement, host)
    transfers = tuple(list_transfers(graph, costs, routes, host))
    return predict_schedule(graph, costs, routes, transfers, cluster).step_seconds
