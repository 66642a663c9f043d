"""TensorFlow finds simulated GPUs and runs programs on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.simulated_runs import answer_of, require_simulation, run_script

from cost_models.clusters import parse_cluster
from cost_models.device_names import parse
from placer.errors import UsageError
from placer.simulation import environment
from placer.simulation.building import Libraries
from placer.simulation.cards import read_cards
from placer.simulation.environment import xla_flags
from placer.simulation.records import read_records

MIB = 2**20

LIST = """
import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    print(tf.config.experimental.get_device_details(gpu)["compute_capability"])
print(len(tf.config.list_logical_devices("GPU")))
"""

CREATED = re.compile(r"device:(GPU:\d+) with (\d+) MB memory.*name: (.+?), pci.*capability: (\S+)")


@pytest.mark.slow
def test_tensorflow_lists_the_cards() -> None:
    """TensorFlow logs each card with its name, its capability and the cap of the preset, to the
    MiB."""
    devices = "T4,A100-80GB,H100-80GB,GPU:300MiB"
    done = run_script(LIST, devices)
    assert done.returncode == 0, done.stderr[-4000:]
    expected = [gpu for gpu in parse_cluster(devices).devices if parse(gpu.name).type == "GPU"]
    found = CREATED.findall(done.stderr)
    assert [int(row[1]) for row in found] == [gpu.memory_limit_bytes // MIB for gpu in expected]
    names = [gpu.model or "Simulated GPU" for gpu in expected]
    assert [row[2] for row in found] == names
    assert [row[3].rstrip("a") for row in found] == [
        gpu.compute_capability or "7.5" for gpu in expected
    ]


CHOSEN = """
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[:2], "GPU")
limits = [tf.config.LogicalDeviceConfiguration(memory_limit=limit) for limit in (1024, 2048)]
tf.config.set_logical_device_configuration(gpus[0], limits)
print(len(gpus), len(tf.config.list_logical_devices("GPU")))
"""


@pytest.mark.slow
def test_devices_are_chosen_as_on_cards() -> None:
    """Of four cards ``CUDA_VISIBLE_DEVICES`` leaves three and ``set_visible_devices`` two, of which
    the first is divided into logical devices with limits of their own."""
    done = run_script(CHOSEN, "T4,A100-40GB,L4,T4", CUDA_VISIBLE_DEVICES="0,2,3")
    assert done.stdout.splitlines() == ["3 3"], done.stderr[-4000:]
    rows = [(name, size, model) for name, size, model, _ in CREATED.findall(done.stderr)]
    assert rows[:2] == [("GPU:0", "1024", "T4"), ("GPU:1", "2048", "T4")]
    assert [row[2] for row in rows[2:]] == ["L4"]


GROWING = """
import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
with tf.device("GPU:0"):
    tf.ones((1024, 1024)) + 1.0
"""

A_QUARTER = """
import tensorflow.compat.v1 as tf
options = tf.GPUOptions(per_process_gpu_memory_fraction=0.25)
with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(gpu_options=options)) as session:
    print(session.run(tf.ones((2, 2)) + 1.0).shape)
"""


@pytest.mark.slow
def test_memory_is_taken_as_the_program_says(tmp_path: Path) -> None:
    """With memory growth TensorFlow takes some MiB of a card, with a fraction that share of it."""
    taken = {}
    for name, script in (("growing", GROWING), ("a quarter", A_QUARTER)):
        folder = tmp_path / name
        folder.mkdir()
        answer_of(script, "1xT4", folder)
        (process,) = read_records(folder)
        taken[name] = process.gpus[0].taken_bytes
    assert 8 * MIB <= taken["growing"] <= 32 * MIB
    total = read_cards("1xT4")[0].memory.total_bytes
    assert taken["a quarter"] == pytest.approx(0.25 * total, rel=0.02)


PROGRAMS = """
import json, numpy as np, keras, tensorflow as tf
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse", jit_compile=False)
model.fit(np.ones((40, 8), "float32"), np.ones((40, 1), "float32"), batch_size=16, verbose=0)
found = {"steps": int(model.optimizer.iterations.numpy()), "on": model.weights[0].value.device[-5:]}
with tf.device("GPU:0"):
    one = tf.constant([[1, 2], [3, 4]], tf.int64)
with tf.device("GPU:1"):
    other = tf.identity(one)
found["copied"] = other.numpy().tolist()
found["there"] = other.device[-5:]
graph = tf.Graph()
with graph.as_default():
    with tf.device("/GPU:0"):
        a = tf.compat.v1.get_variable("a", shape=(64, 64))
    with tf.device("/GPU:1"):
        b = tf.matmul(a, a)
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        found["shape"] = session.run(b).shape
found["memory"] = [tf.config.experimental.get_memory_info(f"GPU:{i}")["peak"] > 0 for i in (0, 1)]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_programs_run_on_two_cards() -> None:
    """Keras's fit, a copy from card to card with its values, and a session over two cards run."""
    found = json.loads(answer_of(PROGRAMS, "2xT4", TF_CPP_MIN_LOG_LEVEL="3"))
    assert found == {
        "steps": 3,
        "on": "GPU:0",
        "copied": [[1, 2], [3, 4]],
        "there": "GPU:1",
        "shape": [64, 64],
        "memory": [True, True],
    }


IN_PROCESS = """
import placer
placer.simulate_gpus("4xT4")
placer.simulate_gpus("4xT4")
import tensorflow as tf
print(len(tf.config.list_physical_devices("GPU")), tf.reduce_sum(tf.zeros(4)).device[-5:])
for devices in ("4xT4", "2xT4"):
    try:
        placer.simulate_gpus(devices)
    except placer.errors.UsageError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_process_simulates_for_itself() -> None:
    """simulate_gpus() before TensorFlow is imported does as well, and again changes nothing; for
    other GPUs it is an error."""
    require_simulation()
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = "this process simulates other GPUs already: start another process for these"
    assert done.stdout.splitlines() == ["4 GPU:0", told]


def test_after_tensorflow_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once TensorFlow is imported it has looked for GPUs."""
    from placer import simulate_gpus

    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    with pytest.raises(UsageError, match=r"before import tensorflow"):
        simulate_gpus("2xT4")


def test_what_cannot_be_simulated_is_told() -> None:
    """No GPU, too many, unknown models and several tasks are errors of usage."""
    for devices in (
        "CPU:4GiB",
        "65xT4",
        "2xT5",
        "/job:a/task:0/GPU:0=1GiB,/job:a/task:1/GPU:0=1GiB",
    ):
        with pytest.raises(UsageError):
            read_cards(devices)


def test_cards_whose_bookkeeping_fills_the_host_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight A100-80GB would take 19 GiB of the host: their memory grows unless the user chose."""
    monkeypatch.setattr(environment, "host_memory_bytes", lambda: 24 * 2**30)
    note = environment.growth_note(read_cards("8xA100-80GB"), {})
    assert "TF_FORCE_GPU_ALLOW_GROWTH=true is set" in note
    assert "19.4 GiB" in note
    assert not environment.growth_note(read_cards("2xT4"), {})
    assert not environment.growth_note(read_cards("8xA100-80GB"), {environment.GROWTH: "false"})


def test_flags_of_the_user_stay() -> None:
    """XLA gets the flags that it needs beside the user's own, which win."""
    assert xla_flags("").split() == [
        "--xla_gpu_enable_command_buffer=",
        "--xla_gpu_autotune_level=0",
    ]
    assert xla_flags("--xla_dump_to=/x --xla_gpu_autotune_level=4").split() == [
        "--xla_dump_to=/x",
        "--xla_gpu_autotune_level=4",
        "--xla_gpu_enable_command_buffer=",
    ]


def test_a_folder_with_a_space_is_preloaded_through_a_link(tmp_path) -> None:
    """``LD_PRELOAD`` ends paths at spaces, and the rest would be looked for in the current
    directory."""
    folder = tmp_path / "a user's cache" / "lib"
    folder.mkdir(parents=True)
    (folder / "libx.so").write_text("x")
    libraries = Libraries(folder=folder, paths=(folder / "libx.so",))
    changes = environment._changes((), libraries, {"LD_PRELOAD": "/mine.so"})
    own, mine = changes["LD_PRELOAD"].split()
    assert mine == "/mine.so"
    assert os.path.samefile(own, folder / "libx.so")
