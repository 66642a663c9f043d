"""Gates judge the model, not which of several placements a search came by."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from plans_by_hand import MIB, device_row, small_plan

from placer.__main__ import main
from placer.commands.gates import Gates, check_plan, judge, require_like
from placer.errors import UsageError
from placer.plan.plan import Plan


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
    """Another batch, other devices, another limit: each is named; names, and the memory of a host
    that nobody said, do not count."""
    plan = small_plan(request={"devices": "2xT4"})
    host = replace(plan.devices[2], usable_bytes=7)
    require_like(plan, replace(plan, devices=(*reversed(plan.devices[:2]), host)), "plan.json")
    tighter = replace(plan.devices[0], usable_bytes=99 * MIB)
    for other, told in (
        ({"bindings": {**plan.bindings, "batch_size": 64}}, "batch 32, here 64"),
        ({"devices": plan.devices[1:]}, "devices 2x T4, here 1x T4"),
        (
            {"devices": (tighter, *plan.devices[1:])},
            "limits 2x T4 of 100 MiB, here 1x T4 of 99.0 MiB, 1x T4",
        ),
    ):
        with pytest.raises(UsageError, match=f"plan.json was made for another request: {told}"):
            require_like(plan, replace(plan, **other), "plan.json")


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
