"""One call: put this program on these devices.

Every way to run it that the library can build is tried, the simplest first, and the fastest that
fits is taken.  A way is left out as soon as it cannot be chosen any more, because of what it cannot
beat (:mod:`placer.questions.auto_ways`).

Predictions are wrong by some per cent (``benchmarks/strategies``, ``benchmarks/time_accuracy``).
Ways that differ by less than a margin are taken for equal, and the simplest of them is chosen.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from cost_models.byte_sizes import format_bytes, format_seconds
from cost_models.clusters import Devices
from cost_models.device_names import LOCAL
from placer.errors import NoSolutionError, PlacerError, UsageError
from placer.extraction.process.child_process import one_reading_process
from placer.plan.request import Keywords, read_options, takes_options
from placer.problem.limits import overruns
from placer.processes import collection_paused
from placer.questions.auto_advice import Advice
from placer.questions.auto_programs import AutoProgram, Built, open_program
from placer.questions.auto_result import DOUBT_SECONDS, AutoResult, AutoRow, nearest_of, seconds_of
from placer.questions.auto_ways import NOTHING_OFFLOADED, ONE_PLACEMENT, PARTS, Way, Ways
from placer.solving.process.child_search import one_search_process
from placer.solving.process.compiling import (
    NEEDS,
    STEP_TIME,
    TRANSFER,
    await_compiled,
    load_needs_ahead,
    warm_up,
)
from placer.strategies.requests import ALL_REDUCE

_LOG = logging.getLogger(__name__)

AIMS = ("throughput", "latency", "memory")

MARGIN = 0.1
"""Relative difference of steps below which ways are equal.  Of the pairs measured in
``benchmarks/strategies``, 65 of the 72 whose steps differ by more than this are predicted in the
right order."""

SEARCH_SECONDS = 5.0
"""Seconds of each search by default."""

_MANY_OPS, _LEAST_GAIN = 5_000, 1.25
"""A way of so many ops, which takes a minute to build, is tried where it may be so much faster."""


@partial(takes_options, time_limit=SEARCH_SECONDS)
@collection_paused()
def auto(
    source: Any,
    devices: Devices = LOCAL,
    *,
    for_: str = "throughput",
    margin: float = MARGIN,
    exact: bool = True,
    data: Any = None,
    **options: Unpack[Keywords],
) -> AutoResult:
    """The best strategy to run ``source`` on ``devices``, of all that can be built.

    ``source`` is a Keras model (a compiled one trains) or what :func:`placer.place` takes; ``data``
    is a batch as ``fit`` takes it, for a model that does not say what it takes (a subclass).
    ``for_`` is ``"throughput"`` (the most samples per second), ``"latency"`` (the shortest step, a
    pipeline aside, whose parts wait for each other) or ``"memory"`` (the simplest that fits).
    Strategies predicted to be within ``margin`` of the fastest are equal.  With ``exact`` false one
    may be chosen whose parts of a batch have statistics of their own (batch normalisation).

    ``options`` as for :func:`placer.place`, ``time_limit`` of each search.  Raises
    :class:`UsageError` for a wrong request, and what ``place`` raises.
    """
    if for_ not in AIMS:
        raise UsageError(f"for_ must be one of {', '.join(AIMS)}, got {for_!r}")
    if not isinstance(margin, int | float) or not 0 <= margin < 1:
        raise UsageError(f"margin must be a share from 0 to below 1 such as 0.1, got {margin!r}")
    wanted = read_options({"time_limit": SEARCH_SECONDS, **options})
    warm_up(TRANSFER, STEP_TIME)  # once per user, while the program is read
    load_needs_ahead()
    with one_reading_process(), one_search_process():
        program = open_program(source, devices, wanted, data)
        await_compiled(NEEDS)
        return Choice(program, for_, margin, exact=exact).result()


compare_strategies = auto
"""As it was called before."""


class Choice:
    """Tries one way after the other, and decides.  ``rows`` are in the order of simplicity."""

    def __init__(self, program: AutoProgram, aim: str, margin: float, *, exact: bool) -> None:
        self.program, self.aim, self.margin, self.exact = program, aim, margin, exact
        self.ways = Ways(program, latency=aim == "latency")
        self.rows: list[AutoRow] = []
        self.built: dict[str, Built] = {}

    def result(self) -> AutoResult:
        """Everything that was found, once every way is tried or known to lose."""
        for way in self.ways:
            self.rows.append(self._tried(way))
        chosen = self._chosen()
        following = min((seconds_of(r) for r in self.choosable() if r is not chosen), default=None)
        shown = chosen or nearest_of(self.rows)
        first = next(iter(self.built.values()), self.ways.on_fastest)
        kept = self.built[shown.name] if shown else first
        return AutoResult(
            model=self.program.whole().extraction.model.copy(),
            name=self.program.name,
            task="training" if self.program.trains else self.program.task,
            aim=self.aim,
            batch_size=self.program.size,
            margin=self.margin,
            caps=self.ways.cluster.caps,
            rows=tuple(self._explained(row, chosen) for row in self.rows),
            chosen=chosen.name if chosen else None,
            gain=self.ratio(following, seconds_of(chosen)) if chosen and following else None,
            advice=Advice(self).lines(chosen),
            plan=kept.plan,
            keras_seconds=self.program.keras_seconds,
            plans={
                name: replace(built.plan, step=None)
                for name, built in self.built.items()
                if built.plan.placement
            },
        )

    def _tried(self, way: Way) -> AutoRow:
        """The row of a way, which is built if it may be chosen."""
        note = self.program.note if way.in_parts else ""
        row = AutoRow(
            name=way.name,
            changes=f"{way.changes}; {note}" if note else way.changes,
            least_seconds=way.least_seconds,
            is_exact=not (way.in_parts and self.program.inexact),
        )
        self.ways.to_beat = min(map(seconds_of, self.choosable()), default=math.inf)
        try:
            row = self._ruled_out(way, row)
            if row.note:
                return row
            built = way.build()
        except PlacerError as error:
            return replace(row, tried=isinstance(error, NoSolutionError), note=error.message)
        except MemoryError:
            raise
        except Exception as error:  # a step traced in parts runs the model's own code
            _LOG.debug("%s cannot be built", way.name, exc_info=True)
            return replace(row, note=f"cannot be built: {_first_line(error)}")
        if built.refused:
            return replace(row, note=built.refused)
        row = replace(row, name=built.name or row.name, tried=True)
        self.built[row.name] = built
        if not built.plan.placement:
            proven = built.plan.solver.status == "INFEASIBLE"
            idle = self.program.whole().graph.idle_bytes
            limited = [d.name for d in self.ways.cluster.devices if not d.is_ample]
            beside = [
                f"{format_bytes(sum(idle[name]))} of unused variables on {name}"
                for name in limited
                if sum(idle.get(name, ()))
            ]
            loaded = f"; loading puts {', '.join(beside)}" if beside else ""
            fits = "does not fit (proven)" if proven else "not known to fit"
            return replace(row, note=f"{fits}{loaded}")
        size, step = self.program.size, built.step_seconds
        if way.name == ONE_PLACEMENT:
            row = replace(row, changes=self._moved(built))
        return replace(
            row,
            step_seconds=step,
            samples_per_second=size / step if size and step else None,
            required_bytes=built.plan.required_bytes,
            over_bytes=built.plan.over_bytes,
        )

    def _ruled_out(self, way: Way, row: AutoRow) -> AutoRow:
        """``row`` with a note if the way need not be built: it would not be chosen."""
        best = self.ways.to_beat
        if best < math.inf and self.aim == "memory":
            return replace(row, note="not required: a simpler strategy fits")
        if way.why_no_faster and self.is_as_good_as(best, way.least_seconds):
            return replace(row, note=self._no_faster(way.least_seconds, way.why_no_faster))
        if way.in_parts and self.program.undivided:
            return replace(row, note=self.program.undivided)
        if way.name.startswith(ALL_REDUCE) and self.program.irreducible:
            return replace(row, note=self.program.irreducible)
        if way.tighter is not None and best < math.inf:
            seconds, ops = way.tighter()
            row = replace(row, least_seconds=max(way.least_seconds, seconds))
            if self.is_as_good_as(best, row.least_seconds):
                return replace(row, note=self._no_faster(row.least_seconds, PARTS))
            gain = self.ratio(best, row.least_seconds)
            if self.margin and ops > _MANY_OPS and gain < _LEAST_GAIN:
                return replace(
                    row,
                    note=f"not tried: it has about {ops:,} ops, which take long to build, and is "
                    f"at most {gain:.2f} times as fast as {format_seconds(best)}; margin 0 tries "
                    "it",
                )
        is_barred = not row.is_exact and self.exact and best < math.inf
        if is_barred and any(other.step_seconds for other in self.rows if not other.is_exact):
            # one of them shows what leave to change statistics would bring
            return replace(row, note=f"{self._inexact()}; --inexact tries it")
        return row

    def _moved(self, built: Built) -> str:
        """Where the ops of one placement are."""
        used = set(built.plan.placement.values())
        several = used.intersection(self.ways.cluster.workers)
        if not several:
            return f"everything on {', '.join(sorted(used))}"
        moved = "several devices" if len(several) > 1 else ", ".join(sorted(several))
        rows = [row for row in built.plan.devices if row.offloaded]
        away = (f", {row.offloaded} offloaded to {row.name}" for row in rows)
        return f"ops on {moved}{''.join(away)}"

    def is_as_good_as(self, seconds: float, other: float) -> bool:
        """Whether a step of so many ``seconds`` is as good as the ``other``, as far as is known.
        One that Keras takes longer beside is as good as any."""
        doubt = max(other + DOUBT_SECONDS, self.program.keras_seconds) if self.margin else other
        return seconds <= doubt or self.ratio(seconds, other) <= 1 + self.margin

    def ratio(self, seconds: float, other: float) -> float:
        """How many times as long a step takes as another one, with what Keras takes beside both."""
        beside = self.program.keras_seconds
        return (seconds + beside) / max(other + beside, 1e-12)

    def choosable(self) -> list[AutoRow]:
        """Returns the rows so far that may be chosen."""
        return [row for row in self.rows if row.fits and (row.is_exact or not self.exact)]

    def _chosen(self) -> AutoRow | None:
        """The simplest of those that are as good as equal to the fastest."""
        found = self.choosable()
        if not found or self.aim == "memory":
            return found[0] if found else None
        best = min(map(seconds_of, found))
        return next(row for row in found if self.is_as_good_as(seconds_of(row), best))

    def _explained(self, row: AutoRow, chosen: AutoRow | None) -> AutoRow:
        """``row`` with the reason why it was not chosen."""
        if row is chosen or row.note:
            return row
        if row.over_bytes:
            over = overruns(self.ways.cluster.devices, row.over_bytes)
            return replace(row, note=f"does not fit: {'; '.join(over)}")
        if not row.is_exact and self.exact:
            return replace(row, note=self._inexact())
        ratio = self.ratio(seconds_of(row), seconds_of(chosen))
        if not self.is_as_good_as(seconds_of(row), seconds_of(chosen)):
            return replace(row, note=f"takes {ratio:.2f} times as long")
        told = f"{abs(1 - ratio):.0%} {'faster' if ratio < 1 else 'slower'}"
        if 1 / (1 + self.margin) <= ratio <= 1 + self.margin:
            return replace(row, note=f"within the margin ({told}) and more complex")
        apart = abs(seconds_of(row) - seconds_of(chosen))
        why = f"by less than {format_seconds(DOUBT_SECONDS)}"
        if apart > DOUBT_SECONDS:
            adds = format_seconds(self.program.keras_seconds)
            why = f"and both take less than the {adds} that Keras adds"
        return replace(row, note=f"too close to tell ({told}, {why}) and more complex")

    def _no_faster(self, least: float, limit: str) -> str:
        """Why a way is not built."""
        row = min(self.choosable(), key=seconds_of)
        best, shown = seconds_of(row), format_seconds(least)
        told = limit.format(shown)
        if least >= best or shown == format_seconds(best):
            return f"not tried: cannot be faster than {row.name} ({told})"
        saved = format_seconds(best - least)
        kept = NOTHING_OFFLOADED[1:] if limit.endswith(NOTHING_OFFLOADED) else ""
        return f"not tried: would save at most {saved}{kept}, below the accuracy of predictions"

    def _inexact(self) -> str:
        """Why parts of a batch do not give what the whole gives."""
        state = self.program.inexact
        more = f" and {len(state) - 1} more" if len(state) > 1 else ""
        return f"its parts would have batch statistics of their own ({state[0]}{more})"


def _first_line(error: Exception) -> str:
    """Returns what another library raised, as one short line."""
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {line[:200]}"
