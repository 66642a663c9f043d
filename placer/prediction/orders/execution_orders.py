"""Low, expected and high peaks: what memory takes over the orders that a step may run in.

The order of a step is not determined by the graph: it differs from process to process
(:mod:`placer.prediction.step.executor`).  So a few of the possible orders are followed.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from statistics import median_low

from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import PeakRange
from placer.prediction.step.executor import prepare, run_once, run_reversed, successors_in
from placer.prediction.step.routes import is_cpu
from placer.prediction.step.thread_pool import ThreadedStep

FEWEST_ORDERS = 2

OPS_IN_ALL = 60_000
_OPS_IN_ALL_OF_LOOPS = 240_000
"""So many ops are run over all orders, which bounds the time that takes; more where all ops are
those of laid out loops, whose orders differ by more, and in between by their share."""

_OPS_AT_ONCE = 30_000, 480_000
"""The same for orders in which ops overlap: seldom ones of loops need a tenth more."""

_THREADS = 2
_MOST_THREADS = 4
_FEWEST_CONCURRENT = 4
_MOST_CONCURRENT = 32


def uses_accelerator(device_names: Iterable[str]) -> bool:
    """Whether some device is no CPU.

    >>> uses_accelerator(["CPU:0", "GPU:0"]), uses_accelerator(["CPU:0", "CPU:1"])
    (True, False)
    """
    return not all(map(is_cpu, device_names))


def executor_orders(
    graph: OpGraph, *, accelerated: bool, laid_out: int = 0
) -> list[tuple[str, ...]]:
    """Orders in which the executor may run ``graph``; the same ones at every call.

    On CPUs expensive ops go through the thread pool, with accelerators every op is run first in,
    first out.  There consumers are notified in reverse in the first of the orders: so a ResNet-50
    ran, request by request, after the graph optimizers of TensorFlow's GPU runtime.  There are 2 to
    32 orders, fewer for large graphs and with accelerators, more the more of their ops are
    ``laid_out`` loops: for these the reversed order on CPUs, too, since the loop of a gradient runs
    ahead in a few orders only, and then holds twice as much.
    """
    if laid_out:
        return _orders(graph, accelerated, laid_out)
    return [*graph.ask_once(_accelerated_orders if accelerated else _usual_orders)]


def _orders(graph: OpGraph, accelerated: bool, laid_out: int = 0) -> list[tuple[str, ...]]:
    # first in, first out, orders differ by less
    most = 8 if accelerated else 32
    count = min(max(_affordable_orders(graph, laid_out), FEWEST_ORDERS), most)
    prepared = prepare(graph, accelerated)
    if accelerated:
        return [run_reversed(prepared), *(run_once(prepared, seed) for seed in range(count - 1))]
    usual = [run_once(prepared, seed) for seed in range(count)]
    return [*usual, run_reversed(prepared)] if laid_out else usual


def _accelerated_orders(graph: OpGraph) -> list[tuple[str, ...]]:
    return _orders(graph, accelerated=True)


def _usual_orders(graph: OpGraph) -> list[tuple[str, ...]]:
    return _orders(graph, accelerated=False)


def threaded_steps(
    graph: OpGraph, costs: Mapping[str, OpCost], *, laid_out: int = 0
) -> list[ThreadedStep]:
    """How the ops of ``graph`` may overlap on a CPU; the same at every call.

    TensorFlow runs as many ops at once as there are cores: mostly two here, which is the least, and
    now and then four.  How long an op takes is known roughly, so its time is drawn, too.  More are
    followed the more ops are those of ``laid_out`` loops, as in :func:`executor_orders`.
    """
    prepared = prepare(graph)
    affordable = _affordable_orders(graph, laid_out, _OPS_AT_ONCE)
    count = min(max(affordable, _FEWEST_CONCURRENT), _MOST_CONCURRENT)
    seconds = [
        # operations of a core while it moves a byte, and bytes that it could move while an op is
        # launched: only which of two ops is done first depends on it
        max(cost.flops / 7, cost.bytes_accessed) + 20_000
        for cost in (costs[name] for name in prepared.names)
    ]
    found = []
    for seed in range(count):
        rng = random.Random(seed)
        drawn = [second * 2 ** rng.uniform(-1, 1) for second in seconds]
        step = ThreadedStep(
            graph=prepared,
            successors=successors_in(prepared, seed),
            seconds=drawn,
            threads=_MOST_THREADS if seed % 4 == 3 else _THREADS,
            race=rng,
        )
        found.append(step)
    return found


def _affordable_orders(graph: OpGraph, laid_out: int, budget: tuple[int, int] | None = None) -> int:
    """Over how many orders all ops are run; the ``budget`` is of ops, and of ops of loops."""
    usual, of_loops = budget or (OPS_IN_ALL, _OPS_IN_ALL_OF_LOOPS)
    ops = max(len(graph.ops), 1)
    return (usual + (of_loops - usual) * laid_out // ops) // ops


def peaks_along(step: StepMemory, orders: Iterable[Sequence[str]]) -> list[dict[str, int]]:
    """The peaks of every device along each order, each a step of its own."""
    return [step.peaks(order, sample) for sample, order in enumerate(orders)]


def ranges_of_peaks(step: StepMemory, peaks: Sequence[Mapping[str, int]]) -> dict[str, PeakRange]:
    """The range of every device's peak, given the peaks along each order."""
    return {
        name: range_of([found[name] for found in peaks], step.resident_bytes(name))
        for name in step.device_names
    }


def range_of(peaks: Sequence[int], resident: int) -> PeakRange:
    """From the least to the most along each order, and a little beyond: the next order may be a new
    extreme, the more so the fewer orders were followed."""
    beyond = _beyond(peaks, resident)
    return PeakRange(
        low_bytes=max(min(peaks) - beyond, resident),
        expected_bytes=median_low(peaks),
        high_bytes=max(peaks) + beyond,
    )


def highest_peak(peaks: Sequence[float], resident: float) -> float:
    """The high end of the range of a device's peak, given the peaks along each order and what is
    resident there.

    >>> highest_peak([100, 100, 100], resident=100)
    100
    """
    return max(peaks) + _beyond(peaks, resident)


def _beyond(peaks: Sequence[float], resident: float) -> int:
    least, most = min(peaks), max(peaks)
    # a share for scalars that some kernels allocate, and rounding of allocators
    return ceil(2 * (most - least) / len(peaks) + 0.002 * (most - resident))


def typical_order(
    orders: Sequence[tuple[str, ...]], peaks: Sequence[Mapping[str, int]]
) -> tuple[str, ...]:
    """The order along which the fullest device peaks as expected."""
    fullest = max(peaks[0], key=lambda name: median_low([found[name] for found in peaks]))
    expected = median_low([found[fullest] for found in peaks])
    return next(o for o, found in zip(orders, peaks, strict=True) if found[fullest] == expected)
