"""``apply(drop_unused=True)``: what nothing uses goes, and every loader answers as before.

The scripts run in processes of their own, with logical CPU devices in the place of GPUs.
"""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
from extraction.reading.tower_models import save_session_model
from fuzzing.warm_children import run_python

import placer
from placer.application.placing.placed_programs import clear
from placer.errors import ModelError, UsageError
from placer.extraction.files.sources import read_source
from placer.extraction.reading.loaded_variables import restored_handles

v1 = tf.compat.v1

ANSWERS = """
import json, sys
import numpy as np, tensorflow as tf
import placer
v1 = tf.compat.v1
path, how = sys.argv[1:3]
if how == "v1":
    config = v1.ConfigProto(device_count={"CPU": 3}, allow_soft_placement=True)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        signature = v1.saved_model.load(session, ["serve"], path).signature_def["serving_default"]
        fed = {item.name: np.array([3, 1]) for item in signature.inputs.values()}
        found = {key: session.run(o.name, fed) for key, o in signature.outputs.items()}
else:
    placer.cpu_devices(2)
    policy = "save_variable_devices" if how == "policy" else None
    options = tf.saved_model.LoadOptions(experimental_variable_policy=policy)
    if how == "placed":
        model = placer.load_placed(path)
    else:
        model = tf.saved_model.load(path, options=options)
    step = model.signatures["serving_default"]
    (name, spec), = step.structured_input_signature[1].items()
    found = {key: o.numpy() for key, o in step(**{name: tf.constant([3, 1], spec.dtype)}).items()}
print(json.dumps({key: value.tobytes().hex() for key, value in found.items()}))
"""


def answers(path, how):
    """The outputs of a loaded model, to the bit."""
    done = run_python(["-c", ANSWERS, str(path), how])
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


class Twice(tf.Module):
    """Variables as Keras 3 exports them: tracked twice under two names, one of them captured."""

    def __init__(self):
        super().__init__()
        self.table = tf.Variable(tf.random.stateless_normal([90, 8], (0, 1)), name="table")
        self.w = tf.Variable(tf.random.stateless_normal([8, 4], (0, 2)), name="w")
        self.all_variables = [
            tf.Variable(v.read_value(), name="copy") for v in (self.table, self.w)
        ]
        self.slot = tf.Variable(tf.ones([90, 8]), name="slot")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def serve(self, ids):
        return {"y": tf.gather(self.table, ids) @ self.w}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def embed(self, ids):
        return {"y": tf.gather(self.table, ids)}


def dropped_beside(folder):
    """(model, the same without unused variables), placed on two GPUs."""
    plan = placer.place(folder, "2xGPU:1GiB", batch_size=2, pins={"w*": "GPU:1"}, time_limit=2)
    out = folder.parent / "dropped"
    return folder, placer.apply(folder, plan, out, drop_unused=True, rehearse=True)


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """A model of TensorFlow 2."""
    folder, module = tmp_path_factory.mktemp("twice") / "model", Twice()
    tf.saved_model.save(
        module, str(folder), {"serving_default": module.serve, "embed": module.embed}
    )
    return dropped_beside(folder)


@pytest.fixture(scope="module", params=[True, False], ids=["resource", "reference"])
def session_model(request, tmp_path_factory):
    """A model as a session of TensorFlow 1 writes it, with an average that nothing reads."""
    folder = tmp_path_factory.mktemp("session") / "model"
    save_session_model(folder, resources=request.param, rows=90, unused="average")
    return dropped_beside(folder)


def stored(folder):
    """The names of the tensors in a checkpoint, without what ends them."""
    names = [name for name, _ in tf.train.list_variables(str(folder / "variables" / "variables"))]
    return sorted(n.partition("/.ATTRIBUTES")[0] for n in names if not n.startswith("_CHECK"))


def test_every_loader_answers_to_the_bit(twice):
    """TensorFlow 2's with and without its policy, that of sessions, and placer's."""
    model, dropped = twice
    expected = answers(model, "plain")
    loaders = ("plain", "policy", "v1", "placed")
    assert {how: answers(dropped, how) for how in loaders} == dict.fromkeys(loaders, expected)


def test_what_nothing_uses_is_in_no_place_that_loaders_read(twice):
    """Checkpoint, restore op and objects have the two variables in use, each once."""
    model, dropped = twice
    assert len(stored(model)) == 5
    assert stored(dropped) == ["table", "w"]
    meta_graph = read_source(dropped).meta_graphs[0]
    assert len(dict(restored_handles(meta_graph))) == 2
    report = placer.report(dropped, batch_size=2)
    assert (report.loading.variable_count, report.loading.used_count) == (2, 2)
    assert placer.report(model, batch_size=2).loading.variable_count == 5


def test_what_goes_is_in_no_warning(twice, tmp_path, caplog):
    """Of loaders that leave the plan: 2,880 bytes for each of two tables, 128 for two weights."""
    plan = placer.place(twice[0], "2xGPU:1GiB", batch_size=2, pins={"w*": "GPU:1"}, time_limit=2)
    (told,) = [row.message for row in plan.warnings if "plain tf.saved_model.load" in row.message]
    placer.apply(twice[0], plan, tmp_path / "whole")
    assert told in caplog.text
    caplog.clear()
    placer.apply(twice[0], plan, tmp_path / "dropped", drop_unused=True)
    assert "tf.saved_model.load puts 2.94 KiB of variables on GPU:0" in caplog.text
    assert told not in caplog.text


def test_checkpoints_of_the_original_are_told_apart(twice):
    """They have values for which the model without them has no place."""
    model, dropped = twice
    loaded = tf.train.Checkpoint(placer.load_placed(dropped))
    loaded.read(str(dropped / "variables" / "variables")).assert_consumed()
    with pytest.raises(AssertionError):
        loaded.read(str(model / "variables" / "variables")).assert_consumed()


def test_models_of_sessions_lose_them_too(session_model):
    """From the saver, its checkpoint, and the collections that list variables."""
    model, dropped = session_model
    assert stored(model) == ["average", "table", "w"]
    assert stored(dropped) == ["table", "w"]
    expected = answers(model, "v1")
    assert answers(dropped, "v1") == answers(dropped, "placed") == expected
    collections = read_source(dropped).meta_graphs[0].collection_def
    assert len(collections["variables"].bytes_list.value) == 2


def test_where_nothing_fits_with_them_they_are_dropped_without_a_plan(twice, tmp_path):
    """A host with room for nothing else: the reason says how, and what that writes has a plan."""
    devices = "1xGPU:1MiB,CPU:4KiB"
    plan = placer.place(twice[0], devices, batch_size=2, time_limit=4)
    (fix, *_) = plan.conflict.fixes
    assert fix.kind == "unused"
    assert "--clear --drop-unused" in fix.change
    clear(twice[0], tmp_path / "smaller", drop_unused=True)
    assert stored(tmp_path / "smaller") == stored(twice[1])
    assert placer.place(tmp_path / "smaller", devices, batch_size=2, time_limit=4).fits


def test_other_programs_hold_no_variables(twice, tmp_path):
    """The option is for SavedModels."""
    with tf.Graph().as_default() as graph:
        tf.identity(v1.placeholder(tf.float32, [4], "x"), "y")
    plan = placer.place(graph, "1xGPU:1GiB", time_limit=2)
    with pytest.raises(UsageError, match="drop_unused=True"):
        placer.apply(graph, plan, drop_unused=True)


def test_a_damaged_checkpoint_is_neither_applied_nor_run(twice, tmp_path):
    """It is named, and nothing is written."""
    import shutil

    shutil.copytree(twice[0], tmp_path / "model")
    (data,) = (tmp_path / "model" / "variables").glob("*.data*")
    data.write_bytes(data.read_bytes()[:-100])
    plan = placer.place(tmp_path / "model", "2xGPU:1GiB", batch_size=2, time_limit=2)
    assert "damaged_checkpoint" in {row.code for row in plan.warnings}
    with pytest.raises(ModelError, match="its index says"):
        placer.apply(tmp_path / "model", plan, tmp_path / "placed")
    assert not (tmp_path / "placed").exists()
    with pytest.raises(ModelError, match="its index says"):
        placer.verify(tmp_path / "model", plan)
