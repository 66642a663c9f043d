"""What a plan says of a placement."""

from types import SimpleNamespace

from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from placer.pipeline.plan_warnings import needs_over_caps
from placer.pipeline.solved_plan import _answer, step_memory
from placer.plan.request import Options
from placer.prediction.prediction import predict
from placer.problem.status import Status
from placer.solving.solution import Solution

SIZE = 2**20 + 100


def _metrics(cluster):
    """Two tensors of a MiB and 100 bytes at a time, in chunks of 156 bytes more."""
    graph = draw("a -> b -> c", bytes=SIZE)
    return predict(graph, draw_costs(graph), dict.fromkeys(graph.ops, "GPU:0"), cluster)


def test_a_need_over_a_cap_is_warned_of_where_the_tensors_fit():
    metrics = _metrics(parse_cluster("GPU:0:3MiB"))
    peak, need = metrics.peaks["GPU:0"].high_bytes, metrics.needs["GPU:0"].need.high_bytes
    assert peak < need - 2
    cluster = parse_cluster(f"GPU:0:{need - 2}")
    ((code, message, _),) = needs_over_caps(cluster, metrics)
    assert code == "need_over_cap"
    assert "GPU:0 requires 2.10 MiB" in message
    assert "2 B more than its limit" in message
    assert not list(needs_over_caps(parse_cluster("GPU:0:3MiB"), metrics))


def test_devices_over_their_caps_are_in_one_warning():
    """What to do about it is said once."""
    graph = draw("a -> b", "c -> d", bytes=SIZE)
    placement = {"a": "GPU:0", "b": "GPU:0", "c": "GPU:1", "d": "GPU:1"}
    cluster = parse_cluster("2xGPU:2MiB")
    metrics = predict(graph, draw_costs(graph), placement, cluster)
    ((_, message, _),) = needs_over_caps(cluster, metrics)
    assert [message.count(told) for told in ("GPU:0 requires", "GPU:1 requires")] == [1, 1]
    assert message.count("more than its limit of 2.00 MiB") == 2
    assert message.count("although the tensors fit") == message.count("a larger --reserve") == 1


def test_a_placement_whose_need_exceeds_a_cap_is_not_proven_best():
    """Of 1,500 KiB a tensor of 900 gets all, as BFC does not split it, and one of 400 nothing: the
    search says OPTIMAL of peaks, the plan says that nothing is known."""
    graph = draw("a -> b -> c", bytes={"a": 900 * 1024, "b": 400 * 1024})
    solution = Solution(status=Status.OPTIMAL, device_of=(0, 0, 0), value=0.0)
    told = {}
    for kib in (1500, 1900):
        cluster = parse_cluster(f"GPU:0:{kib}KiB")
        metrics = predict(graph, draw_costs(graph), dict.fromkeys(graph.ops, "GPU:0"), cluster)
        assert metrics.peaks["GPU:0"].high_bytes < 1500 * 1024
        formulation = SimpleNamespace(
            workload=SimpleNamespace(
                cluster=cluster, wanted=Options(), extraction=SimpleNamespace(warnings=())
            ),
            problem=SimpleNamespace(objective="transfer", op_names=(), slower_bytes=()),
            assumed={},
        )
        told[kib] = _answer(formulation, solution, metrics, None).status
    assert told == {1500: "UNKNOWN", 1900: "OPTIMAL"}


def test_the_rows_of_a_plan_have_peaks_and_needs():
    found = step_memory(_metrics(parse_cluster("GPU:0:3MiB")), "GPU:0")
    assert found["allocator"] == "one region"
    chunks = 2 * (SIZE + 156)
    assert 2 * SIZE <= found["peak_expected_bytes"] < chunks == found["need_expected_bytes"]
    assert found["need_low_bytes"] <= found["need_expected_bytes"] <= found["need_bytes"]
    assert chunks <= found["in_use_peak_bytes"] <= 1.02 * chunks
