"""Requests for strategies, and the devices of a part."""

from graphs_by_hand import draw_cluster

from placer.strategies.requests import with_all_threads


def test_one_cpu_device_alone_has_the_threads_of_all():
    """What is on one of three CPU devices of a task has the threads of those left out, not those
    of the host, which stays, or of another task; beside a GPU the CPUs of its task stay."""
    cluster = draw_cluster(
        "GPU:0", "CPU:0", "CPU:1", "CPU:2", "/job:worker/task:0/device:CPU:0",
        parallel_ops={"CPU:0": 2, "CPU:1": 3, "CPU:2": 4},
    )  # fmt: skip
    kept = {
        name: {d.name: d.parallel_ops for d in with_all_threads(cluster, name).devices}
        for name in ("CPU:0", "CPU:1", "GPU:0")
    }
    assert kept["CPU:0"] == {"CPU:0": 9}
    assert kept["CPU:1"] == {"CPU:0": 2, "CPU:1": 7}
    assert kept["GPU:0"] == {"CPU:0": 2, "GPU:0": 1, "CPU:1": 3, "CPU:2": 4}
