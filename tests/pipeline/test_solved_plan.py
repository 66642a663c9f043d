"""What a plan says of a placement."""

from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from placer.pipeline.solved_plan import needs_over_caps, step_memory
from placer.prediction.prediction import predict


def _metrics(cluster):
    """Two tensors of 400 bytes at a time, in chunks of 512."""
    graph = draw("a -> b -> c", bytes=400)
    return predict(graph, draw_costs(graph), dict.fromkeys(graph.ops, "GPU:0"), cluster)


def test_a_need_over_a_cap_is_warned_of_where_the_tensors_fit():
    cluster = parse_cluster("GPU:0:900")
    metrics = _metrics(cluster)
    assert metrics.peaks["GPU:0"].high_bytes < 900 < metrics.needs["GPU:0"].need.high_bytes
    ((code, message, _),) = needs_over_caps(cluster, metrics)
    assert code == "need_over_cap"
    assert "GPU:0 is predicted to need 1.00 KiB" in message
    assert not list(needs_over_caps(parse_cluster("GPU:0:2000"), metrics))


def test_the_rows_of_a_plan_have_peaks_and_needs():
    found = step_memory(_metrics(parse_cluster("GPU:0:2000")), "GPU:0")
    assert found["allocator"] == "one region"
    assert 800 <= found["peak_memory_bytes"] < 1024 == found["need_expected_bytes"]
    assert found["need_low_bytes"] <= found["need_expected_bytes"] <= found["need_bytes"]
    assert 1024 <= found["in_use_peak_bytes"] <= 1.02 * 1024
