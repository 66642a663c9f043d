"""Costs of whole graphs: variables, loops and branches."""

from dataclasses import replace

import pytest
from graphs_by_hand import draw, draw_cluster

from cost_models.devices import Efficiency
from cost_models.op_info import TensorProperties
from cost_models.registry import estimate
from cost_models.roofline import op_seconds
from placer.graph.op_graph import OpGraph, Variable
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.step.control_flow import TripCount, find_trip_count, loop_invariants

_HANDLES = {"v": "resource", "v2": "resource"}


def _with_values(graph, **values):
    """``graph`` whose constants (and what reads them) know their value."""

    def known(tensor, properties):
        value = values.get(tensor.rpartition(":")[0])
        return properties if value is None else replace(properties, shape=(), value=(value,))

    ops = {}
    for op in graph.ops.values():
        info = replace(
            op.info,
            inputs=tuple(map(known, op.inputs, op.info.inputs)),
            outputs=tuple(
                known(op.output_name(index), output) for index, output in enumerate(op.info.outputs)
            ),
        )
        ops[op.name] = replace(op, info=info)
    return replace(graph, ops=ops)


def _body(*, step=1):
    """i -> i + step;  x -> relu(matmul(x, w));  w -> w"""
    graph = draw(
        "i=Placeholder -> next=AddV2",
        "one=Const -> next",
        "x=Placeholder, w=Placeholder -> mul=MatMul -> relu=Relu",
        "w -> same=Identity",
        feeds=["i", "x", "w"],
        fetches=["next:0", "relu:0", "same:0"],
    )
    square = TensorProperties(dtype="float32", shape=(10, 10))
    return _with_values(_with_shape(graph, square, "x", "w", "mul", "relu", "same"), one=step)


def _with_shape(graph, properties, *names):
    ops = {}
    for op in graph.ops.values():
        info = replace(
            op.info,
            inputs=tuple(
                properties if tensor.rpartition(":")[0] in names else old
                for tensor, old in zip(op.inputs, op.info.inputs, strict=True)
            ),
            outputs=(properties,) if op.name in names else op.info.outputs,
        )
        ops[op.name] = replace(op, info=info)
    return replace(graph, ops=ops)


def _condition(relation="Less", *, limit=5):
    """i < limit"""
    graph = draw(
        f"i=Placeholder -> less={relation}",
        "limit=Const -> less",
        "x=Placeholder",
        "w=Placeholder",
        feeds=["i", "x", "w"],
        fetches=["less:0"],
    )
    return _with_values(graph, limit=limit)


def _loop(condition=None, body=None, start=0) -> OpGraph:
    """start, x0, w0 --> while:0, while:1, while:2"""
    graph = draw(
        "start=Const -> while=While",
        "x0=Placeholder, w0=Placeholder -> while",
        "while:2 -> end=Identity",
        bodies={"while": {"cond": ("condition",), "body": ("body",)}},
        functions={"condition": condition or _condition(), "body": body or _body()},
    )
    square = TensorProperties(dtype="float32", shape=(10, 10))
    graph = _with_shape(graph, square, "x0", "w0")
    loop = graph.ops["while"]
    info = replace(loop.info, outputs=(loop.info.outputs[0], square, square))
    graph = replace(graph, ops={**graph.ops, "while": replace(loop, info=info)})
    return _with_values(graph, start=start)


def test_variables_weigh_once_on_their_first_handle():
    """A second handle op of the same variable adds nothing."""
    names = {name: {"shared_name": "w", "dtype": "float32", "shape": (10,)} for name in _HANDLES}
    graph = draw(
        "v=VarHandleOp -> r=ReadVariableOp",
        "v2=VarHandleOp -> r2=ReadVariableOp",
        dtypes=_HANDLES,
        attributes=names,
    )
    variable = Variable(name="w", handle="v", dtype="float32", shape=(10,))
    for variables in ((), (variable,), (variable, replace(variable, handle="v2"))):
        costs = estimate_costs(replace(graph, variables=variables))
        assert sum(cost.persistent_bytes for cost in costs.values()) == 40


def test_captured_handles_carry_their_variable():
    """A placeholder that stands for a live variable has no bytes of its own, so it gets them."""
    graph = draw(
        "v=Placeholder -> r=ReadVariableOp",
        dtypes=_HANDLES,
        variables=[Variable(name="w", handle="v", dtype="float16", shape=(3, 5))],
    )
    assert estimate_costs(graph)["v"].persistent_bytes == 2 * 3 * 5


def test_a_variable_of_unknown_size_is_flagged():
    """A table has no size in the graph: that is not the same as no bytes."""
    graph = draw(
        "v=HashTableV2 -> find=LookupTableFindV2",
        dtypes=_HANDLES,
        variables=[Variable(name="table", handle="v", dtype="resource", shape=None)],
    )
    assert estimate_costs(graph)["v"].inaccurate


@pytest.mark.parametrize(
    ("relation", "start", "step", "limit", "trips"),
    [
        ("Less", 0, 1, 5, 5),
        ("Less", 1, 2, 6, 3),
        ("LessEqual", 0, 1, 5, 6),
        ("Greater", 9, -3, 0, 3),
        ("GreaterEqual", 9, -3, 0, 4),
        ("Less", 7, 1, 5, 0),
    ],
)
def test_a_counter_tells_the_trip_count(relation, start, step, limit, trips):
    """The count agrees with running the counter."""
    graph = _loop(_condition(relation, limit=limit), _body(step=step), start)
    assert find_trip_count(graph.ops["while"], graph) == TripCount(count=trips, exact=True)


def test_an_endless_or_data_dependent_loop_has_no_trip_count():
    """A counter that moves away from its limit, or a limit that is computed, tells nothing."""
    endless = _loop(body=_body(step=-1))
    assert find_trip_count(endless.ops["while"], endless) is None
    condition = replace(_condition(), ops=_condition().ops | {"limit": draw("limit").ops["limit"]})
    computed = _loop(condition)
    assert find_trip_count(computed.ops["while"], computed) is None


def test_a_further_condition_makes_the_count_an_upper_bound():
    """``i < 5 and flag`` runs at most five times."""
    graph = draw(
        "i=Placeholder -> less=Less -> both=LogicalAnd",
        "limit=Const -> less",
        "x=Placeholder -> flag=Any -> both",
        "w=Placeholder",
        feeds=["i", "x", "w"],
        fetches=["both:0"],
    )
    loop = _loop(_with_values(graph, limit=5))
    assert find_trip_count(loop.ops["while"], loop) == TripCount(count=5, exact=False)
    assert estimate_costs(loop)["while"].inaccurate


def test_arguments_that_pass_through_are_invariant():
    """The weights of the body are returned as they came."""
    assert loop_invariants(_body()) == {2}


def test_a_loop_costs_its_body_times_the_trips():
    """Five trips do five matrix products; a count that is given stands in for an unknown one."""
    product = 2 * 10 * 10 * 10
    once = sum(c.flops for f in (_body(), _condition()) for c in _estimate(f))
    assert once > product
    known, unknown = _loop(), _loop(body=_body(step=-1))
    assert estimate_costs(known)["while"].flops == 5 * once
    assert estimate_costs(known, trip_count=7)["while"].flops == 5 * once
    assert estimate_costs(unknown, trip_count=7)["while"].flops == 7 * once
    assert not estimate_costs(unknown, trip_count=7)["while"].inaccurate
    assert estimate_costs(unknown)["while"].flops == once
    assert estimate_costs(unknown)["while"].inaccurate


def test_a_loop_launches_its_kernels_in_every_trip():
    """Small kernels are bound by their launches: one of five trips pays for each of them."""
    device = draw_cluster("GPU:0", launch_seconds=1.0).device("GPU:0")
    once = sum(c.flops > 0 for f in (_body(), _condition()) for c in _estimate(f))
    assert op_seconds(estimate_costs(_loop())["while"], device) == pytest.approx(5 * once, rel=1e-3)


def _estimate(graph):
    return estimate({op.name: op.info for op in graph.ops.values()}).values()


def test_a_loop_needs_the_memory_of_its_body():
    """Beside the inputs live: x of the iteration before, and the body's peak, of which i and x are
    the outputs.  The weights pass through and need nothing.

    In the body relu overwrites the product: 400 bytes, and i of the iteration before.
    """
    cost = estimate_costs(_loop())["while"]
    assert cost.temporary_bytes + (4 + 400) == 400 + (4 + 400)
    assert cost.persistent_bytes == 4 + 4
    once = estimate_costs(_loop(_condition(limit=1)))["while"]
    assert once.temporary_bytes == 4  # the condition, which is asked once more


def test_a_branch_costs_the_dearest():
    """``If`` with a product in one branch and a Relu in the other costs the product."""
    square = TensorProperties(dtype="float32", shape=(10, 10))
    branches = {
        "dear": _with_shape(
            draw("x=Placeholder -> y=MatMul", "x -> y", feeds=["x"], fetches=["y:0"]),
            square,
            "x",
            "y",
        ),
        "cheap": _with_shape(
            draw("x=Placeholder -> y=Relu", feeds=["x"], fetches=["y:0"]), square, "x", "y"
        ),
    }
    graph = draw(
        "p=Placeholder, x=Placeholder -> if=If",
        bodies={"if": {"then_branch": ("dear",), "else_branch": ("cheap",)}},
        functions=branches,
    )
    assert estimate_costs(graph)["if"].flops == 2 * 10 * 10 * 10


def test_loops_nest():
    """A loop of five trips around a loop of three does fifteen products."""
    outer_body = draw(
        "i=Placeholder -> next=AddV2",
        "one=Const -> next",
        "start=Const -> while=While",
        "x=Placeholder, w=Placeholder -> while",
        bodies={"while": {"cond": ("inner_condition",), "body": ("inner_body",)}},
        feeds=["i", "x", "w"],
        fetches=["next:0", "while:1", "while:2"],
    )
    graph = _loop(_condition(limit=5), _with_values(outer_body, one=1, start=0))
    inner = {"inner_condition": _condition(limit=3), "inner_body": _with_values(_body(), one=1)}
    nested = replace(graph, functions={**graph.functions, **inner})
    product = 2 * 10 * 10 * 10
    assert 15 * product <= estimate_costs(nested)["while"].flops < 15 * product * 1.2


def test_a_loop_takes_what_its_ops_take_by_kind():
    """The efficiency of the product in a body holds for the loop."""
    cost = estimate_costs(_loop())["while"]
    fast = draw_cluster("GPU:0").device("GPU:0")
    slow = replace(fast, efficiency={"MatMul": Efficiency(compute=1e-9, memory=1e-9)})
    assert cost.repeats == 5
    assert op_seconds(cost, slow) > 1e3 * op_seconds(cost, fast)


def test_the_loop_of_a_gradient_runs_as_often_as_the_loop_it_is_of():
    """A limit that another loop has counted is known: it starts at 0 and counted to 5."""
    graph = draw(
        "start=Const -> while=While -> back=While",
        "x0=Placeholder, w0=Placeholder -> while",
        "while:1 -> back",
        bodies={
            "while": {"cond": ("condition",), "body": ("body",)},
            "back": {"cond": ("until",), "body": ("backward",)},
        },
        functions={
            "condition": _condition(),
            "body": _body(),
            "until": draw(
                "i=Placeholder, limit=Placeholder -> less=Less",
                feeds=["limit", "i"],
                fetches=["less:0"],
            ),
            "backward": _with_values(
                draw(
                    "i=Placeholder, one=Const -> next=AddV2",
                    "limit=Placeholder -> same=Identity",
                    feeds=["limit", "i"],
                    fetches=["same:0", "next:0"],
                ),
                one=1,
            ),
        },
    )
    back = graph.ops["back"]
    zero = TensorProperties(dtype="int32", shape=(), value=(0,))
    info = replace(back.info, inputs=(back.info.inputs[0], zero))
    graph = _with_values(
        replace(graph, ops={**graph.ops, "back": replace(back, info=info)}), start=0
    )
    assert find_trip_count(graph.ops["back"], graph) == TripCount(count=5, exact=True)
