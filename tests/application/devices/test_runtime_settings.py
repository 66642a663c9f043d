"""TensorFlow set up for a plan: in a fresh process, on pretended GPUs, and too late."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import tensorflow as tf
from plans_by_hand import small_plan

from placer.application.devices import device_mapping, runtime_settings
from placer.errors import UsageError
from placer.plan.plan import Plan

ROOT = Path(__file__).resolve().parents[3]

FRESH = """
from types import SimpleNamespace
import tensorflow as tf
import placer
plan = SimpleNamespace(placement={"a": "GPU:0", "b": "GPU:1", "c": "CPU:0"}, devices=())
mapping = placer.configure_runtime(plan, soft_placement=False)
assert mapping.rehearsed
assert len(tf.config.list_logical_devices("CPU")) == 3
assert not tf.config.get_soft_device_placement()
from tensorflow.python.eager import context
options = tf.compat.v1.ConfigProto.FromString(
    context.context().function_call_options.config_proto_serialized
).graph_options.rewrite_options
assert options.memory_optimization == options.MANUAL
try:
    placer.configure_runtime(plan)
except placer.errors.PlacerError as error:
    print(error)
"""


def plan_on(*devices):
    """As much of a plan as the settings read; every GPU has 2 GiB."""
    rows = [SimpleNamespace(name=name, memory_limit_bytes=2 << 30) for name in devices]
    return SimpleNamespace(placement=dict(enumerate(devices)), devices=tuple(rows))


def test_a_fresh_process_is_set_up_once():
    """Devices, threads and soft placement hold; a second call says that it is too late."""
    command = [sys.executable, "-c", FRESH]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "right after import tensorflow" in done.stdout


@pytest.fixture
def pretended(monkeypatch):
    """Two GPUs in a process whose TensorFlow has not started; the calls that configure them."""
    gpus = [SimpleNamespace(name=f"/physical_device:GPU:{n}", device_type="GPU") for n in range(2)]
    calls = []

    def record(name):
        return lambda *arguments: calls.append((name, *arguments))

    from tensorflow.python.eager import context

    monkeypatch.setattr(context, "context", lambda: SimpleNamespace(_initialized=False))
    cpu = SimpleNamespace(name="/physical_device:CPU:0", device_type="CPU")
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: gpus if kind else [cpu, *gpus]
    )
    for name in ("set_visible_devices", "set_logical_device_configuration"):
        monkeypatch.setattr(tf.config, name, record(name))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", record("growth"))
    monkeypatch.setattr(tf.config, "set_soft_device_placement", record("soft"))
    monkeypatch.setattr(runtime_settings, "configure_logical_cpus", record("cpus"))
    return gpus, calls


def test_gpus_of_the_plan_are_visible_with_its_caps(pretended):
    """One GPU of two, limited to the plan's cap in MiB; likewise of devices without a plan."""
    gpus, calls = pretended
    mapping = runtime_settings.configure_runtime(plan_on("GPU:0", "CPU:0"), memory="limit")
    assert not mapping.rehearsed
    assert ("set_visible_devices", gpus[:1], "GPU") in calls
    (limits,) = [call for call in calls if call[0] == "set_logical_device_configuration"]
    assert limits[1] is gpus[0]
    assert [part.memory_limit for part in limits[2]] == [2048]
    calls.clear()
    runtime_settings.configure_runtime("1xGPU:3GiB", memory="limit")
    assert ("set_visible_devices", gpus[:1], "GPU") in calls
    (limits,) = [call for call in calls if call[0] == "set_logical_device_configuration"]
    assert [part.memory_limit for part in limits[2]] == [3072]


def test_one_gpu_is_divided_for_a_rehearsal(pretended):
    """Three planned GPUs, two there: the first becomes three logical ones."""
    _, calls = pretended
    plan = plan_on("GPU:0", "GPU:1", "GPU:2")
    mapping = runtime_settings.configure_runtime(plan, split_gpu=True)
    assert not mapping.rehearsed
    (divided,) = [call for call in calls if call[0] == "set_logical_device_configuration"]
    assert [part.memory_limit for part in divided[2]] == [2048] * 3
    with pytest.raises(UsageError, match="GPU:2"):
        runtime_settings.configure_runtime(plan, on_hardware=True)


def test_it_is_too_late_once_tensorflow_runs():
    tf.constant(1)
    with pytest.raises(UsageError, match="already started"):
        runtime_settings.configure_runtime(plan_on("GPU:0"))


def test_sessions_get_a_config_proto():
    """Visible GPUs and caps on the hardware, logical CPUs in a rehearsal."""
    plan = plan_on("GPU:0", "GPU:1")
    config = runtime_settings.session_config(plan, memory="limit", rehearse=False)
    assert config.gpu_options.visible_device_list == "0,1"
    limits = [d.memory_limit_mb[0] for d in config.gpu_options.experimental.virtual_devices]
    assert limits == [2048, 2048]
    options = config.graph_options.rewrite_options
    assert options.memory_optimization == options.MANUAL
    rehearsal = runtime_settings.session_config(plan, rehearse=True)
    assert (rehearsal.device_count["CPU"], rehearsal.device_count["GPU"]) == (3, 0)


@pytest.mark.parametrize("ask", [runtime_settings.session_config, Plan.scope])
def test_nothing_is_set_up_for_a_plan_without_a_placement(ask):
    """The error says why, as that of apply does."""
    plan = replace(small_plan(), placement={})
    with pytest.raises(UsageError, match="the plan has no placement"), ask(plan):
        pass


def test_sessions_rehearse_where_gpus_are_absent(monkeypatch, caplog):
    """Unasked, with a warning; a plan for another task's devices is left as it is."""
    monkeypatch.setattr(device_mapping, "_physical_devices", lambda: {"CPU:0"})
    rehearsal = runtime_settings.session_config(plan_on("GPU:0", "GPU:1"))
    assert (rehearsal.device_count["CPU"], rehearsal.device_count["GPU"]) == (3, 0)
    assert (
        "(GPU:0 on CPU:1, GPU:1 on CPU:2). Start the session with config=placer.session"
        in caplog.text
    )
    caplog.clear()
    runtime_settings.session_config(plan_on("/job:worker/task:1/device:GPU:0"))
    assert not caplog.text
