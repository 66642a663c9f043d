"""Steps of a placed program on simulated GPUs, in a process of its own.

TensorFlow's own GPU runtime loads the program, places it, optimizes its graphs and asks its
allocator for memory, under the limits of the cards; kernels compute nothing
(:mod:`placer.simulation`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from placer.application.running.program_runs import (
    RunRequest,
    call_loaded,
    graph_optimisation,
    load_function,
    open_session,
)
from placer.application.running.run_starts import check_program
from placer.errors import ModelError
from placer.processes import Tell
from placer.simulation.environment import RECORDS
from placer.simulation.records import GpuRecord, read_records


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsRequest:
    """So many ``steps`` of the placed program of a ``run``."""

    run: RunRequest
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """Bytes in use of one GPU after the last step and at most, chunks counted whole."""

    now_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsRun:
    """Bytes in use of every GPU, how many steps were run to their end, and if memory ran out
    where: (number of the GPU, op, what TensorFlow said)."""

    in_use: Sequence[InUse]
    steps: int
    out_of_memory: tuple[int, str, str] | None = None


def run_steps(request: StepsRequest, _: Tell) -> StepsRun:
    """Loads the program and runs the steps, until memory runs out.

    Raises :class:`ModelError` if the program fails for another reason, or does what it may not.
    """
    check_program(request.run, 1)
    steps, failure = 0, None
    try:
        with graph_optimisation(True), _loaded(request.run) as step:
            while steps < request.steps:
                step()
                steps += 1
            records = _records()
    except tf.errors.OpError as error:
        records = _records()
        failure = _out_of_memory(error, records)
    return StepsRun(
        in_use=[
            InUse(now_bytes=gpu.live_bytes, peak_bytes=gpu.peak.in_use_bytes) for gpu in records
        ],
        steps=steps,
        out_of_memory=failure,
    )


@contextmanager
def _loaded(request: RunRequest) -> Iterator[Callable[[], object]]:
    """The step of a program, once that is loaded; feeds are on the host."""
    if request.kind == "saved_model":
        loaded = load_function(request, 1)
        with tf.device("CPU:0"):
            yield lambda: call_loaded(loaded, request, 1)
        return
    with open_session(request, 1) as (session, _):
        wanted = [t for _, t in request.fetches[1]], list(request.targets[1])
        yield lambda: session.run(wanted, dict(request.inputs))


def _records() -> Sequence[GpuRecord]:
    """Returns what this process holds on each GPU."""
    found = read_records(Path(os.environ[RECORDS]))
    return next((record.gpus for record in found if record.process == os.getpid()), ())


def _out_of_memory(error: Exception, records: Sequence[GpuRecord]) -> tuple[int, str, str]:
    """Which GPU refused which op, as far as that is why a program failed.

    Raises :class:`ModelError` if it is not: no GPU has refused anything.
    """
    refused = [(gpu.refused.seconds, gpu.index) for gpu in records if gpu.refused is not None]
    said = str(error).strip()
    if not refused:
        raise ModelError(f"the program does not run on simulated GPUs: {said[:2000]}") from error
    index = max(refused)[1]
    moment = records[index].refused
    assert moment is not None
    return index, moment.op, said.partition("\n")[0]
