"""The answer of ``placer.auto``: a row for every way, the one that was chosen, and its plan.

A result is kept in a file and read again, by the run that trains.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from placer.argument_types import checked
from placer.errors import NoSolutionError, UsageError
from placer.files import write_text
from placer.graph.program_source import ModelSource
from placer.plan.plan import Plan
from placer.plan.results import Drawn, interactive
from placer.plan.schemas import parse_json, read_kept, require_fit
from placer.questions.auto_ways import AS_IT_IS
from placer.strategies.requests import TrainingDivision, planned_training

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

DOUBT_SECONDS = 0.1e-3
"""Steps that differ by less are equal.  Predicted steps of less than 4 ms in
``benchmarks/strategies`` are off by 0.4 ms in the median, but all ways of a model much alike: of
the 12 pairs that differ by less than that, and by more than the margin, 11 are in the right
order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRow:
    """One way to run the program, the simplest first in a result.

    ``changes`` is what is different for the user.  ``step_seconds`` and ``required_bytes`` (by
    device, the highest over the orders of a step, allocator included) are predicted of what was
    built, and missing where nothing was; ``least_seconds`` is the step that it cannot beat.
    ``over_bytes`` is what the caps lack.  With ``is_exact`` false the results are not those of the
    whole batch.  ``tried`` says whether it was built, or found not to fit.  ``note`` says why it
    was not chosen.
    """

    IN_JSON: ClassVar = ("fits",)
    name: str
    changes: str
    least_seconds: float
    step_seconds: float | None = None
    samples_per_second: float | None = None
    required_bytes: Mapping[str, int] = field(default_factory=dict)
    over_bytes: Mapping[str, int] = field(default_factory=dict)
    is_exact: bool = True
    tried: bool = False
    note: str = ""

    @property
    def fits(self) -> bool | None:
        """No device needs more than its cap; ``None`` if it was not tried."""
        if self.step_seconds is None:
            return False if self.tried else None
        return not self.over_bytes


def seconds_of(row: AutoRow | None) -> float:
    """The step of a way that was built."""
    return math.inf if row is None or row.step_seconds is None else row.step_seconds


def nearest_of(rows: Iterable[AutoRow]) -> AutoRow | None:
    """Returns the row that is the least above its limits."""
    above = [row for row in rows if row.over_bytes]
    return min(above, key=lambda row: sum(row.over_bytes.values()), default=None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AutoResult(Drawn):
    """The chosen way, and why each other way was not chosen.

    ``chosen`` is the name of a row, ``None`` if no way fits; ``gain`` how many times as fast as the
    next way that fits it is predicted to be (``None``: there is none).  ``advice`` says what would
    bring a better one.  ``task`` is ``training`` or ``inference``, ``aim`` what was asked for.

    ``name`` is that of a Keras model; ``keras_seconds`` are what Keras takes for a step beside its
    ops, whatever the way.  ``plan`` is the plan of the chosen way (of the nearest if none fits),
    ``plans`` are those of all that were built, which a file does not keep.
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
    keras_seconds: float
    plans: Mapping[str, Plan] = field(
        default_factory=dict, repr=False, compare=False, metadata={"in_file": False}
    )

    @checked
    def with_strategy(self, name: str) -> AutoResult:
        """The result with another way chosen, to bind or to save it.

        Raises :class:`UsageError` for a way that was not built.
        """
        if name not in self.plans:
            built = f"; there are {', '.join(self.plans)} (margin=0 builds more)"
            raise UsageError(
                f"there is no plan for {name!r}{built if self.plans else ': a file keeps one'}"
            )
        return replace(self, chosen=name, gain=None, plan=self.plans[name])

    @property
    def division(self) -> TrainingDivision | None:
        """How the training step of the chosen way is divided."""
        return planned_training(self.plan)

    @property
    def row(self) -> AutoRow | None:
        """The row that was chosen."""
        return next((row for row in self.rows if row.name == self.chosen), None)

    @property
    def nearest(self) -> AutoRow | None:
        """The row that is the least above its limits, of those that were built and do not fit."""
        return nearest_of(self.rows)

    @property
    def changes_nothing(self) -> bool:
        """Whether the program runs best as it is, on the device that TensorFlow takes anyway."""
        return self.chosen == AS_IT_IS

    def require_row(self) -> AutoRow:
        """The row that was chosen.  Raises :class:`~placer.errors.NoSolutionError`, which says what
        would fit, if no way does."""
        if self.row is None:
            told = interactive().auto_verdict(self)
            raise NoSolutionError(f"{told[0].lower()}{told[1:]}")
        return self.row

    @checked
    def bind(self, model: Any, *, missing: str = "warn") -> AbstractContextManager[Any]:
        """A context in which a Keras model trains, evaluates and predicts in the chosen way; see
        :func:`placer.application.binding.model_binding.bind_model`.  As it is, nothing is changed.
        ``missing`` is as there.

        Raises :class:`~placer.errors.NoSolutionError` if no way fits, and :class:`UsageError` for a
        model that was not asked about.
        """
        found: AbstractContextManager[Any] = interactive().bind_auto(self, model, missing=missing)
        return found

    @checked
    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the result with its plan to ``path``, for :meth:`load` in another process.

        Raises :class:`UsageError` if the file exists and ``force`` is false.
        """
        data = json.loads(interactive().render_result(self, "json", width=80))
        data["plan"] = json.loads(self.plan.kept_in(path).to_json())
        write_text(path, json.dumps(data, sort_keys=True, indent=1) + "\n", force=force)

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> AutoResult:
        """The result in a file that :meth:`save` wrote; it binds the model that it is of.

        Raises :class:`UsageError` if there is none or it is not one.
        """
        source = os.fspath(path)
        data = parse_json(read_kept(path, "result"), source)
        kind = data.get("schema") if isinstance(data, dict) else None
        if kind != cls.SCHEMA:
            raise UsageError(f"{source} is not a result of auto: its schema is {kind!r}")
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
