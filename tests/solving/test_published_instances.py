"""Published instances against the best values known for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.published.instances import milliseconds, read_instance
from placer.prediction.scoring import score
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import solve
from placer.solving.transfer import solving

DATA = os.environ.get("PLACER_TEST_DATA")
FOLDER = Path(DATA or "", "instances")

pytestmark = pytest.mark.skipif(
    not (DATA and FOLDER.is_dir()), reason="PLACER_TEST_DATA has no instances"
)


def test_a_published_instance_is_solved_to_proven_optimality() -> None:
    """BERT-L3 inference on four devices: 176.147 ms of transfer, proven."""
    problem = read_instance(FOLDER / "capped" / "op_bert_l-3_inference.json", "transfer")
    solution = solve(problem, SolverParameters(time_limit_seconds=20))
    assert solution.status is Status.OPTIMAL
    assert solution.value is not None
    assert milliseconds(problem, solution.value) == pytest.approx(176.147, abs=1e-3)


@pytest.mark.slow
def test_the_bottleneck_of_a_published_instance_is_proven() -> None:
    """BERT-L3 inference as a pipeline on three accelerators and a CPU: 21.908 ms, the optimum."""
    problem = read_instance(FOLDER / "throughput" / "op_bert_l-3_inference.json", "throughput")
    solution = solve(problem, SolverParameters(time_limit_seconds=60))
    assert solution.value is not None
    assert milliseconds(problem, solution.value) == pytest.approx(21.908, abs=1e-3)
    assert solution.status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("layer_gnmt_inference", 24.659),
        ("op_resnet50_inference", 162.995),
        ("layer_resnet50_inference", 1303.956),
    ],
)
def test_first_placements_reach_the_best_known(
    name: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any search the transfer is at most the best value published or known (the first two
    are proven optimal)."""
    monkeypatch.setattr(solving, "search_in_child", lambda *_: Solution(status=Status.UNKNOWN))
    problem = read_instance(FOLDER / "capped" / f"{name}.json", "transfer")
    solution = solve(problem, SolverParameters(time_limit_seconds=60.0))
    assert solution.device_of is not None
    assert not score(problem, solution.device_of).violations
    assert solution.value is not None
    assert milliseconds(problem, solution.value) <= most
