"""Records: the means by which a step is to fit, and the step that it becomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from placer.graph.control_edges import ControlEdge
from placer.graph.rewriting import NO_REWRITING, Rewriting

RELEASE, ORDER, RECOMPUTE, SWAP = MEANS = ("release", "order", "recompute", "swap")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """By which of :data:`MEANS` a step is to fit, in how many ``seconds`` that is to be decided,
    and by what share it may take longer (``None``: any).  Caps hold for what allocators need, or
    without ``with_needs`` for the peaks alone."""

    means: tuple[str, ...] = MEANS
    seconds: float
    with_needs: bool = True
    most_slowdown: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The op that needs most at once, what is resident included: no step is below ``bytes``."""

    op: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedStep:
    """The step that a placed step becomes, with the bytes and seconds predicted of it.

    ``over_bytes`` has the bytes that devices need beyond their caps, of those that do.
    ``step_seconds`` and ``free_seconds`` are those of the step and of the original one.  ``floors``
    has the bytes that no rewriting gets below, by device; ``is_cut`` says that the clock ended it.
    """

    rewriting: Rewriting = NO_REWRITING
    control_edges: tuple[ControlEdge, ...] = ()
    over_bytes: Mapping[str, int] = field(default_factory=dict)
    free_seconds: float = 0.0
    step_seconds: float = 0.0
    floors: Mapping[str, Floor] = field(default_factory=dict)
    is_cut: bool = False

    @property
    def fits(self) -> bool:
        """Whether all devices keep their caps."""
        return not self.over_bytes

    @property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better: what is over, then the time (sums of it in another order are the same
        time), then the edges."""
        over = sum(self.over_bytes.values())
        return over, round(self.slowdown, 9), len(self.control_edges)

    @property
    def is_rewritten(self) -> bool:
        """Whether anything was done."""
        return bool(self.rewriting or self.control_edges)

    @property
    def extra_seconds(self) -> float:
        """The seconds that the step takes longer; none where another order is faster."""
        return max(self.step_seconds - self.free_seconds, 0.0)

    @property
    def is_proven(self) -> bool:
        """Whether it takes no longer than the step as it was: nothing else is a bound."""
        return self.extra_seconds <= 1e-9 * self.free_seconds

    @property
    def slowdown(self) -> float:
        """By what share the step takes longer."""
        return self.step_seconds / self.free_seconds - 1 if self.free_seconds else 0.0
