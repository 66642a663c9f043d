"""Plans in and out of JSON, and what is said about files that are no plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator
from plans_by_hand import infeasible_plan, small_plan

from placer.errors import UsageError
from placer.plan.plan import Plan
from placer.plan.schemas import load_schema


@pytest.mark.parametrize("plan", [small_plan(), infeasible_plan()], ids=["placed", "infeasible"])
def test_a_plan_survives_its_json(plan):
    """A plan that is written and read again is equal to itself, and so is its text."""
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()


@pytest.mark.parametrize("plan", [small_plan(), infeasible_plan()], ids=["placed", "infeasible"])
def test_plans_fit_the_schema(plan):
    """What is written is valid under the shipped JSON Schema, which is itself a valid schema."""
    Draft202012Validator.check_schema(load_schema("plan"))
    Draft202012Validator(load_schema("plan")).validate(json.loads(plan.to_json()))


def test_keys_are_sorted_whatever_the_order_of_the_placement():
    """Two plans that differ only in the order of their tables have the same text."""
    backwards = small_plan(placement=dict(reversed(small_plan().placement.items())))
    assert backwards.to_json() == small_plan().to_json()


def test_save_does_not_overwrite_and_load_reads_back(tmp_path):
    """An existing plan is replaced only with force, and nothing else is left in the folder."""
    path = tmp_path / "plan.json"
    small_plan().save(path)
    with pytest.raises(UsageError, match=r"plan\.json exists already.*force=True"):
        infeasible_plan().save(path)
    assert Plan.load(path) == small_plan()
    infeasible_plan().save(path, force=True)
    assert Plan.load(path) == infeasible_plan()
    assert [found.name for found in tmp_path.iterdir()] == ["plan.json"]


def _changed(**changes):
    return json.dumps({**json.loads(small_plan().to_json()), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "placer.plan/1",\n "model": }', "broken JSON at line 2, column 11"),
        ("[]", 'it has no "schema": "placer.plan/1"'),
        ('{"nodes": []}', 'it has no "schema": "placer.plan/1"'),
        ('{"schema": "placer.problem/1"}', "is a placer.problem/1 document"),
        (
            '{"schema": "placer.plan/2", "tool_version": "3.4"}',
            "has schema placer.plan/2, written by placer 3.4; this placer reads placer.plan/1",
        ),
        (_changed(placement={"a": "gpu0"}), "does not fit the schema placer.plan/1 at placement/a"),
        (_changed(solver={"status": "OPTIMAL"}), "at solver: 'objective' is a required property"),
        (_changed(extra=1), "'extra' was unexpected"),
    ],
)
def test_what_is_no_plan_is_refused_with_the_reason(text, message):
    """Broken, foreign, newer and misshapen documents are told apart, with the place."""
    with pytest.raises(UsageError) as error:
        Plan.from_json(text, source="plan.json")
    assert str(error.value).startswith("plan.json ")
    assert message in str(error.value)


def test_a_missing_file_is_a_usage_error(tmp_path):
    """A plan that is not there is named in the message."""
    with pytest.raises(UsageError, match=r"cannot read the plan .*absent\.json"):
        Plan.load(tmp_path / "absent.json")


def test_the_device_function_gives_full_names():
    """Known ops get TensorFlow's full name of the device that stands for theirs, unknown ones stay
    free; a process without TensorFlow has none to stand in."""
    command = """
from types import SimpleNamespace
from plans_by_hand import small_plan
function = small_plan().device_function
print(function(SimpleNamespace(name="a")), repr(function(SimpleNamespace(name="elsewhere"))))
"""
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["tests", "."])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "/job:localhost/replica:0/task:0/device:GPU:0 ''\n"


def test_tensorflow_places_ops_by_the_device_function(caplog):
    """Where the plan's GPUs are absent its ops ask for the CPU devices of a rehearsal, with a
    warning, and run there under the plan's session configuration; they used to run on CPU:0."""
    import tensorflow as tf

    from placer.application.devices.device_mapping import process_mapping
    from placer.application.devices.runtime_settings import session_config

    v1, plan = tf.compat.v1, small_plan()
    mapping = process_mapping(plan.placement.values())
    with tf.Graph().as_default() as graph, v1.device(plan.device_function):
        fed = v1.placeholder(tf.float32, [1], name="fed")
        placed = tf.add(fed, fed, name="a")
        free = tf.constant(1.0, name="free")
    assert placed.device == mapping.stand_in("GPU:0")
    assert free.device == ""
    if not mapping.rehearsed:
        return
    (record,) = caplog.records
    assert record.getMessage().startswith("GPU:0 and GPU:1 are absent")
    assert "(GPU:0 on CPU:1, GPU:1 on CPU:2)" in record.getMessage()
    metadata, options = v1.RunMetadata(), v1.RunOptions(output_partition_graphs=True)
    with v1.Session(graph=graph, config=session_config(plan)) as session:
        session.run(placed, {fed: [1.0]}, options=options, run_metadata=metadata)
    devices = {node.name: node.device for part in metadata.partition_graphs for node in part.node}
    assert devices["a"].endswith("CPU:1")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"control_edges": (("a", "b"),)}, "1 control edges"),
        ({"model": {"division": {"parts": 4}}}, "4 parts of the batch"),
    ],
)
def test_a_device_function_is_refused_where_a_plan_says_more_than_devices(changes, told):
    """Order and copies cannot come from a function of one op; the message names what can."""
    with pytest.raises(UsageError, match=rf"the plan has {told}.*placer\.apply"):
        small_plan(**changes).device_function  # noqa: B018


def test_a_device_function_needs_a_placement():
    """A plan for which nothing was found used to be said to be of another program."""
    with pytest.raises(UsageError, match=r"the plan has no placement \(OPTIMAL\)"):
        small_plan(placement={}).device_function  # noqa: B018


def test_a_plan_finds_its_model_from_any_folder(tmp_path, monkeypatch):
    """Paths are kept relative to the plan: it is read in another folder, and moved with its model;
    what is absolute or remote stays."""
    project = tmp_path / "project"
    (project / "models" / "small").mkdir(parents=True)
    (project / "plans").mkdir()
    monkeypatch.chdir(project)
    request = {"devices": "models/cluster.toml", "costs": "costs.json"}
    plan = small_plan(request=request)
    plan.save("plans/plan.json")
    assert Plan.load("plans/plan.json") == plan
    written = json.loads((project / "plans" / "plan.json").read_text())
    assert written["model"]["path"] == "../models/small"
    monkeypatch.chdir(tmp_path)
    found = Plan.load("project/plans/plan.json")
    assert found.model["path"] == "project/models/small"
    assert found.request == {
        "devices": "project/models/cluster.toml",
        "costs": "project/costs.json",
    }
    project.rename(tmp_path / "moved")
    assert Plan.load("moved/plans/plan.json").model["path"] == "moved/models/small"
    for path in ("/data/small", "gs://bucket/small"):
        kept = small_plan(model={**plan.model, "path": path})
        kept.save("kept.json", force=True)
        assert Plan.load("kept.json").model["path"] == path


def test_an_older_plan_finds_its_model_from_where_it_was_made(tmp_path, monkeypatch):
    """Its path was relative to the current folder."""
    (tmp_path / "models" / "small").mkdir(parents=True)
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "plan.json").write_text(small_plan().to_json())
    monkeypatch.chdir(tmp_path)
    assert Plan.load("plans/plan.json").model["path"] == "models/small"


def test_an_edited_plan_with_another_device_is_refused():
    """What was found and what there is."""
    content = json.loads(small_plan().to_json())
    content["placement"]["b"] = "GPU:7"
    with pytest.raises(
        UsageError, match="my plan places op 'b' on GPU:7; its devices are GPU:0, GPU:1, CPU:0"
    ):
        Plan.from_json(json.dumps(content), source="my plan")


def test_a_plan_of_other_ops_is_refused_with_near_names():
    """An op too many, a name that was changed, an op too few."""
    plan = small_plan(placement={"x": "CPU:0", "dense/MatMull": "GPU:0"})
    plan.check_ops(["x", "dense/MatMull"])
    with pytest.raises(
        UsageError, match=r"1 of the plan's 2 ops is not in the model: 'dense/MatMull'; did"
    ):
        plan.check_ops(["x", "dense/MatMul"])
    with pytest.raises(UsageError, match=r"2 of the plan's 2 ops are not in the model, the first"):
        plan.check_ops(["y"])
    with pytest.raises(UsageError, match=r"lacks 1 of the 3 ops .*, such as y;"):
        plan.check_ops(["x", "y", "dense/MatMull"])
