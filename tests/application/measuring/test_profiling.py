"""Measured op times, and what uses them, with TensorFlow itself."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from cost_models.clusters import parse_cluster
from placer.__main__ import main
from placer.application.measuring import keras_steps
from placer.plan.measured_costs import MeasuredCosts
from placer.plan.schemas import load_schema
from placer.rendering.results import render_result

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1


def _write(path, build):
    with tf.Graph().as_default() as graph:
        build()
        path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path)


def _loop(width=64):
    """Ten products in a loop, one outside of it."""
    x = v1.placeholder(tf.float32, (None, width), name="x")
    weights = v1.get_variable("w", (width, width), use_resource=True).read_value()
    done = tf.while_loop(lambda i, _: i < 10, lambda i, y: (i + 1, tf.tanh(y @ weights)), (0, x))
    tf.matmul(done[1], weights, name="product")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A graph, and its costs as ``placer profile`` writes them."""
    v1.enable_control_flow_v2()
    folder = tmp_path_factory.mktemp("profile")
    model, costs = _write(folder / "loop.pb", _loop), str(folder / "costs.json")
    command = ["profile", model, "-o", costs, "--steps", "3", "--batch-size", "32"]
    assert main([*command, "--outputs", "product", "-q"]) == 0
    return model, costs


def test_every_op_that_ran_has_a_time(measured, capsys):
    """The flat names of the ops are those of the file, and a loop has the time of its body."""
    costs = MeasuredCosts.load(measured[1])
    loop = next(name for name in costs.ops if "while" in name.lower())
    assert {"product", "x", loop} <= set(costs.ops) | {"x"}
    assert costs.op_seconds[loop] > costs.op_seconds["product"] > 0
    assert not any("/body/" in name for name in costs.ops)
    assert sum(costs.op_seconds.values()) < 10 * costs.step["median_seconds"]
    jsonschema.validate(json.loads(costs.to_json()), load_schema("costs"))
    assert MeasuredCosts.load(measured[1]).bindings["batch_size"] == 32


@pytest.mark.parametrize(
    ("size", "words"), [(32, "3 steps, batch 32, on "), (None, "batch as in the model")]
)
def test_the_batch_that_ran_is_named(measured, size, words):
    """Also where none was given."""
    costs = MeasuredCosts.load(measured[1])
    costs = replace(costs, bindings={**costs.bindings, "batch_size": size})
    assert words in render_result(costs, "text", width=200)


def test_measured_costs_are_what_a_report_shows(measured, capsys):
    """On the device type that was measured, the step is the sum of the measured times."""
    model, costs = measured
    options = ["--outputs", "product", "--batch-size", "32", "--devices", "CPU:0", "--format"]
    assert main(["report", model, "--costs", costs, *options, "json"]) == 0
    seconds = json.loads(capsys.readouterr().out)["compute"]["busy_seconds"]
    assert seconds == pytest.approx(sum(MeasuredCosts.load(costs).op_seconds.values()), rel=0.2)


def test_costs_of_another_graph_or_size_are_refused(measured, tmp_path, capsys):
    """Exit code 2, and what to do, for another graph, another batch and another output."""
    model, costs = measured
    other = _write(tmp_path / "other.pb", lambda: _loop(width=32))
    options = ["--costs", costs, "--outputs", "product"]
    assert main(["report", other, *options, "--batch-size", "32"]) == 2
    assert "was measured on another graph" in capsys.readouterr().err
    assert main(["report", model, *options, "--batch-size", "8"]) == 2
    assert "was measured with batch_size 32" in capsys.readouterr().err


def test_a_batch_that_nothing_sets_is_refused(measured, tmp_path, capsys):
    """Times of one example are of no use: neither place nor calibrate takes them."""
    assert main(["profile", measured[0], "-o", str(tmp_path / "costs.json")]) == 2
    assert "the batch size of x is unknown: add --batch-size N" in capsys.readouterr().err


def test_ops_without_a_measured_time_are_counted(measured, tmp_path, capsys):
    """They take the model's time, and the report says how many they are."""
    model, costs = measured
    data = json.loads(Path(costs).read_text())
    data["ops"] = {"product": data["ops"]["product"]}
    partial = tmp_path / "partial.json"
    partial.write_text(json.dumps(data))
    options = ["--outputs", "product", "--batch-size", "32"]
    assert main(["report", model, "--costs", str(partial), *options]) == 0
    assert "have no measured time" in " ".join(capsys.readouterr().out.split())
    data["ops"] = {"nothing": {"median_seconds": 1}}
    partial.write_text(json.dumps(data))
    assert main(["report", model, "--costs", str(partial), *options]) == 2
    assert "name no op of this model" in capsys.readouterr().err


def test_times_of_a_cpu_are_not_taken_for_a_gpu(measured, capsys):
    """With a GPU among the devices the report says for what the measured times hold."""
    model, costs = measured
    options = ["--outputs", "product", "--batch-size", "32"]
    assert main(["report", model, "--costs", costs, *options]) == 0
    assert "for every GPU those of the cost model are used" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_device_is_fitted_to_costs_files(measured, tmp_path, capsys, monkeypatch):
    """The description is a cluster file, and reports take it; Keras's own time is in it."""
    monkeypatch.setattr(keras_steps, "measure_keras_seconds", lambda: 0.25)
    model, costs = measured
    device = str(tmp_path / "device.toml")
    assert main(["calibrate", costs, "--keras", "-o", device]) == 0
    assert parse_cluster(device).host.keras_seconds == 0.25
    told = capsys.readouterr().out
    assert "Calibration" in told
    assert "Compute, Memory: the share of" in told
    assert "  100  " not in told  # a peak that limits nothing is shown as -
    options = ["--outputs", "product", "--batch-size", "32"]
    assert main(["report", model, "--devices", device, *options]) == 0
    assert main(["calibrate", costs, "-o", device]) == 2
    assert "assumed" not in told
    assert main(["calibrate", costs, "-o", str(tmp_path / "assumed.toml")]) == 0
    assert "(assumed; --keras measures it)" in capsys.readouterr().out
    assert main(["calibrate", costs, "-o", str(tmp_path / "device.json")]) == 2
    assert "must end in .toml" in capsys.readouterr().err
    assert not (tmp_path / "device.json").exists()


def test_a_model_that_does_not_run_here_exits_3(tmp_path, capsys):
    """The message is TensorFlow's own."""
    model = _write(
        tmp_path / "bad.pb",
        lambda: tf.debugging.check_numerics(v1.placeholder(tf.float32, (2,)) / 0.0, "no number"),
    )
    assert main(["profile", model, "-o", str(tmp_path / "costs.json")]) == 3
    error = capsys.readouterr().err
    assert "does not run here" in error
    assert "Traceback" not in error
    assert not (tmp_path / "costs.json").exists()


def test_tables_and_iterators_are_started_before_they_are_measured(tmp_path):
    """A table that the graph fills, one that it does not (as in a SavedModel), and a dataset."""

    def build():
        values = tf.lookup.KeyValueTensorInitializer(["a"], [3], tf.string, tf.int64)
        ids = tf.lookup.StaticHashTable(values, -1).lookup(tf.constant(["a", "b"]))
        bare = tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.int64, name="bare")
        more = tf.raw_ops.LookupTableFindV2(
            table_handle=bare, keys=ids, default_value=tf.constant(-1, tf.int64), name="more"
        )
        data = tf.data.Dataset.range(9).batch(2).repeat()
        batch = v1.data.make_initializable_iterator(data).get_next()
        tf.add(batch[:1] + more, 1, name="y")

    model, costs = _write(tmp_path / "graph.pb", build), str(tmp_path / "costs.json")
    assert main(["profile", model, "-o", costs, "--steps", "2", "--outputs", "y", "-q"]) == 0
    assert {"y", "more", "IteratorGetNext"} <= set(MeasuredCosts.load(costs).ops)
