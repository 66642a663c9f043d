"""Models are read by a child process that may be slow, fat or dead without harm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from layered_graphs import layered_graph

from cost_models.clusters import parse_cluster
from placer.errors import ModelError, ShapeError, UsageError
from placer.extraction import extract
from placer.extraction.analysis import analyse_program
from placer.extraction.process import child_process
from placer.extraction.process.child_process import memory_limit
from placer.extraction.reading.loading import load_program
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.prediction import predict
from placer.problem.constraints import ConstraintOptions, find_constraints

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def heavy_model(tmp_path_factory):
    """A SavedModel of five matrices of 4 GB each, on paper."""
    tf = pytest.importorskip("tensorflow")
    from tensorflow.core.protobuf import saved_model_pb2

    rows, columns = 32_768, 32_768
    with tf.Graph().as_default() as graph:
        x = y = tf.compat.v1.placeholder(tf.float32, [None, rows], name="x")
        for number in range(5):
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.float32, shape=[rows, columns], shared_name=f"w{number}"
            )
            y = tf.matmul(y, tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.CopyFrom(graph.as_graph_def())
    signature = meta.signature_def["serving_default"]
    for info, tensor in ((signature.inputs["x"], x), (signature.outputs["y"], y)):
        info.name, info.dtype = tensor.name, tensor.dtype.as_datatype_enum
        info.tensor_shape.CopyFrom(tensor.shape.as_proto())
    folder = tmp_path_factory.mktemp("heavy")
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return folder


def test_twenty_gigabytes_on_paper_stay_on_paper(heavy_model):
    """Variables of 20 GB are analysed in 1.5 GB, by a process that imports no TensorFlow.

    The script bears a name of the standard library, which must not reach the child.
    """
    script = heavy_model.parent / "grp.py"
    script.write_text(
        "import resource, sys, threading\n"
        "from placer.extraction import extract\n"
        f"found = extract({str(heavy_model)!r}, batch_size=8)\n"
        "print(sum(4 * v.shape[0] * v.shape[1] for v in found.graph.variables))\n"
        "print(found.unknown, found.graph.ops['MatMul_4'].info.outputs[0].shape)\n"
        "print('tensorflow' in sys.modules)\n"
        "others = set(threading.enumerate()) - {threading.main_thread()}\n"
        "[thread.join() for thread in others]  # one waits for the reading process\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    variable_bytes, shapes, imported, child_bytes = done.stdout.splitlines()
    assert int(variable_bytes) == 5 * 4 * 32_768**2 > 20e9
    assert shapes == "() (8, 32768)"
    assert imported == "False"
    assert 2**27 < int(child_bytes) < 1.5e9


def test_bindings_that_do_not_fit_are_refused(heavy_model):
    """A shape that contradicts the declared one, or an unknown name, is told in numbers."""
    from placer.extraction.analysis import analyse_program
    from placer.extraction.reading.loading import load_program

    program = load_program(heavy_model)
    with pytest.raises(
        UsageError, match=r"\[8,7\] does not fit 'x', which is declared as \[\?,32768\]"
    ):
        analyse_program(program, {}, shapes={"x": (8, 7)})
    with pytest.raises(UsageError, match=r"there is no input or op .* \(inputs: x\[\?,32768\]\)"):
        analyse_program(program, {}, shapes={"image": (8, 7)})
    with pytest.raises(ShapeError, match="do not fit the model"):
        analyse_program(program, {}, batch_size=8, shapes={"MatMul": (8, 7)})


def test_a_branch_that_cannot_run_with_the_bound_shapes_does_not_refuse_them():
    """Tagging one word is another branch of a v1 conditional than tagging eight: both are kept."""
    tf = pytest.importorskip("tensorflow")
    from placer.extraction.analysis import analyse_program
    from placer.extraction.reading.loading import load_program

    v1 = tf.compat.v1
    before = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None, None], name="x")
            one = tf.equal(tf.shape(x)[1], 1)
            y = v1.cond(one, lambda: tf.squeeze(x, [1]), lambda: tf.reduce_sum(x, 1))
            tf.identity(y, name="y")
    finally:
        if before:
            v1.enable_control_flow_v2()
    found = analyse_program(load_program(graph), {}, shapes={"x": (4, 8)})
    assert [code for code, *_ in found.warnings] == ["refused_op"]
    with tf.Graph().as_default() as graph:
        tf.squeeze(v1.placeholder(tf.float32, [None, None], name="x"), [1], name="y")
    with pytest.raises(ShapeError, match="do not fit the model"):
        analyse_program(load_program(graph), {}, shapes={"x": (4, 8)})


def test_a_slow_child_is_ended(heavy_model, monkeypatch):
    """Reading stops at the time limit, with the limit in the message."""
    monkeypatch.setattr(child_process, "_ahead", [])  # one that was started before is fast
    with pytest.raises(ModelError, match=r"more than 0.2 seconds"):
        extract(heavy_model, time_limit_seconds=0.2)


def test_a_child_that_dies_while_inferring_is_asked_again(heavy_model, monkeypatch, tmp_path):
    """If only shape inference kills the child, the shapes stated in the file are used."""
    (tmp_path / "failing_tasks.py").write_text(
        "import os\n"
        "from placer.extraction import analysis\n"
        "from placer.extraction.process import reading_tasks\n"
        "def extract_program(request, tell):\n"
        "    if request.infer:\n"
        "        analysis._find_shapes = lambda *arguments: os.abort()\n"
        "    return reading_tasks.extract_program(request, tell)\n"
    )
    monkeypatch.setattr(child_process, "TASKS", "failing_tasks")
    monkeypatch.setitem(child_process.ENVIRONMENT, "PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(child_process, "_ahead", [])
    extraction = extract(heavy_model, batch_size=8)
    assert extraction.graph.ops["x"].info.outputs[0].shape == (8, 32_768)
    assert "MatMul:0" in extraction.unknown
    told = {code: message for code, message, _ in extraction.warnings}
    assert set(told) == {"no_inference", "no_weights"}  # the file is one without variables
    assert "signal 6" in told["no_inference"]


def test_a_loop_is_reported_without_inference():
    """A loop whose body was not analysed is unmodelled, and its step is predicted all the same."""
    tf = pytest.importorskip("tensorflow")

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def run(x):
        return tf.while_loop(lambda v: v[0] < 9.0, lambda v: (v * 2.0,), [x])[0]

    found = analyse_program(load_program(run), {}, infer=False, reason="none").graph
    costs = estimate_costs(found)
    loops = [op.name for op in found.ops.values() if "While" in op.op_type]
    assert [name for name, cost in costs.items() if cost.unmodelled] == loops != []
    cluster = parse_cluster("1xGPU:1GiB")
    devices = find_constraints(found, cluster, ConstraintOptions()).first_choice
    assert predict(found, costs, devices, cluster).schedule.step_seconds > 0


def test_the_memory_of_the_child_is_bounded(tmp_path, monkeypatch):
    """The bound grows with the file; a model that needs more is told how to get it."""
    path = tmp_path / "graph.pb"
    path.write_bytes(layered_graph(40_000).SerializeToString())  # else only inference may be short
    small = tmp_path / "small.pb"
    small.write_bytes(path.read_bytes()[:1000])
    limits = [memory_limit(file.stat().st_size) for file in (small, path)]
    assert limits[1] - limits[0] == 32 * (path.stat().st_size - 1000)
    assert limits[0] > 4 * 2**30
    monkeypatch.setenv("PLACER_READING_MEMORY", "1MiB")
    with pytest.raises(
        ModelError, match=r"takes more than 0\.000977 GiB.*PLACER_READING_MEMORY=32GiB"
    ):
        extract(path)
    monkeypatch.setenv("PLACER_READING_MEMORY", "much")
    with pytest.raises(UsageError, match=r"PLACER_READING_MEMORY: 'much' is not a size"):
        extract(path)


def test_a_batch_size_that_binds_nothing_is_a_warning():
    """With every dimension known, or set to another size, --batch-size has nothing to bind."""
    tf = pytest.importorskip("tensorflow")

    def codes(declared, **shapes):
        spec = tf.TensorSpec(declared, tf.float32, name="x")
        run = tf.function(lambda x: x + 1.0, input_signature=[spec])
        extraction = extract(run, batch_size=8, shapes=shapes)
        assert extraction.unknown == ()
        assert (extraction.bindings["batch_size"] is None) == bool(extraction.warnings)
        return [code for code, *_ in extraction.warnings]

    assert codes([2, 3]) == codes([None, 3], x=(4, 3)) == ["unbound_batch"]
    assert codes([None, 3]) == codes([None, 3], x=(8, 3)) == []
    assert codes([None, None], x=(None, 3)) == []


@pytest.mark.parametrize("choice", [{"signature": "nosuch"}, {"tag_set": "serve"}])
def test_what_chooses_in_a_file_is_refused_for_a_program_of_this_process(choice):
    """It would have no effect."""
    tf = pytest.importorskip("tensorflow")
    run = tf.function(lambda x: x + 1.0, input_signature=[tf.TensorSpec([2], name="x")])
    with pytest.raises(UsageError, match="are for SavedModels"):
        extract(run, **choice)
    assert extract(run, signature=extract(run).model["signature"], tag_set="").unknown == ()


def test_a_keras_model_live_and_exported(tmp_path):
    """A Keras model gives the same op types and variables live and exported, batch bound."""
    keras = pytest.importorskip("keras")

    left, right = keras.Input((6,), name="left"), keras.Input((4, 3), name="right")
    x = keras.layers.LSTM(5)(right)
    x = keras.layers.Concatenate()([keras.layers.Dense(5)(left), x])
    model = keras.Model({"left": left, "right": right}, {"y": keras.layers.Dense(2)(x)})
    model.export(str(tmp_path / "model"))
    live = extract(model, batch_size=3)
    exported = extract(tmp_path / "model", batch_size=3)
    assert sorted(v.shape for v in live.graph.variables) == sorted(
        v.shape for v in exported.graph.variables
    )
    assert any(v.name.endswith("lstm_cell/kernel") for v in live.graph.variables)
    for extraction in (live, exported):
        assert extraction.unknown == ()
        (output,) = extraction.graph.fetches
        assert extraction.graph.tensors[output].properties.shape == (3, 2)
        assert extraction.networkx.number_of_nodes() == len(extraction.graph.ops)
    assert exported.model["format"] == "saved_model"
    assert len(exported.model["sha256"]) == 64
    assert exported.ops_in_file > len(exported.graph.ops)


def test_op_types_that_tensorflow_does_not_know():
    """An unknown op stays in the graph, its outputs unknown unless given, and is reported."""
    tf = pytest.importorskip("tensorflow")
    from placer.extraction.analysis import analyse_program
    from placer.extraction.reading.loading import load_program

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3], name="x")
        tf.matmul(tf.identity(x, name="custom"), tf.ones([3, 4]), name="y")
    graph_def = graph.as_graph_def()
    node = next(node for node in graph_def.node if node.name == "custom")
    node.op = "NobodyKnowsThis"
    extraction = extract(graph_def)
    assert extraction.graph.ops["custom"].op_type == "NobodyKnowsThis"
    assert extraction.graph.tensors["custom:0"].properties.dtype == "float32"
    assert extraction.unknown_roots == ("custom",)
    assert [code for code, *_ in extraction.warnings] == ["unknown_op_type"]
    bound = analyse_program(load_program(graph_def), {}, shapes={"custom": (2, 3)})
    assert bound.unknown == ()
