import pytest

from placer.application.devices.device_mapping import (
    configure_logical_cpus,
    process_mapping,
    rehearsal_mapping,
)
from placer.errors import UsageError


def test_a_rehearsal_numbers_accelerators_after_the_host_and_further_cpus_last():
    """The host stays itself; GPUs come next in order, tasks apart; other CPUs follow."""
    names = ["GPU:1", "CPU:1", "GPU:0", "/job:worker/task:1/device:GPU:0", "CPU:0"]
    mapping = rehearsal_mapping(names)
    assert mapping.rehearsed
    assert mapping.stand_ins == {
        "CPU:0": "CPU:0",
        "GPU:0": "CPU:1",
        "GPU:1": "CPU:2",
        "/job:worker/task:1/device:GPU:0": "CPU:3",
        "CPU:1": "CPU:4",
    }
    assert mapping.cpu_count == 5
    assert mapping.stand_in("/device:GPU:1") == "/job:localhost/replica:0/task:0/device:CPU:2"
    assert mapping.planned("/job:localhost/replica:0/task:0/device:CPU:2") == "GPU:1"
    assert mapping.stand_in("") == ""


def test_absent_devices_are_rehearsed_unless_hardware_is_demanded():
    """GPU:97 exists nowhere: it is rehearsed, and refused with on_hardware."""
    mapping = process_mapping({"GPU:97", "CPU:0"})
    assert mapping.rehearsed
    assert mapping.stand_in("GPU:97").endswith("CPU:1")
    with pytest.raises(UsageError, match=r"GPU:97.*this machine has.*CPU:0"):
        process_mapping({"GPU:97"}, on_hardware=True)
    assert not process_mapping({"CPU:0"}).rehearsed


def test_too_few_logical_cpus_after_the_start_is_an_error_with_the_next_step():
    """Once TensorFlow runs, more devices cannot be had; the message names the call to make."""
    import tensorflow as tf

    tf.constant(1.0)
    present = len(tf.config.list_logical_devices("CPU"))
    configure_logical_cpus(present)
    with pytest.raises(UsageError, match=r"cpu_devices\(\d+\) right after import tensorflow"):
        configure_logical_cpus(present + 1)
