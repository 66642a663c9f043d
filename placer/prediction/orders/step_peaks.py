"""The peaks of placements along the orders that a step may run in, in the numbers of a problem."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.memory.allocations import Allocations, find_allocations
from placer.prediction.memory.live_moments import moment_finder
from placer.prediction.memory.need import find_need, serves
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.execution_orders import (
    executor_orders,
    peaks_along,
    ranges_of_peaks,
    uses_accelerator,
)
from placer.prediction.orders.needs import (
    needs_along,
    peaks_at_once,
    peaks_in,
    with_orders_ahead,
)
from placer.prediction.orders.possible_lifetimes import PossibleLifetimes, find_possible_lifetimes
from placer.prediction.orders.possible_steps import PossibleSteps, as_it_runs
from placer.prediction.step.routes import is_cpu
from placer.problem.device_peaks import LEAST_LIMIT_BYTES, DevicePeak
from placer.problem.placement_problem import PlacementProblem


class StepPeaks:
    """The peaks of placements along the orders that a step may run in; the ``worst`` are those, of
    the orders that were followed for the last placement, along which a device peaked."""

    def __init__(
        self,
        graph: OpGraph,
        costs: Mapping[str, OpCost],
        problem: PlacementProblem,
        *,
        needs_on: Cluster | None = None,
    ) -> None:
        self.costs, self.problem, self.needs_on = costs, problem, needs_on
        self.number = {name: index for index, name in enumerate(problem.op_names)}
        self.host = problem.device_names[problem.host]
        accelerated = uses_accelerator(problem.device_names)
        self.steps = PossibleSteps(graph, costs, accelerated=accelerated)
        self.graph = graph = as_it_runs(graph, accelerated=accelerated)
        # A moment is one of the ops that are placed: of a loop as a whole.
        laid_out = bool(self.steps.owner)
        self.orders = (
            executor_orders(graph, accelerated=accelerated) if laid_out else self.steps.orders
        )
        self.moments_along: dict[int, Callable[[str], dict[str, int]]] = {}
        self.worst: set[int] = set()

    def __call__(self, device_of: Sequence[int]) -> tuple[DevicePeak, ...]:
        """The highest predicted peak of every device, given one device number per op, with the
        moment of the peak where that exceeds the device's cap.

        Given the cluster, what its allocators need takes the place of a peak, unless that is so far
        within its cap that the need is certain to be.  If one is not served along the orders that
        were the worst for the last placement, no other order is followed."""
        names, placement = self.problem.device_names, self.problem.placement(device_of)
        step, cluster = self.steps.memory(placement, names, self.host), self.needs_on
        caps = dict(zip(names, self.problem.capacity_bytes, strict=True))
        needs: dict[str, int] = {}
        if cluster is None or not self.steps.accelerated:
            along = dict(enumerate(peaks_along(step, self.steps.orders)))
            highest = _highest(step, along)
            if cluster is not None and all(highest[name] <= cap for name, cap in caps.items()):
                needs = self._needs(step, along, {}, caps, cluster)
        else:
            requests = self._requests(step, self.worst)
            along = {index: peaks_in(asked) for index, asked in requests.items()}
            if not (requests and (needs := self._unserved(step, along, requests, caps))):
                rest = {*range(len(self.steps.orders))}.difference(requests)
                requests |= self._requests(step, rest)
                requests = dict(sorted(requests.items()))  # as the plan is predicted in the end
                along = {index: peaks_in(asked) for index, asked in requests.items()}
                needs = self._unserved(step, along, requests, caps)
            highest = _highest(step, along)
            self.worst = {_worst(along, name) for name in names if not is_cpu(name)}
            if not needs and all(highest[name] <= cap for name, cap in caps.items()):
                needs = self._needs(step, along, requests, caps, cluster)
        highest |= {name: max(need, highest[name]) for name, need in needs.items()}
        above = [name for name, cap in caps.items() if highest[name] > cap]
        moments = cache(partial(self._moments, above, tuple(device_of), along))
        return tuple(
            DevicePeak(
                peak_bytes=highest[name],
                moment=_Moment(moments, name) if name in above else {},
            )
            for name in names
        )

    def _requests(
        self, step: StepMemory, orders: Iterable[int]
    ) -> dict[int, dict[str, Allocations]]:
        """The requests to all allocators along some of the orders."""
        every = self.steps.orders
        return {index: find_allocations(step, every[index], index) for index in sorted(orders)}

    def _unserved(
        self,
        step: StepMemory,
        along: Mapping[int, Mapping[str, int]],
        requests: Mapping[int, Mapping[str, Allocations]],
        caps: Mapping[str, int],
    ) -> dict[str, int]:
        """The needs of accelerators that are not served under their caps along the order in which
        they peak."""
        found = {}
        for name in _close(_highest(step, along), requests, caps):
            worst = _worst(along, name)
            if not is_cpu(name) and not serves(requests[worst][name], caps[name]):
                need = find_need(requests[worst][name]).need_bytes
                found[name] = max(need, caps[name] + 1)
        return found

    def _needs(
        self,
        step: StepMemory,
        along: Mapping[int, Mapping[str, int]],
        requests: Mapping[int, Mapping[str, Allocations]],
        caps: Mapping[str, int],
        cluster: Cluster,
    ) -> dict[str, int]:
        """The needs of devices whose caps they may exceed, along all orders."""
        close, asked = _close(_highest(step, along), requests, caps), [*requests.values()]
        if not close:
            return {}
        at_once = peaks_at_once(step, self.steps.threaded_steps)
        found = needs_along(step, asked, [*along.values(), *at_once], close)
        if all(need.need.high_bytes <= caps[name] for name, need in found.items()):
            ahead = self.steps.running_ahead(step, cluster)
            found = with_orders_ahead(step, found, ahead, asked, caps)
        return {name: need.need.high_bytes for name, need in found.items()}

    def possible_lifetimes(self) -> PossibleLifetimes:
        """The buffers of the step along the same orders, for placements that are not known yet."""
        names = self.problem.device_names
        allowed = {
            name: [names[device] for device in devices]
            for name, devices in zip(self.problem.op_names, self.problem.allowed, strict=True)
        }
        return find_possible_lifetimes(self.steps, allowed, self.host)

    def _moments(
        self,
        names: Sequence[str],
        device_of: tuple[int, ...],
        along: Mapping[int, Mapping[str, int]],
    ) -> dict[str, dict[int, int]]:
        """Returns the memory of every op at each device's peak, along the worst order for it."""
        every, placement = self.problem.device_names, self.problem.placement(device_of)
        step = StepMemory(self.graph, self.costs, placement, every, self.host)
        if self.steps.owner:
            along = dict(enumerate(peaks_along(step, self.orders)))
        found = {}
        fullest: dict[int, dict[str, str]] = {}
        for name in names:
            worst = _worst(along, name)
            if worst not in fullest:
                fullest[worst] = step.fullest(self.orders[worst])
            if worst not in self.moments_along:
                self.moments_along[worst] = moment_finder(
                    self.graph, self.costs, self.orders[worst]
                )
            moment = self.moments_along[worst](fullest[worst][name])
            found[name] = {self.number[op]: size for op, size in moment.items() if size}
        return found


def _highest(step: StepMemory, along: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    """The highest peak of every device, given the peaks along some orders."""
    return {name: r.high_bytes for name, r in ranges_of_peaks(step, [*along.values()]).items()}


def _worst(along: Mapping[int, Mapping[str, int]], name: str) -> int:
    """The order along which a device peaks."""
    return max(along, key=lambda index: along[index][name])


def _close(
    highest: Mapping[str, int],
    requests: Mapping[int, Mapping[str, Allocations]],
    caps: Mapping[str, int],
) -> list[str]:
    """The devices whose needs may exceed their caps."""
    tuning = partial(_most_tuning_bytes, [*requests.values()])
    return [
        name
        for name, cap in caps.items()
        # no need was seen that is twice the peak, small steps and buffers that tune aside
        if 2 * highest[name] + tuning(name) > cap >= LEAST_LIMIT_BYTES
    ]


def _most_tuning_bytes(requests: Sequence[Mapping[str, Allocations]], device: str) -> int:
    """No less than what a convolution asks for at once as it is tuned: two chunks, which are among
    the temporaries of a first step."""
    tuned = [along[device] for along in requests if along[device].later]
    return 2 * max((asked.sizes[c] for asked in tuned for c in asked.temporaries), default=0)


class _Moment(Mapping[int, int]):
    """The memory of every op when a device peaks, computed when it is first read: for most
    placements nobody reads it."""

    def __init__(self, moments: Callable[[], Mapping[str, Mapping[int, int]]], name: str) -> None:
        self._moments, self._name = moments, name

    @cached_property
    def _found(self) -> Mapping[int, int]:
        return self._moments()[self._name]

    def __getitem__(self, op: int) -> int:
        return self._found[op]

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
