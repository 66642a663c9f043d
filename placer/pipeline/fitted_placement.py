"""A placement with what its step becomes so that it fits, and what is to be said of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cost_models.byte_sizes import format_bytes
from placer.fitting.fitted_step import FittedStep
from placer.graph.passes.roles import find_roles
from placer.graph.program_source import Warning_
from placer.pipeline.formulation import Formulation
from placer.pipeline.predicted_placement import PredictedPlacement
from placer.pipeline.workload import Workload
from placer.solving.solution import Solution


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPlacement:
    """A placement, found for more memory than there is, and what the step becomes with it."""

    formulation: Formulation
    solution: Solution
    predicted: PredictedPlacement
    step: FittedStep


def fit_warnings(workload: Workload, fitted: FittedPlacement | None) -> Iterator[Warning_]:
    """What came of making it fit, if that changed anything or did not do."""
    if not find_roles(workload.graph).gradients and "recompute" in workload.wanted.fit_means:
        message = (
            "the graph computes no gradients, so that nothing waits for a backward pass: there is "
            "nothing to recompute (--fit recompute)"
        )
        yield "nothing_to_recompute", message, ()
    if fitted is None or fitted.step.fits:
        return
    over = ", ".join(f"{n} by {format_bytes(size)}" for n, size in fitted.step.over_bytes.items())
    limit = workload.wanted.most_slowdown
    within = "" if limit is None else f" within {limit:.0%} more time"
    message = f"--fit {workload.wanted.fit} is not enough{within}: the nearest step is over {over}"
    floors = {
        name: floor
        for name, floor in fitted.step.floors.items()
        if floor.bytes > workload.cluster.device(name).usable_bytes
    }
    for name, floor in floors.items():
        message += f"; {floor.op} alone needs {format_bytes(floor.bytes)} of {name}"
    if fitted.step.is_cut:
        message += (
            f"; the time limit of {workload.wanted.time_limit:g} s ended the search, "
            "a longer one (--time-limit) may find more"
        )
    yield "fit_not_enough", message, tuple(floor.op for floor in floors.values())
