"""Changes that make an infeasible request fit; every answer was placed before it is given.

:mod:`placer.pipeline.fixes` finds the changes, for a new plan in what is left of its time limit.
Here it is asked again for a plan that was kept, and how many micro-batches are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from cost_models.clusters import Devices, spec_text
from placer.errors import ArgumentError
from placer.graph.passes.roles import find_roles
from placer.pipeline.fixes import PlacedFix, placed_fixes, placements_of
from placer.pipeline.placement import place_workload
from placer.pipeline.preparation import place_without_advice
from placer.plan.plan import Plan
from placer.plan.request import NEVER, Keywords, read_options, takes_options
from placer.questions.saved_plans import reopen_as_made
from placer.solving.process import clock
from placer.strategies.requests import fewest_parts


def find_fixes(
    plan: Plan, source: Any = None, *, time_limit: float = 120.0, **changes: Any
) -> list[PlacedFix]:
    """The smallest changes that make the request of an infeasible ``plan`` fit: to spill, a pin
    less, the smallest caps, larger devices, the largest batch.  Nothing, if it fits.

    Searches until ``time_limit`` seconds are over, and gives what was found by then.  Errors as
    for :func:`placer.questions.saved_plans.reopen_as_made`.
    """
    if plan.fits:
        return []
    deadline = clock.monotonic() + time_limit
    workload = reopen_as_made(plan, source, **changes)
    conflict = None
    if plan.proof:  # what the solver knows beyond what a plan keeps
        wanted = replace(workload.wanted, fit="", max_slowdown=None)
        conflict = place_workload(replace(workload, wanted=wanted), explains=True).conflict
    devices, attempt = plan.request["devices"], placements_of(workload)
    trains = bool(find_roles(workload.graph).gradients)
    return placed_fixes(attempt, devices, workload.wanted, conflict, deadline, trains=trains)


@partial(takes_options, offload=NEVER)
def fewest_pieces(
    build: Callable[[int], Any], devices: Devices, *, most: int = 64, **options: Unpack[Keywords]
) -> tuple[int, Plan]:
    """The fewest micro-batches that fit the accelerators of ``devices``, and the plan for them.

    ``build`` gives the program for a number of pieces, such as ``lambda n: micro_batches(loss, n,
    optimizer=optimizer).get_concrete_function(*specs)``; ``options`` as for
    :func:`placer.pipeline.pipeline.place`, but that nothing is offloaded to the host unless that is
    asked for (``offload="auto"``).  More pieces are taken to need no more memory.

    Raises :class:`NoSolutionError` if even ``most`` micro-batches were not found to fit.
    """
    if hasattr(build, "trainable_variables"):  # a model: it can be called, and gives no program
        raise ArgumentError(
            "build must be a function from the number of micro-batches; got a model"
        )
    wanted = read_options({"offload": NEVER, **options})
    return fewest_parts(
        lambda pieces: place_without_advice(build(pieces), devices, wanted),
        most,
        devices=spec_text(devices),
        advice="add devices, raise a limit, or allow more micro-batches (most=) or offloading "
        '(offload="auto", not tried)',
    )
