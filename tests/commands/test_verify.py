"""``placer verify`` and ``placer apply``: what they pass on, and their exit codes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from plans_by_hand import infeasible_plan, small_plan
from verifications_by_hand import failed_verification, small_verification

from placer.__main__ import main
from placer.plan.plan import Plan


@pytest.fixture
def application(monkeypatch, tmp_path):
    """Stands in for what applies and verifies, beside a plan and inputs on disk."""
    module = ModuleType("application")
    module.calls = []
    module.result = small_verification()

    def answer(*arguments, **options):
        module.calls.append((arguments, options))
        return module.result

    module.apply = module.clear = module.verify = answer
    for name in ("placing.placed_programs", "verifying.verification"):
        monkeypatch.setitem(sys.modules, f"placer.application.{name}", module)
    monkeypatch.chdir(tmp_path)
    small_plan().save("plan.json")
    np.savez("inputs.npz", x=np.arange(3))
    return module


def test_verify_passes_everything_on(application, capsys):
    """Plan, inputs and the ways to run arrive at the application; the result is printed."""
    argv = (
        "verify model plan.json --inputs inputs.npz --on-hardware --fallback strict --optimized "
        "--time-limit 90 --memory"
    )
    assert main([*argv.split(), "--signature", "s"]) == 0
    (((model, plan, inputs), options),) = application.calls
    assert (model, plan) == ("model", small_plan())
    assert inputs["x"].tolist() == [0, 1, 2]
    assert options == {
        "on_hardware": True,
        "strict": True,
        "optimised": True,
        "time_limit_seconds": 90.0,
        "cluster": None,
        "memory": True,
        "tag_set": None,
        "signature": "s",
        "allow_unsafe": False,
        "follow_links": False,
        "outputs": None,
    }
    assert "Ran as planned" in capsys.readouterr().out


def test_verify_without_a_plan_takes_the_devices_of_the_file(application):
    """The plan may be left out."""
    assert main(["verify", "placed"]) == 0
    assert application.calls[0][0] == ("placed", None, None)


def test_a_mismatch_exits_8_after_the_result(application, capsys):
    """The result is printed whole, then the message and the code."""
    application.result = failed_verification()
    assert main(["verify", "placed", "plan.json"]) == 8
    out, told = capsys.readouterr()
    assert "2 unexplained differences" in out
    assert told.startswith("placer: 2 unexplained differences between plan and run")


def test_verify_as_json_has_the_summary(application, capsys):
    """The JSON carries rows and counts, sorted."""
    assert main(["verify", "placed", "plan.json", "--format", "json"]) == 0
    text = capsys.readouterr().out
    data = json.loads(text)
    assert text == json.dumps(data, sort_keys=True, indent=1) + "\n"
    assert data["schema"] == "placer.verification/1"
    assert data["rehearsed"] is True
    assert (data["summary"]["matched_ops"], data["summary"]["ops"]) == (3, 4)


def test_fail_on_fallback_is_a_gate(application, capsys):
    """An op that runs elsewhere than it asks to trips the gate, whatever explains it."""
    assert main(["verify", "placed", "plan.json", "--fail-on", "fallback"]) == 7
    assert "1 op ran on another device than was asked for, such as x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["verify", "m", "absent.json"], "cannot read the plan absent.json"),
        (
            ["verify", "m", "plan.json", "--inputs", "absent.npz"],
            "--inputs absent.npz: there is no such file",
        ),
        (["verify", "m", "plan.json", "--inputs", "plan.json"], "write it with numpy.savez"),
        (
            ["verify", "m", "plan.json", "-o", "plan.json"],
            "plan.json is the input, so it cannot be the output",
        ),
        (["verify", "m", "--fail-on", "unmodelled"], "must be fallback"),
        (["apply", "m", "plan.json"], "--output OUT"),
        (
            ["apply", "m", "plan.json", "-o", "plan.json"],
            "plan.json is the input, so it cannot be the output",
        ),
        (["apply", "m", "-o", "placed"], "give either a PLAN to apply, or --clear"),
        (
            ["apply", "m", "plan.json", "--clear", "-o", "placed"],
            "give either a PLAN to apply, or --clear",
        ),
        (["verify", "m", "--record", "new.json"], "give PLAN too"),
        (["apply", "m", "inputs.npz", "-o", "placed"], "cannot read the plan inputs.npz"),
    ],
)
def test_wrong_usage_exits_2_before_any_work(application, capsys, argv, message):
    """Missing and existing files are found before anything runs."""
    assert main(argv) == 2
    assert message in capsys.readouterr().err
    assert application.calls == []


def moved_verification():
    """A run in which soft placement moved one op for want of a kernel."""
    found = small_verification()
    moved = replace(found.ops[1], actual="CPU:0", code="host_only_kernel")
    return replace(found, ops=(found.ops[0], moved, *found.ops[2:]))


def test_a_moved_op_exits_8_if_strict_and_is_recorded_if_soft(application, capsys):
    """Requested and actual device and the reason are told, or written into a plan."""
    application.result = moved_verification()
    assert main(["verify", "m", "plan.json", "--fallback", "strict"]) == 8
    assert "moved 1 op off the device asked for: a: GPU:0 -> CPU:0" in capsys.readouterr().err
    assert main(["verify", "m", "plan.json", "--record", "moved.json"]) == 0
    rows = [row for row in Plan.load("moved.json").warnings if row.code == "fallback"]
    assert [(row.count, row.ops) for row in rows] == [(1, ("a",))]
    assert "from GPU:0 to CPU:0: host_only_kernel" in rows[0].message


def test_apply_clears_and_rehearses(application, capsys):
    """--clear needs no plan; --rehearse and --fallback reach the application."""
    assert main(["apply", "model", "--clear", "-o", "bare"]) == 0
    assert application.calls == [
        (
            ("model", "bare"),
            {"force": False, "drop_unused": False, "allow_unsafe": False, "follow_links": False},
        )
    ]
    assert "Program without devices written to bare" in capsys.readouterr().out
    argv = "apply model plan.json -o placed --rehearse --fallback strict"
    assert main(argv.split()) == 0
    options = application.calls[1][1]
    assert options["rehearse"]
    assert options["strict"]


def test_apply_writes_where_it_is_told(application, capsys):
    """OUT and --force reach the application, and the path is said."""
    assert main(["apply", "model", "plan.json", "-o", "placed"]) == 0
    (((model, plan, out), options),) = application.calls
    assert (model, plan, out) == ("model", small_plan(), "placed")
    assert options["force"] is False
    assert capsys.readouterr().out == "Placed program written to placed\n"


def test_a_plan_without_a_placement_cannot_be_applied(application, capsys):
    """An infeasible plan is refused with its own exit code."""
    infeasible_plan().save("infeasible.json")
    assert main(["apply", "model", "infeasible.json", "-o", "placed"]) == 5
    assert application.calls == []
