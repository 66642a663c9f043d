"""One call: put this program on these devices.

Every way to run it that the library can build is tried, the simplest first, and the fastest that
fits is taken.  A way is left out as soon as it cannot be chosen any more, because of what it cannot
beat (:mod:`placer.questions.auto_ways`).

Predictions are wrong by some per cent (``benchmarks/strategies``, ``benchmarks/time_accuracy``).
Ways that differ by less than a margin are taken for equal, and the simplest of them is chosen.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from cost_models.byte_sizes import format_bytes, spell_bytes
from cost_models.devices import Cluster, DeviceProperties, Link
from placer.errors import PlacerError, UsageError
from placer.files import write_text
from placer.graph.program_source import ModelSource
from placer.plan.plan import Plan
from placer.plan.request import Keywords, read_options, takes_options
from placer.plan.results import Drawn, interactive
from placer.plan.schemas import read_kept, require_fit
from placer.questions.auto_programs import AutoProgram, Built, open_program
from placer.questions.auto_ways import AS_IT_IS, ONE_PLACEMENT, PARTS, Way, Ways
from placer.strategies.requests import TrainingDivision, planned_training

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_LOG = logging.getLogger(__name__)

AIMS = ("throughput", "latency", "memory")

MARGIN = 0.1
"""Relative difference of steps below which ways are equal.  Of the pairs measured in
``benchmarks/strategies``, 65 of the 72 whose steps differ by more than this are predicted in the
right order."""

DOUBT_SECONDS = 0.1e-3
"""Predicted steps there of less than 4 ms are off by 0.4 ms in the median, but all ways of a model
much alike: of the 12 pairs that differ by less than that, and by more than the margin, 11 are in
the right order."""

SEARCH_SECONDS = 5.0
"""Seconds of each search by default."""

_MOST_CHARACTERS = 200
"""Characters of another library's message that a row has room for."""

_LINKS = 4.0
"""Links of so many times the bandwidth are what advice is about: NVLink instead of PCIe."""

_DEVICES = 2.0
"""Accelerators of so many times the rates are what advice is about: the next generation, as a
rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRow:
    """One way to run the program, the simplest first in a result.

    ``changes`` is what is different for the user.  ``step_seconds`` and ``need_bytes`` (by device,
    the highest over the orders of a step, allocator included) are predicted of what was built, and
    missing where nothing was; ``least_seconds`` is the step that it cannot beat.  ``over_bytes`` is
    what the caps lack.  With ``is_exact`` false the results are not those of the whole batch.
    ``note`` says why it was not chosen.
    """

    IN_JSON: ClassVar = ("fits",)
    name: str
    changes: str
    least_seconds: float
    step_seconds: float | None = None
    samples_per_second: float | None = None
    need_bytes: Mapping[str, int] = field(default_factory=dict)
    over_bytes: Mapping[str, int] = field(default_factory=dict)
    is_exact: bool = True
    note: str = ""

    @property
    def fits(self) -> bool:
        """It was built, and no device needs more than its cap."""
        return self.step_seconds is not None and not self.over_bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AutoResult(Drawn):
    """The chosen way, and why each other way was not chosen.

    ``chosen`` is the name of a row, ``None`` if no way fits; ``gain`` how many times as fast as the
    next way that fits it is predicted to be (``None``: there is none).  ``advice`` says what would
    bring a better one.  ``task`` is ``training`` or ``inference``, ``aim`` what was asked for.

    ``name`` is that of a Keras model; ``keras_seconds`` are what Keras takes for a step beside its
    ops, whatever the way.  ``plan`` is the plan of the chosen way (of the first one if none fits).
    """

    SCHEMA: ClassVar = "placer.auto/1"
    model: ModelSource
    name: str
    task: str
    aim: str
    batch_size: int | None
    margin: float
    caps: Mapping[str, int]
    rows: tuple[AutoRow, ...]
    chosen: str | None
    gain: float | None
    advice: tuple[str, ...]
    plan: Plan = field(repr=False, metadata={"in_file": False})
    keras_seconds: float = 0.0

    @property
    def division(self) -> TrainingDivision | None:
        """How the training step of the chosen way is divided."""
        return planned_training(self.plan)

    @property
    def row(self) -> AutoRow | None:
        """The row that was chosen."""
        return next((row for row in self.rows if row.name == self.chosen), None)

    @property
    def changes_nothing(self) -> bool:
        """Whether the program runs best as it is, on the device that TensorFlow takes anyway."""
        return self.chosen == AS_IT_IS

    def bind(self, model: Any, *, missing: str = "warn") -> AbstractContextManager[Any]:
        """A context in which a Keras model trains, evaluates and predicts in the chosen way; see
        :func:`placer.application.placing.model_binding.bind_model`.  As it is, nothing is changed.
        ``missing`` is as there.

        Raises :class:`UsageError` if no way fits, or for a model that was not asked about.
        """
        found: AbstractContextManager[Any] = interactive().bind_auto(self, model, missing=missing)
        return found

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the result with its plan to ``path``, for :meth:`load` in another process.

        Raises :class:`UsageError` if the file exists and ``force`` is false.
        """
        data = json.loads(interactive().render_result(self, "json", width=80))
        data["plan"] = json.loads(self.plan.kept_in(path).to_json())
        write_text(path, json.dumps(data, sort_keys=True, indent=1) + "\n", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AutoResult:
        """The result in a file that :meth:`save` wrote; it binds the model that it is of.

        Raises :class:`UsageError` if there is none or it is not one.
        """
        source = os.fspath(path)
        try:
            data = json.loads(read_kept(path, "result"))
        except ValueError as error:
            raise UsageError(f"{source} is not a result of auto: {error}") from error
        require_fit(data, "auto", cls.SCHEMA, source)
        if "plan" not in data:
            raise UsageError(f"{source} has no plan: auto.save(path) writes a file with one")
        plan = Plan.from_json(json.dumps(data.pop("plan")), source=source).found_in(path)
        rows = [
            {key: row[key] for key in row if key not in AutoRow.IN_JSON} for row in data["rows"]
        ]
        del data["schema"]
        lists = {"rows": tuple(AutoRow(**row) for row in rows), "advice": tuple(data["advice"])}
        return cls(**{**data, **lists}, plan=plan)


@takes_options
def auto(
    source: Any,
    devices: str | Path,
    *,
    for_: str = "throughput",
    margin: float = MARGIN,
    exact: bool = True,
    data: Any = None,
    **options: Unpack[Keywords],
) -> AutoResult:
    """The best way to run ``source`` on ``devices`` of all that can be built.

    ``source`` is a Keras model (a compiled one trains) or what :func:`placer.place` takes; ``data``
    is a batch as ``fit`` takes it, for a model that does not say what it takes (a subclass).
    ``for_`` is ``"throughput"`` (the most samples per second), ``"latency"`` (the shortest step, a
    pipeline aside, whose parts wait for each other) or ``"memory"`` (the simplest way that fits).
    Ways predicted to be within ``margin`` of the fastest are equal.  With ``exact`` false a way may
    be chosen whose parts of a batch have statistics of their own (batch normalisation).

    ``options`` as for :func:`placer.place`, ``time_limit`` of each search (5 seconds).  Raises
    :class:`UsageError` for a wrong request, and what ``place`` raises.
    """
    if for_ not in AIMS:
        raise UsageError(f"auto for {for_!r}: there are {', '.join(AIMS)}")
    if not 0 <= margin < 1:
        raise UsageError(f"the margin is {margin!r}; give a share from 0 to below 1, such as 0.1")
    wanted = read_options({"time_limit": SEARCH_SECONDS, **options})
    program = open_program(source, devices, wanted, data)
    return _Choice(program, for_, margin, exact=exact).result()


@takes_options
def compare_strategies(source: Any, devices: str | Path, **options: Unpack[Keywords]) -> AutoResult:
    """The rows of :func:`auto`: each way to run ``source`` on ``devices`` that may be the best is
    built and predicted.  Raises as :func:`auto`."""
    return auto(source, devices, **options)


class _Choice:
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
        following = min((_seconds(r) for r in self._choosable() if r is not chosen), default=None)
        kept = self.built[chosen.name if chosen else AS_IT_IS]
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
            gain=self._ratio(following, _seconds(chosen)) if chosen and following else None,
            advice=self._advice(chosen),
            plan=kept.plan,
            keras_seconds=self.program.keras_seconds,
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
        self.ways.to_beat = min(map(_seconds, self._choosable()), default=math.inf)
        try:
            row = self._limited(way, row)
            if row.note:
                return row
            built = way.build()
        except PlacerError as error:
            return replace(row, note=str(error))
        except MemoryError:
            raise
        except Exception as error:  # a step traced in parts runs the model's own code
            _LOG.debug("%s cannot be built", way.name, exc_info=True)
            return replace(row, note=f"cannot be built: {_first_line(error)}")
        row = replace(row, name=built.name or row.name)
        self.built[row.name] = built
        if not built.plan.placement:
            proven = built.plan.solver.status == "INFEASIBLE"
            return replace(
                row, note=f"does not fit{' (proven)' if proven else ', as far as found'}"
            )
        size, step = self.program.size, built.step_seconds
        if way.name == ONE_PLACEMENT:
            row = replace(row, changes=self._moved(built))
        return replace(
            row,
            step_seconds=step,
            samples_per_second=size / step if size and step else None,
            need_bytes=built.need_bytes,
            over_bytes=built.over_bytes,
        )

    def _limited(self, way: Way, row: AutoRow) -> AutoRow:
        """``row`` with a note if the way need not be built: it would not be chosen."""
        best = self.ways.to_beat
        if best < math.inf and self.aim == "memory":
            return replace(row, note="not required: a simpler strategy fits")
        if way.limit and self._is_equal(best, way.least_seconds):
            return replace(row, note=_no_faster(best, way.least_seconds, way.limit))
        if way.in_parts and self.program.undivided:
            return replace(row, note=self.program.undivided)
        if way.tighter is not None and best < math.inf:
            row = replace(row, least_seconds=max(way.least_seconds, way.tighter()))
            if self._is_equal(best, row.least_seconds):
                return replace(row, note=_no_faster(best, row.least_seconds, PARTS))
        return row

    def _moved(self, built: Built) -> str:
        """Where the ops of one placement are."""
        used = set(built.plan.placement.values())
        several = used.intersection(self.ways.cluster.workers)
        if not several:
            return f"everything on {', '.join(sorted(used))}"
        return "ops on several devices" if len(several) > 1 else f"ops on {', '.join(sorted(used))}"

    def _is_equal(self, seconds: float, other: float) -> bool:
        """Whether a step of so many ``seconds`` is as good as the ``other``, as far as is known.
        One that Keras takes longer beside is as good as any."""
        doubt = max(other + DOUBT_SECONDS, self.program.keras_seconds) if self.margin else other
        return seconds <= doubt or self._ratio(seconds, other) <= 1 + self.margin

    def _ratio(self, seconds: float, other: float) -> float:
        """How many times as long a step takes as another one, with what Keras takes beside both."""
        beside = self.program.keras_seconds
        return (seconds + beside) / max(other + beside, 1e-12)

    def _choosable(self) -> list[AutoRow]:
        return [row for row in self.rows if row.fits and (row.is_exact or not self.exact)]

    def _chosen(self) -> AutoRow | None:
        """The simplest of those that are as good as equal to the fastest."""
        found = self._choosable()
        if not found or self.aim == "memory":
            return found[0] if found else None
        best = min(map(_seconds, found))
        return next(row for row in found if self._is_equal(_seconds(row), best))

    def _explained(self, row: AutoRow, chosen: AutoRow | None) -> AutoRow:
        """``row`` with the reason why it was not chosen."""
        if row is chosen or row.note:
            return row
        if row.over_bytes:
            return replace(row, note=f"does not fit: {_overruns(row)}")
        if not row.is_exact and self.exact:
            return replace(row, note=self._inexact())
        ratio = self._ratio(_seconds(row), _seconds(chosen))
        if not self._is_equal(_seconds(row), _seconds(chosen)):
            return replace(row, note=f"takes {ratio:.2f} times as long")
        told = f"{abs(1 - ratio):.0%} {'faster' if ratio < 1 else 'slower'}"
        return replace(row, note=f"within the margin ({told}) and more complex")

    def _inexact(self) -> str:
        """Why parts of a batch do not give what the whole gives."""
        state = self.program.inexact
        more = f" and {len(state) - 1} more" if len(state) > 1 else ""
        return f"its parts would have batch statistics of their own ({state[0]}{more})"

    def _advice(self, chosen: AutoRow | None) -> tuple[str, ...]:
        """Returns settings that would bring a better way; if there are none, devices that would.
        The way of least memory is not asked to be faster."""
        found = list(self._changes(chosen))
        if chosen is not None and self.aim != "memory":
            step = _seconds(chosen)
            found += self._faster_links(step)
            found = found or [self._faster_devices(step)]
            found += self._a_process_each(chosen)
        return tuple(found)

    def _a_process_each(self, chosen: AutoRow) -> Iterator[str]:
        """About a process for every accelerator, each with the whole program and requests of its
        own: it answers none sooner, and all of them more often."""
        count, whole = len(self.ways.cluster.workers), self.ways.whole
        if count < 2 or not whole.fits or self.program.trains or len(self.ways.alone) > 1:
            return
        size, took = self.program.size or 1, whole.step_seconds + self.program.keras_seconds
        here = size / (_seconds(chosen) + self.program.keras_seconds)
        less = "replicas do not help a batch of 1, " if self.program.size == 1 else ""
        yield (
            f"{less}{count} requests in parallel: a process for each accelerator answers "
            f"{count * size / took:,.0f} samples/s in all, {count * size / took / here:.2f} times "
            f"as many, each batch in {1e3 * took:.3g} ms; the host holds the model {count} times"
        )

    def _changes(self, chosen: AutoRow | None) -> Iterator[str]:
        """Memory, leave to change statistics, or a smaller batch."""
        step, least = _seconds(chosen), math.inf
        better = [
            row
            for row in self.rows
            if row is not chosen and row.step_seconds and not self._is_equal(step, _seconds(row))
        ]
        for row in better:
            gain = f" ({self._ratio(step, _seconds(row)):.2f} times as fast)" if chosen else ""
            if row.over_bytes and sum(row.over_bytes.values()) >= least:
                continue  # a simpler way needs no more
            if row.over_bytes:
                least = sum(row.over_bytes.values())
                caps = ",".join(
                    f"{name}={spell_bytes(row.need_bytes[name])}" for name in row.over_bytes
                )
                needs = ", ".join(
                    f"{format_bytes(row.need_bytes[name])} on {name}" for name in row.over_bytes
                )
                yield f"{needs}: {row.name}{gain}, --max-memory {caps}"
            elif not row.is_exact and self.exact:
                yield f"exact=False (--inexact): {row.name}{gain}"
        if any(row.name == AS_IT_IS and row.over_bytes for row in self.rows):
            with suppress(PlacerError):  # a batch of fixed size has no smaller one
                yield from self._smaller_batch()

    def _smaller_batch(self) -> Iterator[str]:
        """About the largest batch that fits the first accelerator as it is; what is named was
        predicted."""
        size, first = self.program.size or 0, self.ways.cluster.workers[0]
        if size < 2:
            return
        whole, half = (self._need(first, size), self._need(first, size // 2))
        cap = self.ways.cluster.device(first).usable_bytes
        slope = (whole - half) / (size - size // 2)
        found = int(size // 2 + (cap - half) / slope) if slope > 0 else 0
        for guess in (found, int(0.95 * found), int(0.8 * found)):
            if 0 < guess < size and self.program.on_one_device(first, guess).fits:
                yield f"a batch of {guess}: {AS_IT_IS}"
                return

    def _need(self, device: str, size: int) -> int:
        return self.program.on_one_device(device, size).need_bytes[device]

    def _faster_links(self, step: float) -> Iterator[str]:
        """The way that would be the fastest of those that fit if links were faster."""
        cluster = _with_links(self.ways.cluster)
        name, seconds = self._fastest_on(cluster)
        if not self._is_equal(step, seconds):
            links = f"links {_LINKS:g} times as fast"
            if not cluster.links:
                links = f"links of {cluster.default_link.bandwidth / 1e9:g} GB/s"
            yield f"{links}: {name} ({self._ratio(step, seconds):.2f} times as fast)"

    def _faster_devices(self, step: float) -> str:
        """The same of accelerators, where links are not what it takes."""
        name, seconds = self._fastest_on(_with_rates(self.ways.cluster))
        rates = f"accelerators of {_DEVICES:g} times the arithmetic and memory bandwidth"
        if not self._is_equal(step, seconds):
            return f"{rates}: {name} ({self._ratio(step, seconds):.2f} times as fast)"
        return (
            f"a larger batch, for more samples per second: launches and latencies take most of "
            f"this step, so neither links {_LINKS:g} times as fast nor {rates} shorten it"
        )

    def _fastest_on(self, cluster: Cluster) -> tuple[str, float]:
        """The fastest way of those that fit if the devices were these, and its step."""
        names = {device.name for device in cluster.devices}
        found = {
            row.name: self.built[row.name].seconds_on(cluster)
            for row in self._choosable()
            if row.need_bytes.keys() <= names
        }
        name = min(found, key=found.__getitem__, default="")
        return name, found.get(name, math.inf)


def _first_line(error: Exception) -> str:
    """Returns what another library raised, as one short line."""
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {line[:_MOST_CHARACTERS]}"


def _seconds(row: AutoRow | None) -> float:
    """The step of a way that was built."""
    return math.inf if row is None or row.step_seconds is None else row.step_seconds


def _no_faster(best: float, least: float, limit: str) -> str:
    """Why a way is not built."""
    clearly = "clearly " if least < best else ""
    return f"cannot be {clearly}faster than {1e3 * best:.3g} ms: {limit}"


def _overruns(row: AutoRow) -> str:
    return "; ".join(
        f"{name} requires {format_bytes(row.need_bytes[name])}, {format_bytes(more)} more than its "
        "limit"
        for name, more in row.over_bytes.items()
    )


def _with_links(cluster: Cluster) -> Cluster:
    """The cluster with faster links."""

    def faster(link: Link) -> Link:
        return replace(link, bandwidth=_LINKS * link.bandwidth)

    links = {pair: faster(link) for pair, link in cluster.links.items()}
    return replace(cluster, default_link=faster(cluster.default_link), links=links)


def _with_rates(cluster: Cluster) -> Cluster:
    """The cluster with accelerators of higher rates."""

    def faster(device: DeviceProperties) -> DeviceProperties:
        fp16 = device.peak_flops_fp16
        return replace(
            device,
            peak_flops=_DEVICES * device.peak_flops,
            peak_flops_fp16=None if fp16 is None else _DEVICES * fp16,
            memory_bandwidth=_DEVICES * device.memory_bandwidth,
        )

    devices = (faster(d) if d.name in cluster.workers else d for d in cluster.devices)
    return replace(cluster, devices=tuple(devices))
