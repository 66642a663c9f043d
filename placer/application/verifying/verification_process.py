"""The process that runs a program twice, unplaced and placed, for a verification.

A fresh process can have as many logical CPU devices as a rehearsal needs, whatever its caller
did with TensorFlow, and can be stopped.
"""

import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from placer.application.devices.device_mapping import configure_logical_cpus
from placer.application.devices.graph_optimisers import hardware_like_constants
from placer.application.devices.runtime_settings import soft_placement
from placer.application.running.cluster_runs import connect_cluster
from placer.application.running.function_runs import run_portable
from placer.application.running.generated_inputs import Array
from placer.application.running.program_checks import check_program
from placer.application.running.program_runs import Run, RunRequest, run_saved_model, run_session
from placer.errors import (
    ModelError,
    PlacerError,
    TimeLimitError,
    VerificationError,
    run_error,
    some,
)
from placer.processes import Ending, Tell, run_task

_UNPLACED_RAN = "the unplaced program ran, the placed one runs"
"""The message of the process when it comes that far."""


class Runs(NamedTuple):
    """The outputs of the unplaced program by key, and the run of the placed one."""

    unplaced_outputs: Mapping[str, Array]
    placed: Run


def with_seed_note(runs: Runs, seeded: int) -> Runs:
    """``runs`` with a note of the random ops that got a seed, if there are any."""
    note = f"{seeded} random ops have no seed; both runs used the same one"
    return with_note(runs, note if seeded else "")


def with_note(runs: Runs, note: str) -> Runs:
    """``runs`` with one note more; none if it is empty."""
    if not note:
        return runs
    return runs._replace(placed=replace(runs.placed, notes=(*runs.placed.notes, note)))


def run_in_child(request: RunRequest) -> Runs:
    """Both runs of ``request``, in a fresh process.

    Raises :class:`ModelError` if the unplaced program does not run, or if either would do more than
    it may, :class:`TimeLimitError` if it does not end within the time limit;
    :class:`VerificationError` if only the placed one does not.
    """
    limit = request.options.time_limit_seconds
    outcome = run_task(f"{__name__}:execute", request, limit, _environment(request))
    if outcome.ending is Ending.LATE:
        raise _too_slow(outcome.answer == _UNPLACED_RAN, limit, request.start.waits)
    if outcome.ending is Ending.DIED:
        raise VerificationError(f"the run died: {outcome.reason}")
    found: Runs = outcome.answer
    return found


def _too_slow(unplaced_ended: bool, time_limit_seconds: float, waits: Sequence[str]) -> PlacerError:
    """Returns the error for a run that was stopped at the time limit; ``waits`` are its ops that
    wait for what others give."""
    reason = "it is slow or hangs"
    if waits:
        reason += f" (at {some(waits)})"
    if unplaced_ended:
        return VerificationError(
            f"the model ran without the placement, but with it both runs together did not end "
            f"within {time_limit_seconds:g} s: {reason}; give it longer with --time-limit"
        )
    return TimeLimitError(
        f"the model did not run to its end within {time_limit_seconds:g} s even without a "
        f"placement: {reason}; give it longer with --time-limit, or smaller --inputs"
    )


def _environment(request: RunRequest) -> dict[str, str]:
    environment = {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")}
    if not request.options.optimised:
        environment["TF_ENABLE_ONEDNN_OPTS"] = "0"
    if request.mapping.rehearsed:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return environment


def execute(request: RunRequest, tell: Tell) -> Runs:
    """Runs both programs in this process, and tells when the unplaced one has run.

    Raises as :func:`run_in_child`.
    """
    for which in range(len(request.programs)):
        check_program(request, which)
    configure_logical_cpus(request.mapping.cpu_count)
    if request.options.cluster is not None and request.kind in ("function", "saved_model"):
        connect_cluster(request.options.cluster)
    try:
        unplaced_outputs = _run(request, 0).outputs
    except Exception as error:  # the caller says it, whatever it is
        raise ModelError(
            f"the model does not run, even without a placement: {run_error(error)}"
        ) from error
    gc.collect()
    tell(_UNPLACED_RAN)
    try:
        with hardware_like_constants():
            return Runs(unplaced_outputs, _run(request, 1))
    except Exception as error:
        raise VerificationError(
            f"the model runs without the placement but not with it: {run_error(error)}"
        ) from error


def _run(request: RunRequest, which: int) -> Run:
    """One run: of the unplaced program (``which`` is 0) or of the placed one (1)."""
    if request.kind in ("graph", "saved_model_session"):
        return run_session(request, which)
    with soft_placement(not (request.options.strict and which == 1)):
        if request.kind == "saved_model":
            return run_saved_model(request, which)
        return run_portable(request.programs[which], optimised=request.options.optimised)
