"""Placed SavedModels in fresh processes, by both loaders, cleared, placed again, re-placed."""

import json

import numpy as np
import pytest
import tensorflow as tf
from fuzzing.warm_children import run_python

import placer
from placer.application.placing.placed_programs import clear

PINS = {f"*layer_{n}/*": f"GPU:{n}" for n in range(3)}

SERVE_V1 = """
import json, sys
import numpy as np, tensorflow as tf
v1 = tf.compat.v1
x = np.linspace(0, 1, 4 * 64, dtype=np.float32).reshape(4, 64)
config = v1.ConfigProto(device_count={"CPU": 4})
with tf.Graph().as_default(), v1.Session(config=config) as session:
    meta = v1.saved_model.load(session, ["serve"], sys.argv[1])
    signature = meta.signature_def["serving_default"]
    metadata = v1.RunMetadata()
    options = v1.RunOptions(output_partition_graphs=True, trace_level=v1.RunOptions.FULL_TRACE)
    feeds = {signature.inputs["x"].name: x}
    y = session.run(signature.outputs["y"].name, feeds, options, metadata)
handles = {n.attr["shared_name"].s.decode(): n.device[-5:]
           for g in metadata.partition_graphs for n in g.node if n.op == "VarHandleOp"}
sends = [(n.input[0], n.attr["send_device"].s.decode()[-5:], n.attr["recv_device"].s.decode()[-5:])
         for g in metadata.partition_graphs for n in g.node if n.op in ("_Send", "_HostSend")]
kernels = {d.device[-5:] for d in metadata.step_stats.dev_stats
           for n in d.node_stats if "MatMul" in n.timeline_label}
print(json.dumps({"y": y.tolist(), "devices": handles, "kernels": sorted(kernels),
                  "sends": [send for send in sends if "/ctrl/" not in send[0]]}))
"""

SERVE_V2 = """
import json, sys
import numpy as np, tensorflow as tf
import placer
placer.cpu_devices(3)
tf.config.set_soft_device_placement(sys.argv[2:] != ["strict"])
x = np.linspace(0, 1, 4 * 64, dtype=np.float32).reshape(4, 64)
model = placer.load_placed(sys.argv[1])
function = model.signatures["serving_default"]
y = function(x=tf.constant(x))["y"].numpy()
devices = {v.name[:-2]: v.device[-5:] for v in function.variables}
print(json.dumps({"y": y.tolist(), "devices": devices}))
"""


def fresh_process(code, *arguments):
    """What the code prints in a process of its own, as JSON."""
    done = run_python(["-c", code, *arguments])
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def plan(saved_model):
    """One layer on each of three GPUs."""
    return placer.place(saved_model, "3xGPU:1GiB", batch_size=4, pins=PINS, time_limit=2)


@pytest.fixture(scope="module")
def expected(saved_model):
    """What the unplaced model answers."""
    x = np.linspace(0, 1, 4 * 64, dtype=np.float32).reshape(4, 64)
    model = tf.saved_model.load(str(saved_model))
    return model.signatures["serving_default"](x=tf.constant(x))["y"].numpy()


def on_stand_ins(plan):
    """The logical CPU of every variable in a rehearsal: GPU:0 is CPU:1, and so on."""
    stand_ins = {"CPU:0": "CPU:0", **{f"GPU:{n}": f"CPU:{n + 1}" for n in range(3)}}
    return {name: stand_ins[device] for name, device in plan.variables.items()}


def predicted_sends(plan):
    """(op, from, to) of the plan's data, feed and fetch transfers, as a session names them."""
    stand_ins = {"CPU:0": "CPU:0", **{f"GPU:{n}": f"CPU:{n + 1}" for n in range(3)}}
    argument = "Func/StatefulPartitionedCall/input/_1"  # a feed enters the inlined function there
    return sorted(
        (
            argument if row.kind == "feed" else result(row.tensor.removesuffix(":0")),
            stand_ins[row.source],
            stand_ins[row.target],
        )
        for row in plan.transfers
        if row.kind != "control"
    )


def result(name):
    """The name of an op, that of the result for all that hand it on: of a chain of Identity behind
    the last layer Grappler keeps any one, or none."""
    return "Identity" if name.endswith(("/Identity", "layer_2/Relu")) else name


def test_a_session_serves_it_with_variables_on_their_devices(saved_model, plan, expected, tmp_path):
    """A fresh process with the loader of servers: handles and kernels are on three devices."""
    placed = placer.apply(saved_model, plan, tmp_path / "placed", rehearse=True)
    found = fresh_process(SERVE_V1, placed)
    assert np.array_equal(np.float32(found["y"]), expected)
    assert found["devices"] == on_stand_ins(plan)
    assert found["kernels"] == ["CPU:1", "CPU:2", "CPU:3"]
    sends = [(result(name), source, target) for name, source, target in found["sends"]]
    assert sorted(sends) == predicted_sends(plan)


def test_tensorflow_2_serves_it_with_variables_on_their_devices(
    saved_model, plan, expected, tmp_path
):
    """A fresh process with load_placed: the absent GPUs are stood in for."""
    placed = placer.apply(saved_model, plan, tmp_path / "placed")
    found = fresh_process(SERVE_V2, placed)
    assert np.array_equal(np.float32(found["y"]), expected)
    assert found["devices"] == on_stand_ins(plan)
    result = placer.verify(placed, plan).raise_for_mismatch()
    assert not result.applied
    assert {row.code for row in result.transfers} <= {"", "returned"}


def test_it_runs_as_planned_where_tensorflow_may_move_no_op(saved_model, plan, tmp_path):
    """Soft placement off, in which TensorFlow ignores the devices of a file that it loads."""
    placed = placer.apply(saved_model, plan, tmp_path / "placed")
    assert not placer.verify(placed, plan, strict=True).mismatches
    assert fresh_process(SERVE_V2, placed, "strict")["devices"] == on_stand_ins(plan)


def test_a_plan_is_cleared_and_applied_again(saved_model, plan, tmp_path):
    """Without its devices a placed model is the program it was, and takes the plan again."""
    placed = placer.apply(saved_model, plan, tmp_path / "placed")
    cleared = clear(placed, tmp_path / "cleared")
    assert device_names(cleared) == set()
    assert placer.extract(cleared).model["fingerprint"] == plan.model["fingerprint"]
    again = placer.apply(cleared, plan, tmp_path / "again")
    assert device_names(again) == device_names(placed) != set()
    placer.verify(again, plan).raise_for_mismatch()


def test_a_model_placed_for_more_devices_than_there_are_is_placed_anew(
    saved_model, plan, expected, tmp_path
):
    """From three GPUs to one and the host: the old devices give way to the new plan."""
    placed = placer.apply(saved_model, plan, tmp_path / "placed")
    options = {"batch_size": 4, "clear_devices": True, "offload": "never", "time_limit": 2}
    smaller = placer.place(placed, "1xGPU:1GiB", **options)
    replaced = placer.apply(placed, smaller, tmp_path / "replaced")
    assert device_names(replaced) == {"GPU:0", "CPU:0"}
    placer.verify(replaced, smaller).raise_for_mismatch()
    found = fresh_process(SERVE_V2, replaced)
    assert np.array_equal(np.float32(found["y"]), expected)
    assert set(found["devices"].values()) == {"CPU:1"}


def device_names(path):
    """The devices that a SavedModel names, in functions, handles and objects."""
    from placer.application.running.serving import devices_in
    from placer.extraction.files.sources import read_source

    saved_model = read_source(path)
    objects = saved_model.meta_graphs[0].object_graph_def.nodes
    named = {node.variable.device for node in objects if node.variable.device}
    return devices_in(saved_model) | {name.rpartition("device:")[2] for name in named}
