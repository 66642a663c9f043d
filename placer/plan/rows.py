"""The rows of a plan."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from cost_models.byte_sizes import format_bytes, format_count
from placer.problem.device_peaks import required_bytes
from placer.problem.rows import Row
from placer.problem.status import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice(Row):
    """A device and what it holds.

    ``required_bytes`` is held against ``usable_bytes``, and is what every screen calls required
    (:func:`~placer.problem.device_peaks.required_bytes`).  ``peak_memory_bytes`` is the highest
    over the orders that a step may run in, ``peak_expected_bytes`` the median, ``peak_low_bytes``
    the lowest.  ``need_bytes`` is the least limit under which TensorFlow's allocator serves all of
    them, likewise with ``need_expected_bytes`` and ``need_low_bytes``; without a limit it has
    ``in_use_peak_bytes`` in use at most, whole chunks counted, ``in_use_with_workspace_bytes``
    (expected) where libraries get the workspaces that they do without if need be (cuDNN's),
    ``in_use_expected_bytes`` where not.  ``allocator`` is ``one region``, ``None`` of
    a CPU, which needs what lives at once.  Of a GPU ``needs`` has the parts: the least limits that
    serve ``loading`` (or building), the ``first_step``, in which convolutions are tuned, and
    ``later_steps``; ``workspace`` is what libraries cannot do without, 0 of cuDNN.
    ``need_peak_op`` asks when the need peaks, empty while loading.  All of that with ``red_zones``,
    or, where that is false, with ``TF_DISABLE_RZ_CHECK=1``.

    Of a card that is known, ``card_bytes`` is the total, of which the CUDA context takes
    ``card_context_bytes``, TensorFlow keeps ``card_kept_back_bytes`` back and may hand out
    ``card_usable_bytes``.  All other figures but the caps are ``None`` where nothing is placed.
    """

    IN_JSON: ClassVar = ("required_bytes",)
    name: str
    type: str
    model: str
    memory_limit_bytes: int
    usable_bytes: int
    card_bytes: int | None = None
    card_context_bytes: int | None = None
    card_kept_back_bytes: int | None = None
    card_usable_bytes: int | None = None
    resident_bytes: int | None = None
    peak_memory_bytes: int | None = None
    peak_expected_bytes: int | None = None
    peak_low_bytes: int | None = None
    allocator: str | None = None
    need_bytes: int | None = None
    need_expected_bytes: int | None = None
    need_low_bytes: int | None = None
    in_use_peak_bytes: int | None = None
    in_use_expected_bytes: int | None = None
    in_use_with_workspace_bytes: int | None = None
    needs: Mapping[str, int] | None = None
    need_peak_op: str | None = None
    red_zones: bool | None = None
    spilled_bytes: int | None = None
    spilled_ops: int | None = None
    busy_seconds: float | None = None

    @property
    def required_bytes(self) -> int | None:
        """The memory that it requires; ``None`` where nothing is placed."""
        return self.required_under(self.usable_bytes)

    @property
    def offloaded(self) -> str:
        """The bytes of the ops that are offloaded here, or their number if they keep nothing;
        ``""`` if there are none."""
        if self.spilled_bytes:
            return format_bytes(self.spilled_bytes)
        return format_count(self.spilled_ops, "op") if self.spilled_ops else ""

    def required_under(self, limit_bytes: int) -> int | None:
        """The memory that it requires, held against another limit."""
        if self.peak_memory_bytes is None:
            return None
        return required_bytes(self.peak_memory_bytes, self.need_bytes, limit_bytes)


def device_words(devices: Iterable[PlannedDevice]) -> str:
    """Returns the accelerators by model, ``"2x T4"``, or the CPUs where there are none."""
    rows = tuple(devices)
    accelerators = [row for row in rows if row.type != "CPU"]
    counts = Counter(row.model or row.type for row in accelerators or rows)
    return ", ".join(f"{count}x {kind}" for kind, count in counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMetrics(Row):
    """The figures of a step, all ``None`` where nothing is placed: unknown is not zero.

    ``collective_bytes`` are what all devices send in collectives, beside the transfers.
    ``sent_bytes`` are those of data, feeds and fetches, ``messages`` the number of all transfers,
    signals of control edges among them; ``slower_seconds`` how much longer all ops together work
    where they are than each would on the fastest accelerator that law leaves to it, and
    ``slower_bytes`` what that is in a cost, every op rounded up.
    ``fit_extra_seconds`` of ``step_seconds`` are what it takes longer because it was made to fit,
    ``None`` if it was not.
    """

    bottleneck_seconds: float | None = None
    collective_bytes: int | None = None
    critical_path_seconds: float | None = None
    fetch_bytes: int | None = None
    fit_extra_seconds: float | None = None
    messages: int | None = None
    sent_bytes: int | None = None
    slower_bytes: int | None = None
    slower_seconds: float | None = None
    step_seconds: float | None = None
    transfer_bytes: int | None = None
    transfer_count: int | None = None

    @property
    def fit_extra_share(self) -> float:
        """How much longer a step takes that was made to fit, as a share of one that was not."""
        extra = max(self.fit_extra_seconds or 0.0, 0.0)
        return extra / max((self.step_seconds or 0.0) - extra, 1e-12)

    def with_sent(self) -> Self:
        """The metrics of a plan that was kept before ``sent_bytes`` was."""
        if self.sent_bytes is not None or self.transfer_bytes is None:
            return self
        return replace(self, sent_bytes=self.transfer_bytes + (self.fetch_bytes or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverAnswer(Row):
    """How good the placement is: ``lower_bound`` is proven, ``None`` where none is.

    Of the objective transfer, both are the cost in bytes: what is sent, ``link_latency_seconds``
    times ``link_bandwidth`` for every message, and slower work times ``link_bandwidth``.

    ``cut_by_time``: the clock ended some part of the search, so that another run may end at another
    placement; else the same request gives the same plan on the same machine.
    ``stages`` are what the search did, in this order.
    """

    status: str
    objective: str
    value: float | None
    lower_bound: float | None
    relative_gap: float | None
    seconds: float
    seed: int
    cut_by_time: bool = False
    link_bandwidth: float | None = None
    link_latency_seconds: float | None = None
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict(Row):
    """The verdict of the gates (``--fail-above``, ``--fail-on``, ``--baseline``): ``failures`` are
    the reasons why they tripped, in sentences, ``notes`` what else a reader should know."""

    passed: bool
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWarning(Row):
    """A warning to the reader of a plan; ``ops`` are the first few of ``count``."""

    code: str
    message: str
    count: int = 1
    ops: tuple[str, ...] = ()
