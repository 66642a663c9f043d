"""Gates judge the model, not which of several placements a search came by."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from graphs_by_hand import draw, draw_costs
from plans_by_hand import MIB, device_row, small_plan

from cost_models.clusters import parse_cluster
from placer.__main__ import main
from placer.commands.gates import Gates, check_findings, check_plan, judge, require_like
from placer.errors import UsageError
from placer.pipeline.solved_plan import step_memory
from placer.plan.plan import Plan
from placer.prediction.prediction import predict


def gpus(*peaks: int) -> Plan:
    """A plan whose GPUs peak at so many MiB."""
    rows = (device_row(f"GPU:{n}", peak_memory_bytes=p * MIB) for n, p in enumerate(peaks))
    return small_plan(devices=(*rows, device_row("CPU:0", peak_memory_bytes=1024)))


def over(before: Plan, after: Plan) -> list[str]:
    return check_plan(after, Gates({}, before, 0.05))


def test_devices_of_one_kind_are_judged_by_their_sorted_peaks():
    """Which of two GPUs holds more is a matter of names, an even division is not the worse one;
    more on the fullest, and more on both together, is more."""
    assert over(gpus(133, 250), gpus(250, 133)) == []
    assert over(gpus(250, 133), gpus(133, 250)) == []
    assert over(gpus(250, 0), gpus(130, 125)) == []
    assert over(gpus(200, 0), gpus(0, 250)) == [
        "the required memory of GPU:1 is 250 MiB, in the baseline 200 MiB (more than +5.0%)",
        "the required memory of the 2 fullest GPU devices together is 250 MiB, in the baseline "
        "200 MiB (more than +5.0%)",
    ]
    assert over(gpus(250, 0), gpus(250, 100)) == [
        "the required memory of the 2 fullest GPU devices together is 350 MiB, in the baseline "
        "250 MiB (more than +5.0%)"
    ]


def test_a_baseline_of_another_request_is_refused():
    """Another batch, strategy or model, other devices, another limit: each is named; names of
    devices and of the model itself, the memory of a host that nobody said, and what a model has
    more do not count."""
    plan = small_plan(request={"devices": "2xT4"})
    grown = {name.replace("a", "a_1"): name for name in (*plan.placement, "c", "d", "e")}
    require_like(plan, replace(plan, placement=grown), "plan.json")
    narrow, wide = (
        {f"run/mobilenet_{width}/layer_{n}/op": "GPU:0" for n in "abc"} for width in ("1.00", "1.4")
    )
    require_like(replace(plan, placement=narrow), replace(plan, placement=wide), "plan.json")
    resnet = {
        "model": {**plan.model, "path": "models/resnet"},
        "placement": {"p": "GPU:0", "q": "GPU:0"},
    }
    host = replace(plan.devices[2], usable_bytes=7)
    require_like(plan, replace(plan, devices=(*reversed(plan.devices[:2]), host)), "plan.json")
    tighter = replace(plan.devices[0], memory_limit_bytes=99 * MIB, usable_bytes=99 * MIB)
    for other, told in (
        ({"bindings": {**plan.bindings, "batch_size": 64}}, "batch 32, here 64"),
        ({"devices": plan.devices[1:]}, "devices 2x T4, here 1x T4"),
        (
            {"devices": (tighter, *plan.devices[1:])},
            "limits 2x T4 of 100 MiB, here 1x T4 of 99.0 MiB, 1x T4",
        ),
        ({"request": {**plan.request, "strategy": "replicas:2"}}, "strategy none, here replicas:2"),
        (
            resnet,
            r"model models/small \(4 ops\), here models/resnet.*, which have few ops in common",
        ),
    ):
        with pytest.raises(UsageError, match=f"plan.json was made for another request: {told}"):
            require_like(plan, replace(plan, **other), "plan.json")


@pytest.mark.parametrize("seed", range(30))
def test_a_gate_and_a_cap_say_the_same(seed):
    """Of drawn graphs, placed at random: whether a device is above a limit is what a plan made
    under that cap says, at what it requires, a byte less, half, and below what allocators get."""
    random = Random(seed)
    names = [f"n{number}" for number in range(9)]
    edges = [f"{random.choice(names[:n])} -> {names[n]}" for n in range(1, 9) for _ in (0, 1)]
    sizes = {name: 4 * random.randrange(1, random.choice((99, MIB))) for name in names}
    graph = draw(*edges, bytes=sizes, feeds=names[:1])
    kept = {name: sizes[name] for name in names[5:7]}
    costs = draw_costs(graph, persistent_bytes=kept)
    cluster = parse_cluster("2xGPU:8MiB")
    placement = {name: random.choice([*cluster.caps]) for name in graph.ops}
    metrics = predict(graph, costs, placement | {"n0": "CPU:0"}, cluster)
    required = metrics.taken_bytes(cluster.caps)
    rows = [device_row(name, **step_memory(metrics, name)) for name in cluster.caps]
    plan = small_plan(devices=tuple(rows))
    for row in rows:
        whole = required[row.name]
        assert row.required_bytes == whole
        for limit in (whole, max(whole - 1, 0), whole // 2, MIB - 1):
            over = row.name in metrics.over_caps({**cluster.caps, row.name: limit})
            assert bool(check_plan(plan, Gates({row.name: limit}, None, 0.0))) == over


def test_a_limit_below_an_allocators_says_what_it_holds_for():
    """The table says required; a limit that no allocator is given holds for the peak alone, as a
    cap does, whether it is kept or not."""
    row = device_row("GPU:0", need_bytes=142 * 1024, peak_memory_bytes=85 * 1024)
    plan = small_plan(devices=(row, device_row("CPU:0")))
    passed = judge(Gates({"GPU:0": 100 * 1024}, None, 0.0), plan, {}, {}, lambda _: None)
    assert passed.passed
    assert passed.notes == (
        "GPU:0 requires 142 KiB; a limit below 1.00 MiB is compared with its peak, 85.0 KiB",
    )
    failed = judge(Gates({"GPU:0": 1024}, None, 0.0), plan, {}, {}, lambda _: None)
    told = "GPU:0 peaks at 85.0 KiB, 84.0 KiB more than its --fail-above limit of 1.00 KiB"
    assert failed.failures == (told,)
    assert failed.notes == passed.notes


def test_the_placement_of_the_baseline_may_pass_in_place_of_the_new_one():
    """A search that ends elsewhere says nothing about the model; a baseline whose own placement
    takes more now does."""
    before, after = gpus(100, 100), gpus(150, 100)
    gates = Gates({}, before, 0.05)
    passed = judge(gates, after, {}, {}, lambda baseline: baseline)
    assert passed.passed
    assert passed.notes[0] == "the placement of the baseline still keeps the limits"
    assert "GPU:0 is 150 MiB" in passed.notes[1]
    grown = judge(gates, after, {}, {}, lambda _: gpus(120, 100))
    other = judge(gates, after, {}, {}, lambda _: None)
    assert not grown.passed
    assert grown.failures == other.failures != ()


def test_an_unchanged_model_passes_whatever_the_search_found(saved_model, tmp_path, capsys):
    """A baseline that is better than what a search finds (here: its figures are those of another
    placement of the same model) is predicted again before the gate trips."""
    baseline, other = tmp_path / "baseline.json", tmp_path / "other.json"
    place = ["place", str(saved_model), "--devices", "2xGPU:2MiB", "--batch-size", "8"]
    assert main([*place, "--pin", "*=GPU:1", "-o", str(baseline), "-q"]) == 0
    apart = ["--pin", "*layer_1*=GPU:0", "--baseline", str(baseline), "--fail-above", "+5%"]
    capsys.readouterr()
    pinned = ["--pin", "*layer_2*=GPU:1", "--format", "json"]
    assert main([*place, *apart, *pinned, "-o", str(other)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"]["transfer_bytes"] > Plan.load(baseline).metrics.transfer_bytes * 1.05
    assert told["gate"]["passed"] is True
    assert "what a step sends is" in " ".join(told["gate"]["notes"])
    assert Plan.load(other).gate == Plan.from_json(json.dumps(told)).gate


@pytest.mark.slow
def test_the_verdict_is_in_the_markdown_and_in_the_json(saved_model, tmp_path, capsys):
    """Passed and failed, of a plan and of a report; a plan without gates has none."""
    place = ["place", str(saved_model), "--devices", "2xGPU:300KiB", "--batch-size", "8"]
    place += ["--offload", "never"]
    assert main([*place, "--fail-above", "GPU:*=299KiB", "--format", "markdown"]) == 0
    assert "### Gate\n\n- **verdict**: passed\n" in capsys.readouterr().out
    assert main([*place, "--fail-above", "GPU:*=10KiB", "--format", "markdown"]) == 7
    shown = capsys.readouterr().out
    assert "- **verdict**: failed\n- **why**: GPU:0 requires" in shown
    assert main([*place, "--fail-above", "GPU:*=10KiB", "--format", "json"]) == 7
    assert json.loads(capsys.readouterr().out)["gate"]["passed"] is False
    assert main([*place, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gate"] is None
    report = ["report", str(saved_model), "--fail-on", "unknown-shape", "--format", "json"]
    assert main(report) == 7
    assert "unknown shape" in json.loads(capsys.readouterr().out)["gate"]["failures"][0]


def test_a_size_that_is_assumed_is_an_unknown_one():
    """A plan that assumes the size of what it sends trips the gate on unknown shapes."""
    (told,) = check_findings(["unknown-shape"], {}, {"assumed_sizes": 6})
    assert told == "6 tensors that may be sent have an unknown size"
