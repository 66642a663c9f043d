"""Transfers, against TensorFlow's partitioning rules."""

import pytest
from graphs_by_hand import draw, draw_costs
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import UsageError
from placer.prediction.step.routes import find_routes
from placer.prediction.transfers import largest_first, list_transfers


def _rows(graph, placement, host="CPU:0"):
    routes = find_routes(graph, placement, host)
    found = largest_first(list_transfers(graph, draw_costs(graph), routes, host))
    return [(t.tensor, t.source, t.target, t.bytes, t.kind, t.memory) for t in found]


def _split(graph, **elsewhere):
    return {name: elsewhere.get(name, "GPU:0") for name in graph.ops}


def test_a_tensor_is_sent_once_per_device_that_reads_it():
    """Two readers on GPU:1 share one send; the reader on GPU:2 costs another.

    x --> a (GPU:1), b (GPU:1), c (GPU:2), d (GPU:0)
    """
    graph = draw("x -> a, b, c, d", bytes={"x": 400})
    assert _rows(graph, _split(graph, a="GPU:1", b="GPU:1", c="GPU:2")) == [
        ("x:0", "GPU:0", "GPU:1", 400, "data", "device"),
        ("x:0", "GPU:0", "GPU:2", 400, "data", "device"),
    ]


def test_host_and_device_memory_are_separate_rows():
    """Reshape reads its shape in host memory, MatMul the same tensor in device memory: two rows
    to one GPU."""
    graph = draw("x, s -> r=Reshape", "s -> m", dtypes={"s": "int32"}, bytes={"s": 8})
    assert _rows(graph, _split(graph, r="GPU:1", m="GPU:1", x="GPU:1")) == [
        ("s:0", "GPU:0", "GPU:1", 8, "data", "device"),
        ("s:0", "GPU:0", "GPU:1", 8, "data", "host"),
    ]


def test_everything_a_cpu_reads_is_in_host_memory():
    """On a CPU there is one row, whatever a GPU kernel would do."""
    graph = draw("x, s -> r=Reshape", "s -> m", dtypes={"s": "int32"}, bytes={"s": 8})
    on_cpu = _split(graph, r="CPU:0", m="CPU:0", x="CPU:0")
    assert _rows(graph, on_cpu) == [("s:0", "GPU:0", "CPU:0", 8, "data", "host")]


def test_control_edges_are_sent_once_per_device():
    """A control edge between devices is a row of its own without bytes, beside a data row."""
    graph = draw("a ..> b, c, d", "a -> b", bytes={"a": 40})
    assert _rows(graph, _split(graph, b="GPU:1", c="GPU:1", d="CPU:0")) == [
        ("a:0", "GPU:0", "GPU:1", 40, "data", "device"),
        ("^a", "GPU:0", "CPU:0", 0, "control", "host"),
        ("^a", "GPU:0", "GPU:1", 0, "control", "device"),
    ]


def test_fed_values_come_from_the_host_wherever_they_were_placed():
    """A placeholder that is fed lives on CPU:0, so each GPU that reads it costs a feed."""
    graph = draw("x=Placeholder -> a, b", bytes={"x": 100}, feeds=["x"])
    assert _rows(graph, _split(graph, b="GPU:1")) == [
        ("x:0", "CPU:0", "GPU:0", 100, "feed", "device"),
        ("x:0", "CPU:0", "GPU:1", 100, "feed", "device"),
    ]


def test_fetched_values_go_back_to_the_host_once():
    """A tensor fetched twice goes back once; one that is on the host already does not."""
    graph = draw("a -> b", bytes=8, fetches=["a:0", "a:0", "b:0"])
    assert _rows(graph, _split(graph, b="CPU:0")) == [
        ("a:0", "GPU:0", "CPU:0", 8, "data", "host"),
    ]
    assert _rows(graph, _split(graph)) == [
        ("a:0", "GPU:0", "CPU:0", 8, "fetch", "host"),
        ("b:0", "GPU:0", "CPU:0", 8, "fetch", "host"),
    ]


def test_tensors_without_a_size_are_listed_last():
    """A string crosses like any tensor, but its bytes are unknown, not zero."""
    graph = draw("s, a -> b", dtypes={"s": "string"}, bytes=4)
    rows = _rows(graph, _split(graph, s="CPU:0", a="CPU:0"))
    assert [(tensor, size) for tensor, _, _, size, _, _ in rows] == [("a:0", 4), ("s:0", None)]


def test_a_resource_handle_must_not_cross():
    """Reading a variable of another device is refused, with both ends named."""
    graph = draw("v=VarHandleOp -> r=ReadVariableOp", dtypes={"v": "resource"})
    with pytest.raises(UsageError, match=r"r on GPU:1 reads the resource handle v:0 on GPU:0"):
        _rows(graph, _split(graph, r="GPU:1"))


def test_every_op_needs_a_device():
    """A placement of another graph is refused with a count."""
    graph = draw("a -> b")
    with pytest.raises(UsageError, match="no device for 1 of 2 ops, the first one b"):
        _rows(graph, {"a": "GPU:0"})


@st.composite
def _placed_graphs(draw_value):
    size = draw_value(st.integers(1, 8))
    pairs = [(i, j) for j in range(size) for i in range(j)]
    chosen = draw_value(st.lists(st.sampled_from(pairs), max_size=14)) if pairs else []
    arrows = draw_value(st.lists(st.sampled_from(["->", "..>"]), min_size=14, max_size=14))
    sizes = draw_value(st.lists(st.integers(1, 5), min_size=size, max_size=size))
    graph = draw(
        *(f"n{i}" for i in range(size)),
        *(f"n{i} {arrow} n{j}" for (i, j), arrow in zip(chosen, arrows, strict=False)),
        bytes={f"n{i}": 4 * n for i, n in enumerate(sizes)},
    )
    devices = st.sampled_from(["CPU:0", "GPU:0", "GPU:1"])
    placement = {name: draw_value(devices) for name in graph.ops}
    return graph, placement


@given(case=_placed_graphs())
def test_transfers_agree_with_a_count_over_pairs(case):
    """Asking for every tensor and every device whether some reader sits there finds the same."""
    graph, placement = case
    expected = set()
    for tensor in graph.tensors.values():
        for device in ("CPU:0", "GPU:0", "GPU:1"):
            readers = [name for name in tensor.consumers if placement[name] == device]
            if readers and placement[tensor.producer] != device:
                expected.add((tensor.name, placement[tensor.producer], device, "data"))
    for op in graph.ops.values():
        for before in op.control_inputs:
            if placement[before] != placement[op.name]:
                expected.add((f"^{before}", placement[before], placement[op.name], "control"))
    rows = _rows(graph, placement)
    assert {(tensor, a, b, kind) for tensor, a, b, _, kind, _ in rows} == expected
    assert len(rows) == len(expected)


@given(case=_placed_graphs())
def test_one_device_sends_nothing(case):
    """On a single device nothing crosses, control edges included."""
    graph, _ = case
    assert _rows(graph, dict.fromkeys(graph.ops, "GPU:0")) == []
