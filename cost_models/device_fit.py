"""The rates that a device reaches, fitted to measured times of ops.

For every kind of op (an op type with enough samples, and every family; those that run in place
apart) three numbers: the seconds
of a launch, and the fractions of the peaks that its roofline sits at.  They minimise the mean of
``|log(predicted / measured)|``, each op weighted by the square root of its time: ratios, so that
small ops count, and absolute values, so that a few disturbed measurements do not.  The three are
then scaled together such that the kind's total time is right, because a step is a sum.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cost_models.devices import DeviceProperties, Efficiency
from cost_models.op_cost import OpCost
from cost_models.roofline import work_on

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Array = NDArray[numpy.float64]

LEAST_SAMPLES = 12
"""An op type with fewer gets the efficiency of its family."""

_PEAK_QUANTILE = 0.98

_STARTS = (0.05, 0.2, 0.5, 0.8)
_FINEST_STEP = 1.01
UNLIMITED = 100.0
"""The fraction of a peak that is written where the peak does not limit a kind of op."""

_SHORTEST_LAUNCH_SECONDS = 1e-8
_USUAL_SHARE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One op and the seconds that it took."""

    cost: OpCost
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFit:
    """The fit of one kind of op; ``median_error`` is relative, over its samples."""

    kind: str
    op_count: int
    seconds: float
    efficiency: Efficiency
    median_error: float


def fit_device(
    device: DeviceProperties, samples: Sequence[Sample]
) -> tuple[DeviceProperties, tuple[KindFit, ...]]:
    """``device`` with the peaks, overheads and efficiencies that ``samples`` show, and the fits.

    Ops with bodies are left out: their times are those of what runs in them.  So are ops whose
    work is not known.  Raises ``ValueError`` if no sample does any work.
    """
    plain = [s for s in samples if not (s.cost.inner or s.cost.inaccurate) and s.seconds > 0]
    working = [s for s in plain if s.cost.flops or s.cost.bytes_accessed]
    if not working:
        raise ValueError(
            "the FLOPs and bytes of no op in these costs files are known: profile a model that "
            "computes something, with its batch size"
        )
    idle = [s for s in plain if not (s.cost.flops or s.cost.bytes_accessed)]
    idle_of: dict[str, list[Sample]] = defaultdict(list)
    for sample in idle:
        idle_of[sample.cost.kinds[0]].append(sample)
    peak_flops = _peak((s.cost.flops, s.seconds) for s in working) or device.peak_flops
    bandwidth = _peak((s.cost.bytes_accessed, s.seconds) for s in working)
    peaked = replace(
        device, peak_flops=peak_flops, memory_bandwidth=bandwidth or device.memory_bandwidth
    )
    whole, kinds = _fit_kind("", working, peaked), _kinds(working)
    fits = {kind: _fit_kind(kind, s, peaked) for kind, s in kinds.items() if _shows_rates(s)}
    for kind, found in kinds.items():
        if kind not in fits:
            like = fits.get(found[0].cost.family, whole).efficiency
            fits[kind] = _fit_kind(kind, found, peaked, like)
    efficiency = {kind: fits[kind].efficiency for kind in kinds}
    efficiency |= {
        kind: Efficiency(launch_seconds=_mean_seconds(found))
        for kind, found in sorted(idle_of.items())
        if len(found) >= LEAST_SAMPLES
    }
    fitted = replace(
        peaked,
        launch_seconds=whole.efficiency.launch_seconds or device.launch_seconds,
        dispatch_seconds=_mean_seconds(idle) if idle else device.dispatch_seconds,
        efficiency=efficiency,
    )
    return fitted, tuple(fits[kind] for kind in kinds)


def slowed(device: DeviceProperties, factor: float) -> DeviceProperties:
    """``device`` on which everything takes ``factor`` times as long."""
    return replace(
        device,
        peak_flops=_rounded(device.peak_flops / factor),
        memory_bandwidth=_rounded(device.memory_bandwidth / factor),
        launch_seconds=_rounded(device.launch_seconds * factor),
        dispatch_seconds=_rounded(device.dispatch_seconds * factor),
        efficiency={
            kind: replace(found, launch_seconds=seconds and _rounded(seconds * factor))
            for kind, found in device.efficiency.items()
            for seconds in (found.launch_seconds,)
        },
    )


def _kinds(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Samples by op type and by family, variants apart: every family, and of the rest those that
    have enough.  Plain ones join their variants where they alone are too few."""
    families = {sample.cost.family for sample in samples}
    groups: dict[str, list[Sample]] = defaultdict(list)
    whole: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        cost = sample.cost
        ending = f"-{cost.variant}" if cost.variant else ""
        for kind in filter(None, (cost.op_type, cost.family)):
            groups[kind + ending].append(sample)
            whole[kind].append(sample)
    for kind, found in whole.items():
        if len(groups[kind]) < LEAST_SAMPLES:
            groups[kind] = found
    return {
        kind: found
        for kind, found in sorted(groups.items())
        if len(found) >= LEAST_SAMPLES or kind in families
    }


def _mean_seconds(samples: Sequence[Sample]) -> float:
    """The mean of one launch without the largest twentieth: now and then a read copies its
    variable."""
    seconds = sorted(sample.seconds / max(1, sample.cost.launches) for sample in samples)
    kept = seconds[: max(1, math.floor(_USUAL_SHARE * len(seconds)))]
    return _rounded(max(sum(kept) / len(kept), _SHORTEST_LAUNCH_SECONDS))


def _peak(pairs: Iterable[tuple[int, float]]) -> float:
    """The rate (work per second) that only the fastest large ops exceed; 0 if there are none."""
    # less says nothing of peaks
    rates = sorted(work / seconds for work, seconds in pairs if work >= 1_000_000)
    return _rounded(rates[int(_PEAK_QUANTILE * (len(rates) - 1))]) if rates else 0.0


def _fit_kind(
    kind: str,
    samples: Sequence[Sample],
    device: DeviceProperties,
    like: Efficiency | None = None,
) -> KindFit:
    """The fit of a kind; with the rates of ``like`` all of its time is that of launches."""
    import numpy

    flops = numpy.array([s.cost.flops for s in samples], float) / device.peak_flops
    work = numpy.array([work_on(s.cost, device) for s in samples], float)
    launches, moving = work[:, 0], work[:, 1] / device.memory_bandwidth
    seconds = numpy.array([s.seconds for s in samples])
    if like is None:
        launch, per_flop, per_byte = _fit(launches, flops, moving, seconds)
        rates = Efficiency(compute=_fraction(per_flop), memory=_fraction(per_byte))
    else:
        launch, per_flop, per_byte = float(seconds.sum() / launches.sum()), 0.0, 0.0
        rates = like
    predicted = _predict((launch, per_flop, per_byte), launches, flops, moving)
    return KindFit(
        kind=kind,
        op_count=len(samples),
        seconds=float(seconds.sum()),
        efficiency=replace(rates, launch_seconds=_rounded(max(launch, _SHORTEST_LAUNCH_SECONDS))),
        median_error=float(numpy.median(numpy.abs(predicted / seconds - 1))),
    )


def _shows_rates(samples: Sequence[Sample]) -> bool:
    # the time of smaller ops is that of their launch, and says nothing of large ones
    return max(max(s.cost.flops, s.cost.bytes_accessed) for s in samples) >= (1 << 14)


def _fraction(inverse: float) -> float:
    return UNLIMITED if inverse * UNLIMITED < 1 else _rounded(1 / inverse)


def _rounded(number: float) -> float:
    """Four digits: no fit knows more."""
    return float(f"{number:.4g}")


def _fit(launches: Array, computing: Array, moving: Array, seconds: Array) -> tuple[float, ...]:
    """Launch seconds, and the inverse fractions of the two peaks."""
    import numpy

    weights = numpy.sqrt(seconds)
    weights /= weights.sum()

    def loss(parameters: Sequence[float]) -> float:
        predicted = _predict(parameters, launches, computing, moving)
        return float(weights @ numpy.abs(numpy.log(predicted / seconds)))

    def starts(work: Array) -> list[float]:
        some = work > 0
        ratios = seconds[some] / work[some]
        return [0.0, *numpy.quantile(ratios, _STARTS)] if some.any() else [0.0]

    launch_starts = [_SHORTEST_LAUNCH_SECONDS, *numpy.quantile(seconds / launches, _STARTS[:3])]
    grid = itertools.product(launch_starts, starts(computing), starts(moving))
    best = _descend(loss, min(grid, key=loss))
    total = float(_predict(best, launches, computing, moving).sum())
    return tuple(value * float(seconds.sum()) / total for value in best)


def _descend(loss: Callable[[Sequence[float]], float], start: Sequence[float]) -> list[float]:
    """The best parameters near ``start``, each multiplied and divided by ever smaller factors."""
    best, least, step = list(start), loss(start), 1.6
    while step > _FINEST_STEP:
        improved = False
        for index, factor in itertools.product(range(len(best)), (step, 1 / step)):
            tried = [value * (factor if at == index else 1) for at, value in enumerate(best)]
            found = loss(tried)
            if found < least - 1e-9:
                best, least, improved = tried, found, True
        if not improved:
            step **= 0.5
    return best


def _predict(
    parameters: Sequence[float], launches: Array, computing: Array, moving: Array
) -> Array:
    """The roofline of :func:`cost_models.roofline.op_seconds` on arrays."""
    import numpy

    launch, per_flop, per_byte = parameters
    roof: Array = numpy.maximum(per_flop * computing, per_byte * moving)
    return launches * launch + roof + 1e-12
