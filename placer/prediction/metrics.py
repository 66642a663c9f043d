"""The predicted cost of a placement: transfers, memory over time, step time."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from placer.graph.name_scopes import sum_by_scope
from placer.problem.device_peaks import required_bytes
from placer.problem.rows import Row

SENT = ("data", "feed", "fetch")
"""Kinds of transfers whose bytes are what a step sends."""

ONE_REGION = "one region"
"""How the allocator of a GPU takes memory: all that it may at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Row):
    """One tensor sent to one device.

    ``kind`` is ``data``, ``feed``, ``fetch`` or ``control``; ``bytes`` is ``None`` for unsized
    tensors (strings, variants, unknown shapes); ``memory`` is ``device`` or ``host``, where the
    tensor arrives.  ``tensor`` is ``"op:0"``, or ``"^op"`` for a control edge.
    """

    tensor: str
    source: str = field(metadata={"key": "from"})
    target: str = field(metadata={"key": "to"})
    bytes: int | None
    kind: str
    memory: str = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBuffer:
    """A buffer that is alive at the peak of a device: its owner (an op), bytes and kind
    (``weights``, ``optimizer_state``, ``metrics``, ``constant``, ``activation``, ``gradient``,
    ``temporary``, ``transfer``: received, ``feed``, ``unused``: loaded all the same).
    ``until`` is the last op that needs it, ``""`` if it is kept from step to step."""

    op: str
    bytes: int
    kind: str
    until: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline:
    """Memory of one device along one execution order.

    ``bytes`` is the memory in use while op number i of ``order`` runs (resident bytes included),
    so ``peak_bytes == max(bytes, default=resident_bytes)``; ``peak_op`` is the op running then.
    A loop whose iterations were followed is in ``order`` once for every op that they run.
    """

    device: str
    resident_bytes: int
    peak_bytes: int
    peak_op: str
    live_at_peak: tuple[LiveBuffer, ...]
    order: tuple[str, ...]
    bytes: tuple[int, ...]

    def peak_by_kind(self) -> dict[str, int]:
        """Bytes at the peak by kind of buffer, largest first."""
        sums: Counter[str] = Counter()
        for buffer in self.live_at_peak:
            sums[buffer.kind] += buffer.bytes
        return dict(sums.most_common())

    def peak_by_op(self) -> dict[str, int]:
        """Bytes at the peak by the op that wrote or keeps them, largest first."""
        sums: Counter[str] = Counter()
        for buffer in self.live_at_peak:
            sums[buffer.op] += buffer.bytes
        return dict(sums.most_common())

    def peak_by_scope(self, depth: int = 1) -> dict[str, int]:
        """Bytes at the peak by the outermost ``depth`` parts of the name scope, largest first."""
        return sum_by_scope(self.peak_by_op(), depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRange:
    """The peak of one device over the orders that a step may run in.

    ``expected_bytes`` is the median; ``high_bytes`` is what a cap has to hold.
    """

    low_bytes: int
    expected_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedParts:
    """The least limits that serve loading (or building), the first step and later ones, each for
    itself, and the op that asks when the need peaks (empty: loading).  ``serves_split``: where the
    device's limit is less, it serves if every chunk is split."""

    loading_bytes: int
    first_step_bytes: int
    later_steps_bytes: int
    peak_op: str = ""
    serves_split: bool = False

    def largest(self) -> str:
        """The part that decides."""
        sizes = {
            "loading": self.loading_bytes,
            "later_steps": self.later_steps_bytes,
            "first_step": self.first_step_bytes,
        }
        return max(sizes, key=lambda name: sizes[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """The need of the allocator of one device, over the orders that a step may run in.

    ``in_use`` is the peak of bytes in use, in whole chunks; ``need`` the least limit under which
    the allocator serves the step.  ``allocator`` says how it takes memory, ``""`` for a CPU, which
    needs what lives at once.
    ``with_workspace_bytes`` are expected to be in use at most where libraries get the workspaces
    that they do without if need be (cuDNN's).

    Along the order whose need is expected, ``need_bytes`` are ``tensor_bytes``,
    ``workspace_bytes`` (what kernels take for themselves), ``padding_bytes`` of the chunks that
    these are in, and ``fragmentation_bytes``, free where nothing fits.  ``parts`` say when what is
    needed, on GPUs; ``along`` has (need, number of the op that asks when it peaks) along each of
    the executor's orders.
    """

    allocator: str
    in_use: PeakRange
    need: PeakRange
    with_workspace_bytes: int
    tensor_bytes: int
    workspace_bytes: int
    padding_bytes: int
    fragmentation_bytes: int
    parts: NeedParts | None = None
    along: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Predicted times in seconds: of a step, per device, and along the critical path.

    ``transfer_seconds`` has start and finish by (tensor, target, memory) of a :class:`Transfer`.
    """

    step_seconds: float
    critical_path_seconds: float
    busy_seconds: Mapping[str, float]
    bottleneck_seconds: float
    start_seconds: Mapping[str, float]
    finish_seconds: Mapping[str, float]
    transfer_seconds: Mapping[tuple[str, str, str], tuple[float, float]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """All of it for one placement; ``timelines`` are along an order that peaks as expected.

    ``collective_bytes`` are what all devices send in collectives, which are no transfers."""

    transfers: tuple[Transfer, ...]
    timelines: Mapping[str, MemoryTimeline]
    peaks: Mapping[str, PeakRange]
    schedule: Schedule
    needs: Mapping[str, MemoryNeed] = field(default_factory=dict)
    collective_bytes: int = 0

    def taken_bytes(self, caps: Mapping[str, int]) -> dict[str, int]:
        """The bytes that are held against ``caps``, by device
        (:func:`~placer.problem.device_peaks.required_bytes`)."""
        needs = {name: found.need.high_bytes for name, found in self.needs.items()}
        return {
            name: required_bytes(self.peaks[name].high_bytes, needs.get(name), cap)
            for name, cap in caps.items()
        }

    def over_caps(self, caps: Mapping[str, int]) -> dict[str, int]:
        """The bytes by which devices exceed their caps, of those that do."""
        return over_caps(self.taken_bytes(caps), caps)

    def bytes_of(self, *kinds: str) -> int:
        """The sized bytes of all transfers of the given kinds."""
        return sum(t.bytes or 0 for t in self.transfers if t.kind in kinds)


def over_caps(taken: Mapping[str, int], caps: Mapping[str, int]) -> dict[str, int]:
    """The bytes by which what is taken exceeds the caps, of the devices where it does."""
    return {name: size - caps[name] for name, size in taken.items() if size > caps[name]}
