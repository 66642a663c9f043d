"""``placer export`` as a person uses it: every format of one plan, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from steps_by_hand import drawn_plan

from placer.__main__ import main
from placer.rendering.exports.formats import FORMATS, ExportFormat


@pytest.fixture(scope="module")
def plan_path(saved_model, tmp_path_factory) -> Path:
    """The plan of the model of three layers, divided over two GPUs."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    caps = ["--devices", "2xGPU", "--max-memory", "GPU:*=300KiB", "--batch-size", "8"]
    caps += ["--offload", "never"]
    assert main(["place", str(saved_model), *caps, "-o", str(path), "-q"]) == 0
    return path


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_written_once(plan_path, tmp_path, kind, capsys, monkeypatch):
    """The file appears, and is not overwritten without being told so.

    The step is a drawn one: reading the model again takes seconds, and two tests below do it.
    """
    monkeypatch.setattr(
        "placer.questions.saved_plans.with_step", lambda plan, *_, **__: drawn_plan()
    )
    out = tmp_path / "out"
    argv = ["export", str(plan_path), "--to", kind, "-o", str(out), "-q"]
    assert main(argv) == 0
    assert out.is_dir() if kind == "tensorboard" else out.stat().st_size > 100
    assert main(argv) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*argv, "--force"]) == 0


def op_names(step) -> str:
    """A format of our own: the names of the ops, one per line."""
    return "\n".join(step.ops)


def test_a_format_is_one_function_and_one_line(plan_path, tmp_path, monkeypatch, capsys):
    """The command and its help know it then."""
    known = ExportFormat("the names of the ops", f"{__name__}:op_names")
    monkeypatch.setitem(FORMATS, "names", known)
    assert main(["export", "--help"]) == 0
    assert "names: the names of the ops" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr(
        "placer.questions.saved_plans.with_step", lambda plan, *_, **__: drawn_plan()
    )
    out = tmp_path / "names.txt"
    assert main(["export", str(plan_path), "--to", "names", "-o", str(out), "-q"]) == 0
    assert out.read_text().splitlines() == list(drawn_plan().step().ops)


def test_predicted_again_is_what_the_plan_says(plan_path, tmp_path):
    """The page has the plan's figures and no warning that they come out otherwise."""
    out = tmp_path / "plan.html"
    assert main(["export", str(plan_path), "--to", "html", "-o", str(out)]) == 0
    plan, page = json.loads(plan_path.read_text()), out.read_text()
    step = plan["metrics"]["step_seconds"]
    assert f'data-key="plan.metrics.step_seconds" data-value="{step!r}"' in page
    assert "predicted_again" not in page
    assert '"step":null' not in page


def test_a_plan_that_was_changed_is_told_apart(plan_path, tmp_path):
    """A plan whose step time is not what is predicted gets a warning."""
    plan = json.loads(plan_path.read_text())
    plan["metrics"]["step_seconds"] *= 2
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(plan))
    out = tmp_path / "out.html"
    assert main(["export", str(changed), "--to", "html", "-o", str(out)]) == 0
    assert "predicted_again" in out.read_text()


def test_a_plan_without_a_placement(plan_path, tmp_path, capsys):
    """Its page tells the conflict; there is nothing to draw in other formats."""
    plan = json.loads(plan_path.read_text())
    plan |= {"placement": {}, "variables": {}, "transfers": []}
    plan["solver"]["status"] = "INFEASIBLE"
    path = tmp_path / "none.json"
    path.write_text(json.dumps(plan))
    assert main(["export", str(path), "--to", "html", "-o", str(tmp_path / "none.html")]) == 0
    argv = ["export", str(path), "--to", "dot", "-o", str(tmp_path / "none.dot")]
    assert main(argv) == 5
    assert "the plan has no placement, as none fits (proven)" in capsys.readouterr().err
