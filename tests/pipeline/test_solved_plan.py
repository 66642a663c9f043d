"""What a plan says of a placement."""

from types import SimpleNamespace

from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from placer.pipeline.plan_warnings import over_cap_warnings, search_warnings
from placer.pipeline.solved_plan import _answer, _as_predicted, step_memory
from placer.plan.request import Options
from placer.prediction.prediction import predict
from placer.problem.status import Status
from placer.solving.caps.predictions import PEAK_OVER_CAP
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
    ((code, message, _),) = over_cap_warnings(cluster, metrics)
    assert code == "need_over_cap"
    assert "GPU:0 requires 2.10 MiB" in message
    assert "2 B more than its limit of 2.10 MiB" in message
    assert not list(over_cap_warnings(parse_cluster("GPU:0:3MiB"), metrics))


def test_tensors_over_a_cap_are_not_said_to_fit():
    """A placement whose tensors are above the cap, whoever found it, has the other code."""
    metrics = _metrics(parse_cluster("GPU:0:3MiB"))
    cluster = parse_cluster(f"GPU:0:{metrics.peaks['GPU:0'].high_bytes - 2}")
    ((code, message, _),) = over_cap_warnings(cluster, metrics)
    assert code == "peak_over_cap"
    assert "fit" not in message


def test_the_codes_of_a_plan_are_those_of_its_own_prediction():
    """What a search said of its prediction is not repeated, and a conflict that the last one does
    not bear out is gone."""
    warnings = ((PEAK_OVER_CAP, "GPU:0 requires 9 GiB"), ("solver_crashed", "it died"))
    found = Solution(status=Status.UNKNOWN, device_of=(0, 0, 0), value=0.0, warnings=warnings)
    assert [code for code, *_ in search_warnings(found)] == ["solver_crashed"]
    cluster = parse_cluster("GPU:0:3MiB")
    formulation = SimpleNamespace(
        workload=SimpleNamespace(cluster=cluster),
        problem=SimpleNamespace(device_names=("GPU:0", "CPU:0"), capacity_bytes=(1, 1)),
    )
    fits = _as_predicted(formulation, found, _metrics(cluster))
    assert (fits.status, fits.conflict) == (Status.FEASIBLE, None)


def test_devices_over_their_caps_are_in_one_warning():
    """What to do about it is said once."""
    graph = draw("a -> b", "c -> d", bytes=SIZE)
    placement = {"a": "GPU:0", "b": "GPU:0", "c": "GPU:1", "d": "GPU:1"}
    metrics = predict(graph, draw_costs(graph), placement, parse_cluster("2xGPU:3MiB"))
    need = metrics.needs["GPU:0"].need.high_bytes
    ((_, message, _),) = over_cap_warnings(parse_cluster(f"2xGPU:{need - 2}B"), metrics)
    assert [message.count(told) for told in ("GPU:0 requires", "GPU:1 requires")] == [1, 1]
    assert message.count("more than its limit") == 2
    assert message.count("although the tensors fit") == 1


def test_a_placement_whose_need_exceeds_a_cap_is_not_proven_best():
    """Of 1,500 KiB a tensor of 900 gets all, as BFC does not split it, and one of 400 nothing: the
    search says OPTIMAL of peaks, the plan says that nothing is known, and has no bound."""
    graph = draw("a -> b -> c", bytes={"a": 900 * 1024, "b": 400 * 1024})
    solution = Solution(status=Status.OPTIMAL, device_of=(0, 0, 0), value=2.0, lower_bound=2.0)
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
        answer = _answer(formulation, solution, metrics, None)
        told[kib] = answer.status, answer.lower_bound, answer.relative_gap
    assert told == {1500: ("UNKNOWN", None, None), 1900: ("OPTIMAL", 2.0, 0.0)}


def test_the_rows_of_a_plan_have_peaks_and_needs():
    found = step_memory(_metrics(parse_cluster("GPU:0:3MiB")), "GPU:0")
    assert found["allocator"] == "one region"
    chunks = 2 * (SIZE + 156)
    assert 2 * SIZE <= found["peak_expected_bytes"] < chunks == found["need_expected_bytes"]
    assert found["need_low_bytes"] <= found["need_expected_bytes"] <= found["need_bytes"]
    assert chunks <= found["in_use_peak_bytes"] <= 1.02 * chunks
