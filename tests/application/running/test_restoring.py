"""Placed SavedModels: what each loader puts where, and how much the host holds meanwhile.

Every script runs in a process of its own with logical CPU devices: CPU:1 stands in for the one GPU
in use.
"""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
from extraction.reading.tower_models import Towers, save_session_model, save_towers
from fuzzing.warm_children import run_python
from tensorflow.core.protobuf import saved_model_pb2

import placer
from placer.__main__ import main

v1 = tf.compat.v1

LOADS = """
import gc, json, sys
import numpy as np, tensorflow as tf
import placer
from placer.__main__ import main
placer.cpu_devices(2)
path, how = sys.argv[1:3]
told = []
if how == "load_placed":
    model = placer.load_placed(path, progress=lambda *now: told.append(now))
else:
    with tf.device(how):
        model = tf.saved_model.load(path)
found = {}
gc.collect()
for thing in gc.get_objects():
    if isinstance(thing, tf.Variable) and tf.is_tensor(getattr(thing, "_handle", None)):
        if not hasattr(thing.handle, "numpy"):
            continue  # of a graph
        found[thing.name.split(":")[0] + f"/{id(thing)}"] = thing.device[-5:]
answers = {}
for name, step in model.signatures.items():
    specs = step.structured_input_signature[1].items()
    given = {key: tf.zeros([3], spec.dtype) for key, spec in specs}
    if name != "train":
        answers[name] = [value.numpy().tolist() for value in step(**given).values()]
print(json.dumps({"devices": found, "answers": answers, "told": told}))
"""

LOADS_UNTAGGED = """
import json, sys
import tensorflow as tf
import placer
v1 = tf.compat.v1
placer.cpu_devices(2)
model = placer.load_placed(sys.argv[1])
y = model.signatures["default"](x=tf.ones([2, 3]))["y"].numpy().tolist()
soft = v1.ConfigProto(allow_soft_placement=True)
with tf.Graph().as_default() as graph, v1.Session(config=soft) as session:
    v1.saved_model.load(session, [], sys.argv[1])
    found = {name: graph.get_operation_by_name(name).device[-5:] for name in ("w", "aux")}
    (output,) = [op for op in graph.get_operations() if op.type == "MatMul"]
    expected = session.run(output.outputs[0], {"x:0": [[1.0] * 3] * 2}).tolist()
print(json.dumps({"v1": found, "y": y, "expected": expected}))
"""

HELD = """
import json, os, sys
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
import tensorflow as tf
import placer
from placer.__main__ import main
placer.cpu_devices(2)
tf.constant(1.0) + 1.0
before = tf.config.experimental.get_memory_info("CPU:0")["current"]
tf.config.experimental.reset_memory_stats("CPU:0")
model = placer.load_placed(sys.argv[1])
after = tf.config.experimental.get_memory_info("CPU:0")
print(json.dumps({"peak": after["peak"] - before, "stays": after["current"] - before}))
"""


def run(code, *words):
    """What a script prints last, as JSON."""
    done = run_python(["-c", code, *map(str, words)])
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


class SeenTowers(Towers):
    """With a table of TensorFlow's beside the variables."""

    def __init__(self):
        super().__init__("again")
        self.seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
        self.seen.insert(tf.constant([7], tf.int64), tf.constant([70], tf.int64))

    def rows(self, ids):
        seven = self.seen.lookup(7 + 0 * tf.cast(ids, tf.int64))
        return super().rows(ids) + tf.cast(seven, tf.float32)[:, None]


def placed_beside(folder, **asked):
    """(model, plan, where it was applied) for two GPUs."""
    plan = placer.place(folder, "2xGPU:1GiB", batch_size=3, time_limit=2, **asked)
    return folder, plan, placer.apply(folder, plan, folder.parent / "placed")


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """A model of TensorFlow 2 with its table on GPU:1."""
    folder = save_towers(tmp_path_factory.mktemp("towers") / "model", SeenTowers())
    return placed_beside(folder, pins={"*Gather*": "GPU:1"})


@pytest.fixture(scope="module", params=[True, False], ids=["resource", "reference"])
def session_model(request, tmp_path_factory):
    """A model as a session of TensorFlow 1 writes it, its table on the host, w on GPU:1."""
    folder = tmp_path_factory.mktemp("session") / "model"
    save_session_model(folder, resources=request.param, unused="rest")
    return placed_beside(folder, pins={"table*": "CPU:0", "w*": "GPU:1"})


def by_name(devices):
    """Devices without what makes names unique."""
    return {name.partition("/")[0]: device for name, device in devices.items()}


def test_the_plan_says_where_each_loader_puts_what(towers):
    """The slot goes with its variable; the copy and the other tower are on the host; TensorFlow's
    own loader has all of it on GPU:0."""
    _, plan, _ = towers
    user, item = 50 * 8 * 4, 90 * 8 * 4
    assert plan.variables["user"] == "GPU:1"
    assert plan.loading.unused == {"again": "CPU:0", "item": "CPU:0", "slot": "GPU:1"}
    assert plan.loading.devices["load_placed"] == {"CPU:0": user + item, "GPU:1": 2 * user}
    assert plan.loading.devices["v1"] == plan.loading.devices["load_placed"]
    assert plan.loading.devices["tf.saved_model.load"] == {"GPU:0": 3 * user + item}
    resident = {row.name: row.resident_bytes for row in plan.devices}
    assert resident["GPU:1"] == 2 * user
    assert resident["CPU:0"] >= user + item
    codes = {row.code: row.message for row in plan.warnings}
    assert "plain tf.saved_model.load puts" in codes["loader_ignores_plan"]
    assert "sends up to 2.81 KiB to GPU:0" in codes["signature_reads_host"]


def test_every_variable_is_loaded_to_its_planned_device(towers):
    """Used or not, one at a time; what other objects keep is restored too."""
    model, _, placed = towers
    plain, found = run(LOADS, model, "CPU:2"), run(LOADS, placed, "load_placed")
    assert found["answers"] == plain["answers"]
    assert found["answers"]["serving_default"][0][0][0] > 60  # 70 and a normal deviate
    devices = by_name(found["devices"])
    assert devices == {"user": "CPU:1", "slot": "CPU:1", "again": "CPU:0", "item": "CPU:0"}
    assert set(by_name(plain["devices"]).values()) == {"CPU:2"}
    keys = [key.partition("/")[0] for _, _, key in found["told"]]
    assert sorted(keys[:4]) == ["again", "item", "slot", "user"]
    done, total, last = found["told"][-1]
    assert (done, last) == (total, "")


def test_models_of_sessions_are_loaded_as_planned(session_model):
    """TensorFlow 2 lifts the variables of such a graph onto the default device, placer does not;
    reference variables stay in the graph, on the devices of their nodes."""
    model, plan, placed = session_model
    plain, found = run(LOADS, model, "CPU:0"), run(LOADS, placed, "load_placed")
    assert found["answers"] == plain["answers"]
    if found["devices"]:
        planned = {"table": "CPU:0", "w": "CPU:1", "rest": "CPU:0"}
        assert by_name(found["devices"]) == planned
    assert sorted(key for _, _, key in found["told"]) == ["", "rest", "table", "w"]
    assert plan.loading.unused == {"rest": "CPU:0"}


def test_the_host_holds_one_variable_at_a_time(tmp_path):
    """Eight variables of 8 MiB on two GPUs, which logical CPU devices of the same host stand in
    for: TensorFlow's loader holds all of them once more."""
    mib = 2**20

    class Wide(tf.Module):
        def __init__(self):
            super().__init__()
            self.parts = [tf.Variable(tf.ones([2 * mib])) for _ in range(8)]

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
        def serve(self, x):
            return {"y": x + tf.add_n([part[0] for part in self.parts])}

    module = Wide()
    tf.saved_model.save(module, str(tmp_path / "model"), {"serving_default": module.serve})
    plan = placer.place(tmp_path / "model", "2xGPU:1GiB", offload="never", time_limit=2)
    placed = placer.apply(tmp_path / "model", plan, tmp_path / "placed")
    assert plan.loading.host_at_once_bytes == 64 * mib
    assert plan.loading.host_one_by_one_bytes == 8 * mib
    one_by_one = run(HELD, placed)
    assert one_by_one["peak"] <= one_by_one["stays"] + 8 * mib + mib


def test_a_damaged_checkpoint_is_refused_before_anything_is_loaded(towers, tmp_path):
    """It is named as the report names it."""
    import shutil

    shutil.copytree(towers[2], tmp_path / "model")
    (data,) = (tmp_path / "model" / "variables").glob("*.data*")
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(placer.errors.ModelError, match="its index says"):
        placer.load_placed(tmp_path / "model")


def test_tags_that_the_model_lacks_are_refused(towers):
    """With those that it has."""
    with pytest.raises(placer.errors.UsageError, match=r"tags must be \['serve'\].*got \['x'\]"):
        placer.load_placed(towers[2], tags=["x"])
    assert placer.load_placed(towers[2], tags=["serve"]).signatures


def test_the_gate_of_a_report_is_about_the_placement_that_it_shows(towers):
    """The plan for one GPU keeps 5 KiB, since what nothing uses is on the host, though the model as
    it is takes 7.5 KiB there: report and place pass the same gate."""
    asked = [str(towers[0]), "--batch-size", "3", "--devices", "1xGPU:1GiB"]
    for command in ("report", "place"):
        assert main([command, *asked, "--fail-above", "GPU:0=5KiB"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_a_module_without_tags_is_placed_and_loaded(resource, tmp_path, capsys):
    """TensorFlow 1's Hub format has one MetaGraph, of no tags: every command takes it."""
    folder = tmp_path / "model"
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], "x")
        w = v1.get_variable("w", [3, 4], use_resource=resource)
        v1.get_variable("aux", [90, 8], use_resource=resource)
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": tf.matmul(x, w)})
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, [], {"default": signature})
        builder.save()
    _, plan, placed = placed_beside(folder, pins={"w*": "GPU:1"})
    plan.save(tmp_path / "plan.json")
    assert main(["verify", str(placed), str(tmp_path / "plan.json"), "--tag-set", ""]) == 0
    assert "as planned" in capsys.readouterr().out
    found = run(LOADS_UNTAGGED, placed)
    assert found["v1"] == {"w": "GPU:1", "aux": "CPU:0"}
    assert found["y"] == found["expected"]


class Vocabulary(tf.Module):
    """Strings become numbers, as a StringLookup of Keras does it."""

    def __init__(self):
        super().__init__()
        words, ids = tf.constant(["a", "b"]), tf.constant([3, 4], tf.int64)
        fill = tf.lookup.KeyValueTensorInitializer(words, ids)
        self.table = tf.lookup.StaticHashTable(fill, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def look_up(self, word):
        return {"y": self.table.lookup(word)}


IDS = """
import gc, json, sys
import tensorflow as tf
import placer
placer.cpu_devices(2)
model = placer.load_placed(sys.argv[1])
held = [x for x in gc.get_objects() if isinstance(x, tf.Tensor) and x.dtype == tf.int64]
found = [x.device[-5:] for x in held if hasattr(x, "numpy") and x.numpy().tolist() == [3, 4]]
y = model.signatures["serving_default"](word=tf.constant(["b", "c"]))["y"]
print(json.dumps([found, y.numpy().tolist()]))
"""


def test_ids_of_a_lookup_table_stay_on_the_host(tmp_path):
    """Its initializer alone reads them; TensorFlow would keep them on the first GPU.  They are
    loaded to the device that the file names, here made another one."""
    module = Vocabulary()
    tf.saved_model.save(module, tmp_path / "model", signatures=module.look_up)
    _, _, placed = placed_beside(tmp_path / "model")
    file = placed / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    constants = [
        node
        for node in saved.meta_graphs[0].graph_def.node
        if node.op == "Const" and list(node.attr["value"].tensor.tensor_shape.dim)
    ]
    ids = next(node for node in constants if node.attr["dtype"].type == tf.int64.as_datatype_enum)
    assert ids.device.endswith("device:CPU:0")
    ids.device = ids.device.replace("CPU:0", "CPU:1")
    file.unlink()  # a link may join it to the model
    file.write_bytes(saved.SerializeToString())
    assert run(IDS, placed) == [["CPU:1"], [4, -1]]
