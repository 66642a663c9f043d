"""Functions for a Python shell or a notebook: results shown, bound and applied.

The records of :mod:`placer.plan` know nothing of rendering and application; their methods come
here (:mod:`placer.plan.results`), when they are called.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from placer.errors import UsageError
from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.rendering.html.page import in_notebook as in_notebook
from placer.rendering.html.page import render_page as render_page
from placer.rendering.progress import LONG_SECONDS
from placer.rendering.results import render_result as render_result
from placer.rendering.text.auto_text import verdict as auto_verdict  # noqa: F401
from placer.rendering.text.conflict_text import conflict_text as conflict_text

if TYPE_CHECKING:
    from networkx import MultiDiGraph

    from placer.application.binding.model_binding import BoundModel, BoundStep
    from placer.questions.auto_result import AutoResult


def bind(
    plan: Plan, model: Any, *, strict: bool, missing: str
) -> AbstractContextManager[BoundModel]:
    """See :func:`placer.application.binding.model_binding.bind_model`."""
    from placer.application.binding.model_binding import bind_model

    return bind_model(plan, model, strict=strict, step=_training_step(plan), missing=missing)


def _training_step(plan: Plan, *, adapts: bool = False) -> BoundStep:
    """The training step that ``plan`` is of, in parts where the plan divides it."""
    from placer.application.binding.model_binding import BoundStep
    from placer.strategies.requests import planned_training

    division = planned_training(plan)
    if division is None:
        return BoundStep(adapts=adapts)
    from placer.strategies.keras_replicas import divided_train_step
    from placer.strategies.same_training import check_parts

    return BoundStep(
        method=partial(divided_train_step, division=division),
        parts=division.parts,
        check=partial(check_parts, parts=division.parts, is_exact=division.is_exact),
        is_proved=division.is_proved,
        adapts=True,
    )


def bind_auto(found: AutoResult, model: Any, *, missing: str) -> AbstractContextManager[Any]:
    """See :meth:`placer.questions.auto_result.AutoResult.bind`."""
    found.require_row()
    if found.changes_nothing:
        from placer.application.binding.bindable_models import check_weights
        from placer.application.devices.device_mapping import warn_of_absence

        if not callable(getattr(model, "fit", None)):
            raise UsageError(f"bind takes the Keras model of the plan, got {model!r}")
        check_weights(model, found.plan)
        warn_of_absence(found.plan.placement.values(), missing)
        return nullcontext(model)
    from placer.application.binding.model_binding import BoundStep, bind_model

    if found.task == "training":
        step = _training_step(found.plan, adapts=True)
    else:
        divided = found.plan.model.get("division")
        parts = divided["parts"] if divided else 1
        step = BoundStep(name="predict_step", parts=parts, adapts=True)
    return bind_model(found.plan, model, step=step, missing=missing)


def device_function(plan: Plan, *, missing: str) -> Callable[[Any], str]:
    """See :func:`placer.application.devices.session_devices.device_function`."""
    from placer.application.devices.session_devices import device_function

    return device_function(plan.placement, missing=missing)


def scope(plan: Plan, *, values: bool, missing: str) -> AbstractContextManager[None]:
    """See :func:`placer.application.placing.variable_scopes.planned_variables`."""
    from placer.application.placing.variable_scopes import planned_variables

    return planned_variables(plan, values=values, missing=missing)


def networkx_of(result: Plan | Report, source: Any) -> MultiDiGraph[str]:
    """The step of a plan or report as a graph; that of a plan out of a file is predicted again."""
    from placer.questions.saved_plans import with_step
    from placer.rendering.exports.networkx_graph import networkx_graph

    if isinstance(result, Plan) and not result.placement:
        raise UsageError(f"the plan has no placement ({result.solver.status}): there is no step")
    if isinstance(result, Plan) and result.step is None:
        result = with_step(result, source)
    if result.step is None:
        raise UsageError("the report comes out of a file and has no step; make it again")
    return networkx_graph(result.step())


def load_placed(
    path: str | os.PathLike[str],
    *,
    tags: Sequence[str] | None = None,
    on_hardware: bool = False,
    missing: str = "warn",
    allow_unsafe: bool = False,
    follow_links: bool = False,
    progress: Callable[[int, int, str], None] | bool = True,
) -> Any:
    """Loads a placed SavedModel as ``tf.saved_model.load`` does, with variables on their devices.

    TensorFlow leaves variables on the default device unless it is asked to read their devices from
    the file, and holds all values on the host at once.  Here each variable is read when it is its
    turn, straight to its device.  Where the devices are absent, logical CPU devices stand in for
    them (a rehearsal, with a warning) unless ``missing`` is ``"error"`` (or ``on_hardware``).  What
    loading runs may only compute and read what is in the model's folder, unless ``allow_unsafe``;
    links that lead out of that are refused unless ``follow_links``.  ``progress`` draws a
    bar on a terminal once that takes three seconds; a function of its own gets (bytes read, bytes
    in all, name).

    Raises :class:`ModelError` if ``path`` is not a SavedModel, does what it may not, or has
    damaged weights, :class:`UsageError` for absent devices that are an error,
    :class:`UsageError` if it is too late to have the devices of a rehearsal.
    """
    from placer.application.running.serving import load_placed as load

    show = _checkpoint_bar(after_seconds=LONG_SECONDS) if progress is True else progress or None
    return load(
        path,
        tags=tags,
        on_hardware=on_hardware,
        missing=missing,
        allow_unsafe=allow_unsafe,
        follow_links=follow_links,
        progress=show,
    )


def load_checkpoint(
    target: Any,
    prefix: str | os.PathLike[str],
    *,
    partial: bool = False,
    progress: Callable[[int, int, str], None] | bool = True,
) -> int:
    """The bytes read from the checkpoint ``prefix`` into the variables of ``target``.

    ``target`` is a Keras model, a ``tf.Module`` or ``tf.train.Checkpoint`` as the checkpoint was
    saved from, or a mapping of names to variables for a checkpoint of TensorFlow 1.  ``progress``
    draws a bar on a terminal; a function of its own gets (bytes read, bytes in all, name).

    Raises :class:`ModelError` if there is no checkpoint, a shape or dtype differs, or, unless
    ``partial``, if one side has a variable that the other has not; nothing is read then.
    """
    from placer.application.running.checkpoints import read_checkpoint

    show = _checkpoint_bar() if progress is True else progress or None
    return read_checkpoint(target, prefix, partial=partial, progress=show)


def _checkpoint_bar(after_seconds: float = 0.0) -> Callable[[int, int, str], None]:
    """A function of (bytes read, bytes in all, variable that comes next), which draws on stderr,
    ``after_seconds`` from now on."""
    if not sys.stderr.isatty():
        return lambda *_: None
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("loading"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[name]}"),
        console=Console(stderr=True),
    )
    task = bar.add_task("loading", total=None, name="")
    begin = time.monotonic() + after_seconds

    def show(done: int, total: int, name: str) -> None:
        if time.monotonic() < begin:
            return
        bar.start()
        bar.update(task, completed=done, total=total, name=name)
        if done >= total:
            bar.stop()

    return show
