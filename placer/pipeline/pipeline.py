"""The whole path: a TensorFlow program in, a plan or a report out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from placer.pipeline.fitting import fit_workload, fitted_plan
from placer.pipeline.fixes import with_fixes, with_notes
from placer.pipeline.formulation import formulate
from placer.pipeline.model_report import analyse, with_placement
from placer.pipeline.optimised import warn_if_optimised_breaks, with_optimised
from placer.pipeline.placement import (
    find_placement,
    predict_solution,
    predict_together,
    with_conflict,
)
from placer.pipeline.preparation import decide_strategy, needs_trials, place_in_parts, prepare
from placer.pipeline.solved_plan import assemble_plan
from placer.pipeline.table_splits import decide_splits
from placer.pipeline.workload import read_workload
from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.plan.request import Keywords, describe_request, read_options, takes_options
from placer.processes import collection_paused
from placer.solving.process import clock
from placer.solving.process.compiling import PEAKS, TRANSFER, warm_up

REFERENCE_DEVICE = "1xA100-40GB"
"""What ``report`` shows times for when no devices are named."""


@takes_options
@collection_paused()
def place(source: Any, devices: str | Path, **options: Unpack[Keywords]) -> Plan:
    """The best placement of ``source`` on ``devices`` as a plan.

    ``source`` is a path (SavedModel folder, GraphDef, MetaGraphDef, Keras file), a ``tf.function``
    or ConcreteFunction, a Keras model or a ``tf.Graph``; ``devices`` a list such as
    ``"2xA100-40GB,CPU:64GiB"`` or the path of a ``cluster.toml``; for ``options`` see
    :class:`Options`.

    An infeasible problem is a plan too: its ``solver.status`` says so, and ``conflict`` why and
    what would fit, as far as that is found in what is left of the time limit.

    Raises :class:`UsageError` for a wrong request, :class:`ModelError` for a model that cannot be
    read, :class:`ShapeError` when too many shapes stay unknown.
    """
    wanted = decide_splits(source, devices, decide_strategy(devices, read_options(options)))
    if needs_trials(wanted):
        return place_in_parts(source, devices, wanted)
    warm_up(TRANSFER, PEAKS)  # once per user, while the model is read
    workload = prepare(source, devices, wanted)  # the flat graph, its costs, the cluster
    deadline = clock.monotonic() + wanted.time_limit
    fitted = fit_workload(workload) if wanted.fit else None  # the step rewritten if it must be
    plan = fitted_plan(fitted)
    if plan is None:
        formulation = formulate(workload)  # constraints, and the problem in numbers
        solution = find_placement(formulation)
        predicted = predict_solution(formulation, solution)  # transfers, memory, times
        plan = assemble_plan(formulation, solution, predicted, fitted)
        plan = with_conflict(plan, solution, deadline)
    plan = with_fixes(plan, workload, devices, deadline)
    plan = with_notes(plan, workload)
    judge = with_optimised if wanted.optimised else warn_if_optimised_breaks
    plan = judge(plan, workload)
    return replace(plan, request=describe_request(devices, wanted))


@takes_options
@collection_paused()
def report(source: Any, devices: str | Path | None = None, **options: Unpack[Keywords]) -> Report:
    """What is in ``source`` and what one step takes; with ``devices``, where it would run too.

    Shapes may stay unknown: the report lists them, and says so if they prevent a placement.
    Without ``devices`` the figures are for one accelerator, the reference device.  ``options``
    and errors as for :func:`place`.
    """
    wanted = read_options(options)
    workload = read_workload(source, devices or REFERENCE_DEVICE, wanted)
    found = analyse(workload, predict_together(workload))  # everything on one device
    return found if devices is None else with_placement(found, workload, devices)
