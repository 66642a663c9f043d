"""Factors of products in the order of TensorFlow's graph optimizer."""

from __future__ import annotations

import random

import pytest
from graphs_by_hand import draw, draw_costs

from placer.extraction.extractor import extract
from placer.graph.passes.ordered_factors import order_factors
from placer.prediction.orders.possible_steps import PossibleSteps

KIB = 1 << 10


def products(graph):
    return {name: {*op.producers} for name, op in graph.ops.items() if op.op_type == "Mul"}


def gradient(**options):
    """Of a scaled softmax p, which is there from the forward pass on: c * (x * p).

    p --> loss --> x --> q --> y       q = x * p, y = c * q
     '-------------------^
    """
    sizes = dict.fromkeys(("p", "x", "q", "y"), KIB)
    return draw(
        "p -> loss -> x -> q=Mul",
        "p -> q",
        "c=Const, q -> y=Mul",
        bytes=sizes | {"loss": 4, "c": 4},
        **options,
    )


def test_the_small_factor_goes_to_the_one_that_comes_first_by_name():
    """y becomes x * q, and q becomes c * p, which runs as soon as p is there."""
    assert products(order_factors(gradient())) == {"q": {"c", "p"}, "y": {"x", "q"}}


def test_a_scaled_copy_is_made_when_it_is_read():
    """Of a GELU, (0.5 * x) * y: by its name y comes before the product, and is scaled instead."""
    graph = draw(
        "x -> y=Tanh",
        "half=Const, x -> z=Mul",
        "y, z -> out=Mul",
        bytes=dict.fromkeys(("x", "y", "z", "out"), KIB) | {"half": 4},
    )
    assert products(order_factors(graph)) == {"z": {"half", "y"}, "out": {"x", "z"}}


def test_what_is_read_elsewhere_or_has_another_shape_stays_as_it_is():
    """q is somebody else's, too, or of a smaller shape; all factors are of one shape."""
    small = dict.fromkeys(("p", "x", "q"), 4) | {"y": KIB, "c": KIB}
    for graph in (
        gradient(fetches=["q:0"]),
        draw("x, p -> q=Mul -> z", "c=Const, q -> y=Mul", bytes={"c": 4}),
        draw("x, p -> q=Mul", "c=Const, q -> y=Mul", bytes=small),
        draw("x, p -> q=Mul", "c=Const, q -> y=Mul", bytes=KIB),
    ):
        assert order_factors(graph) is graph


def test_on_gpus_the_product_waits():
    """While x is computed p has been freed in the program; as it runs q is there in its place, and
    both are while q is made."""
    graph = gradient()
    for accelerated in (False, True):
        steps = PossibleSteps(graph, draw_costs(graph), accelerated=accelerated)
        order = steps.orders[0]
        assert (order.index("q") < order.index("x")) is accelerated


@pytest.mark.slow
def test_tensorflow_orders_them_so():
    """Of drawn trees of products, TensorFlow's optimized graph has those that are predicted: all
    but one in ten, where only names of products differ."""
    tf = pytest.importorskip("tensorflow")
    context = pytest.importorskip("tensorflow.python.eager.context")
    same = moved = 0
    for seed in range(20):
        traced = _drawn(tf, random.Random(seed))
        graph = extract(traced).graph
        context.enable_run_metadata()
        context.context().enable_graph_collection()
        traced(*[tf.ones(spec.shape) for spec in traced.structured_input_signature[0]])
        metadata = context.export_run_metadata()
        context.disable_run_metadata()
        nodes = metadata.function_graphs[-1].post_optimization_graph.node
        found = {
            node.name: {name.split(":")[0] for name in node.input if name[0] != "^"}
            for node in nodes
            if node.op == "Mul"
        }
        predicted = products(order_factors(graph))
        same += found == predicted
        moved += found == predicted != products(graph)
    assert same >= 18
    assert moved >= 5


def _drawn(tf, rng):
    """A tree of products of some matrices, and perhaps a constant, names drawn."""
    names = rng.sample("abcdefghijklmnopqrstuvwxyz", 26)
    count, constants = rng.choice((2, 3, 4)), rng.choice((0, 1, 1))

    def build(*matrices):
        left = [tf.raw_ops.Tanh(x=each, name=names.pop()) for each in matrices]
        left += [tf.constant(0.5, name=names.pop()) for _ in range(constants)]
        while len(left) > 1:
            x, y = (left.pop(rng.randrange(len(left))) for _ in range(2))
            left.append(tf.raw_ops.Mul(x=x, y=y, name=names.pop()))
        return tf.raw_ops.Cosh(x=left[0], name="zz")

    signature = [tf.TensorSpec((8, 16))] * count
    return tf.function(build, input_signature=signature).get_concrete_function()
