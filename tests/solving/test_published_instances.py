"""Published instances against the best values known for them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from published_instances import BYTES_PER_MILLISECOND, read_instance

from placer.prediction.scoring import score
from placer.solving import stage
from placer.solving.child_search import ChildResult
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve

DATA = os.environ.get("PLACER_TEST_DATA")
FOLDER = Path(DATA or "", "instances", "capped")

pytestmark = pytest.mark.skipif(
    not (DATA and FOLDER.is_dir()), reason="PLACER_TEST_DATA has no instances/capped"
)


def milliseconds(value: int | None) -> float:
    assert value is not None
    return value / BYTES_PER_MILLISECOND


def test_a_published_instance_is_solved_to_proven_optimality() -> None:
    """BERT-L3 inference on four devices: 176.147 ms of transfer, proven."""
    solution = solve(
        read_instance(FOLDER / "op_bert_l-3_inference.json"),
        SolverParameters(time_limit_seconds=20),
    )
    assert solution.status is Status.OPTIMAL
    assert milliseconds(solution.value) == pytest.approx(176.147, abs=1e-3)


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
    """Without CP-SAT the transfer is at most the best value published or known (the first two
    are proven optimal)."""
    monkeypatch.setattr(stage, "search_in_child", lambda *_: ChildResult(status=Status.UNKNOWN))
    problem = read_instance(FOLDER / f"{name}.json")
    solution = solve(problem, replace(SolverParameters(), time_limit_seconds=60.0))
    assert solution.device_of is not None
    assert not score(problem, solution.device_of).violations
    assert milliseconds(solution.value) <= most
