"""Products with a constant, rearranged."""

from graphs_by_hand import draw, draw_costs

from placer.graph.passes.pushed_constants import push_constants
from placer.prediction.orders.possible_steps import PossibleSteps

KIB = 1 << 10


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
        bytes=sizes | {"loss": 4},
        **options,
    )


def test_the_constant_goes_to_the_factor_that_is_there_first():
    """y becomes x * q, and q becomes c * p, which runs as soon as p is there."""
    pushed = push_constants(gradient())
    inputs = {name: set(op.inputs) for name, op in pushed.ops.items()}
    assert inputs["q"] == {"c:0", "p:0"}
    assert inputs["y"] == {"x:0", "q:0"}
    assert {*pushed.ops} == {*gradient().ops}


def test_what_is_read_elsewhere_or_fetched_stays_as_it_is():
    """q is somebody else's, too; it has another type; half precision would lose digits."""
    for graph in (
        gradient(fetches=["q:0"]),
        gradient(dtypes=dict.fromkeys(("p", "x", "q", "y", "c"), "float16")),
        draw("x, p -> q=Mul", "c=Const, q -> y=AddV2", bytes=KIB),
        draw("x, p -> q=Mul -> z", "c=Const, q -> y=Mul", bytes=KIB),
    ):
        assert push_constants(graph) is graph


def test_on_gpus_the_product_waits():
    """While x is computed p has been freed in the program; as it runs q is there in its place, and
    both are while q is made."""
    graph = gradient()
    for accelerated in (False, True):
        steps = PossibleSteps(graph, draw_costs(graph), accelerated=accelerated)
        order = steps.orders[0]
        assert (order.index("q") < order.index("x")) is accelerated
