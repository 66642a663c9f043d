"""The main path as a person walks it, on a small SavedModel: report, place, apply, verify.

Weights are 338 KiB on paper; each GPU gets 300 KiB, so the three layers must be divided.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator

from placer.__main__ import main
from placer.errors import ShapeError
from placer.pipeline.workload import require_known_shapes
from placer.plan.plan import Plan
from placer.plan.schemas import load_schema

CAPS = ["--devices", "2xGPU", "--max-memory", "GPU:*=300KiB", "--offload", "never"]
BATCH = ["--batch-size", "8"]


@pytest.fixture(scope="module")
def plan_path(saved_model, tmp_path_factory) -> Path:
    """The plan that ``placer place`` writes for the model."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert main(["place", str(saved_model), *BATCH, *CAPS, "-o", str(path), "-q"]) == 0
    return path


def test_the_report_counts_what_was_built(saved_model, capsys):
    """Parameters, weights and flops of the three layers are those on paper."""
    assert main(["report", str(saved_model), *BATCH, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    weights = 64 * 256 + 256 * 256 + 256 * 10
    biases = 256 + 256 + 10
    assert report["model"]["parameter_count"] == weights + biases
    assert report["memory"]["weight_bytes"] == 4 * (weights + biases)
    matmuls = {spot["name"]: spot for spot in report["compute"]["by_op_type"]}["MatMul"]
    assert (matmuls["op_count"], matmuls["flops"]) == (3, 2 * 8 * weights)
    assert report["model"]["inputs"][0]["declared_shape"] == [None, 64]
    assert report["model"]["inputs"][0]["bound_shape"] == [8, 64]
    assert report["unknown_shapes"] == []


def test_reports_on_a_real_model_are_the_same_every_time(test_data, capsys):
    """Two runs give the same bytes; the model is known to have 4,001 ops and 24 variables."""
    argv = ["report", str(test_data / "graphs" / "basic-pitch"), "--batch-size", "1"]
    texts = []
    for _ in range(2):
        assert main([*argv, "--format", "json"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    model = json.loads(texts[0])["model"]
    assert (model["file_op_count"], model["variable_count"]) == (4001, 24)


def test_the_report_without_a_batch_size_lists_what_is_unknown(saved_model, capsys):
    """Unknown shapes are no error for a report, only for its gate."""
    argv = ["report", str(saved_model), "--fail-on", "unknown-shape"]
    assert main(argv) == 7
    out, told = capsys.readouterr()
    assert "give --batch-size N" in out
    assert "tensors have an unknown shape" in told


@pytest.mark.parametrize(
    ("batch", "inputs", "shapes", "warnings", "told"),
    [
        (None, "ids", {}, (), "the shape of an input (ids), with shapes={'ids': (32, 64)}"),
        (None, "ids", {"ids": "?x8"}, (), ". Add batch_size=N and shapes={'ids': (None, 8)}: the"),
        (None, "", {}, (), ". Set the shape of an op just named, with"),
        (4, "ids", {}, (), ". Set the shape of an op just named, with"),
        (4, "ids", {}, (("no_inference", "ended by signal 9", ()),), "ended by signal 9"),
    ],
)
def test_what_stands_in_the_way_of_shapes_is_said(batch, inputs, shapes, warnings, told):
    """An input that is bound is not asked for again, and is not enough where more is open; a model
    without inputs has no batch; a reader that died is the reason."""
    extraction = SimpleNamespace(
        graph=SimpleNamespace(tensors={}, functions={}),
        unknown=("ids:0",),
        unknown_share=0.5,
        unknown_roots=("ids",),
        inputs=tuple(SimpleNamespace(key=key, op=key, shape=(None, 64)) for key in inputs.split()),
        open_shapes=shapes,
        bound_shape=lambda item: (batch, *item.shape[1:]),
        bindings={"batch_size": batch},
        has_fixed_batch=False,
        warnings=warnings,
    )
    with pytest.raises(ShapeError, match=re.escape(told)):
        require_known_shapes(extraction)


def test_the_plan_is_valid_and_fits(plan_path):
    """The plan fits its schema, every op has a device, and no peak is over its cap."""
    data = json.loads(plan_path.read_text())
    Draft202012Validator(load_schema("plan")).validate(data)
    assert set(data["placement"].values()) <= {"GPU:0", "GPU:1", "CPU:0"}
    for device in data["devices"]:
        assert device["peak_memory_bytes"] <= device["usable_bytes"]
    solver = data["solver"]
    assert solver["lower_bound"] is None or solver["lower_bound"] <= solver["value"]
    assert plan_path.read_text() == Plan.load(plan_path).to_json()


@pytest.mark.slow
def test_what_is_applied_is_what_runs(saved_model, plan_path, tmp_path, capsys):
    """The placed model runs as planned, and the unplaced one with the plan does too."""
    placed = tmp_path / "placed"
    assert main(["apply", str(saved_model), str(plan_path), "-o", str(placed)]) == 0
    assert (placed / "saved_model.pb").is_file()
    capsys.readouterr()
    assert main(["verify", str(placed), str(plan_path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rehearsed"] is True
    assert found["summary"]["outputs_equal"] is True
    assert found["summary"]["matched_variables"] == 6
    assert found["mismatches"] == []


@pytest.mark.slow
def test_caps_that_nothing_fits_exit_5_with_the_reason(saved_model, tmp_path, capsys):
    """Without spilling, 100 KiB a GPU is proven too little, and the plan says what would fit."""
    path = tmp_path / "plan.json"
    caps = ["--devices", "2xGPU", "--max-memory", "GPU:*=100KiB", "--offload", "never"]
    assert main(["place", str(saved_model), *BATCH, *caps, "-o", str(path)]) == 5
    assert "Why no placement fits" in capsys.readouterr().out
    plan = Plan.load(path)
    assert plan.solver.status == "INFEASIBLE"
    assert plan.conflict is not None
    assert plan.conflict.fixes
