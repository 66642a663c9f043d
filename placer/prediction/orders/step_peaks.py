"""The peaks of placements along the orders that a step may run in, in the numbers of a problem."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.memory.allocations import Allocations
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
    requests_along,
    with_orders_ahead,
)
from placer.prediction.orders.possible_lifetimes import PossibleLifetimes, find_possible_lifetimes
from placer.prediction.orders.possible_steps import PossibleSteps, as_it_runs
from placer.prediction.step.routes import is_cpu
from placer.problem.device_peaks import LEAST_LIMIT_BYTES, DevicePeak
from placer.problem.placement_problem import PlacementProblem


class StepPeaks:
    """The peaks of placements along the orders that a step may run in."""

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

    def __call__(self, device_of: Sequence[int]) -> tuple[DevicePeak, ...]:
        """The highest predicted peak of every device, given one device number per op, with the
        moment of the peak where that exceeds the device's cap.

        Given the cluster, what its allocators need takes the place of a peak, unless that is so far
        within its cap that the need is certain to be."""
        names, placement = self.problem.device_names, self.problem.placement(device_of)
        step, orders = self.steps.memory(placement, names, self.host), self.steps.orders
        requests: list[dict[str, Allocations]] = []
        if self.needs_on is not None and self.steps.accelerated:
            requests = requests_along(step, orders)
        along = [peaks_in(asked) for asked in requests] or peaks_along(step, orders)
        highest = {name: found.high_bytes for name, found in ranges_of_peaks(step, along).items()}
        if self.needs_on is not None:
            highest |= self._needs(step, along, requests, highest, self.needs_on)
        caps = zip(names, self.problem.capacity_bytes, strict=True)
        above = [name for name, cap in caps if highest[name] > cap]
        moments = cache(partial(self._moments, above, tuple(device_of), along))
        return tuple(
            DevicePeak(
                peak_bytes=highest[name],
                moment=_Moment(moments, name) if name in above else {},
            )
            for name in names
        )

    def _needs(
        self,
        step: StepMemory,
        along: Sequence[Mapping[str, int]],
        requests: Sequence[dict[str, Allocations]],
        highest: Mapping[str, int],
        cluster: Cluster,
    ) -> dict[str, int]:
        """The needs of devices whose caps they may exceed; none where peaks do, unless there are
        ``requests``, as there are with GPUs.

        Where the order that peaks highest is not served under the cap, no other one is followed.
        """
        caps = dict(zip(self.problem.device_names, self.problem.capacity_bytes, strict=True))
        is_above = any(highest[name] > cap for name, cap in caps.items())
        if is_above and not requests:
            return {}
        tuning = partial(_most_tuning_bytes, requests)
        close = [
            name
            for name, cap in caps.items()
            # no need was seen that is twice the peak, small steps and buffers that tune aside
            if 2 * highest[name] + tuning(name) > cap >= LEAST_LIMIT_BYTES
        ]
        over = {}
        for name in close:
            worst = max(range(len(along)), key=lambda index: along[index][name])
            if is_cpu(name) or serves(requests[worst][name], caps[name]):
                continue
            need_bytes = find_need(requests[worst][name]).need_bytes
            over[name] = max(need_bytes, caps[name] + 1, highest[name])
        if over or is_above or not close:
            return over
        at_once = peaks_at_once(step, self.steps.threaded_steps)
        found = needs_along(step, requests, [*along, *at_once], close)
        if all(need.need.high_bytes <= caps[name] for name, need in found.items()):
            ahead = self.steps.running_ahead(step, cluster)
            found = with_orders_ahead(step, found, ahead, requests)
        return {name: max(need.need.high_bytes, highest[name]) for name, need in found.items()}

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
        along: Sequence[Mapping[str, int]],
    ) -> dict[str, dict[int, int]]:
        """Returns the memory of every op at each device's peak, along the worst order for it."""
        every, placement = self.problem.device_names, self.problem.placement(device_of)
        step = StepMemory(self.graph, self.costs, placement, every, self.host)
        if self.steps.owner:
            along = peaks_along(step, self.orders)
        found = {}
        fullest: dict[int, dict[str, str]] = {}
        for name in names:
            worst = max(range(len(self.orders)), key=lambda index: along[index][name])
            if worst not in fullest:
                fullest[worst] = step.fullest(self.orders[worst])
            if worst not in self.moments_along:
                self.moments_along[worst] = moment_finder(
                    self.graph, self.costs, self.orders[worst]
                )
            moment = self.moments_along[worst](fullest[worst][name])
            found[name] = {self.number[op]: size for op, size in moment.items() if size}
        return found


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
