"""Why an op sits where it sits, and what would fit."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from plans_by_hand import device_row, small_plan
from questions.conftest import CAPS

from cost_models.devices import preset
from placer.errors import InfeasibleError, UsageError
from placer.front_words import in_front_words
from placer.graph.rewriting import Clone, Rewriting, Swap
from placer.pipeline.pipeline import place
from placer.plan.plan import Plan
from placer.questions.explanation import (
    SPILLED,
    Move,
    _instead,
    explain,
    explain_op,
    explain_plan,
)
from placer.questions.fixes import find_fixes
from placer.questions.saved_plans import with_step
from placer.rendering.html.page import render_page
from placer.rendering.text.explanation_text import (
    conflict_blocks,
    op_explanation_blocks,
    plan_explanation_blocks,
)
from placer.rendering.text.formats import render


@pytest.fixture(scope="module")
def plan(network) -> Plan:
    """The layers divided over two GPUs, one pinned."""
    return place(network, **CAPS, offload="never", pins={"*layer_2/product": "GPU:1"})


def op_named(plan: Plan, end: str) -> str:
    (name,) = [op for op in plan.placement if op.endswith(end)]
    return name


def test_a_pin_is_the_reason(plan, network):
    """The op that the user pinned says so, and refuses to move."""
    found = explain_op(plan, op_named(plan, "layer_2/product"), network)
    assert (found.code, found.device) == ("pinned", "GPU:1")
    assert {move.device: bool(move.refused) for move in found.moves} == {
        "GPU:0": True,
        "CPU:0": True,
    }


def test_a_missing_kernel_is_the_reason(plan, network):
    """String lengths have no GPU kernel, and the explanation names op type and dtypes."""
    found = explain_op(plan, op_named(plan, "lengths"), network)
    assert (found.code, found.device) == ("host_only_kernel", "CPU:0")
    assert "StringLength" in found.reason


def test_what_moving_costs_is_what_placing_it_there_costs(plan, network):
    """The difference that is told equals that of a plan with everything pinned there."""
    name = op_named(plan, "layer_0/product")
    found = explain_op(plan, name, network)
    (move,) = [move for move in found.moves if move.device.startswith("GPU")]
    moved = dict(plan.placement) | dict.fromkeys(found.group_ops, move.device)
    wanted = {op: device for op, device in moved.items() if device.startswith("GPU")}
    pinned = place(network, "2xGPU:1GiB", pins=wanted, time_limit=3.0)
    assert pinned.placement == moved
    change = pinned.metrics.transfer_bytes - plan.metrics.transfer_bytes
    assert move.transfer_bytes == change != 0
    (host,) = [move for move in found.moves if move.device == "CPU:0"]
    assert "with --offload auto if it has" in host.refused
    (host,) = [
        m for m in explain_op(plan, name, network, offload="auto").moves if m.device == "CPU:0"
    ]
    assert (host.refused, host.spills, move.spills) == ("", True, False)
    assert move.step_seconds == pytest.approx(
        pinned.metrics.step_seconds - plan.metrics.step_seconds
    )


def test_ops_that_are_not_there_are_refused_with_close_ones(plan, network):
    """A typo gets the names that come near."""
    with pytest.raises(UsageError, match=r"did you mean .*layer_0/produc"):
        explain_op(plan, "layer_0/produkt", network)
    with pytest.raises(UsageError, match=r"none of them 'qqq': they are .* and \d+ more"):
        explain_op(plan, "qqq", network)
    with pytest.raises(UsageError, match=r"op is 3; give the name"):
        explain(plan, 3)


def test_a_plan_of_another_model_is_refused(plan):
    """The fingerprints say so, or shapes that the plan's own model has not unknown."""
    import tensorflow as tf

    for shape in ((2,), (None, None)):
        other = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec(shape)])
        with pytest.raises(UsageError, match="is of another model than"):
            explain_plan(plan, other)


def test_a_live_plan_needs_its_model(plan):
    """A plan of a live function has no path to open."""
    with pytest.raises(UsageError, match="source"):
        explain_plan(plan)


def test_every_op_of_a_plan_has_a_reason(plan, network):
    """The counts by device and reason add up to the placement."""
    found = explain_plan(plan, network)
    for device, counts in found.ops.items():
        assert sum(counts.values()) == list(plan.placement.values()).count(device)
    assert found.ops["GPU:1"]["pinned"] == 1
    assert found.ops["CPU:0"]["fed"] == 2
    assert sum(row.bytes or 0 for row, _, _ in found.transfers) == plan.metrics.sent_bytes


def test_a_join_that_is_read_through_has_no_reason():
    """As in a step whose gradients are released early: the op is placed, and does not run."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((8, 64))])
    def joined(x):
        first, second = tf.raw_ops.IdentityN(input=[tf.sin(x), tf.cos(x)], name="join")
        return first + second

    plan = place(joined, **CAPS)
    plan = replace(plan, rewriting=Rewriting(released=("join",)))
    found, count = explain_plan(plan, joined), len(plan.placement)
    assert sum(sum(row.values()) for row in found.ops.values()) == count - 1
    told = f"{count - 1} of the {count} ops run; the other one joins gradients, and "
    assert told in " ".join(found.summary().split())
    assert told in render_page(with_step(plan, joined))
    with pytest.raises(UsageError, match="join does not run under this plan"):
        explain_op(plan, "join", joined)


def test_what_stays_in_host_memory_is_not_offloaded(network):
    """An int32 constant of an op on a GPU is in host memory: no reason of an op put it there."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((8, 64))])
    def shaped(x):
        return tf.reshape(x * 2.0, tf.constant([4, 128], name="shape"))

    plan = place(shaped, **CAPS, offload="never")
    found = explain_plan(plan, shaped).resident_bytes
    assert found["CPU:0"] == {"host_constant": 8}
    assert "ost constants" in explain_plan(plan, shaped).summary()


def test_a_loop_is_resident_where_the_plan_has_it():
    """Shapes within a loop are in host memory: in the plan, by reason, and in pictures of it."""
    import tensorflow as tf

    weight = tf.Variable(tf.zeros([64, 64]))

    def body(i, x):
        return i + 1, tf.reshape(tf.reshape(x @ weight, tf.constant([4, 128])), [8, 64])

    @tf.function(input_signature=[tf.TensorSpec((8, 64))])
    def looped(x):
        return tf.while_loop(lambda i, _: i < 3, body, [0, x], maximum_iterations=3)[1]

    plan = place(looped, **CAPS, offload="never")
    planned = {row.name: row.resident_bytes for row in plan.devices if row.resident_bytes}
    assert planned.keys() == {"GPU:0", "CPU:0"}
    found = explain_plan(plan, looped).resident_bytes
    assert {name: sum(row.values()) for name, row in found.items() if row} == planned
    assert found["CPU:0"].keys() == {"host_constant"}
    step = plan.step()
    drawn = {name: 0 for name in planned}
    for buffer in step.buffers:
        if buffer.kind in ("weights", "constant"):
            drawn[step.devices[buffer.device]] += buffer.bytes
    assert drawn == planned
    # in a picture, too, a loop holds what it was given until its last iteration is done
    loop, fed = step.ops.index("while"), step.ops.index("x")
    places = [index for index, op in enumerate(step.order) if op == loop]
    (given,) = (b for b in step.buffers if (b.op, step.devices[b.device]) == (fed, "GPU:0"))
    assert len(places) > 3
    assert given.first <= places[0] < places[-1] <= given.last


def test_initial_values_that_a_session_keeps_are_named(tmp_path):
    """They are a part of what is resident of a group with a slot, and constants in pictures."""
    import tensorflow as tf

    with tf.Graph().as_default():
        v1 = tf.compat.v1
        weight = v1.get_variable("w", [64, 64], use_resource=True)
        loss = tf.reduce_sum(v1.placeholder(tf.float32, [8, 64], name="x") @ weight)
        v1.train.AdamOptimizer(0.1).minimize(loss, name="train")
        v1.train.export_meta_graph(str(tmp_path / "step.meta"))
    plan = place(tmp_path / "step.meta", "1xGPU:8MiB", outputs=["train"], offload="never")
    found = explain_op(plan, "w")
    assert (found.initial_value_bytes, "w/Adam" in found.group_ops) == (64 * 64 * 4, True)
    assert "16.0 KiB of it initial values" in found.summary()
    state = [b.bytes for b in plan.step().buffers if b.kind == "optimizer_state"]
    assert sum(state) < 3 * 64 * 64 * 4


def test_spilled_ops_say_so(network):
    """With 200 KiB on one GPU the largest weight must go to the host."""
    plan = place(network, "GPU:200KiB", time_limit=3.0)
    found = explain_plan(plan, network)
    assert found.ops["CPU:0"]["spilled"] > 0
    assert found.resident_bytes["CPU:0"]["spilled"] >= 256 * 256 * 4
    assert "placer explain PLAN OP shows which" in " ".join(found.summary().split())
    host = (op for op, device in plan.placement.items() if device == "CPU:0")
    spilled = (row for row in (explain_op(plan, op, network) for op in host) if row.code == SPILLED)
    largest = max(spilled, key=lambda row: row.resident_bytes)
    assert re.match(r"GPU:0 would exceed its limit by [\d.]+ KiB", largest.reason)


def test_what_waits_on_the_host_is_swapped(plan, network):
    """The ops that hold a tensor there are not offloaded for want of room."""
    product, reader = (op_named(plan, f"layer_0/{leaf}") for leaf in ("product", "relu"))
    swap = Swap(tensor=f"{product}:0")
    held = dict.fromkeys((swap.name, swap.arrival), "CPU:0")
    rewriting = Rewriting(swaps=(swap,), late_readers={reader: (product,)})
    plan = replace(plan, placement={**plan.placement, **held}, rewriting=rewriting)
    found = explain_plan(plan, network)
    assert found.ops["CPU:0"]["swapped"] == 2
    assert SPILLED not in found.ops["CPU:0"]
    # the op that is swapped, and those that hold it meanwhile
    told = explain_op(plan, product, network)
    assert told.rewritten == (f"{product}:0 is swapped to the host and back, by {swap.name}",)
    assert "rewritten" in told.summary()
    for name in held:
        there = explain_op(plan, name, network)
        assert (there.code, there.allowed, there.rewritten) == ("swapped", ("CPU:0",), ())
        assert f"{product}:0 is swapped to" in there.reason
        assert all(move.refused for move in there.moves)


def test_what_is_computed_twice_says_so(plan, network):
    """The op, and the one that computes it again, which is no op by search alone."""
    product, reader = (op_named(plan, f"layer_0/{leaf}") for leaf in ("product", "relu"))
    clone = Clone(op=product)
    rewriting = Rewriting(clones=(clone,), late_readers={reader: (product,)})
    placement = rewriting.extend_placement(plan.placement, "CPU:0")
    plan = replace(plan, placement=placement, rewriting=rewriting)
    told = explain_op(plan, product, network).rewritten
    assert told == (f"it is computed twice, again by {clone.name}",)
    assert explain_op(plan, clone.name, network).rewritten == (f"it computes {product} again",)


def test_what_a_pin_holds_on_the_host_is_not_offloaded(network):
    """Neither in the explanation nor in the row of the device; what the search put there is."""
    for options, is_offloaded in (
        ({"devices": "GPU:64MiB", "pins": {"*layer_1*": "CPU:0"}, "offload": "never"}, False),
        ({"devices": "GPU:200KiB"}, True),
    ):
        plan = place(network, **options, time_limit=3.0)
        row = next(row for row in plan.devices if row.name == "CPU:0")
        found = explain_plan(plan, network).resident_bytes["CPU:0"]
        assert found.get("spilled", 0) == row.spilled_bytes
        assert bool(row.spilled_bytes) == is_offloaded
        ops = explain_plan(plan, network).ops["CPU:0"]
        assert ops.get("spilled", 0) == row.spilled_ops
        assert is_offloaded or found["pinned"] + found.get("colocated", 0) > 0


def test_a_limit_that_is_exceeded_anyway_is_no_reason():
    """Of a plan over its limits, only what makes a device exceed its limit by more is one."""
    full = small_plan(devices=(device_row("GPU:0"), device_row("GPU:1", usable_bytes=1)))
    over = full.over_bytes["GPU:1"]
    for more in (0, 5):
        move = Move(device="GPU:1", over_bytes={"GPU:1": over + more}, sent_bytes=7)
        reason = _instead([move], full)
        assert ("limit" in reason, "send 7 B more" in reason) == (more > 0, more == 0)


@pytest.mark.parametrize(
    ("status", "seconds", "told"),
    [
        ("FEASIBLE", 0.0, "moving it alone to GPU:1 would cost no more"),
        ("FEASIBLE", -0.25, "a step would take 250 ms less; the search did not find that"),
        ("OPTIMAL", -0.25, "take 250 ms less; as the search counts, that is no better (proven)"),
    ],
)
def test_a_move_that_saves_is_not_said_to_be_none(status, seconds, told):
    """A step that is shorter with the op elsewhere is better, unless the search proves it none."""
    plan = small_plan()
    plan = replace(plan, solver=replace(plan.solver, status=status))
    found = _instead([Move(device="GPU:1", sent_bytes=0, step_seconds=seconds)], plan)
    assert found.endswith(told)


def test_a_client_is_for_what_is_fed_whatever_the_kernel(tmp_path):
    """A string constant may be on the CPU of any task; the client is refused for what it is."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def joined(x):
        return tf.strings.length(tf.strings.join([tf.strings.lower(x, name="low"), "b"]))

    rows = (
        f'[[device]]\nname = "/job:worker/task:{task}/device:{name}:0"\ntype = "{name}"\n'
        'memory = "1GiB"\n'
        for task in range(2)
        for name in ("GPU", "CPU")
    )
    (tmp_path / "hosts.toml").write_text("".join(rows))
    plan = place(joined, tmp_path / "hosts.toml", batch_size=4, time_limit=5.0)
    moves = explain_op(plan, "low", joined).moves
    told = {move.device: move.refused for move in moves}
    assert "CPU:0" not in told or "may be on the client" in told["CPU:0"]
    assert any("no GPU kernel" in reason for reason in told.values())


def test_a_hint_that_was_left_out_is_told(tmp_path):
    """``_class`` asks for two of three ops together that the pins part: each of the two says so,
    the third does not, nor does any where all of them share a device."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.constant([1.0, 2.0], name="x")
        with graph.colocate_with(tf.exp(x, name="first").op):
            tf.sin(x, name="second")
        tf.cos(x, name="third")
    path = tmp_path / "hinted.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    apart = place(path, "2xGPU:1GiB", pins={"first": "GPU:0", "second": "GPU:1"})
    told = {name: explain_op(apart, name) for name in ("first", "second", "third")}
    left_out = {name: found.hints_left_out for name, found in told.items()}
    assert left_out == {"first": ("second",), "second": ("first",), "third": ()}
    line = "left out  the colocation hint (_class) that ties it to first elsewhere; keep_"
    assert line in told["second"].summary(width=120)
    assert "_class" not in told["third"].summary(width=120)
    assert not explain_op(place(path, "2xGPU:1GiB"), "second").hints_left_out


def test_explanations_have_a_text(plan, network):
    """Every block renders at a narrow width and as Markdown."""
    op = explain_op(plan, op_named(plan, "layer_0/product"), network)
    whole = explain_plan(plan, network)
    assert op.summary(width=50) == render(
        lambda w: op_explanation_blocks(op, w), "text", width=50, colour=False
    )
    for document in (
        lambda w: op_explanation_blocks(op, w),
        lambda w: plan_explanation_blocks(whole, w),
    ):
        text = render(document, "text", width=50, colour=False)
        assert max(map(len, text.splitlines())) <= 50
        assert render(document, "markdown", width=50, colour=False)


def test_printed_changes_really_fit(network):
    """Without spilling, all on one GPU by a pin: each change that is told has a placement."""
    request = {
        "devices": "2xGPU",
        "max_memory": "GPU:*=300KiB",
        "offload": "never",
        "pins": {"*layer_*": "GPU:0"},
        "time_limit": 3.0,
    }
    plan = place(network, **request)
    assert plan.solver.status == "INFEASIBLE"
    fixes = {fix.kind: fix for fix in find_fixes(plan, network)}
    assert set(fixes) == {"pin", "caps"}
    assert fixes["pin"].change == "without --pin '*layer_*=GPU:0'"
    caps = fixes["caps"].change.removeprefix("--max-memory ")
    again = place(network, **{**request, "max_memory": caps})
    assert again.fits
    for row in again.devices:
        assert row.peak_memory_bytes <= row.usable_bytes
    blocks = conflict_blocks(plan, list(fixes.values()), 99)
    told = render(lambda _: blocks, "text", width=99, colour=False)
    assert caps in told.replace("\n", "")


@pytest.mark.slow
def test_an_infeasible_plan_says_what_is_in_conflict_and_what_would_fit(network):
    """Two pins fill GPU:0 beyond its cap; the third has nothing to do with it.  Either of the two
    is enough to drop, and a larger cap is enough; each is asked for again."""
    pins = {"*layer_0*": "GPU:0", "*layer_1*": "GPU:0", "*layer_2*": "GPU:1"}
    request = {"devices": "2xGPU:300KiB", "offload": "never", "time_limit": 8.0}
    plan = place(network, **request, pins=pins)
    assert plan.conflict.reason == "overfull"
    assert [row.device for row in plan.conflict.caps] == ["GPU:0"]
    blamed = [row.request for row in plan.conflict.pins]
    assert sorted(blamed) == ["--pin '*layer_0*=GPU:0'", "--pin '*layer_1*=GPU:0'"]
    changes = [fix.change for fix in plan.conflict.fixes]
    assert changes[:2] == [f"without {name}" for name in blamed]
    for glob in ("*layer_0*", "*layer_1*"):
        fewer = {name: device for name, device in pins.items() if name != glob}
        assert place(network, **request, pins=fewer).fits
    caps = changes[2].removeprefix("--max-memory ")
    assert place(network, **request, pins=pins, max_memory=caps).fits
    with pytest.raises(InfeasibleError, match=r"GPU:0 \(limit 300 KiB\) must hold") as caught:
        plan.raise_for_conflict()
    assert caught.value.conflict == plan.conflict
    assert in_front_words(changes[0]) in str(caught.value)
    with pytest.raises(UsageError, match=r"no placement to explain.*find_fixes"):
        explain_op(plan, "w", network)
    with pytest.raises(UsageError, match=r"no placement to explain.*find_fixes"):
        explain_plan(plan, network)


def test_groups_of_the_user_and_device_strings_are_in_conflict_too(network):
    """All layers kept together fit no device; all of them on one by a device function neither."""
    request = {"devices": "2xGPU:300KiB", "offload": "never", "time_limit": 8.0}
    plan = place(network, **request, keep_together=("*layer_*",))
    (row,) = plan.conflict.groups
    assert row.request == "--keep-together '*layer_*'"
    assert plan.conflict.fixes[0].change == "without --keep-together '*layer_*'"
    plan = place(
        network, **request, device_function=lambda op: "/gpu:0" if "layer" in op.name else ""
    )
    blamed = [row.request for row in plan.conflict.pins]
    assert blamed == ["the device string '/gpu:0'"]  # to spill would not help: it holds
    changes = [fix.change for fix in plan.conflict.fixes]
    assert changes[0] == "without the device function"
    assert len(changes) > 1  # a larger cap, or to spill: as far as the time goes


def test_larger_devices_are_offered_where_models_were_named(network):
    """A reserve leaves 300 KiB of a T4; the next larger model is enough."""
    reserve = f"{preset('T4').card.usable_bytes - 300 * 1024}B"
    plan = place(network, "1xT4", offload="never", reserve=reserve, time_limit=8.0)
    assert plan.solver.status == "INFEASIBLE"
    fixes = {row.kind: row.change for row in plan.conflict.fixes}
    devices = fixes["devices"].removeprefix("--devices ")
    assert devices != "1xT4"
    assert place(network, devices, offload="never", reserve=reserve, time_limit=8.0).fits
    caps = fixes["caps"].removeprefix("--max-memory ")
    again = {"max_memory": caps, "offload": "never", "reserve": reserve}
    assert place(network, "1xT4", **again, time_limit=8.0).fits


def test_spilling_is_offered_where_it_was_forbidden(network):
    """One small GPU, no spilling: to allow it is enough."""
    plan = place(network, "GPU:200KiB", offload="never", time_limit=3.0)
    assert plan.solver.status == "INFEASIBLE"
    kinds = {fix.kind: fix.change for fix in find_fixes(plan, network)}
    assert kinds["spill"] == "--offload auto"
