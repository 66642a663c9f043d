"""compare, explain, diff, sweeps, gates and formats on the command line."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from commands.test_solve import two_pairs
from plans_by_hand import MIB, device_row, infeasible_plan, small_plan

from placer.__main__ import main
from placer.commands.place import require_placement
from placer.errors import NoSolutionError
from placer.plan.plan import Plan
from placer.problem.conflict import CapInConflict, Conflict, Fix
from placer.problem.placement_problem import to_json

CAPS = ["--batch-size", "8", "--devices", "2xGPU", "--max-memory", "GPU:*=300KiB", "-q"]
CAPS += ["--offload", "never"]


@pytest.fixture(scope="module")
def plan_path(saved_model, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("questions") / "plan.json"
    assert main(["place", str(saved_model), *CAPS, "-o", str(path)]) == 0
    return path


def test_plans_remember_what_was_asked(plan_path):
    """The request is in the file, and opens the model again."""
    request = Plan.load(plan_path).request
    assert request["devices"] == "2xGPU"
    assert request["max_memory"] == "GPU:*=300KiB"
    assert request["batch_size"] == 8


@pytest.mark.slow
def test_compare_prints_a_row_per_strategy(saved_model, capsys):
    """In Markdown, for a pull request; the baselines are those that placer solve knows."""
    assert main(["compare", str(saved_model), *CAPS, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows[0]["strategy"] == "placer"
    assert {"tensorflow-default", "first-fit", "heft"} <= {row["strategy"] for row in rows}


def test_a_plan_over_its_limits_is_explained_by_what_was_not_tried(tmp_path, capsys):
    """One sentence on what is required and by how much; advice that nobody tried says so."""
    conflict = Conflict(
        caps=(CapInConflict(device="GPU:0", peak_bytes=107 * MIB, usable_bytes=100 * MIB),),
        fixes=(Fix(change="give the solver more time: --time-limit"),),
    )
    gpu = device_row("GPU:0", peak_memory_bytes=107 * MIB)
    solver = replace(small_plan().solver, status="UNKNOWN")
    plan = small_plan(devices=(gpu, *small_plan().devices[1:]), conflict=conflict, solver=solver)
    plan.save(tmp_path / "plan.json")
    told = "GPU:0 requires 107 MiB, 7.00 MiB more than its limit of 100 MiB"
    more = r". May fit \(not tried\): give the solver more time"
    with pytest.raises(NoSolutionError, match=f"in the best one found, {told}{more}"):
        require_placement(plan)
    assert main(["explain", str(tmp_path / "plan.json"), "-q"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"because {told} not tried give the solver more time" in text
    assert "(tried)" not in text


def test_explain_answers_for_an_op_and_for_the_plan(plan_path, capsys):
    """The model is found where the plan says it was."""
    plan = Plan.load(plan_path)
    name = next(op for op in plan.placement if op.endswith("layer_0/Relu"))
    assert main(["explain", str(plan_path), name, "--format", "json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["op"], found["device"]) == (name, plan.placement[name])
    assert main(["explain", str(plan_path), "-q"]) == 0
    assert "Largest transfers" in capsys.readouterr().out
    assert main(["explain", str(plan_path), "no-such-op", "-q"]) == 2


@pytest.mark.slow
def test_explained_changes_of_an_infeasible_request_work(saved_model, tmp_path, capsys):
    """The caps and the batch size that are printed are asked for, and have a placement."""
    path = tmp_path / "none.json"
    asked = ["place", str(saved_model), "--devices", "2xGPU", "--offload", "never", "-q"]
    in_time = ["--time-limit", "2"]
    at_leisure = ["--time-limit", "60", "--work-limit", "1"]  # ends with what fits
    caps, batch = ["--max-memory", "GPU:*=300KiB"], ["--batch-size", "64"]
    assert main([*asked, *in_time, *caps, *batch, "-o", str(path)]) == 5
    capsys.readouterr()
    explained = ["explain", str(path), "--format", "json", "-q"]
    assert main(explained) == 0
    kept = json.loads(path.read_text())["conflict"]["fixes"]
    assert json.loads(capsys.readouterr().out)["fixes"] == kept  # as place has told them
    assert main([*explained, "--time-limit", "60"]) == 0
    fixes = {fix["kind"]: fix["change"] for fix in json.loads(capsys.readouterr().out)["fixes"]}
    assert main([*asked, *at_leisure, *batch, *fixes["caps"].split()]) == 0
    assert main([*asked, *at_leisure, *caps, *fixes["batch"].split()]) == 0


def test_a_plan_against_itself_and_against_a_model(plan_path, saved_model, capsys):
    """No difference is no error; a plan and a model cannot be compared."""
    assert main(["diff", str(plan_path), str(plan_path)]) == 0
    assert "Nothing differs" in capsys.readouterr().out
    assert main(["diff", str(plan_path), str(saved_model)]) == 2
    assert "compare two plans or two models" in capsys.readouterr().err


def test_a_plan_is_known_by_its_content(plan_path, tmp_path, capsys):
    """Whatever it is called."""
    copy = tmp_path / "kept"
    copy.write_bytes(plan_path.read_bytes())
    assert main(["diff", str(copy), str(plan_path)]) == 0
    assert "Nothing differs" in capsys.readouterr().out


@pytest.mark.slow
def test_growth_over_a_baseline_trips_the_gate(saved_model, plan_path, tmp_path, capsys):
    """The same request passes; against a baseline with less transfer it ends with 7."""
    gate = ["--fail-above", "+5%", "--baseline"]
    assert main(["place", str(saved_model), *CAPS, *gate, str(plan_path)]) == 0
    plan = Plan.load(plan_path)
    less = replace(plan.metrics, sent_bytes=plan.metrics.sent_bytes // 2)
    path = tmp_path / "less.json"
    replace(plan, metrics=less).save(path)
    capsys.readouterr()
    assert main(["place", str(saved_model), *CAPS, *gate, str(path)]) == 7
    assert re.search(
        r"what a step sends is .* in the baseline .* \(more than \+5\.0%\)", capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        (["--fail-above", "+5%"], "requires a plan to compare with: --baseline PLAN"),
        (["--baseline", "{plan}"], "--baseline requires one --fail-above +N%"),
        (["--baseline", "{plan}", "--fail-above", "+x%"], "is not a percentage"),
        (["--baseline", "{plan}", "--fail-above=-5%"], "is below zero"),
        (["--baseline", "missing.json", "--fail-above", "+5%"], "cannot read the plan"),
    ],
)
def test_wrong_gates_are_refused_before_any_work(gate, told, tmp_path, capsys):
    """Exit code 2 and what to write instead."""
    plan = tmp_path / "plan.json"
    small_plan().save(plan)
    gate = [part.format(plan=plan) for part in gate]
    assert main(["place", "nowhere", "--devices", "2xGPU:1GiB", *gate]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("diff PLAN PLAN --batch-size 8", "--batch-size is for models; these are plans"),
        ("export PLAN --to html -o page.html --nodes 9", "--nodes has no effect on html"),
        ("explain NONE some/op", "has no placement (INFEASIBLE), so some/op has no device"),
        ("explain PLAN --time-limit 9", "--time-limit is for a plan without a placement"),
        ("apply m --clear -o out --signature f", "--signature has no effect with --clear"),
        ("auto m --for memory --margin 5%", "--margin has no effect with --for memory"),
        ("report m --time-limit 9", "--time-limit requires --devices"),
        ("solve PROBLEM --solver heft --seed 1", "--seed has no effect on heft"),
    ],
)
def test_an_option_without_effect_is_refused(line, told, tmp_path, monkeypatch, capsys):
    """Where it is typed; a file of options is for all commands, and what is not asked for there
    stays unread."""
    monkeypatch.chdir(tmp_path)
    small_plan().save("PLAN")
    infeasible_plan().save("NONE")
    Path("PROBLEM").write_text(to_json(two_pairs()))
    assert main(line.split()) == 2
    assert told in capsys.readouterr().err
    Path("placer.toml").write_text("batch-size = 8\nsignature = 'f'\n")
    assert main(["diff", "PLAN", "PLAN"]) == 0


def test_a_sweep_wants_no_gates(saved_model, capsys):
    """Gates are for one batch size."""
    argv = ["report", str(saved_model), "--batch-size", "1,8", "--fail-on", "unmodelled"]
    assert main(argv) == 2
    assert "--baseline require one batch size" in capsys.readouterr().err
    assert main(["report", str(saved_model), "--batch-size", "1,0"]) == 2


def test_a_placement_as_csv_has_a_row_per_op(saved_model, plan_path, capsys):
    """What a spreadsheet opens."""
    assert main(["place", str(saved_model), *CAPS, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["op"] for row in rows} == set(Plan.load(plan_path).placement)
