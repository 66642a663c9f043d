"""Memory over one step, against drawings and a recomputation from the definition."""

from dataclasses import replace

import pytest
from graphs_by_hand import draw, draw_costs, random_graphs
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import UsageError
from placer.graph.op_graph import Variable
from placer.prediction.memory.live_moments import moment_finder
from placer.prediction.memory.timelines import StepMemory, predict_memory

DEVICES = ("CPU:0", "GPU:0", "GPU:1")


def _timelines(graph, placement="GPU:0", order=None, **costs):
    if isinstance(placement, str):
        placement = dict.fromkeys(graph.ops, placement)
    return predict_memory(graph, draw_costs(graph, **costs), placement, DEVICES, order=order)


def test_a_buffer_lives_until_its_last_reader():
    """x is freed after b, a after c.

    x --> a --> c      op     x    a    b    c
      '-> b            bytes  100  101  102  1 + 1
    """
    graph = draw("x -> a, b", "a -> c", bytes={"x": 400, "a": 4, "b": 4, "c": 4})
    assert list(graph.ops) == ["x", "a", "b", "c"]
    timeline = _timelines(graph)["GPU:0"]
    assert timeline.bytes == (400, 404, 408, 8)
    assert (timeline.peak_bytes, timeline.peak_op) == (408, "b")
    assert [(b.op, b.bytes, b.kind) for b in timeline.live_at_peak] == [
        ("x", 400, "activation"),
        ("a", 4, "activation"),
        ("b", 4, "activation"),
    ]


def test_the_order_decides_the_peak():
    """Finishing one branch before the other needs less.

    x --> a --> a2 ---> y       a and b are large, a2 and b2 small
      '-> b --> b2 --'
    """
    graph = draw("x -> a -> a2 -> y", "x -> b -> b2 -> y", bytes={"a": 400, "b": 400})
    depth_first = ["x", "a", "a2", "b", "b2", "y"]
    breadth_first = ["x", "a", "b", "a2", "b2", "y"]
    assert _timelines(graph, order=depth_first)["GPU:0"].peak_bytes == 400 + 4 + 4
    assert _timelines(graph, order=breadth_first)["GPU:0"].peak_bytes == 400 + 400 + 4


def test_an_alias_is_no_new_buffer():
    """Identity and Reshape show the same bytes again, and keep them alive."""
    graph = draw("x -> i=Identity -> r=Reshape -> y", "x -> z", "s=Const -> r", bytes=100)
    assert list(graph.ops) == ["x", "i", "z", "s", "r", "y"]
    assert _timelines(graph)["GPU:0"].bytes == (100, 100, 200, 100, 100, 200)


def test_an_elementwise_op_writes_over_its_input_when_it_is_the_last_reader():
    """The first Relu must keep x for the second, which overwrites it.

    x --> r1      x: 100, r1: 200, r2: 100 (over x; r1 was freed)
      '-> r2
    """
    graph = draw("x -> r1=Relu, r2=Relu", bytes=100)
    timeline = _timelines(graph)["GPU:0"]
    assert timeline.bytes == (100, 200, 100)


def test_what_is_resident_or_fed_or_fetched_is_not_overwritten():
    """Weights, constants, fed and fetched values outlive their readers."""
    graph = draw("c=Const -> r=Relu", bytes=100)
    costs = {"persistent_bytes": {"c": 100}}
    assert _timelines(graph, **costs)["GPU:0"].bytes == (100, 200)
    graph = draw("x -> r=Relu", bytes=100, fetches=["x:0"])
    assert _timelines(graph)["GPU:0"].bytes == (100, 200)
    graph = draw("x=Placeholder -> r=Relu", bytes=100, feeds=["x"])
    assert _timelines(graph, "CPU:0")["CPU:0"].bytes == (100, 200)


def test_reading_a_variable_is_free_and_its_bytes_are_resident():
    """A variable counts once, however often it is read."""
    graph = draw(
        "v=VarHandleOp -> r1=ReadVariableOp -> a",
        "v -> r2=ReadVariableOp -> b",
        dtypes={"v": "resource"},
        bytes={"r1": 400, "r2": 400},
        variables=[Variable(name="w", handle="v", dtype="float32", shape=(100,))],
    )
    timeline = _timelines(graph, persistent_bytes={"v": 400})["GPU:0"]
    assert (timeline.resident_bytes, timeline.peak_bytes) == (400, 404)
    assert timeline.live_at_peak[0].kind == "weights"


def test_updating_a_variable_that_is_still_read_copies_it():
    """AssignAdd copies on write while an older read is alive; without one it adds in place."""
    lines = "v=VarHandleOp -> r=ReadVariableOp -> a", "v, d -> u=AssignAddVariableOp"
    drawn = {"dtypes": {"v": "resource", "u": "int32"}, "bytes": {"r": 400, "d": 400}}
    resident = {"persistent_bytes": {"v": 400}}
    late_reader = draw(*lines, "u ..> late", "r -> late", **drawn)
    timeline = _timelines(late_reader, **resident)["GPU:0"]
    moment = timeline.order.index("u")
    assert timeline.bytes[moment] == 400 + 400 + 400 + 4
    no_reader = draw(*lines, "a ..> u", **drawn)
    timeline = _timelines(no_reader, **resident)["GPU:0"]
    assert timeline.bytes[timeline.order.index("u")] == 400 + 400 + 4


def test_an_assigned_value_becomes_the_variable():
    """The value's buffer replaces the variable's: nothing is left beside the resident bytes."""
    graph = draw(
        "v=VarHandleOp -> u=AssignVariableOp",
        "value -> u",
        "u ..> after",
        dtypes={"v": "resource"},
        bytes={"value": 400},
    )
    timeline = _timelines(graph, persistent_bytes={"v": 400})["GPU:0"]
    at = dict(zip(timeline.order, timeline.bytes, strict=True))
    assert (at["value"], at["u"], at["after"]) == (800, 804, 404)


def test_a_variable_that_is_gathered_from_is_copied_by_reads():
    """A gather makes the variable its own only holder: a read beside it costs a copy.

    v --> gather       v --> read --> y
    """
    graph = draw(
        "v=VarHandleOp -> gather=ResourceGather",
        "v -> read=ReadVariableOp -> y",
        "gather ..> read",
        dtypes={"v": "resource"},
        bytes={"read": 400},
    )
    timeline = _timelines(graph, persistent_bytes={"v": 400})["GPU:0"]
    assert timeline.bytes[timeline.order.index("read")] == 400 + 400


def test_temporaries_count_while_their_op_runs():
    """Scratch memory is there for one op only."""
    graph = draw("x -> a -> b", bytes=100)
    timeline = _timelines(graph, temporary_bytes={"a": 1000})["GPU:0"]
    assert timeline.bytes == (100, 1200, 200)
    assert timeline.live_at_peak[0].kind == "temporary"


def test_a_sent_tensor_lives_here_until_sent_and_there_until_read():
    """x waits on GPU:1 for b as soon as it is done, and on GPU:0 until b begins.  What GPU:0 sends
    last may still be there when c begins.

    GPU:0  x --------> a           op     x    a    b    c
                \\                  GPU:0  400  404  4    4     (a is sent to c)
    GPU:1        '---> b           GPU:1  400  404  408  12
    """
    graph = draw("x -> a, b", "a, b -> c", bytes={"x": 400, "a": 4, "b": 4, "c": 4})
    placement = {"x": "GPU:0", "a": "GPU:0", "b": "GPU:1", "c": "GPU:1"}
    found = _timelines(graph, placement)
    assert found["GPU:0"].bytes == (400, 404, 4, 4)
    assert found["GPU:1"].bytes == (400, 404, 408, 12)
    assert [(b.op, b.kind) for b in found["GPU:1"].live_at_peak] == [
        ("x", "transfer"),
        ("a", "transfer"),
        ("b", "activation"),
    ]


def test_host_outputs_of_a_gpu_op_are_charged_to_the_host():
    """The Shape kernel of a GPU writes into host memory."""
    graph = draw("x -> s=Shape -> f=Fill", bytes={"x": 400}, dtypes={"s": "int32"})
    found = _timelines(graph)
    assert found["CPU:0"].bytes == (0, 4, 4)
    assert found["GPU:0"].bytes == (400, 400, 4)


def test_fetched_tensors_live_to_the_end_on_both_sides():
    """A fetch keeps the tensor on its device and a copy on the host."""
    graph = draw("x -> a -> b", bytes={"a": 400}, fetches=["a:0"])
    found = _timelines(graph)
    assert found["GPU:0"].bytes == (4, 404, 404)
    assert found["CPU:0"].bytes == (0, 400, 400)


def test_a_v1_loop_runs_one_iteration():
    """The value that goes round is not held for ever by the back edge.

    enter -> merge -> switch -> body -> next -> (merge);  switch -> exit -> y
    """
    graph = draw(
        "enter=Enter -> merge=Merge -> switch=Switch",
        "switch:1 -> body -> next=NextIteration -> merge",
        "switch:0 -> exit=Exit -> y",
        "x -> enter",
        bytes=100,
    )
    timeline = _timelines(graph)["GPU:0"]
    at = dict(zip(timeline.order, timeline.bytes, strict=True))
    assert (at["switch"], at["body"], at["y"]) == (100, 200, 200)


def test_an_order_must_fit_the_graph():
    """An order that lacks an op is refused with both sizes."""
    with pytest.raises(UsageError, match="an order of 1 ops does not fit a graph of 2"):
        _timelines(draw("a -> b"), order=["a"])


_ALIASES = ("Identity", "Reshape")
_IN_PLACE = {"Relu": 1, "AddV2": 2}


def _alive_from_the_definition(graph):
    """Bytes of live buffers per op, recounting all readers of all buffers for every op."""
    order = list(graph.ops)
    buffer_of, bytes_of, closed = {}, {}, {}

    def slots_from(buffer, start):
        readers = sum(
            buffer_of.get(tensor) == buffer
            for name in order[start:]
            for tensor in graph.ops[name].inputs
        )
        fetches = sum(buffer_of.get(tensor) == buffer for tensor in set(graph.fetches))
        fed = any(buffer_of.get(f"{name}:0") == buffer for name in graph.feeds)
        return readers + fetches + fed

    for now, name in enumerate(order):
        op = graph.ops[name]
        size = 4 * op.info.outputs[0].shape[0]
        chosen = now
        if op.op_type in _ALIASES and op.inputs:
            chosen = buffer_of[op.inputs[0]]
        elif op.op_type in _IN_PLACE:
            for tensor in op.inputs[: _IN_PLACE[op.op_type]]:
                old = buffer_of[tensor]
                same_size = graph.tensors[tensor].properties.shape == op.info.outputs[0].shape
                resident = graph.ops[order[old]].op_type == "Const"
                # Other tensors that share the buffer have no readers left, so only
                # slots from this op on count.
                if same_size and not resident and slots_from(old, now) == 1:
                    if bytes_of[old] == size:
                        closed[old] = now
                    else:  # an alias of another size: only a part is written over
                        chosen = old
                    break
        buffer_of[f"{name}:0"] = chosen
        if chosen == now:
            bytes_of[now] = 0 if op.op_type == "Const" else size
    return [
        sum(
            size
            for buffer, size in bytes_of.items()
            if (buffer <= now or order[buffer] in graph.feeds)
            and now < closed.get(buffer, len(order))
            and (buffer_of[f"{order[now]}:0"] == buffer or slots_from(buffer, now))
        )
        for now in range(len(order))
    ]


@given(graph=random_graphs())
def test_the_timeline_agrees_with_a_recount_at_every_op(graph):
    """Counting all readers again at every op finds the same bytes."""
    assert list(_timelines(graph, "CPU:0")["CPU:0"].bytes) == _alive_from_the_definition(graph)


@given(graph=random_graphs(item_bytes=(4,)), data=st.data())
def test_a_live_moment_adds_up_to_the_timeline(graph, data):
    """What each op needs and the resident bytes make up the memory in use on one device."""
    sizes = {name: 10 for name, op in graph.ops.items() if op.op_type == "Const"}
    costs = draw_costs(graph, persistent_bytes=sizes, temporary_bytes=dict.fromkeys(graph.ops, 7))
    placement = dict.fromkeys(graph.ops, "CPU:0")
    timeline = predict_memory(graph, costs, placement, ("CPU:0",))["CPU:0"]
    at_op = data.draw(st.sampled_from(list(graph.ops)))
    alive = moment_finder(graph, costs)(at_op)
    moment = timeline.order.index(at_op)
    assert sum(alive.values()) + timeline.resident_bytes == timeline.bytes[moment]


@given(graph=random_graphs(item_bytes=(4,)), data=st.data())
def test_a_live_moment_is_never_above_the_prediction(graph, data):
    """On several devices, what the ops of a device need is there at that moment."""
    costs = draw_costs(graph, temporary_bytes=dict.fromkeys(graph.ops, 7))
    placement = {name: data.draw(st.sampled_from(DEVICES)) for name in graph.ops}
    placement |= dict.fromkeys(graph.feeds, "CPU:0")
    at_op = data.draw(st.sampled_from(list(graph.ops)))
    needed = dict.fromkeys(DEVICES, 0)
    for name, size in moment_finder(graph, costs)(at_op).items():
        needed[placement[name]] += size
    for device, timeline in predict_memory(graph, costs, placement, DEVICES).items():
        moment = timeline.order.index(at_op)
        assert needed[device] <= timeline.bytes[moment] - timeline.resident_bytes


@given(graph=random_graphs(), data=st.data())
def test_the_peak_is_what_is_alive_at_it(graph, data):
    """On several devices too, the buffers listed at the peak add up to it."""
    placement = {name: data.draw(st.sampled_from(DEVICES)) for name in graph.ops}
    for timeline in _timelines(graph, placement).values():
        assert timeline.peak_bytes == max(timeline.bytes)
        assert timeline.peak_bytes == sum(buffer.bytes for buffer in timeline.live_at_peak)


@given(graph=random_graphs(), data=st.data())
def test_the_fullest_ops_are_those_of_the_timelines(graph, data):
    """Without following whose the buffers are."""
    placement = {name: data.draw(st.sampled_from(DEVICES)) for name in graph.ops}
    step = StepMemory(graph, draw_costs(graph), placement, DEVICES)
    peaks = {name: found.peak_op for name, found in step.timelines().items()}
    assert step.fullest(tuple(graph.ops)) == peaks


def test_the_constant_that_a_variable_starts_as_is_told_apart():
    """A session keeps it beside the variable."""
    graph = draw("m=VarHandleOp -> u=ResourceApplyMomentum", dtypes={"m": "resource"})
    variable = Variable(name="m", handle="m", dtype="float32", shape=(5,))
    graph = replace(graph, variables=(variable,))
    costs = draw_costs(graph, persistent_bytes={"m": 40})
    costs["m"] = replace(costs["m"], constant_bytes=20)
    found = predict_memory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), DEVICES)["GPU:0"]
    kinds = {b.kind: b.bytes for b in found.live_at_peak if b.op == "m"}
    assert kinds == {"weights": 20, "constant": 20}
    assert found.resident_bytes == 40
