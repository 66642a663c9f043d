"""Programs on three server processes of this machine, which the tests start and stop; with
PLACER_LONG_TESTS also on two."""

import signal
import subprocess
import sys
import time
from itertools import accumulate

import numpy as np
import pytest
import tensorflow as tf
from fresh_processes import ENVIRONMENT
from long_tests import long_test, sometimes
from server_processes import Cluster, free_port, run_client
from split_tables import export_training

import placer
from cost_models.device_names import canonical
from placer.application.running.cluster_runs import ClusterSession
from placer.application.running.cluster_tasks import (
    ClusterError,
    join_as_client,
    own_host,
)
from placer.errors import UsageError

v1 = tf.compat.v1


@pytest.fixture(scope="module", params=[pytest.param(2, marks=long_test), 3])
def cluster(request, tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"), request.param)
    yield found
    found.close()


@pytest.fixture(scope="module")
def training_graph(tmp_path_factory):
    """The ``.meta`` of a TensorFlow 1 training step: three layers and Adam, a batch of 8."""
    with tf.Graph().as_default():
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [8, 16], name="x")
        hidden = x
        for number, size in enumerate((32, 32, 1)):
            weight = v1.get_variable(f"w{number}", [hidden.shape[1], size], use_resource=True)
            hidden = tf.tanh(hidden @ weight, name=f"layer{number}")
        loss = tf.reduce_mean(tf.square(hidden - 0.5), name="loss")
        v1.train.AdamOptimizer(0.01).minimize(loss, name="train")
        v1.global_variables_initializer()
        path = tmp_path_factory.mktemp("graph") / "step.meta"
        v1.train.Saver().export_meta_graph(str(path))
    return path


@pytest.fixture(scope="module")
def plan(cluster, training_graph):
    """One layer on every task."""
    count = len(cluster.ports)
    pins = {f"layer{n}": f"/job:worker/task:{n % count}/device:CPU:0" for n in range(3)}
    pins |= {f"w{n}*": f"/job:worker/task:{n % count}/device:CPU:0" for n in range(3)}
    return placer.place(
        training_graph, cluster.file, outputs=("^train", "loss:0"), pins=pins, time_limit=2
    )


@pytest.fixture(scope="module")
def placed(training_graph, plan, tmp_path_factory):
    """The placed ``.meta``, initialisers and saver included."""
    return placer.apply(training_graph, plan, tmp_path_factory.mktemp("placed") / "placed.meta")


def start_weights(session):
    """Initialises the optimizer, and gives the weights values that do not depend on a seed."""
    session.run("init")
    rng = np.random.default_rng(0)
    for number, shape in enumerate([(16, 32), (32, 32), (32, 1)]):
        value = rng.standard_normal(shape).astype(np.float32)
        session.run(f"w{number}/Assign", {f"w{number}/Initializer/random_uniform:0": value})


def train(session, steps=20):
    """The losses of some steps."""
    x = np.random.default_rng(1).random((8, 16), np.float32)
    return [float(session.run(["loss:0", "train"], {"x:0": x})[0]) for _ in range(steps)]


def held_bytes(session):
    """The most bytes that were allocated at once in a step, by task, variables aside."""
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    session.run(["loss:0", "train"], {"x:0": np.ones((8, 16), np.float32)}, options, metadata)
    found = {}
    for device in metadata.step_stats.dev_stats:
        memories = [memory for node in device.node_stats for memory in node.memory]
        records = [record for memory in memories for record in memory.allocation_records]
        changes = sorted((record.alloc_micros, record.alloc_bytes) for record in records)
        peak = max(accumulate(size for _, size in changes), default=0)
        found[canonical(device.device)] = peak
    return found


def test_a_session_trains_on_several_machines_as_planned(cluster, placed, plan, training_graph):
    """Devices and transfers are those of the plan, and no task holds more than its need says.
    Losses equal those of one process, although a second client (the verification) comes and goes
    meanwhile."""
    with ClusterSession(placed, cluster.file) as session:
        start_weights(session)
        losses = train(session, 10)
        found = placer.verify(training_graph, plan, cluster=cluster.file).raise_for_mismatch()
        losses += train(session, 10)
        held = held_bytes(session)
    for device in plan.devices:
        most = held.get(device.name, 0) + (device.resident_bytes or 0)
        assert most <= device.need_bytes, device
        assert most > 0 or device.name == "CPU:0"
    graph_def = tf.compat.v1.MetaGraphDef.FromString(training_graph.read_bytes()).graph_def
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.graph_util.import_graph_def(graph_def, name="")
        start_weights(session)
        np.testing.assert_allclose(losses, train(session), rtol=1e-6)
    assert not found.rehearsed
    tasks = {f"/job:worker/task:{n}/device:CPU:0" for n in range(len(cluster.ports))}
    assert {row.actual for row in found.ops} >= tasks
    assert all(row.requested == row.actual for row in found.variables)
    assert {row.code for row in found.transfers} <= {"", "replicated"}
    assert sum(row.predicted and row.actual for row in found.transfers) > len(tasks)


def test_a_lost_worker_is_named_and_training_goes_on_from_a_checkpoint(cluster, placed, tmp_path):
    """A stopped task is named soon after the time limit, a killed one at once; with its server
    started again a new session restores what this process saved, and the losses go on."""
    last = len(cluster.ports) - 1
    lost = rf"/job:worker/task:{last} \([^,]*\) does not answer"
    with ClusterSession(placed, cluster.file) as session:
        start_weights(session)
        train(session, 5)
        saved = session.save(tmp_path / "five")
        expected = train(session, 5)
    stopped = cluster.processes[last]
    with ClusterSession(placed, cluster.file, time_limit_seconds=2) as session:
        session.restore(saved)
        stopped.send_signal(signal.SIGSTOP)
        try:
            begin = time.monotonic()
            with pytest.raises(ClusterError, match=f"did not end within 2 s: {lost}"):
                train(session)
            assert time.monotonic() - begin < 2 + 10  # 2 + 2 on an idle machine
        finally:
            stopped.send_signal(signal.SIGCONT)
    with ClusterSession(placed, cluster.file) as session:
        session.restore(saved)
        cluster.kill(last)
        begin = time.monotonic()
        with pytest.raises(ClusterError, match=f"was broken off: {lost}"):
            train(session)
        assert time.monotonic() - begin < 10  # under 0.1 on an idle machine
    with pytest.raises(ClusterError, match=f"{lost}: start the servers"):
        ClusterSession(placed, cluster.file)
    cluster.start(last)
    cluster.wait()
    with ClusterSession(placed, cluster.file) as session:
        session.restore(saved)
        assert train(session, 5) == expected


def test_devices_that_no_server_has_are_refused(cluster, placed):
    """A task beyond the cluster would be waited for; it is named instead."""
    other = v1.MetaGraphDef.FromString(placed.read_bytes())
    other.graph_def.node[0].device = "/job:worker/replica:0/task:7/device:CPU:0"
    with pytest.raises(UsageError, match="task:7"):
        ClusterSession(other, cluster.file)
    with pytest.raises(UsageError, match="connect_cluster"):
        ClusterSession(tf.function(tf.abs), cluster.file)


def test_a_saved_model_runs_in_a_session_with_its_weights(cluster, tmp_path):
    """The signature of a placed SavedModel gives on two tasks what the module gives here."""
    model = tf.Module()
    model.w, model.u = (tf.Variable(tf.random.stateless_uniform([8, 8], [0, n])) for n in (1, 2))
    step = tf.function(
        lambda x: {"y": tf.tanh(x @ model.w, name="first") @ model.u},
        input_signature=[tf.TensorSpec([4, 8], name="x")],
    )
    tf.saved_model.save(model, tmp_path / "model", {"serving_default": step})
    task = "/job:worker/task:{}/device:CPU:0".format
    plan = placer.place(
        tmp_path / "model", cluster.file, pins={"*": task(1), "*first": task(0)}, time_limit=2
    )
    path = placer.apply(tmp_path / "model", plan, tmp_path / "placed")
    x = np.random.default_rng(0).random((4, 8), np.float32)
    with ClusterSession(path, cluster.file) as session:
        found = session.run("StatefulPartitionedCall:0", {"serving_default_x:0": x})
    np.testing.assert_allclose(found, step(tf.constant(x))["y"], rtol=1e-6)


def test_clients_have_names_and_addresses_of_their_own():
    """No two clients at work share a name, one that comes later takes a free one; the address is
    this end of the way to a task, unless it is given."""
    tasks = {"worker": ["127.0.0.1:9999"]}
    first, second = join_as_client(tasks), join_as_client(tasks)
    assert first.device != second.device
    assert first.address == "127.0.0.1:0"
    first.close()
    third = join_as_client(tasks)
    assert third.device == first.device
    second.close()
    third.close()
    assert own_host({**tasks, "client": ["10.0.0.5:2300"]}) == ("10.0.0.5", 2300)
    with pytest.raises(UsageError, match=r"'127.0.0.1' is not an address"):
        own_host({"worker": ["127.0.0.1"]})


SESSION_CLIENT = """
import sys
import tensorflow as tf
import placer
file, end = sys.argv[1:]
with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:CPU:0"):
    tf.add(tf.compat.v1.placeholder(tf.float32, [], name="x"), 1.0, name="y")
session = placer.ClusterSession(graph.as_graph_def(), file, time_limit_seconds=20)
assert session.run("y:0", {"x:0": 2.0}) == 3.0
if end == "with":
    with session:
        pass
elif end == "close":
    session.close()
elif end == "error":
    with session:
        raise LookupError("of the caller")
elif end == "unused":
    with session:
        print("ready", flush=True)
        sys.stdin.readline()
        assert [session.run("y:0", {"x:0": 2.0}) for _ in range(50)] == [3.0] * 50
elif end == "killed":
    print("ready", flush=True)
    sys.stdin.readline()
    with session:
        try:
            session.run("y:0", {"x:0": 2.0})
        except placer.errors.PlacerError as error:
            print(error, flush=True)
"""


@pytest.mark.parametrize(
    ("end", "code"),
    sometimes(
        [("with", 0), ("close", 0), ("open", 0), ("error", 1), ("killed", 0), ("unused", 0)],
        always=[("open", 0), ("error", 1), ("killed", 0), ("unused", 0)],
    ),
)
def test_a_process_with_a_session_ends_with_its_own_exit_code(cluster, end, code):
    """Closed by a block, by hand, by nobody, by an error, or with a worker gone that runs its ops,
    or none of them: no abort."""
    if len(cluster.ports) < 3:
        pytest.skip("three servers show it")
    client = run_client(SESSION_CLIENT, cluster, end)
    gone = {"killed": 0, "unused": 1}.get(end)
    try:
        if gone is not None:
            assert client.stdout.readline() == "ready\n"
            cluster.kill(gone)
        out, err = client.communicate("\n", timeout=90)
    finally:
        client.kill()
        if gone is not None:
            cluster.start(gone)
            cluster.wait()
    assert client.returncode == code, err[-3000:]
    assert end != "killed" or "/job:worker/task:0" in out
    assert end != "error" or "LookupError: of the caller" in err


def test_a_server_says_where_it_serves_and_refuses_what_it_cannot(cluster):
    """Address, job and task are logged; other tasks and a taken address are errors."""
    address = f"127.0.0.1:{free_port()}"
    script = "import placer, sys; placer.serve_task({'worker': [sys.argv[1]]}, 'worker', 0)"
    command = [sys.executable, "-c", script, address]
    server = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        lines = iter(server.stderr.readline, "")
        said = next(line for line in lines if line.startswith("serving"))
    finally:
        server.kill()
        server.wait()
    assert said == f"serving /job:worker/task:0 at {address}, until this process is ended\n"
    with pytest.raises(UsageError, match=r"/job:worker/task:9 is not a task of the cluster"):
        placer.serve_task(cluster.file, "worker", 9)
    with pytest.raises(ClusterError, match="a server answers there already"):
        placer.serve_task(cluster.file, "worker", 0)
    given = {**cluster.addresses, "client": [cluster.addresses["worker"][0]]}
    with pytest.raises(ClusterError, match="is taken: give another port"):
        placer.connect_cluster(given)


FUNCTION_CLIENT = """
import sys, time, pickle
import numpy as np, tensorflow as tf
import placer
from placer.application.running.cluster_tasks import call_in_time
file, count = sys.argv[1], int(sys.argv[2])
placer.connect_cluster(file)
values = [np.random.default_rng(n).random((8, 8), np.float32) for n in range(3)]
layers = [tf.Variable(value, name=f"w{n}") for n, value in enumerate(values)]
@tf.function(input_signature=[tf.TensorSpec([4, 8], name="x")])
def step(x):
    with tf.GradientTape() as tape:
        y = x
        for n, w in enumerate(layers):
            y = tf.tanh(y @ w, name=f"layer{n}")
        loss = tf.reduce_mean(y)
    for w, g in zip(layers, tape.gradient(loss, layers)):
        w.assign_sub(0.1 * g)
    return loss
x = tf.constant(np.random.default_rng(9).random((4, 8), np.float32))
pins = {f"layer{n}": f"/job:worker/task:{n % count}/device:CPU:0" for n in range(3)}
plan = placer.place(step, file, pins=pins, time_limit=2)
placed = placer.apply(step, plan)
losses = [float(placed(x)) for _ in range(20)]
assert losses == [float(step(x)) for _ in range(20)], losses
assert {m.name: placed.mapping.planned(m.copy.device) for m in placed.moved} == plan.variables
if sys.argv[3]:
    found = placer.verify(step, plan, cluster=file).raise_for_mismatch()
    assert {row.code for row in found.transfers} <= {"", "returned", "replicated"}, found
    assert len({row.actual for row in found.ops}) >= count
import keras  # a model whose two halves are on two tasks
data = np.random.default_rng(5).random((32, 8), np.float32)
def build():
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(8, name=f"dense{n}") for n in range(4)]
    model = keras.Sequential([keras.Input((8,)), *layers], name="model")
    model.compile(keras.optimizers.Adam(name="adam"), "mse", jit_compile=False)
    return model
def fit(model):
    return model.fit(data, data, batch_size=8, epochs=2, shuffle=False, verbose=0).history
pins = {f"*dense{n}*": f"/job:worker/task:{n // 2}/device:CPU:0" for n in range(4)}
traced = placer.training_step(build(), (data[:8], data[:8]))
plan = placer.place(traced, file, batch_size=8, pins=pins, time_limit=2)
with plan.scope():
    model = build()
with plan.bind(model):
    losses = fit(model)["loss"]
    assert len({weight.value.device for weight in model.weights}) == 2
    checkpoint = tf.train.Checkpoint(model=model)
    saved = checkpoint.save(sys.argv[4])
    again = fit(model)["loss"]
    checkpoint.restore(saved)
    assert fit(model)["loss"] == again
assert losses == fit(build())["loss"], losses
print("ready", flush=True)
sys.stdin.readline()
begin = time.monotonic()
try:
    for _ in range(20):
        call_in_time(lambda: placed(x), placer.read_addresses(file), 20)
except placer.errors.PlacerError as error:
    print(f"{time.monotonic() - begin:.1f}", error, flush=True)
import os; os._exit(0)
"""


def test_functions_and_keras_run_on_several_machines_as_planned(cluster, tmp_path):
    """A tf.function's training and Keras's ``fit`` with a checkpoint, on the joined cluster: losses
    are those of one process, bit by bit.  Then a kill and a restart."""
    last = len(cluster.ports) - 1
    for check in ("verify", "")[: 2 if last == 1 else 1]:
        count = str(len(cluster.ports))
        client = run_client(FUNCTION_CLIENT, cluster, count, check, str(tmp_path / "saved"))
        try:
            assert client.stdout.readline() == "ready\n", client.stderr.read()[-3000:]
            cluster.kill(last)
            client.stdin.write("\n")
            client.stdin.flush()
            seconds, _, message = client.stdout.readline().partition(" ")
            assert float(seconds) < 30
            assert f"/job:worker/task:{last}" in message
        finally:
            client.kill()
            client.wait()
        cluster.start(last)
        cluster.wait()


def test_a_table_in_parts_is_trained_on_several_machines(cluster, tmp_path):
    """Parts and their slots on every task: twenty losses are those of the whole in one process."""
    export_training(tmp_path / "step.meta", "adagrad")
    count = len(cluster.ports)
    names = [f"/job:worker/task:{task}/device:CPU:0" for task in range(count)]
    plan = placer.place(
        tmp_path / "step.meta",
        cluster.file,
        batch_size=64,
        split_tables={"users": count, "users/Adagrad": count},
        pins={f"users/part_{task}": name for task, name in enumerate(names)},
        time_limit=2,
    )
    assert {plan.variables[f"users/Adagrad/part_{n}"] for n in range(count)} == {*names}
    path = placer.apply(tmp_path / "step.meta", plan, tmp_path / "placed.meta")
    graph_def = v1.MetaGraphDef.FromString(path.read_bytes()).graph_def
    with ClusterSession(graph_def, cluster.file) as session:
        losses = train_table(session)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(str(tmp_path / "step.meta"))
        assert losses == train_table(session)


def train_table(session):
    """Twenty losses of the step that looks rows up."""
    session.run("init")
    draws, losses = np.random.default_rng(0), []
    for _ in range(20):
        feeds = {"ids:0": draws.integers(0, 300, 64), "wanted:0": draws.normal(size=(64, 1))}
        losses.append(session.run(["loss:0", "train"], feeds)[0])
    return losses
