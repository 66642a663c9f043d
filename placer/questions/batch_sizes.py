"""One model at several batch sizes: memory, step time, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Unpack

from cost_models.clusters import Devices
from cost_models.device_names import LOCAL
from placer.errors import UsageError, require_count
from placer.extraction.extraction import UNBOUND_BATCH
from placer.extraction.files.sources import require_source
from placer.extraction.shapes.binding import BATCH
from placer.pipeline.pipeline import REFERENCE_DEVICE
from placer.pipeline.pipeline import report as report_model
from placer.pipeline.workload import read_cluster
from placer.plan.report import Report
from placer.plan.request import AUTO, NEVER, Keywords, current_names, read_options, takes_options
from placer.plan.results import Summarised
from placer.problem.limits import Limited, fullest

MAX_TRIALS = 10
_LARGEST_BATCH = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One batch size.  Without devices (or where nothing was placed) the peak is the highest of
    everything on one device; with them, ``peak_bytes`` are by device, and ``transfer_bytes``,
    ``sent_bytes`` and ``step_seconds`` those of the placement (``None`` if there is none).
    ``required_bytes`` are the required memory by device.  ``flops`` is the work of a step.  Tensors
    of unknown size (``unknown_tensors``) are not counted: the figures are at least so much.
    ``fits`` is ``None`` where they are too many to tell."""

    IN_JSON: ClassVar = ("samples_per_second",)
    batch_size: int
    fits: bool | None
    peak_bytes: Mapping[str, int]
    required_bytes: Mapping[str, int]
    step_seconds: float | None
    flops: int
    transfer_bytes: int | None = None
    sent_bytes: int | None = None
    status: str = ""
    unknown_tensors: int

    @property
    def samples_per_second(self) -> float | None:
        """Examples a second if steps follow each other without a gap."""
        return self.batch_size / self.step_seconds if self.step_seconds else None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sweep(Summarised):
    """The rows, and the largest batch size that fits: ``largest_fitting`` fits (``None``: none was
    found), ``smallest_failing`` is the least that was tried and does not (``None``: all that were
    tried fit, or it is not known).  ``spill`` says whether ops might be offloaded; where nothing
    fits without that, ``offloaded_fitting`` is a size that was tried and fits with it.
    ``warnings`` are (code, message) pairs of the first row's
    report; with ``is_bound`` false the batch size changes nothing."""

    SCHEMA: ClassVar = "placer.sweep/1"
    model: Mapping[str, str]
    caps: Mapping[str, int]
    rows: tuple[SweepRow, ...]
    largest_fitting: int | None
    smallest_failing: int | None
    warnings: tuple[tuple[str, str], ...] = ()
    is_bound: bool = True
    spill: str = NEVER
    offloaded_fitting: int | None = None
    devices: Sequence[Limited] = field(default=(), repr=False, metadata={"in_file": False})
    reports: tuple[Report, ...] = field(default=(), repr=False, metadata={"in_file": False})


@partial(takes_options, offload=NEVER)
def sweep(
    source: Any,
    batch_sizes: Sequence[int],
    devices: Devices | None = LOCAL,
    *,
    max_trials: int = MAX_TRIALS,
    **options: Unpack[Keywords],
) -> Sweep:
    """``source`` at each of ``batch_sizes``, and the largest batch size that fits.

    That is the largest that has a placement on the accelerators, by default this machine's, with
    nothing offloaded to the host unless that is asked for (``offload="auto"``).  With ``devices``
    ``None`` it is the largest whose required memory fits the reference device.  ``options`` and
    errors as for :func:`placer.pipeline.pipeline.report`.
    """
    if isinstance(batch_sizes, str) or not isinstance(batch_sizes, Collection) or not batch_sizes:
        raise UsageError(f"batch_sizes is {batch_sizes!r}; give one or more, such as [8, 32]")
    for size in batch_sizes:
        require_count("a batch size", size)
    if options.get("batch_size") is not None:
        raise UsageError("give the sizes as batch_sizes alone, and leave out batch_size")
    _require_open_batches(sorted(set(batch_sizes)), options)
    require_source(source, devices)
    asked: dict[str, Any] = {"offload": NEVER, **current_names(options)}
    trials = _Trials(source, devices, asked)
    rows = [trials.row(size) for size in sorted(set(batch_sizes))]
    warnings = trials.reports[0].warnings
    is_bound = UNBOUND_BATCH not in dict(warnings)
    decided = is_bound and all(row.fits is not None for row in rows)
    fitting, failing = _largest(trials, rows, max_trials if decided else 0)
    offloaded = None
    if devices and failing is not None and fitting is None and asked["offload"] == NEVER:
        offloading = _Trials(source, devices, {**asked, "offload": AUTO})
        sizes = (row.batch_size for row in reversed(rows))
        offloaded = next((size for size in sizes if offloading.row(size).fits), None)
    return Sweep(
        model={"path": trials.reports[0].model.path, "format": trials.reports[0].model.format},
        caps=trials.caps,
        devices=trials.shown,
        rows=tuple(rows),
        largest_fitting=fitting,
        smallest_failing=failing,
        warnings=warnings,
        is_bound=is_bound,
        spill=asked["offload"],
        offloaded_fitting=offloaded,
        reports=tuple(trials.reports),
    )


def _require_open_batches(sizes: Sequence[int], options: Mapping[str, Any]) -> None:
    """Raises :class:`UsageError` for a shape that gives its first dimension one size for all of
    several batch sizes, so that every row would be that of the one that was bound."""
    for flag, equals in (("shapes", "--shape {}="), ("ragged", "--ragged {}=")):
        for name, shape in (options.get(flag) or {}).items():
            first, *rest = shape or (None,)
            if len(sizes) > 1 and isinstance(first, int):
                option = equals.format(name)
                others = "".join(f"x{'?' if size is None else size}" for size in rest)
                raise UsageError(
                    f"{option}{first}{others} is {first} at each of the batch sizes "
                    f"{', '.join(map(str, sizes))}. Write {option}{BATCH}{others} to follow the "
                    f"batch, or {option}N{others} --dim N={first} if it is always {first}"
                )


class _Trials:
    """Reports by batch size."""

    def __init__(self, source: Any, devices: Devices | None, options: Mapping[str, Any]) -> None:
        self.source, self.devices, self.options = source, devices, options
        cluster = read_cluster(devices or REFERENCE_DEVICE, read_options(options))
        self.shown = [d for d in cluster.devices if devices or d.type != "CPU"]
        self.caps = {device.name: device.usable_bytes for device in self.shown}
        self.reports: list[Report] = []
        self.shares: dict[int, float] = {}
        """By batch size, the share of its limit that the fullest device requires."""
        self.is_one = sum(device.type != "CPU" for device in self.shown) < 2

    def row(self, batch_size: int) -> SweepRow:
        """The row of one batch size."""
        found, alone = self._row(batch_size)
        needs = found.required_bytes or (alone.required_bytes if self.is_one else {})
        if needs:
            self.shares[batch_size] = fullest(needs, self.caps)[1]
        return found

    def _row(self, batch_size: int) -> tuple[SweepRow, SweepRow]:
        """The row, and that of everything on the first device."""
        options = {**self.options, "batch_size": batch_size}
        found = report_model(self.source, self.devices, **options)
        self.reports.append(found)
        (device, cap), *_ = self.caps.items()
        need = found.memory.required_bytes
        alone = SweepRow(
            batch_size=batch_size,
            fits=_fits(found, need, cap),
            peak_bytes={device: found.memory.high_bytes},
            required_bytes={device: need},
            step_seconds=found.compute.step_seconds,
            flops=found.compute.flops,
            unknown_tensors=len(found.unknown_shapes),
        )
        if found.plan is None:
            return alone, alone
        placed = replace(
            alone,
            fits=found.plan.fits,
            peak_bytes=found.plan.peak_bytes,
            required_bytes=found.plan.required_bytes,
            step_seconds=found.plan.metrics.step_seconds,
            transfer_bytes=found.plan.metrics.transfer_bytes,
            sent_bytes=found.plan.metrics.sent_bytes,
            status=found.plan.solver.status,
        )
        return placed, alone


def _fits(found: Report, need: int, cap: int) -> bool | None:
    """Whether everything fits one device; ``None`` if too much is of unknown size to tell."""
    if need > cap:
        return False
    return True if found.is_sized else None


def _largest(
    trials: _Trials, rows: Sequence[SweepRow], max_trials: int
) -> tuple[int | None, int | None]:
    """The largest size that fits and the smallest that does not, as near as some trials bring
    them.  Between them the next trial is where the needs, taken for linear in the batch, meet the
    limit; it is the middle where that is not known, or two such trials ended alike."""
    known = {row.batch_size: row for row in rows}
    ended: list[bool | None] = []
    for _ in range(max_trials):
        fitting, failing = _bounds(known)
        if failing is None:
            size = min(4 * max(known), _LARGEST_BATCH)
            if size <= max(known):
                break
        elif failing - (fitting or 0) <= 1:
            break
        else:
            low = fitting or 0
            guess = _linear_guess(trials.shares, low, failing)
            is_stuck = ended[-2:] in ([True, True], [False, False])
            size = (low + failing) // 2 if guess is None or is_stuck else guess
            ended = [] if is_stuck else ended
        known[size] = trials.row(size)
        ended.append(known[size].fits)
    return _bounds(known)


def _bounds(known: Mapping[int, SweepRow]) -> tuple[int | None, int | None]:
    failing = min((size for size, row in known.items() if row.fits is False), default=None)
    fitting = [s for s, row in known.items() if row.fits and (failing is None or s < failing)]
    return max(fitting, default=None), failing


def _linear_guess(shares: Mapping[int, float], low: int, failing: int) -> int | None:
    """The size between both at which the fullest device meets its limit, ``None`` if it is not
    known: from these two, or from the two largest below."""
    points = [size for size in sorted(shares) if size in (low, failing)]
    if len(points) < 2:
        points = [size for size in sorted(shares) if size <= low][-2:]
    if len(points) < 2:
        return None
    small, large = points
    slope = (shares[large] - shares[small]) / (large - small)
    if slope <= 0:
        return None
    return min(max(int(small + (1.0 - shares[small]) / slope), low + 1), failing - 1)
