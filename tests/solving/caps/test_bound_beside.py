"""The bound that is sought beside the rounds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from layered_graphs import layered_graph
from small_problems import problem_of

import placer
from placer.solving.caps import record, rows, staged_run
from placer.solving.caps.schedule import SCHEDULE
from placer.solving.caps.staged_run import BoundBeside
from placer.solving.process import clock
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve

ROUNDS = SolverParameters(time_limit_seconds=3.0)


def ring_of_layers(seed: int, layers: int = 8, width: int = 6):
    """Layers that weigh much, each read by the next and by one farther away, on four devices that
    hold three each."""
    rng = random.Random(seed)
    ops = layers * width
    tensors = []
    for op in range(ops - width):
        far = rng.randrange(op + 1, ops)
        tensors.append((op, sorted({op + width, far}), rng.choice([2, 3, 5]) * 1000))
    return problem_of(
        resident=[rng.choice([80, 100, 120]) for _ in range(ops)],
        tensors=tensors,
        capacity=[3 * width * 100] * 4 + [0],
        allowed=[[0, 1, 2, 3]] * ops,
    )


def test_the_bound_is_below_what_is_best_and_its_process_ends():
    """As found by the search; begun at that placement, and at a worse one that keeps no caps."""
    problem = ring_of_layers(1)
    best = solve(problem, ROUNDS)
    assert best.device_of is not None
    uneven = tuple(min(op // 3, 3) for op in range(len(problem.op_names)))
    for device_of, value in ((best.device_of, best.value), (uneven, None)):
        beside = BoundBeside(problem, device_of, value, ROUNDS, seconds=4.0)
        found = beside.end(wait=True)
        assert found is not None
        assert found.device_of is None
        assert 0 < found.lower_bound <= best.value
        assert not beside._thread.is_alive()
        beside._child._process.wait(10)


def test_nobody_waits_for_a_bound_that_is_not_asked_for():
    problem = ring_of_layers(2)
    began = clock.monotonic()
    beside = BoundBeside(problem, (0,) * len(problem.op_names), None, ROUNDS, seconds=60.0)
    beside.end(wait=False)
    assert clock.monotonic() - began < 20.0
    assert not beside._thread.is_alive()


@pytest.mark.parametrize(("objective", "begun"), [("transfer", 1), ("step-time", 0)])
def test_a_bound_is_sought_beside_the_rounds_that_ask_for_the_least_transfer(
    objective, begun, monkeypatch, tmp_path
):
    """Of a large program, and not beside those that only begin the search for another objective."""
    began = []

    class Sought(BoundBeside):
        def __init__(self, *given):
            began.append(given[1])
            super().__init__(*given)

    def unproven(*given, **more):
        found = solve(*given, **more)
        return replace(found, status=Status.FEASIBLE if found.device_of else Status.UNKNOWN)

    monkeypatch.setattr(rows, "solve", unproven)  # which may prove all of it in its time
    monkeypatch.setattr(staged_run, "BoundBeside", Sought)
    monkeypatch.setattr(record, "SCHEDULE", replace(SCHEDULE, least_ops_beside=1_000))
    path = tmp_path / "layered.pb"
    path.write_bytes(layered_graph(1_200).SerializeToString())
    plan = placer.place(
        path, "2xGPU:500KiB", batch_size=4, objective=objective, offload="never", time_limit=5
    )
    assert plan.fits
    assert len(began) == begun
