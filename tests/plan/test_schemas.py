"""Every document that is written fits the schema that is shipped for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from small_problems import random_problem
from verifications_by_hand import small_verification

from placer.__main__ import main
from placer.commands.solve import describe
from placer.pipeline.formulation import formulate
from placer.pipeline.preparation import prepare
from placer.plan.request import Options
from placer.plan.rows import GateVerdict
from placer.plan.schemas import load_schema
from placer.problem.placement_problem import to_json as problem_to_json
from placer.rendering.json_text import to_json
from placer.solving.solution import SolverParameters
from placer.solving.solver import solve

NAMES = (
    "plan",
    "report",
    "verification",
    "auto",
    "costs",
    "problem",
    "solution",
    "rematerialisation",
    "rematerialisation-solution",
)


def require_fit(name: str, text: str) -> None:
    """The text is JSON as the standard has it, and fits."""
    content = json.loads(text, parse_constant=pytest.fail)
    Draft202012Validator(load_schema(name)).validate(content)


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas(name):
    """Each is valid itself, and refuses what is another document."""
    Draft202012Validator.check_schema(load_schema(name))
    other = {"schema": "placer.devices/1"}
    assert not Draft202012Validator(load_schema(name)).is_valid(other)


@pytest.mark.parametrize("devices", [(), ("--devices", "2xGPU:300KiB")], ids=["bare", "placed"])
def test_reports_fit_their_schema(saved_model, capsys, devices):
    """With a plan in it and a gate that trips, and without."""
    gate = ["--fail-on", "unknown-shape"] if not devices else ["--batch-size", "8"]
    main(["report", str(saved_model), *devices, *gate, "--format", "json"])
    text = capsys.readouterr().out
    require_fit("report", text)
    if devices:
        require_fit("plan", json.dumps(json.loads(text)["plan"]))


def test_problems_and_solutions_fit_their_schemas(saved_model):
    """Of a model, and of small problems that are solved, infeasible or spilled."""
    workload = prepare(str(saved_model), "2xGPU:300KiB", Options(batch_size=8))
    require_fit("problem", problem_to_json(formulate(workload).problem))
    for seed in range(3):
        problem = random_problem(seed, spill="auto")
        require_fit("problem", problem_to_json(problem))
        solution = solve(problem, SolverParameters(time_limit_seconds=20.0, workers=1))
        require_fit("solution", to_json(describe(problem, solution)))


@pytest.mark.slow
def test_a_verification_of_a_run_fits_its_schema(saved_model, tmp_path: Path, capsys):
    """What ``placer verify --format json`` prints."""
    plan = tmp_path / "plan.json"
    place = ["place", str(saved_model), "--batch-size", "8", "--devices", "2xGPU:300KiB"]
    assert main([*place, "-o", str(plan), "-q"]) == 0
    capsys.readouterr()
    main(["verify", str(saved_model), str(plan), "--format", "json", "--fail-on", "fallback"])
    require_fit("verification", capsys.readouterr().out)


def test_a_verification_by_hand_fits_its_schema():
    """With and without a verdict."""
    for gate in (None, GateVerdict(passed=False, failures=("2 ops ran elsewhere",))):
        require_fit("verification", to_json(small_verification(gate=gate)))
