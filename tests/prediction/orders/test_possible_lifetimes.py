"""What devices would hold, against the prediction of the placements themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from graphs_by_hand import draw, draw_costs
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph.tensor_names import op_of
from placer.prediction.orders.execution_orders import peaks_along
from placer.prediction.orders.possible_lifetimes import (
    NOBODY,
    PossibleLifetimes,
    find_possible_lifetimes,
)
from placer.prediction.orders.possible_steps import PossibleSteps

DEVICES = ("GPU:0", "GPU:1", "CPU:0")


def peaks_of(
    lifetimes: PossibleLifetimes, device_of: Sequence[int], resident: Sequence[int]
) -> list[list[int]]:
    """The peak of every device along every order, by what the docstring says."""
    times = range(lifetimes.orders * lifetimes.length)
    in_use = [[0 for _ in times] for _ in DEVICES]
    for buffer, owner in enumerate(lifetimes.owner):
        reads = range(lifetimes.read_start[buffer], lifetimes.read_start[buffer + 1])
        for device in range(len(DEVICES)):
            here = [read for read in reads if device_of[lifetimes.reader[read]] == device]
            last = max((lifetimes.read_last[read] for read in here), default=-1)
            if owner != NOBODY and device_of[owner] == device:
                first, size = lifetimes.first[buffer], lifetimes.bytes[buffer]
                last = max(last, first)
            else:
                first = min((lifetimes.read_first[read] for read in here), default=0)
                size = max((lifetimes.read_bytes[read] for read in here), default=0)
            for time in range(first, last + 1):
                in_use[device][time] += size
    return [
        [
            sum(size for op, size in enumerate(resident) if device_of[op] == device)
            + max(in_use[device][order * lifetimes.length :][: lifetimes.length])
            for order in range(lifetimes.orders)
        ]
        for device in range(len(DEVICES))
    ]


def both_peaks(graph, costs, placement: Mapping[str, str]) -> tuple[list, list]:
    """The peaks of both accelerators by the lifetimes and by the prediction."""
    steps = PossibleSteps(graph, costs, accelerated=True)
    allowed = {name: ("CPU:0",) if name in graph.feeds else DEVICES[:2] for name in graph.ops}
    lifetimes = find_possible_lifetimes(steps, allowed, "CPU:0")
    device_of = [DEVICES.index(placement[name]) for name in graph.ops]
    resident = [costs[name].persistent_bytes for name in graph.ops]
    along = peaks_along(steps.memory(placement, DEVICES, "CPU:0"), steps.orders)
    predicted = [[peaks[name] for peaks in along] for name in DEVICES[:2]]
    return peaks_of(lifetimes, device_of, resident)[:2], predicted


@st.composite
def graphs(draw_from, types=("MatMul",)):
    """Up to ten ops, the first one fed, with constants among them, some fetched."""
    count = draw_from(st.integers(2, 10))
    names = [f"op{number}" for number in range(count)]
    lines, sizes = ["op0=Placeholder"], {}
    for number, name in enumerate(names[1:], start=1):
        op_type = draw_from(st.sampled_from((*types, "Const")))
        sizes[name] = 400 * draw_from(st.integers(1, 3))
        readable = st.lists(st.sampled_from(names[:number]), min_size=1, max_size=2, unique=True)
        lines.append(f"{name}={op_type}")
        if op_type != "Const":
            lines.append(f"{','.join(draw_from(readable))} -> {name}")
    fetched = draw_from(st.lists(st.sampled_from(names), max_size=2, unique=True))
    return draw(*lines, bytes=sizes, feeds=["op0"], fetches=[f"{name}:0" for name in fetched])


@settings(max_examples=150)
@given(graph=graphs(), data=st.data())
def test_the_peaks_are_those_of_the_prediction(graph, data):
    """Where no op writes over an input or passes it on, on every accelerator, along every order,
    whatever the placement: receive buffers, constants that are sent, fed and fetched values.  What
    is held while it is being sent comes on top, where accelerators send to each other."""
    placement = {name: data.draw(st.sampled_from(DEVICES[:2])) for name in graph.ops}
    placement |= dict.fromkeys(graph.feeds, "CPU:0")
    sizes = {name: 20 for name, op in graph.ops.items() if op.op_type == "Const"}
    costs = draw_costs(graph, temporary_bytes={"op1": 300}, persistent_bytes=sizes)
    found, predicted = both_peaks(graph, costs, placement)
    sends = any(
        placement[reader] != placement[op_of(name)] != "CPU:0"
        for name, tensor in graph.tensors.items()
        for reader in tensor.consumers
    )
    for of_lifetimes, of_prediction in zip(chain(*found), chain(*predicted), strict=True):
        assert of_lifetimes == of_prediction or (sends and of_lifetimes < of_prediction)


@settings(max_examples=100)
@given(graph=graphs(types=("MatMul", "Identity", "Relu", "AddV2")))
def test_together_they_are_those_of_the_prediction(graph):
    """With all ops on one device, whatever they share and write over."""
    placement = dict.fromkeys(graph.ops, "GPU:0") | dict.fromkeys(graph.feeds, "CPU:0")
    found, predicted = both_peaks(graph, draw_costs(graph), placement)
    assert found == predicted


def test_what_is_written_over_elsewhere_is_still_held_at_home():
    """relu writes over x where both are; elsewhere x has arrived, and relu takes as much beside it
    as y does beside relu.

    x ---> relu ---> y
    """
    graph = draw("x -> relu=Relu -> y", bytes=400)
    for relu, expected in (("GPU:0", [400, 400]), ("GPU:1", [400, 400])):
        placement = {"x": "GPU:0", "relu": relu, "y": "GPU:1"}
        found, predicted = both_peaks(graph, draw_costs(graph), placement)
        assert found == predicted
        assert [found[0][0], found[1][0] - 400] == expected
