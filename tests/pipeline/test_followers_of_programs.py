"""Programs whose light ops follow the host: what crosses then, and what stays on accelerators."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import tensorflow as tf

from placer.pipeline.formulation import formulate
from placer.pipeline.pipeline import place
from placer.pipeline.preparation import prepare
from placer.plan.plan import Plan
from placer.plan.request import Options
from placer.questions.explanation import explain_op, explain_plan

pytestmark = pytest.mark.slow

GRAPHS = os.environ.get("PLACER_TEST_DATA")
WORDS, WIDTH, LINES, LENGTH = 100, 64, 32, 16


class Reader(tf.Module):
    """Lines of text to a score: split and looked up on the host, embedded on a GPU."""

    def __init__(self):
        keys = [f"w{number}" for number in range(WORDS)]
        values = tf.lookup.KeyValueTensorInitializer(keys, tf.range(WORDS, dtype=tf.int64))
        self.vocabulary = tf.lookup.StaticVocabularyTable(values, 4)
        self.embedding = tf.Variable(tf.ones((WORDS + 4, WIDTH)), name="embedding")
        self.weights = tf.Variable(tf.ones((WIDTH, 8)), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([LINES], tf.string, name="lines")])
    def __call__(self, lines):
        words = tf.strings.split(lines).to_tensor(default_value="", shape=[LINES, LENGTH])
        rows = tf.gather(self.embedding, self.vocabulary.lookup(words))
        return tf.reduce_mean(rows, axis=1) @ self.weights


@pytest.fixture(scope="module")
def reader():
    return Reader()


@pytest.fixture(scope="module")
def plan(reader) -> Plan:
    return place(reader.__call__, devices="2xGPU:1GiB,CPU:1GiB", time_limit=10)


def test_what_is_between_ops_of_the_host_is_on_the_host(plan):
    """The ids cross, one tensor of 8 bytes a word, and nothing comes back but the result: the
    slices of StringSplit and the arithmetic of the vocabulary's spare buckets follow."""
    sent = [(row.bytes, row.target) for row in plan.transfers if row.kind in ("data", "feed")]
    (gpu,) = {device for device in plan.placement.values() if device.startswith("GPU")}
    assert sent == [(LINES * LENGTH * 8, gpu)]
    assert plan.solver.status == "OPTIMAL"
    assert plan.metrics.transfer_bytes == plan.solver.lower_bound
    follow = set(plan.followers)
    assert {op for op in plan.placement if op.endswith("StringSplit/strided_slice")} <= follow
    assert not any(op.endswith(("MatMul", "Mean")) for op in follow)
    assert all(plan.placement[op] == "CPU:0" for op in follow)


def test_followers_are_no_spilled_ops_and_say_why(plan, reader):
    """The report counts them, and each names the rule; what does not follow can still go back."""
    text = plan.summary()
    assert f"followers  {len(plan.followers)} ops with a GPU kernel on CPU:0" in text
    assert "not spilled" in text
    assert sum(row.spilled_bytes for row in plan.devices) == 0
    found = explain_op(plan, plan.followers[0], reader.__call__)
    assert (found.code, found.device) == ("follows", "CPU:0")
    assert {move.device for move in found.moves if not move.refused} == {"GPU:0", "GPU:1"}
    assert min(move.step_seconds for move in found.moves) > 0
    assert "not spilled" in found.summary()
    assert explain_plan(plan, reader.__call__).ops["CPU:0"]["follows"] == len(plan.followers)


def test_followers_are_kept_in_the_plan(plan, tmp_path):
    """Written and read; a plan without the field, as older versions wrote it, has none."""
    path = tmp_path / "plan.json"
    plan.save(path)
    assert Plan.load(path).followers == plan.followers
    older = {key: value for key, value in json.loads(plan.to_json()).items() if key != "followers"}
    assert Plan.from_json(json.dumps(older)).followers == ()


def test_what_takes_longer_on_the_host_than_it_saves_stays_on_the_gpu(reader, plan):
    """A slice that was measured at a second on either device still follows; at a second on the host
    alone it does not, nor by costs of one's own."""
    slow = next(op for op in plan.followers if op.endswith("strided_slice"))
    devices = "2xGPU:1GiB,CPU:1GiB"
    assert slow in followers_in(reader.__call__, devices, costs={slow: 1.0})
    workload = prepare(reader.__call__, devices, Options())
    cost = replace(workload.costs[slow], measured_seconds={"CPU": 1.0})
    assert slow in _followers(workload)
    assert slow not in _followers(replace(workload, costs={**workload.costs, slow: cost}))


def _followers(workload) -> set[str]:
    problem = formulate(workload).problem
    return {problem.op_names[op] for op in problem.followers}


def followers_in(source, devices="2xGPU:1GiB,CPU:4GiB", **wanted) -> set[str]:
    return _followers(prepare(source, devices, Options(**wanted)))


def test_a_model_without_host_ops_stays_on_its_accelerators():
    """Light ops on what is fed, and nothing else: however small, they do not follow the feeds."""

    @tf.function(input_signature=[tf.TensorSpec([1000], tf.int64), tf.TensorSpec([1000])])
    def light(ids, x):
        return tf.reduce_sum(tf.cast(ids, tf.int32)), tf.reduce_mean(x * 2.0)

    assert followers_in(light) == set()


def test_work_on_fed_data_stays_on_the_gpu_beside_a_host_op():
    """x goes to the GPU for its product, which stays there although it is smaller than x; what cuts
    the column out of x that the host hashes is on the host, which has x."""
    weights = tf.Variable(tf.ones((256, 4)))

    @tf.function(input_signature=[tf.TensorSpec([64, 256])])
    def step(x):
        hashed = tf.strings.to_hash_bucket_fast(tf.strings.as_string(x[:, 0]), 10)
        return x @ weights, hashed

    found = followers_in(step)
    assert {op for op in found if "/stack" not in op} == {"strided_slice"}


def test_updates_of_a_training_step_stay_with_their_variables():
    """The table's gradient may be summed on the host beside a table that only the host can hold;
    no op that writes a variable of a GPU goes there."""
    table = tf.Variable(tf.ones((1 << 18, 64)), name="table")
    weights = tf.Variable(tf.ones((64, 8)), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([128, 2], tf.int32)])
    def train(ids):
        with tf.GradientTape() as tape:
            rows = tf.reduce_sum(tf.gather(table, ids), axis=1)
            loss = tf.reduce_mean(rows @ weights)
        of_table, of_weights = tape.gradient(loss, [table, weights])
        weights.assign_sub(0.1 * of_weights)
        table.scatter_sub(tf.IndexedSlices(0.1 * of_table.values, of_table.indices))
        return loss

    plan = place(train, devices="2xGPU:40MiB,CPU:1GiB", time_limit=10)
    assert (plan.variables["table"], plan.variables["weights"][:3]) == ("CPU:0", "GPU")
    writes = [op for op in plan.placement if "AssignSub" in op]
    assert [plan.placement[op] for op in writes] == [plan.variables["weights"]] * len(writes)
    assert not any("MatMul" in op or "matmul" in op for op in plan.followers)
    assert plan.metrics.transfer_bytes < 2 * 128 * 64 * 4 + 1024


def test_a_loop_follows_as_one_op():
    """A few steps on a looked-up number, and another lookup: the loop is on the host with both."""
    values = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
    table = tf.lookup.StaticHashTable(values, -1)
    back = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2], tf.int64), ["a", "b"])
    names = tf.lookup.StaticHashTable(back, "")

    @tf.function(input_signature=[tf.TensorSpec([32], tf.string)])
    def step(keys):
        found = table.lookup(keys)
        found = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), [0, found])[1]
        return names.lookup(found)

    followers = followers_in(step)
    assert any("while" in op for op in followers)


@pytest.mark.skipif(not GRAPHS, reason="PLACER_TEST_DATA names no folder of real graphs")
@pytest.mark.parametrize(
    "name",
    ["zoo-resnet50_train_adam_b32", "zoo-gpt2_medium_infer_b8s1024", "zoo-gnmt_2l_t20_infer"],
)
def test_real_models_without_host_ops_are_as_they_were(name):
    """Their feeds alone are on the host, and nothing follows."""
    assert followers_in(f"{GRAPHS}/graphs/{name}/graph.pb", "2xGPU:16GiB,CPU:64GiB") == set()


@pytest.mark.skipif(not GRAPHS, reason="PLACER_TEST_DATA names no folder of real graphs")
def test_summaries_of_a_real_training_step_are_on_the_host():
    """The fractions of zeros that go into a summary follow it; no matrix product does."""
    path = f"{GRAPHS}/graphs/tfx-taxi-train-meta/graph.pbtxt"
    found = followers_in(path, "2xGPU:16GiB,CPU:64GiB", batch_size=8)
    assert "dnn/zero_fraction/fraction" in found
    assert not any("MatMul" in op for op in found)
