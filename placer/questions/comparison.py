"""Placements side by side: what every baseline makes of a model, and what the solver does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Unpack

from cost_models.clusters import Devices
from cost_models.device_names import LOCAL, matches
from placer.errors import UsageError
from placer.extraction.files.sources import require_source
from placer.fitting.placed_order import FREE
from placer.graph.op_graph import Op
from placer.graph.program_source import Bindings, ModelSource
from placer.pipeline.formulation import Formulation, formulate
from placer.pipeline.placement import as_loaded, place_workload, untried
from placer.pipeline.predicted_placement import predict_placement
from placer.pipeline.preparation import decide_strategy, on_accelerators, prepare
from placer.pipeline.solved_plan import plan_metrics
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan
from placer.plan.request import (
    DeviceFunction,
    Keywords,
    describe_request,
    read_options,
    takes_options,
)
from placer.plan.results import Summarised
from placer.plan.status_words import status_words
from placer.prediction.orders.step_peaks import StepPeaks
from placer.problem.placement_problem import PlacementProblem
from placer.processes import collection_paused
from placer.solving.baselines import BASELINES, ONE_DEVICE, SMALLEST_TABLES
from placer.solving.baselines.tasks import TooLateError, ending_by
from placer.solving.caps.schedule import SCHEDULE
from placer.solving.caps.stages import solve_under_peaks
from placer.solving.process import clock
from placer.solving.solution import SolverParameters
from placer.solving.solver import DEFAULT_SOLVER, solve

OURS = "placer"
EXPERT = "expert-annotation"

DEFAULT = "tensorflow-default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPlacement:
    """A row: the placement by the solver, a baseline or a device function.

    ``peak_bytes`` are the highest predicted peaks by device, ``required_bytes`` the required
    memory, ``over_bytes`` what that exceeds the caps by (only devices that do).  ``placement``
    gives the device of every op; it is empty, and all figures are ``None``, where there is no
    placement: ``note`` says why.  ``lower_bound`` is proven for the objective compared (the
    solver's only).
    """

    IN_JSON: ClassVar = ("fits",)
    name: str
    note: str = ""
    placement: Mapping[str, str] = field(default_factory=dict, metadata={"in_file": False})
    transfer_bytes: int | None = None
    transfer_count: int | None = None
    sent_bytes: int | None = None
    step_seconds: float | None = None
    bottleneck_seconds: float | None = None
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    required_bytes: Mapping[str, int] = field(default_factory=dict)
    over_bytes: Mapping[str, int] = field(default_factory=dict)
    lower_bound: float | None = None

    @property
    def fits(self) -> bool:
        """There is a placement, and its predicted peaks and needs are within all caps."""
        return self.transfer_bytes is not None and not self.over_bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Summarised):
    """Placements of one model on the same devices; ``plan`` is what the solver found.

    ``strategies`` are the rows, called so in JSON; ``caps`` are the usable bytes by device.
    """

    SCHEMA: ClassVar = "placer.comparison/1"
    model: ModelSource
    bindings: Bindings
    objective: str
    caps: Mapping[str, int]
    strategies: tuple[ComparedPlacement, ...]
    plan: Plan


@takes_options
def compare(
    source: Any,
    devices: Devices = LOCAL,
    *,
    functions: Mapping[str, DeviceFunction] | None = None,
    **options: Unpack[Keywords],
) -> Comparison:
    """Compares the placements of ``source`` on ``devices`` by the solver and every baseline.

    ``functions`` are device functions of the user's own by name.  If the graph has device strings,
    they are compared as ``expert-annotation``; unless ``clear_devices``, all baselines keep them.
    ``options`` and errors as for :func:`placer.pipeline.pipeline.place`.
    """
    read = read_options(on_accelerators(options))
    require_source(source, devices)
    wanted = decide_strategy(devices, read)
    taken = sorted({OURS, EXPERT, *BASELINES} & set(functions or ()))
    if taken:
        raise UsageError(f"{taken[0]!r} is the name of a strategy already; choose another")
    found = compare_workload(prepare(source, devices, wanted), functions)
    plan = replace(found.plan, request=describe_request(devices, wanted))
    return replace(found, plan=plan)


@collection_paused()
def compare_workload(
    workload: Workload,
    functions: Mapping[str, DeviceFunction] | None = None,
    solvers: Iterable[str] = tuple(BASELINES),
) -> Comparison:
    """Compares as :func:`compare`, for a workload that is there already, with these ``solvers``."""
    wanted = workload.wanted
    own = _own(workload, functions or {})  # looked at first, since they may be wrong
    formulation = formulate(replace(workload, wanted=replace(wanted, order=FREE)))
    finder = StepPeaks(
        workload.graph, workload.costs, formulation.problem, needs_on=workload.cluster
    )
    names = [n for n in solvers if n != SMALLEST_TABLES or formulation.problem.tables]
    default = _first_choice(formulation)
    others = [
        _row(name, default, formulation.problem, as_loaded(workload))
        if name == DEFAULT
        else _baseline(name, finder, workload)
        for name in names
    ]
    others += own
    known = formulation if wanted.order == FREE else None
    plan = untried(place_workload(workload, known, explains=True))
    return Comparison(
        model=plan.model,
        bindings=plan.bindings,
        objective=wanted.objective,
        caps=workload.cluster.caps,
        strategies=(_ours(plan, wanted.solver), *others),
        plan=plan,
    )


def _ours(plan: Plan, solver: str) -> ComparedPlacement:
    """The row of the solver that was asked for, which its note names where it is another one."""
    by = "" if solver == DEFAULT_SOLVER else f"by {solver} (--solver): "
    if not plan.placement:
        note = f"no placement fits ({plan.proof})" if plan.proof else "none that fits was found"
        return ComparedPlacement(name=OURS, note=by + note)
    return ComparedPlacement(
        name=OURS,
        note=(by + (status_words(plan) if plan.fits else "")).removesuffix(": "),
        placement=plan.placement,
        transfer_bytes=plan.metrics.transfer_bytes,
        transfer_count=plan.metrics.transfer_count,
        sent_bytes=plan.metrics.sent_bytes,
        step_seconds=plan.metrics.step_seconds,
        bottleneck_seconds=plan.metrics.bottleneck_seconds,
        peak_bytes=plan.peak_bytes,
        required_bytes=plan.required_bytes,
        over_bytes=plan.over_bytes,
        lower_bound=plan.solver.lower_bound,
    )


def _own(workload: Workload, functions: Mapping[str, DeviceFunction]) -> list[ComparedPlacement]:
    """The expert who annotated the graph, and the user's functions."""
    is_divided = bool(workload.wanted.strategy)  # then device strings are those of its parts
    annotated = not is_divided and any(op.device for op in workload.graph.ops.values())
    experts = {EXPERT: _own_device} if annotated else {}
    named = {**experts, **functions}
    return [_followed(name, function, workload) for name, function in named.items()]


def _followed(name: str, function: DeviceFunction, workload: Workload) -> ComparedPlacement:
    """TensorFlow's placement by a device function under soft placement: hints are law."""
    wanted = replace(workload.wanted, device_function=function, keep_colocation=True, order=FREE)
    formulation = formulate(replace(workload, wanted=wanted))
    problem = formulation.problem
    device_of = _first_choice(formulation)
    asked = [
        (function(op), problem.device_names[d])
        for op, d in zip(workload.graph.ops.values(), device_of, strict=True)
    ]
    moved = sum(bool(wish) and not matches(wish, device) for wish, device in asked)
    note = f"{moved:,} ops are not where it asks: no kernel, fed, or colocated" if moved else ""
    return _row(name, device_of, problem, workload, note)


def _first_choice(formulation: Formulation) -> tuple[int, ...]:
    """TensorFlow's placement, as far as a person and the kernels leave it to it: the first
    accelerator whatever fits, while the problem leaves out what no accelerator can hold."""
    number = {name: device for device, name in enumerate(formulation.problem.device_names)}
    choice = formulation.constraints.first_choice
    return tuple(number[choice[op]] for op in formulation.problem.op_names)


def _own_device(op: Op) -> str:
    return "" if "|" in op.device else op.device  # TensorFlow knows no choice among several


def _baseline(name: str, finder: StepPeaks, workload: Workload) -> ComparedPlacement:
    """The baseline; where its first placement peaks over a cap, tried again with less room.  It has
    the time limit to end in, as the solver has, and what it has by then counts."""
    problem, limit = finder.problem, workload.wanted.time_limit
    late = f"did not end within {limit:g} s"
    found = ComparedPlacement(name=name, note=late)
    try:
        with ending_by(clock.monotonic() + limit):
            solution = solve(problem, solver=name)
            if solution.device_of is None:
                told = "; ".join(text for _, text in solution.warnings)
                return ComparedPlacement(name=name, note=told)
            found = _row(name, solution.device_of, problem, workload)
            if found.fits:
                return found
            found = replace(found, note=f"a second run, with lower limits, {late}")
            parameters = SolverParameters(time_limit_seconds=min(limit, SCHEDULE.baseline_seconds))
            tightened = solve_under_peaks(problem, finder, parameters, solver=name)
    except TooLateError:
        return found
    is_kept = name != ONE_DEVICE or _is_on_one(problem, tightened.device_of, solution.device_of)
    if tightened.device_of is None or not is_kept:
        return replace(found, note="")
    return _row(name, tightened.device_of, problem, workload)


def _is_on_one(
    problem: PlacementProblem, device_of: Sequence[int] | None, first: Sequence[int]
) -> bool:
    """Whether a second placement is on no more accelerators than the first, which is on one as far
    as ops may be there: with less room it may be divided to fit."""
    used, known = ({*found} - {problem.host} for found in (device_of or (), first))
    return len(used) <= len(known)


def _row(
    name: str,
    device_of: Sequence[int],
    problem: PlacementProblem,
    workload: Workload,
    note: str = "",
) -> ComparedPlacement:
    """The predicted figures of a placement."""
    placement = problem.placement(device_of)
    metrics = predict_placement(workload, placement).metrics
    figures = plan_metrics(metrics)
    return ComparedPlacement(
        name=name,
        note=note,
        placement=placement,
        transfer_bytes=figures.transfer_bytes,
        transfer_count=figures.transfer_count,
        sent_bytes=figures.sent_bytes,
        step_seconds=figures.step_seconds,
        bottleneck_seconds=figures.bottleneck_seconds,
        peak_bytes={name: metrics.peaks[name].high_bytes for name in problem.device_names},
        required_bytes=metrics.taken_bytes(workload.cluster.caps),
        over_bytes=metrics.over_caps(workload.cluster.caps),
    )
