"""Compiles the searches, and what an allocator needs.

Each part has a process of its own, before the first search that needs it
(:mod:`placer.solving.process.compiling`), or ahead::

    python -P -m placer.solving.warm_up

Numba compiles a function at its first call: a small problem is searched, in all ways.
"""

import math
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from placer.prediction.memory.need import load_loops
from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem, ProblemTensor
from placer.processes import Tell
from placer.solving.process.compiling import PARTS, done_mark, failures, warm_up
from placer.solving.reduction.unit_problem import reduce_to_units

_OPS = 600
_CYCLES = 3


def sample_problem() -> PlacementProblem:
    """A random graph on two accelerators of 60% of its bytes each, for several levels."""
    rng = random.Random(0)
    ops = range(_OPS)
    tensors = [
        ProblemTensor(
            producer=op,
            consumers=tuple(sorted({min(_OPS - 1, op + rng.randint(1, 40)) for _ in range(3)})),
            bytes=rng.randint(1, 1000),
        )
        for op in ops[:-1]
    ]
    resident = tuple(rng.randint(1, 100) for _ in ops)
    cap = 6 * sum(resident) // 10
    return PlacementProblem(
        op_names=tuple(f"op{op}" for op in ops),
        device_names=("GPU:0", "GPU:1", "CPU:0"),
        host=2,
        resident_bytes=resident,
        temporary_bytes=(0,) * _OPS,
        seconds=((1e-5, 1e-5, 1e-4),) * _OPS,
        group=tuple(ops),
        allowed=((0, 1),) * _OPS,
        spillable=(False,) * _OPS,
        tensors=tuple(tensors),
        control_edges=(),
        capacity_bytes=(cap, cap, 1 << 40),
        transient_bytes=(0, 0, 0),
        live_bytes=(),
        bandwidth=((1e9,) * 3,) * 3,
        latency=((1e-6,) * 3,) * 3,
        spill="never",
    )


def sample_lifetimes(problem: PlacementProblem) -> PossibleLifetimes:
    """Every tensor a buffer, the ops in the order of their numbers."""
    lifetimes = PossibleLifetimes(orders=1, length=len(problem.op_names))
    for tensor in problem.tensors:
        lifetimes.add_buffer(tensor.producer, tensor.producer, tensor.bytes)
        for op in tensor.consumers:
            lifetimes.add_read(op, tensor.producer, op, tensor.bytes)
    return lifetimes


def compile_part(request: tuple[str, str], _tell: Tell) -> None:
    """Compiles a part into a folder, unless another process has, or does (it is waited for)."""
    folder, part = request
    os.nice(5)  # a model is read meanwhile, which takes longer where there are two cores
    mark = done_mark(Path(folder), part)
    with _locked(mark.with_suffix(".lock")):
        if not mark.exists():
            _COMPILE[part]()
            with suppress(OSError):  # nothing can be kept
                mark.touch()


def _compile_transfer() -> None:
    """The search for the least transfer."""
    from placer.solving.transfer.transfer_search import TransferSearch

    search = TransferSearch(reduce_to_units(sample_problem()), [], 0, _ignore)
    search.step(math.inf)  # nothing is known: a placement from nothing
    search.redraw()
    search.vary(math.inf)


def _compile_moves() -> None:
    """The end of that search, so that a second core can begin with it."""
    import numpy as np

    from placer.solving.search.recursive_bisection import finish
    from placer.solving.search.unit_arrays import transfer_arrays

    arrays = transfer_arrays(reduce_to_units(sample_problem()))
    finish(arrays, np.zeros(_OPS, np.int64), np.random.default_rng(0))


def load_peaks() -> None:
    """Loads the search under caps on peaks, and what mends its placements; compiles them where
    they are not yet."""
    from placer.solving.peaks.repair import repair
    from placer.solving.search.peak_problem import to_peak_problem
    from placer.solving.search.peak_search import PeakSearch

    problem = sample_problem()
    lifetimes, units = sample_lifetimes(problem), reduce_to_units(problem)
    peaks = to_peak_problem(problem, units, lifetimes, problem.capacity_bytes)
    PeakSearch(peaks, [], 0, _ignore).run(math.inf, 1)
    judged = iter([(1, 0, 0)])
    repair(peaks, [[0] * _OPS], lambda _: next(judged, (0, 0, 0)), lambda: False)


def _compile_throughput() -> None:
    """The search for the least bottleneck."""
    from placer.solving.objectives.throughput.problem import to_loads
    from placer.solving.objectives.throughput.search import LoadSearch

    problem = replace(sample_problem(), objective="throughput")
    LoadSearch(to_loads(problem), [], 0, _ignore).run(math.inf, _CYCLES)


def _compile_step_time() -> None:
    """The search for the shortest step."""
    from placer.solving.objectives.step_time.problem import StepProblem
    from placer.solving.objectives.step_time.search import StepSearch

    problem = replace(sample_problem(), objective="step-time")
    StepSearch(StepProblem(problem), [], 0, _ignore).run(math.inf, _CYCLES)


_COMPILE = {
    "transfer": _compile_transfer,
    "moves": _compile_moves,
    "peaks": load_peaks,
    "throughput": _compile_throughput,
    "step_time": _compile_step_time,
    "needs": load_loops,
}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock that ends with the process; where there are none, several compile the same."""
    with suppress(ImportError, OSError):
        import fcntl

        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
            return
    yield


def _ignore(_device_of: Sequence[int]) -> None:
    """A placement of the sample is of no use."""


if __name__ == "__main__":
    for thread in warm_up(*PARTS):
        thread.join()
    if failures:
        raise SystemExit("\n".join(f"{part}: {reason}" for part, reason in failures.items()))
