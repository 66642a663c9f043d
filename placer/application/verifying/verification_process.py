"""The process that runs a program twice, unplaced and placed, for a verification.

A fresh process can have as many logical CPU devices as a rehearsal needs, whatever its caller
did with TensorFlow, and can be stopped.
"""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placer.application.running.generated_inputs import Array
from placer.errors import ModelError, PlacerError, VerificationError
from placer.processes import Ending, Tell, run_task

if TYPE_CHECKING:
    from placer.application.running.program_runs import Run

_UNPLACED_RAN = "the unplaced program ran, the placed one runs"
"""What the process tells when it comes that far."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What to run: ``kind`` is ``saved_model`` (TensorFlow 2), ``saved_model_session``, ``graph``
    or ``function``.

    ``unplaced`` and ``placed`` are paths of SavedModels or GraphDefs, or PortableFunctions
    (``kind`` says which); ``inputs`` arrays by signature key or, for a session, by tensor name.
    ``fetches`` and ``targets`` (sessions only) are pairs: of the unplaced and of the placed graph.
    The placed program runs on the servers of ``cluster``, if given.
    """

    kind: str
    unplaced: Any
    placed: Any
    inputs: Mapping[str, Array] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    signature: str = ""
    fetches: tuple[tuple[tuple[str, str], ...], ...] = ((), ())
    targets: tuple[tuple[str, ...], ...] = ((), ())
    cpu_count: int = 1
    hide_accelerators: bool = True
    strict: bool = False
    optimised: bool = False
    cluster: Mapping[str, Mapping[int, str]] | None = None


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Outputs of both runs by key; of the placed one also the partition graphs (serialised) and
    the devices of captured variables by argument number."""

    unplaced_outputs: Mapping[str, Array]
    placed_outputs: Mapping[str, Array]
    partition_graphs: tuple[bytes, ...]
    variable_devices: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunFailure:
    """Why a program did not run: the placed one, or already the unplaced one."""

    placed: bool
    message: str


def run_in_child(request: RunRequest, *, time_limit_seconds: float) -> RunResult:
    """The result of ``request``, run in a fresh process.

    Raises :class:`ModelError` if the unplaced program does not run, or not to its end within the
    time limit, :class:`VerificationError` if only the placed one does not.
    """
    outcome = run_task(f"{__name__}:execute", request, time_limit_seconds, _environment(request))
    if outcome.ending is Ending.LATE:
        raise _too_slow(outcome.answer == _UNPLACED_RAN, time_limit_seconds)
    if outcome.ending is Ending.DIED:
        raise VerificationError(f"the run died: {outcome.reason}")
    found: RunResult | RunFailure = outcome.answer
    if isinstance(found, RunResult):
        return found
    if found.placed:
        raise VerificationError(
            f"the model runs without the placement but not with it: {found.message}"
        )
    raise ModelError(f"the model does not run here even without a placement: {found.message}")


def _too_slow(unplaced_ended: bool, time_limit_seconds: float) -> PlacerError:
    """What to say of a run that was stopped at the time limit."""
    if unplaced_ended:
        return VerificationError(
            f"the model ran without the placement, but with it both runs together did not end "
            f"within {time_limit_seconds:g} s: it is slow, or waits for what never comes; "
            f"give it longer with --time-limit"
        )
    return ModelError(
        f"the model did not run to its end within {time_limit_seconds:g} s even without a "
        f"placement: it is slow, or waits for what never comes (an empty queue); give it longer "
        f"with --time-limit, or smaller --inputs"
    )


def _environment(request: RunRequest) -> dict[str, str]:
    environment = {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")}
    if not request.optimised:
        environment["TF_ENABLE_ONEDNN_OPTS"] = "0"
    if request.hide_accelerators:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return environment


def execute(request: RunRequest, tell: Tell) -> RunResult | RunFailure:
    """Runs both programs in this process, and tells when the unplaced one has run."""
    from placer.application.devices.device_mapping import configure_logical_cpus
    from placer.application.running import program_runs
    from placer.application.running.cluster_runs import connect_cluster

    configure_logical_cpus(request.cpu_count)
    if request.cluster is not None and request.kind in ("function", "saved_model"):
        connect_cluster(request.cluster)
    placed_runs = False
    try:
        unplaced = _run(request, request.unplaced, 0).outputs
        gc.collect()
        tell(_UNPLACED_RAN)
        placed_runs = True
        with program_runs.hardware_like_constants():
            placed = _run(request, request.placed, 1)
    except Exception as error:  # the caller says it, whatever it is
        traceback.print_exc()
        message = f"{type(error).__name__}: {str(error).strip()[:2000]}"
        return RunFailure(placed=placed_runs, message=message)
    return result_of_runs(unplaced, placed)


def result_of_runs(unplaced_outputs: Mapping[str, Array], placed: Run) -> RunResult:
    """The outputs of both runs, and where the placed one put what."""
    return RunResult(
        unplaced_outputs=unplaced_outputs,
        placed_outputs=placed.outputs,
        partition_graphs=tuple(graph.SerializeToString() for graph in placed.partition_graphs),
        variable_devices=placed.variable_devices,
        notes=placed.notes,
    )


def _run(request: RunRequest, program: Any, which: int) -> Any:
    """One run: of the unplaced program (``which`` is 0) or of the placed one (1)."""
    from placer.application.devices.runtime_settings import soft_placement
    from placer.application.running import function_runs, program_runs
    from placer.extraction.files.sources import read_source

    with soft_placement(not (request.strict and which == 1)):
        if request.kind == "function":
            return function_runs.run_portable(program, optimised=request.optimised)
        if request.kind == "saved_model":
            return program_runs.run_saved_model(
                Path(program),
                request.tags,
                request.signature,
                request.inputs,
                [key for key, _ in request.fetches[which]],
                optimised=request.optimised,
            )
    session = program_runs.SessionRequest(
        feeds=request.inputs,
        fetches=request.fetches[which],
        targets=request.targets[which],
        cpu_count=request.cpu_count,
        strict=request.strict and which == 1,
        optimised=request.optimised,
        cluster=request.cluster if which == 1 else None,
    )
    if request.kind == "saved_model_session":
        return program_runs.run_saved_model_session(Path(program), request.tags, session)
    return program_runs.run_graph_session(read_source(Path(program)), session)
