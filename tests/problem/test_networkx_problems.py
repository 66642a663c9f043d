"""Problems out of networkx graphs, and back."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import best_by_enumeration, random_problem

import placer
from placer.errors import UsageError
from placer.problem.placement_problem import PIN, PlacementProblem, Request
from placer.solving.conflicts.conflict import explain_conflict

DEVICES = "2xGPU:1KiB,CPU:1GiB"
from_networkx = PlacementProblem.from_networkx


def chain(*sizes, **attributes):
    graph = networkx.DiGraph()
    for index, size in enumerate(sizes):
        graph.add_node(f"n{index}", resident_bytes=size, output_bytes=8, **attributes)
    networkx.add_path(graph, [f"n{index}" for index in range(len(sizes))])
    return graph


def test_defaults_are_an_op_that_weighs_nothing_and_may_use_any_accelerator():
    problem = from_networkx(networkx.DiGraph([("a", "b")]), DEVICES)
    assert problem.op_names == ("a", "b")
    assert problem.device_names == ("GPU:0", "GPU:1", "CPU:0")
    assert problem.host == 2
    assert problem.allowed == ((0, 1), (0, 1))
    assert problem.spillable == (False, False)  # of their work on the host nothing is known
    assert problem.resident_bytes == problem.temporary_bytes == (0, 0)
    assert problem.seconds == ((0.0,) * 3,) * 2
    assert problem.capacity_bytes == (1024, 1024, 2**30)
    assert [(t.producer, t.consumers, t.bytes) for t in problem.tensors] == [(0, (1,), 0)]
    assert problem.objective == "transfer"
    assert problem.spill == "auto"


def test_on_hosts_alone_ops_may_use_the_host():
    problem = from_networkx(networkx.DiGraph([("a", "b")]), "CPU:1GiB")
    assert problem.allowed == ((0,), (0,))


def test_a_chain_is_cut_where_it_is_thinnest():
    """Three of the five fit one device, and the lightest tensor is between the second and third."""
    graph = chain(340, 340, 340, 340, 340)
    graph.nodes["n1"]["output_bytes"] = 2
    solution = placer.solve(from_networkx(graph, DEVICES, offload="never"))
    assert solution.status == "OPTIMAL"
    assert solution.value == solution.lower_bound == 2
    assert len(set(solution.device_of[:2])) == len(set(solution.device_of[2:])) == 1


def test_a_tensor_is_sent_once_to_a_device_and_edges_with_bytes_carry_their_own():
    graph = networkx.MultiDiGraph()
    graph.add_node("a", output_bytes=10)
    graph.add_edge("a", "b")
    graph.add_edge("a", "c")
    graph.add_edge("a", "b", bytes=3)
    graph.add_edge("a", "c", bytes=3)
    graph.add_edge("a", "b", tensor="x", bytes=5)
    graph.add_edge("a", "c", tensor="x", bytes=5)
    graph.add_edge("b", "c", control=True)
    problem = from_networkx(graph, DEVICES)
    tensors = sorted((t.producer, t.consumers, t.bytes) for t in problem.tensors)
    assert tensors == [(0, (1,), 3), (0, (1, 2), 5), (0, (1, 2), 10), (0, (2,), 3)]
    assert problem.control_edges == ((1, 2),)


def test_groups_pins_and_devices():
    graph = chain(1, 1, 1, 1)
    graph.nodes["n0"].update(group="g", allowed=["GPU:*", "CPU:0"])
    graph.nodes["n1"].update(group="g", allowed="GPU:1")
    graph.nodes["n2"]["pin"] = "/gpu:0"
    problem = from_networkx(graph, DEVICES)
    assert problem.group == (0, 0, 1, 2)
    assert problem.allowed == ((1,), (1,), (0,), (0, 1))
    assert problem.spillable == (False,) * 4
    assert problem.requests == (Request(name="pin n2=GPU:0", kind=PIN, ops=(2,), devices=(0,)),)


def test_a_pin_that_cannot_hold_is_named_in_the_conflict():
    graph = chain(2000)
    graph.nodes["n0"]["pin"] = "GPU:0"
    solution = placer.solve(from_networkx(graph, DEVICES))
    assert solution.status == "INFEASIBLE"
    conflict = explain_conflict(solution.unsolvable, 5.0)
    assert "pin n0=GPU:0" in json.dumps(conflict.to_json())


def test_seconds_are_given_by_device_by_type_or_follow_from_the_work():
    graph = chain(1, 1, 1, 1)
    graph.nodes["n0"]["seconds"] = 2
    graph.nodes["n1"]["seconds"] = {"GPU:0": 1, "GPU": 3, "CPU": 5.5}
    graph.nodes["n2"]["seconds"] = {"GPU": 1, "CPU:0": 4}
    graph.nodes["n3"].update(flops=14e12, bytes_accessed=0)
    seconds = from_networkx(graph, "2xV100-32GB,CPU:0").seconds
    assert seconds[:3] == ((2, 2, 2), (1, 3, 5.5), (1, 1, 4))
    assert 0.3 < seconds[3][0] < 3 < seconds[3][2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"resident_bytes": -1}, "resident_bytes of 'n0' is -1, which is not a whole number"),
        ({"resident_bytes": 1.5}, "whole number of bytes"),
        ({"resident_bytes": math.nan}, "whole number of bytes"),
        ({"resident_bytes": math.inf}, "whole number of bytes"),
        ({"resident_bytes": "many"}, "whole number of bytes"),
        ({"temporary_bytes": False}, "whole number of bytes"),
        ({"output_bytes": None}, "whole number of bytes"),
        ({"seconds": -1}, "a time in seconds"),
        ({"seconds": math.nan}, "a time in seconds"),
        ({"seconds": {"GPU": 1}}, "a time for CPU:0"),
        ({"seconds": "fast"}, "a time in seconds"),
        ({"allowed": "TPU:0"}, "devices GPU:0, GPU:1, CPU:0"),
        ({"allowed": 7.5}, "device"),
        ({"allowed": [[1]]}, "device"),
        ({"pin": "GPU:2"}, "devices GPU:0, GPU:1, CPU:0"),
        ({"spillable": "yes"}, "true or false"),
        ({"group": [1, 2]}, "unhashable"),
    ],
)
def test_attributes_that_make_no_sense_are_refused_by_name(change, told):
    graph = chain(1, 1)
    graph.nodes["n0"].update(change)
    with pytest.raises(UsageError, match=told.replace("(", ".")):
        from_networkx(graph, DEVICES)


def test_graphs_that_pose_no_problem_are_refused():
    with pytest.raises(UsageError, match="no directions"):
        from_networkx(networkx.Graph([(1, 2)]), DEVICES)
    with pytest.raises(UsageError, match=r"cycle .* leave out"):
        from_networkx(networkx.DiGraph([(1, 2), (2, 1)]), DEVICES)
    with pytest.raises(UsageError, match="same name"):
        from_networkx(networkx.DiGraph([(1, "1")]), DEVICES)
    with pytest.raises(UsageError, match="names no devices"):
        from_networkx(networkx.DiGraph([(1, 2)]))
    with pytest.raises(UsageError, match="XPU"):
        from_networkx(networkx.DiGraph([(1, 2)]), "2xXPU")
    graph = chain(1, 1)
    graph.nodes["n0"].update(group=1, allowed="GPU:0")
    graph.nodes["n1"].update(group=1, allowed="GPU:1")
    with pytest.raises(UsageError, match="no device that all of it may use"):
        from_networkx(graph, DEVICES)
    graph = networkx.DiGraph([("a", "b", {"control": "false"})])
    with pytest.raises(UsageError, match="which is not true or false"):
        from_networkx(graph, DEVICES)
    graph = networkx.MultiDiGraph([("a", "b", {"tensor": "x", "bytes": 1})])
    graph.add_edge("a", "b", tensor="x", bytes=2)
    with pytest.raises(UsageError, match="it is one tensor"):
        from_networkx(graph, DEVICES)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), spill=st.sampled_from(["auto", "never"]))
def test_a_problem_comes_back_whole(seed, spill):
    """Requests, moments and tensors that nobody reads as well."""
    problem = random_problem(seed, spill=spill)
    problem = replace(
        problem,
        requests=(Request(name='a "pin" <&>', kind=PIN, ops=(0,), devices=(0,)),),
        tensors=tuple(
            replace(t, consumers=tuple(sorted(set(t.consumers)))) for t in problem.tensors
        ),
        unconfined={1: (0,)},
    )
    assert from_networkx(problem.to_networkx()) == problem


def test_two_ops_of_one_name_are_no_graph():
    problem = random_problem(1)
    twice = replace(problem, op_names=("x",) * len(problem.op_names))
    with pytest.raises(UsageError, match="same name"):
        twice.to_networkx()


def test_the_answer_is_the_same_after_a_round_trip_and_is_that_of_enumeration():
    for seed in range(12):
        problem = random_problem(seed)
        best = best_by_enumeration(problem)
        solution = placer.solve(from_networkx(problem.to_networkx()))
        assert solution.value == best


@pytest.mark.parametrize(
    ("node", "edge", "message"),
    [
        ({"resident_byte": 4}, {}, "node 'a' has 'resident_byte'; did you mean 'resident_bytes'"),
        ({"pins": "GPU:0"}, {}, "node 'a' has 'pins'; did you mean 'pin'"),
        ({}, {"byte": 4}, "edge 'a' -> 'b' has 'byte'; did you mean 'bytes'"),
    ],
)
def test_misspelt_attributes_are_refused(node, edge, message):
    """What is nearly the name of an attribute is no attribute of one's own."""
    graph = networkx.DiGraph()
    graph.add_node("a", **node)
    graph.add_edge("a", "b", **edge)
    with pytest.raises(UsageError, match=message):
        from_networkx(graph, "2xGPU:1GiB")


def test_other_attributes_are_ones_own():
    """A graph may carry what nobody here reads."""
    graph = networkx.DiGraph()
    graph.add_node("a", color="red", device="GPU:1", label="first")
    graph.add_edge("a", "b", weight=3)
    assert from_networkx(graph, "2xGPU:1GiB").op_names == ("a", "b")
