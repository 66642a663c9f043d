"""Traces of TensorFlow's profiler: drawn ones, one of a CPU made here, one of eight V100."""

import json
import os
from collections import defaultdict
from pathlib import Path
from time import sleep

import jsonschema
import pytest

from placer.__main__ import main
from placer.application.measuring.trace_steps import (
    FlatNames,
    allocator_peaks,
    is_fused,
    split_event,
    step_times,
)
from placer.application.measuring.traces import read_trace, trace_costs
from placer.application.measuring.xplane_files import find_trace_files, read_trace_file
from placer.errors import ModelError, UsageError
from placer.plan.measured_costs import MeasuredCosts
from placer.plan.schemas import load_schema

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: E402
from traces_by_hand import gpu_steps  # noqa: E402

EVERYTHING = frozenset(
    {"id", "_c", "correlation_id", "level 0", "allocator_name", "bytes_allocated", "addr"}
    | {"bytes_available", "requested_bytes", "allocation_bytes", "region_type"}
    | {"peak_bytes_in_use"}
)
OPS = ["Call/dense/MatMul", "Call/dense/Relu", "Call/Shape", "Call/Tokens", "Call/Folded"]


@pytest.fixture
def drawn(tmp_path):
    """The planes of two GPUs, three whole steps and one that the window cuts."""
    path = tmp_path / "drawn.xplane.pb"
    path.write_bytes(gpu_steps())
    return read_trace_file(path, EVERYTHING)


def test_medians_are_of_whole_steps_and_of_each_device(drawn):
    """The slow kernel of the step that was cut counts for nothing; kernels of an op are summed."""
    found = step_times(drawn)
    assert sum(run.is_whole for run in found.runs.values()) == 3
    costs = trace_costs(found.times, found.runs, OPS)
    product = costs.ops["Call/dense/MatMul"]
    assert product["device_seconds"]["GPU:0"] == pytest.approx((50 + 10) * 1e-6)
    assert product["device_seconds"]["GPU:1"] == pytest.approx((51 + 10) * 1e-6)
    assert product["least_seconds"] == pytest.approx((40 + 10) * 1e-6)
    assert costs.ops["Call/dense/Relu"]["median_seconds"] == pytest.approx(5e-6)
    assert costs.trace["busy_seconds"]["GPU:1"] == pytest.approx(66e-6)
    assert (costs.trace["whole_steps"], costs.trace["cut_steps"]) == (3, 1)
    assert costs.step["median_seconds"] == pytest.approx(321e-6)


def test_ops_on_the_host_have_the_hosts_times(drawn):
    """What has no kernel on a GPU takes none of its time; what the host computed is a CPU's."""
    found = step_times(drawn)
    costs = trace_costs(found.times, found.runs, OPS)
    assert costs.device_type == "GPU"
    assert costs.ops["Call/Shape"] == {
        "median_seconds": 0.0, "least_seconds": 0.0, "device_seconds": {"GPU:0": 0.0, "GPU:1": 0.0}
    }  # fmt: skip
    assert costs.ops["Call/Tokens"]["device_type"] == "CPU"
    assert costs.seconds_by_type["CPU"] == {"Call/Tokens": pytest.approx(41e-6)}
    assert "Call/Tokens" not in costs.seconds_by_type["GPU"]


def test_an_op_that_whole_steps_do_not_show_did_not_run(tmp_path):
    """Optimised away, it takes nothing; with no whole step nothing is known of it."""
    for ends, known in (((True, True), True), ((False, False), False)):
        path = tmp_path / f"{known}.xplane.pb"
        path.write_bytes(gpu_steps(ends))
        found = step_times(read_trace_file(path, EVERYTHING))
        costs = trace_costs(found.times, found.runs, OPS)
        assert ("Call/Folded" in costs.ops) is known
        assert bool(costs.step) is known
        assert "Call/dense/MatMul" in costs.ops
    assert costs.trace["whole_steps"] == 0


def test_a_trace_of_another_program_is_refused(drawn):
    """The message names what the trace has."""
    found = step_times(drawn)
    with pytest.raises(UsageError, match="has no op of this model, but dense/MatMul"):
        trace_costs(found.times, found.runs, ["other", "model/other"])


def test_allocators_are_read_event_by_event(drawn):
    """Bytes before the window, at its peak, asked for, and of kernels for themselves."""
    assert allocator_peaks(drawn) == {
        "GPU:0": {
            "events": 4,
            "before_bytes": 1024,
            "peak_bytes": 1024 + 512 + 256,
            "peak_requested_bytes": 512 + 250,
            "peak_temporary_bytes": 250,
            "lifetime_peak_bytes": 4096,
            "limit_bytes": 10_000,
        }
    }


def test_names_are_found_by_call_scope_replica_and_loop():
    """The call is found by vote; a name that is there as it is stays."""
    names = FlatNames(
        ["x", "Call/a/MatMul", "Call/b/MatMul", "Call/while", "Call/a"],
        ["a/MatMul", "replica_1/b/MatMul", "while/body/_1/mul", "a/other"],
    )
    assert names.flat("a/MatMul") == "Call/a/MatMul"
    assert names.flat("replica_1/b/MatMul") == "Call/b/MatMul"
    assert names.flat("while/body/_1/while/mul") == "Call/while"
    assert names.flat("x") == "x"
    assert names.flat("a/other") is None  # the name of a scope is no loop
    scoped = FlatNames(["a/MatMul", "b/MatMul"], ["tower/a/MatMul", "tower/b/MatMul"])
    assert scoped.flat("tower/b/MatMul") == "b/MatMul"
    assert split_event("a/b:_MklFusedConv2D#shape=(f)#") == ("a/b", "_MklFusedConv2D")
    assert [is_fused(name) for name in ("_MklFusedConv2D", "_FusedMatMul", "_MklMatMul")] == [
        True, True, False,
    ]  # fmt: skip


def test_the_newest_run_is_read(tmp_path):
    """Runs are named by their time; one host's file each."""
    for run in ("2025_01_02_00_00_00", "2025_01_10_00_00_00"):
        folder = tmp_path / "train" / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        (folder / "a.xplane.pb").write_bytes(b"x")
        (folder / "b.xplane.pb").write_bytes(b"x")
    found = find_trace_files(tmp_path)
    assert [file.name for file in found] == ["a.xplane.pb", "b.xplane.pb"]
    assert {file.parent.name for file in found} == {"2025_01_10_00_00_00"}


HARMED = {
    "empty": (b"", "is empty: the profiler did not end"),
    "cut": (gpu_steps()[:-40], "not a trace of TensorFlow's profiler, or a damaged one"),
    "text": (b"Dear reader,\nthis is no trace.\n", "not a trace of TensorFlow's profiler"),
    "no planes": (xplane_pb2.XSpace(hostnames=["a"]).SerializeToString(), "has no events"),
}


@pytest.mark.parametrize("kind", HARMED)
def test_what_is_no_trace_is_said(tmp_path, kind):
    """A ModelError, which the command line ends with exit code 3."""
    content, told = HARMED[kind]
    path = tmp_path / "harmed.xplane.pb"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=told) as error:
        [read_trace_file(file, EVERYTHING) for file in find_trace_files(path)]
    assert error.value.exit_code == 3


def test_a_time_that_cannot_be_is_refused(tmp_path):
    """An event of ten years, and one that ends before it starts."""
    for duration in (10**20 // 3, -1):
        space = xplane_pb2.XSpace.FromString(gpu_steps())
        space.planes[0].lines[0].events[0].duration_ps = min(duration, 2**62)
        path = tmp_path / "long.xplane.pb"
        path.write_bytes(space.SerializeToString())
        with pytest.raises(ModelError, match="it is damaged"):
            read_trace_file(path, EVERYTHING)


# --- a trace made here


def _network(x, y):
    """A loop and two products; the second's name is behind a call."""
    h = tf.nn.relu(tf.matmul(x, y, name="first"))
    _, h = tf.while_loop(lambda i, _: i < 5, lambda i, h: (i + 1, tf.tanh(h @ y)), (0, h))
    return tf.reduce_sum(tf.matmul(h, y, name="second"), name="total")


_ENDS = 0.5
"""Seconds: an executor writes that it is done after its call has returned."""


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A SavedModel, the log folder of its traced calls, and how often it was called."""
    folder = tmp_path_factory.mktemp("trace")
    module = tf.Module()
    module.weights = tf.Variable(tf.random.normal((256, 256)) / 16.0)
    spec = tf.TensorSpec((256, 256), tf.float32, name="x")
    module.call = tf.function(lambda x: _network(x, module.weights))
    tf.saved_model.save(module, folder / "model", module.call.get_concrete_function(spec))
    loaded = tf.saved_model.load(folder / "model")
    x = tf.random.normal((256, 256))
    loaded.call(x)
    sleep(_ENDS)
    tf.profiler.experimental.start(str(folder / "log"))
    for _ in range(4):
        loaded.call(x)
    sleep(_ENDS)
    tf.profiler.experimental.stop()
    return folder / "model", folder / "log"


def test_a_trace_of_this_machine_gives_costs_that_reports_take(traced, tmp_path, capsys):
    """Four whole steps, ops by their flat names behind the call, a loop with its body; the busy
    time of a report is that of the trace."""
    model, log = map(str, traced)
    costs = tmp_path / "costs.json"
    assert main(["profile", model, "--trace", log, "-o", str(costs), "-q"]) == 0
    told = capsys.readouterr().out
    assert "4 whole steps" in told
    jsonschema.validate(json.loads(costs.read_text()), load_schema("costs"))
    found = MeasuredCosts.load(costs)
    assert found.trace["matched_share"] > 0.95
    loop = next(name for name in found.ops if name.endswith("while"))
    product = next(name for name in found.ops if name.endswith("first"))
    assert found.op_seconds[loop] > found.op_seconds[product] > 0
    assert main(["report", model, "--costs", str(costs), "--devices", "CPU:0",
                 "--format", "json"]) == 0  # fmt: skip
    seconds = json.loads(capsys.readouterr().out)["compute"]["busy_seconds"]
    assert seconds == pytest.approx(sum(found.op_seconds.values()), rel=0.02)


def test_a_window_that_ends_in_a_step_is_no_whole_step(traced, tmp_path):
    """Without the end of the last call, three steps are whole."""
    file = find_trace_files(traced[1])[0]
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    host = next(plane for plane in space.planes if plane.name == "/host:CPU")
    names = {key: item.name for key, item in host.event_metadata.items()}
    ends = [
        (line.timestamp_ns * 1000 + event.offset_ps, line, event)
        for line in host.lines
        for event in line.events
        if names[event.metadata_id] == "ExecutorDoneCallback"
    ]
    _, line, last = max(ends, key=lambda end: end[0])
    line.events.remove(last)
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(space.SerializeToString())
    found = read_trace(traced[0], path)
    assert (found.trace["whole_steps"], found.trace["cut_steps"]) == (3, 1)


def test_a_harmed_trace_ends_the_command_with_exit_code_3(traced, tmp_path, capsys):
    """One message, no traceback, no file."""
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(find_trace_files(traced[1])[0].read_bytes()[:-100])
    command = ["profile", str(traced[0]), "-o", str(tmp_path / "costs.json")]
    assert main([*command, "--trace", str(path)]) == 3
    assert "damaged" in capsys.readouterr().err
    assert main([*command, "--trace", str(tmp_path / "nothing")]) == 3
    assert "there is no file or folder" in capsys.readouterr().err
    assert not (tmp_path / "costs.json").exists()


# --- eight V100 (tensorflow/profiler, Apache-2.0)


@pytest.fixture(scope="module")
def v100():
    """The trace of BERT-Large on eight V100, of which the window shows two, in mid-step."""
    folder = os.environ.get("PLACER_TEST_DATA")
    path = Path(folder or "") / "gpu" / "traces" / "v100x8_bert_large_squad.xplane.pb"
    if not folder or not path.exists():
        pytest.skip("PLACER_TEST_DATA has no trace of V100s")
    return path


def test_op_times_are_those_of_tensorflows_own_timeline(v100):
    """Its profiler derived a line of ops per GPU: the same ops, the same picoseconds."""
    planes = read_trace_file(v100, EVERYTHING)
    times = step_times(planes).times
    compared = 0
    for plane in planes:
        derived: dict[str, float] = defaultdict(float)
        for line in plane.lines:
            for event in line.events if line.name == "TensorFlow Ops" else ():
                derived[event.name] += (event.end - event.start) * 1e-12
        own: dict[str, float] = defaultdict(float)
        for time in times:
            if plane.name == f"/device:{time.device}":
                own[f"{time.name}:{time.op_type}"] += time.seconds
        for name, seconds in derived.items():
            assert own[name] == pytest.approx(seconds, rel=1e-9)
        compared += len(derived)
    assert compared == 1330


def test_allocations_are_those_that_were_read_by_others(v100):
    """The figures beside the trace in the test data, of GPU 4."""
    noted = json.loads((v100.parents[1] / "allocations/v100_bert_squad_GPU_4_bfc.json").read_text())
    found = allocator_peaks(read_trace_file(v100, EVERYTHING))["GPU:4"]
    assert found["events"] == noted["events"]
    assert found["before_bytes"] == noted["in_use_before_first_event_bytes"]
    assert found["peak_bytes"] == noted["highest_in_use_bytes"]
    assert found["peak_requested_bytes"] == noted["requested_of_these_bytes"]


def _dropouts(v100, folder):
    """The dropout ops that the trace shows, as a GraphDef with the shapes of its allocations."""
    space = xplane_pb2.XSpace.FromString(v100.read_bytes())
    host = space.planes[0]
    value_names = {key: item.name for key, item in host.stat_metadata.items()}
    shapes = {}
    for line in host.lines:
        for event in line.events:
            values = {value_names[stat.metadata_id]: stat for stat in event.stats}
            name = values["tf_op"].str_value if "tf_op" in values else ""
            if name.startswith("replica_4/") and name.endswith("/RandomUniform"):
                shapes[name[10:]] = json.loads(values["shape"].str_value)
    with tf.Graph().as_default() as graph:
        for name, shape in sorted(shapes.items()):
            scope = name.rpartition("/random_uniform/")[0]
            with tf.name_scope(f"{scope}/random_uniform/"):
                random = tf.raw_ops.RandomUniform(
                    shape=shape, dtype=tf.float16, name="RandomUniform"
                )
            with tf.name_scope(f"{scope}/"):
                tf.greater_equal(random, tf.constant(0.1, tf.float16), name="GreaterEqual")
        path = folder / "dropouts.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
    return path, len(shapes)


def test_a_gpu_is_calibrated_where_there_is_none(v100, tmp_path, capsys):
    """Ops are found behind their replica and timed per GPU; the fitted description has the memory
    that TensorFlow had there, and a bandwidth that a V100 has (900 GB/s at most)."""
    model, count = _dropouts(v100, tmp_path)
    costs, device = str(tmp_path / "costs.json"), str(tmp_path / "gpu.toml")
    assert main(["profile", str(model), "--trace", str(v100), "-o", costs, "-q"]) == 0
    told = capsys.readouterr().out
    assert "the trace has no whole step" in " ".join(told.split())
    found = MeasuredCosts.load(costs)
    timed = [entry for entry in found.ops.values() if entry["median_seconds"]]
    assert count == 97
    assert len(timed) == 2 * count
    assert set(timed[0]["device_seconds"]) == {"GPU:4", "GPU:6"}
    limit = found.memory["GPU:4"]["limit_bytes"]
    assert limit // 2**20 == 14760  # "with 14760 MB memory", as TensorFlow says it
    assert main(["calibrate", costs, "-o", device, "-q"]) == 0
    from cost_models.clusters import parse_cluster

    fitted = parse_cluster(device).devices[0]
    assert (fitted.type, fitted.memory_limit_bytes) == ("GPU", limit)
    assert 300e9 < fitted.memory_bandwidth < 900e9
    assert main(["report", str(model), "--devices", device, "--costs", costs, "-q"]) == 0
