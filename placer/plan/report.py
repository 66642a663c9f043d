"""The records of a report: plain data, computed by :mod:`placer.pipeline.model_report`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from cost_models.byte_sizes import AMPLE_BYTES
from cost_models.op_info import Shape
from placer.plan.loading_facts import LoadingFacts
from placer.plan.plan import Plan
from placer.plan.results import Page
from placer.plan.rows import GateVerdict
from placer.prediction.metrics import LiveBuffer
from placer.problem.device_peaks import required_bytes

if TYPE_CHECKING:
    from placer.prediction.predicted_step import PredictedStep

UNKNOWN_SHARE = 0.01
"""``place`` accepts unknown shapes up to this share of the bytes of all tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFacts:
    """One input: ``declared_shape`` as in the file, ``bound_shape`` as it was analysed; ``part``
    says which part it is of the ragged or sparse input ``of``."""

    key: str
    dtype: str
    declared_shape: Shape
    bound_shape: Shape
    part: str = ""
    of: str = ""


LEFT_OVER_WORDS: Mapping[str, tuple[str, str]] = {
    "gradient": ("gradient", "gradients"),
    "summary": ("summary", "summaries"),
    "assign": ("assigned value", "assigned values"),
}
"""Words for one and for many sinks that are left over, by reason
(:mod:`placer.extraction.reading.sinks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOverSinks:
    """Sinks that run and are not fetched, for one ``reason`` (a key of :data:`LEFT_OVER_WORDS`).

    ``bytes`` is what fetching them would send, ``None`` where that is not known.
    """

    reason: str
    count: int
    bytes: int | None
    examples: tuple[str, ...]

    def words(self) -> str:
        """Returns how many of what: ``"1 summary"``, ``"2 summaries"``."""
        return f"{self.count:,} {LEFT_OVER_WORDS[self.reason][self.count != 1]}"


def left_over_verbs(count: int) -> str:
    """Returns what ``count`` sinks do."""
    return "runs and is not fetched" if count == 1 else "run and are not fetched"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model in figures.

    ``op_count`` ops are reached by the chosen outputs and side effects, of ``file_op_count`` in
    the file, functions included.  ``function_count`` are bodies of loops and branches.
    ``parameter_count`` are the elements of all variables whose shape is known;
    ``unsized_variable_count`` are the others.  ``parameter_bytes`` are by dtype.
    ``output_bytes`` is what fetching the ``outputs`` takes (``None`` where that is not known);
    ``left_over`` are sinks that are no outputs, where nobody said which are.
    """

    format: str
    path: str
    signature: str
    tags: tuple[str, ...]
    fingerprint: str
    op_count: int
    file_op_count: int
    op_type_count: int
    function_count: int
    inputs: tuple[InputFacts, ...]
    outputs: tuple[str, ...]
    batch_size: int | None
    variable_count: int
    unsized_variable_count: int
    parameter_count: int
    parameter_bytes: Mapping[str, int]
    output_bytes: int | None = None
    left_over: tuple[LeftOverSinks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """Memory of one step with everything on one device.

    ``peak_bytes`` is expected, while ``peak_op`` runs; over the orders that a step may run in it is
    from ``low_bytes`` to ``high_bytes``, which is ``validated`` for CPUs only.  ``bytes_at_peak``
    splits it by kind (see :class:`~placer.prediction.metrics.LiveBuffer`), ``scopes_at_peak`` by
    name scope; ``largest_at_peak`` are the largest buffers then.  ``weight_bytes`` are resident for
    the forward pass, ``optimizer_state_bytes`` for updates, ``metrics_bytes`` for what only adds
    up; ``table_bytes`` are lookup tables and string constants.  The ``allocator`` (``one region``;
    ``""``: a CPU) needs ``need_bytes`` at most over the orders, ``need_low_bytes`` at least;
    ``need_parts`` splits the median, ``need_expected_bytes``, into ``tensors``, ``workspace`` of
    kernels, ``padding`` and ``fragmentation``.  ``needs``, ``need_peak_op`` and ``red_zones`` are
    those of a plan's device, where it is a GPU.  ``with_workspace_bytes`` are in use at most where
    libraries get the workspaces that they do without if need be (cuDNN's), which is no part of the
    need.  ``required_bytes`` is what has to be within ``usable_bytes`` of that device, as in a
    plan.  ``widest_op`` reads and writes the most at once (``widest_op_bytes``): a device with less
    memory cannot run it.
    """

    IN_JSON: ClassVar = ("required_bytes",)
    weight_bytes: int
    constant_bytes: int
    peak_bytes: int
    peak_op: str
    bytes_at_peak: Mapping[str, int]
    largest_at_peak: tuple[LiveBuffer, ...]
    optimizer_state_bytes: int
    metrics_bytes: int
    table_bytes: int
    low_bytes: int
    high_bytes: int
    validated: bool = False
    scopes_at_peak: Mapping[str, int] = field(default_factory=dict)
    widest_op: str = ""
    widest_op_bytes: int
    allocator: str = ""
    need_bytes: int = 0
    need_expected_bytes: int = 0
    need_low_bytes: int = 0
    need_parts: Mapping[str, int] = field(default_factory=dict)
    needs: Mapping[str, int] = field(default_factory=dict)
    need_peak_op: str = ""
    red_zones: bool | None = None
    with_workspace_bytes: int = 0
    usable_bytes: int = AMPLE_BYTES

    @property
    def required_bytes(self) -> int:
        """Returns what a cap has to hold, as in a plan."""
        return required_bytes(self.high_bytes, self.need_bytes, self.usable_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hotspot:
    """Ops that belong together (of one type, or in one name scope), summed.

    ``seconds`` is predicted busy time on the reference device; ``output_bytes`` are the sized
    outputs.
    """

    name: str
    op_count: int
    flops: int
    bytes_accessed: int
    output_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeFacts:
    """Work of one step.

    ``step_seconds`` is predicted for everything on ``reference``, ``busy_seconds`` is the sum
    over its ops (and the whole that the hotspots are shares of).  ``unmodelled_share`` is the part
    of it that falls to ops without a cost rule, ``inaccurate_share`` to those whose work is not
    fully known: unknown shapes or trips, strings, no rule.  ``relative_error`` is how far the step
    may be off: what the device was off when it was calibrated, and that share.
    """

    IN_JSON: ClassVar = ("arithmetic_intensity",)
    flops: int
    bytes_accessed: int
    step_seconds: float
    busy_seconds: float
    reference: str
    by_op_type: tuple[Hotspot, ...]
    by_scope: tuple[Hotspot, ...]
    unmodelled_share: float
    inaccurate_share: float
    relative_error: float | None = None

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOP per byte accessed; ``None`` if no byte is."""
        return self.flops / self.bytes_accessed if self.bytes_accessed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndivisibleGroup:
    """Ops that must share a device, and what they ask of it.

    ``resident_bytes`` are their weights and constants; ``needed_bytes`` adds the outputs and
    temporaries of the one op that has most of them, so no device with a smaller cap can hold the
    group.  ``example`` is that op, ``reasons`` say why the group cannot be divided.
    """

    op_count: int
    resident_bytes: int
    needed_bytes: int
    example: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownShape:
    """A tensor whose size is unknown although its dtype has one.

    ``is_origin`` if the shape gets lost here: the inputs of the op are all known.
    """

    tensor: str
    op_type: str
    shape: Shape
    is_origin: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Page):
    """A model, and its placement where there is one, as a person needs to know them.

    ``no_gpu_kernel`` and ``unmodelled`` count ops by op type.  ``unknown_share`` is the least part
    of the bytes of all tensors that ``unknown_shapes`` can have.  ``warnings`` are
    (code, message) pairs.  ``loading`` is what loaders of the model restore.  ``plan`` is the
    placement on the devices asked for, ``gate`` the verdict
    of the gates.  ``step`` predicts one step with everything on the reference device, op by op, for
    pictures.
    """

    SCHEMA: ClassVar = "placer.report/1"
    model: ModelFacts
    memory: MemoryFacts
    compute: ComputeFacts
    largest_group: IndivisibleGroup | None
    no_gpu_kernel: Mapping[str, int] = field(default_factory=dict)
    unmodelled: Mapping[str, int] = field(default_factory=dict)
    unknown_shapes: tuple[UnknownShape, ...] = ()
    unknown_share: float
    warnings: tuple[tuple[str, str], ...] = ()
    loading: LoadingFacts | None = None
    gate: GateVerdict | None = None
    plan: Plan | None = None
    step: Callable[[], PredictedStep] | None = field(
        default=None, compare=False, repr=False, metadata={"in_file": False}
    )

    @property
    def is_sized(self) -> bool:
        """Whether so little is of unknown size that what fits can be told."""
        return self.unknown_share <= UNKNOWN_SHARE

    def __repr__(self) -> str:
        """One line; :meth:`summary` has the rest."""
        return f"<Report: {self.model.op_count} ops, peak of {self.memory.peak_bytes} bytes>"
