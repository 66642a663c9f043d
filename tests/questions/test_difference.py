"""What differs between two plans, or between two models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans_by_hand import MIB, device_row, infeasible_plan, small_plan, transfer_row

from cost_models.byte_sizes import AMPLE_BYTES
from placer.errors import UsageError
from placer.questions.difference import diff_models, diff_plans
from placer.rendering.text.difference_text import difference_blocks, difference_csv
from placer.rendering.text.formats import render

MOVED = """\
A step is faster (4.10 ms -> 2.10 ms), 1.00 MiB more are sent, 1 op moved.

a -> b
plans of the same graph

Figure            Before     After  Difference
──────────────────────────────────────────────────────
busiest device   2.00 ms   2.00 ms           0
critical path    4.00 ms   4.00 ms           0
fetch bytes        128 B     128 B           0
messages               4         4           0
sent bytes      3.00 MiB  4.00 MiB   +1.00 MiB  +33.3%
step             4.10 ms   2.10 ms    -2.00 ms  -48.8%
required GPU:0  60.0 MiB  60.0 MiB           0
required GPU:1  90.0 MiB  90.0 MiB           0
required CPU:0  1.00 KiB  1.00 KiB           0

1 op moved: 1 GPU:0 to GPU:1

Moved  From   To
───────────────────
a      GPU:0  GPU:1

Transfer only before (2)
────────────────────────
a:0 GPU:0 -> GPU:1
^a GPU:0 -> GPU:1

Transfer only after (1)
───────────────────────
x:0 CPU:0 -> GPU:1
"""


def moved_plan():
    """The small plan with ``a`` on GPU:1, where ``x`` is fed too."""
    plan = small_plan()
    rows = [row for row in plan.transfers if not row.tensor.endswith(("a:0", "^a"))]
    return replace(
        plan,
        placement={**plan.placement, "a": "GPU:1"},
        transfers=(*rows, transfer_row("x:0", "CPU:0", "GPU:1", MIB, "feed")),
        metrics=replace(plan.metrics, sent_bytes=4 * MIB + 1024 + 128, step_seconds=0.0021),
    )


def test_a_plan_does_not_differ_from_itself():
    """No figure, no op, no transfer."""
    found = diff_plans(small_plan(), small_plan())
    assert found.is_empty
    text = found.summary()
    assert text.startswith("Nothing differs.\n\nbefore -> after\n")


def test_what_moved_is_told():
    """The op, its transfers, and the figures that changed."""
    found = diff_plans(small_plan(), moved_plan())
    text = render(
        lambda w: difference_blocks(replace(found, before="a", after="b"), w),
        "text",
        width=80,
        colour=False,
    )
    assert text == MOVED
    assert "moved,a,GPU:0,GPU:1" in difference_csv(found).splitlines()


def test_a_plan_without_a_placement_is_said_to_have_none():
    """Its figures are unknown, not equal."""
    pair = (infeasible_plan(), small_plan())
    assert "first plan has no placement" in diff_plans(*pair).summary(width=200)
    assert "second plan has no placement" in diff_plans(*reversed(pair)).summary(width=200)
    full, *others = small_plan().devices
    over = replace(small_plan(), devices=(replace(full, peak_memory_bytes=107 * MIB), *others))
    for sides in ((infeasible_plan(), over), (replace(over, devices=tuple(others)), over)):
        figures = {change.name: change for change in diff_plans(*sides).figures}
        assert figures["over limit GPU:0"].before is figures["required GPU:0"].before is None
        assert figures["over limit GPU:0"].after == 7 * MIB


def test_other_options_and_a_plan_that_does_not_fit_are_told():
    """What was asked for, and by how much a limit is exceeded; rounding is no difference."""
    before, gpu = small_plan(), small_plan().devices[0]
    devices = (replace(gpu, peak_memory_bytes=107 * MIB), *before.devices[1:])
    seconds = before.metrics.step_seconds * (1 + 1e-13)
    metrics = replace(before.metrics, step_seconds=seconds)
    request = {"objective": "step-time", "offload": "never", "time_limit": 5.0}
    found = diff_plans(before, replace(before, devices=devices, metrics=metrics, request=request))
    text = found.summary(width=200)
    assert text.startswith("The objective and offload differ, the plan after does not fi")
    assert "objective  default -> step-time" in text
    assert "over limit GPU:0" in text
    assert "+7.00 MiB" in text
    assert "step " not in text.partition("\n")[0]


def test_plans_of_models_with_little_in_common_say_so_first():
    """Before all that follows from it; shapes are shown as they are given."""
    first, *others = small_plan().placement
    placement = {first: "GPU:0", **{f"other_{name}/x": "GPU:0" for name in others}}
    request = {"shapes": {"ids": [32, 20]}, "keep_together": ["users*", "layers*"]}
    other = replace(small_plan(), placement=placement, request=request)
    text = diff_plans(small_plan(), other).summary(width=200)
    assert text.startswith("The model, shapes and keep together differ")
    assert " default -> ids=32x20" in text
    assert " default -> users*, layers*" in text


def test_plans_of_different_models_are_refused():
    """They share no op."""
    other = replace(small_plan(), placement={"elsewhere": "GPU:0"})
    with pytest.raises(UsageError, match="share no op"):
        diff_plans(small_plan(), other)


def test_models_differ_by_ops_and_figures():
    """One more op, one of another type, and the work of the new one."""
    import tensorflow as tf

    def model(widen: bool):
        graph = tf.Graph()
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float32, [8, 16], name="x")
            y = tf.nn.relu(x, name="y") if widen else tf.nn.elu(x, name="y")
            z = tf.matmul(y, y, transpose_b=True, name="extra") if widen else y
            tf.identity(z, name="out")
        return graph

    found = diff_models(model(False), model(True), outputs=("out",))
    assert (found.same_graph, found.only_before, found.only_after) == (False, (), ("extra",))
    assert found.changed == ("y", "out")
    figures = {change.name: change.difference for change in found.figures}
    assert figures["op_count"] == 1
    assert figures["required_bytes"] is not None
    assert "on one A100-40GB is slower" in found.summary(width=200).partition("\n")[0]
    assert figures["flops"] >= 2 * 8 * 8 * 16 - 8 * 16 * 10
    assert diff_models(model(True), model(True), outputs=("out",)).is_empty
    told = replace(found, unknown_tensors=2).summary(width=200).partition("\n")[0]
    assert told == found.summary(width=200).partition("\n")[0] + (
        " 2 tensors of unknown size not counted."
    )


def test_a_tensor_in_both_memories_is_two_transfers():
    """Their number is that of the messages."""
    plan = small_plan()
    row = transfer_row("y:0", "CPU:0", "GPU:1", MIB, "feed")
    both = (*plan.transfers, replace(row, memory="host"), row)
    found = diff_plans(plan, replace(plan, transfers=both))
    assert found.only_after == ("y:0 CPU:0 -> GPU:1", "y:0 CPU:0 -> GPU:1 (host memory)")


def test_a_step_that_reads_alike_is_neither_faster_nor_slower():
    """The row below has the share."""
    plan = small_plan()
    metrics = replace(plan.metrics, step_seconds=plan.metrics.step_seconds * (1 - 1e-3))
    text = diff_plans(plan, replace(plan, metrics=metrics)).summary(width=200)
    assert text.startswith("Only figures differ.")
    assert "-4.10 µs" in text


def test_limits_are_those_that_were_asked_for():
    """With the reserve beside them, of every device that has one, those of a cluster file too; a
    host as large as needed has none."""
    plan = small_plan(request={"devices": "2xT4"})
    rows = [replace(row, usable_bytes=90 * MIB) for row in plan.devices[:2]]
    kept = replace(plan, devices=(*rows, plan.devices[2]), request={**plan.request, "reserve": "x"})
    assert diff_plans(plan, kept).asked == (
        ("limits", "2x T4 of 100 MiB", "2x T4 of 100 MiB less a reserve of 10.0 MiB"),
    )
    hosts = [
        device_row(f"/job:worker/task:{n}/device:CPU:0", type="CPU", memory_limit_bytes=5 * MIB)
        for n in (0, 1)
    ]
    host = device_row("CPU:0", memory_limit_bytes=AMPLE_BYTES, usable_bytes=AMPLE_BYTES)
    hosts = [replace(row, usable_bytes=5 * MIB) for row in hosts]
    cluster = replace(plan, devices=(*plan.devices[:2], *hosts, host))
    cluster = replace(cluster, request={"devices": "cluster.toml"})
    alone = replace(cluster, devices=(*hosts, host))
    limits = "2x CPU of 5.00 MiB"
    assert diff_plans(cluster, alone).asked == (
        ("devices", "2x T4", "2x CPU"),
        ("limits", f"{limits}, 2x T4 of 100 MiB", limits),
    )


def test_two_hosts_are_not_one():
    """Though the GPUs are of one kind."""
    plan = small_plan()
    rows = [
        replace(r, name=f"/job:w/task:{n}/device:GPU:0") for n, r in enumerate(plan.devices[:2])
    ]
    apart = replace(plan, devices=(*rows, plan.devices[2]))
    assert diff_plans(plan, apart).asked == (("devices", "2x T4", "2x T4 on 2 hosts"),)


def test_options_that_a_strategy_implies_were_not_asked_for():
    """A pipeline keeps stages busy alike, and no strategy offloads unless it is told to."""
    plan, base = small_plan(), small_plan().request
    implied = {"strategy": "pipeline:2", "offload": "never", "objective": "throughput"}
    found = diff_plans(plan, replace(plan, request={**base, **implied}))
    assert found.asked == (("strategy", "none", "pipeline:2"),)
    found = diff_plans(plan, replace(plan, request={**base, "offload": "never"}))
    assert found.asked == (("offload", "default", "never"),)
