"""All predictions of one placement at once."""

import subprocess
import sys

from graphs_by_hand import draw, draw_cluster, draw_costs

from placer.prediction.prediction import predict


def test_metrics_hold_all_parts():
    """Transfers, one timeline per device of the cluster, and the schedule.

    CPU:0 x --feed--> GPU:0 a --data--> GPU:1 b --fetch--> CPU:0
    """
    graph = draw("x=Placeholder -> a -> b", bytes=400, feeds=["x"], fetches=["b:0"])
    placement = {"x": "CPU:0", "a": "GPU:0", "b": "GPU:1"}
    metrics = predict(graph, draw_costs(graph), placement, draw_cluster("GPU:0", "GPU:1"))
    assert metrics.bytes_of("data", "feed") == 800
    assert metrics.bytes_of("fetch") == 400
    assert {name: line.peak_bytes for name, line in metrics.timelines.items()} == {
        "GPU:0": 800,
        "GPU:1": 800,
        "CPU:0": 800,
    }
    assert metrics.schedule.step_seconds == metrics.schedule.critical_path_seconds > 0


def test_importing_the_package_loads_nothing_heavy():
    """Neither networkx nor TensorFlow nor OR-Tools is needed to predict."""
    code = (
        "import sys, placer.prediction.prediction, placer.prediction.orders.step_peaks;"
        "print(sorted({'networkx', 'tensorflow', 'ortools', 'rich'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
