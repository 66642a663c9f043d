"""Products with one, taken out."""

from dataclasses import replace

from graphs_by_hand import draw, draw_costs

from placer.graph.passes.neutral_constants import without_neutral
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.possible_steps import PossibleSteps

KIB = 1 << 10


def silu(value=1.0, kind="Mul", **options):
    """x * sigmoid(beta * x), and what reads x once more: beta is a scalar of this ``value``."""
    graph = draw(
        "x=MatMul",
        f"beta=Const, x -> scaled={kind} -> s=Sigmoid",
        "x, s -> y=Mul",
        "scaled, y -> z=MatMul",
        bytes={"x": KIB, "scaled": KIB, "s": KIB, "y": KIB, "z": 4, "beta": 4},
        **options,
    )
    beta = graph.ops["beta"]
    output = (replace(beta.info.outputs[0], shape=(), value=(value,)),)
    ops = {**graph.ops, "beta": replace(beta, info=replace(beta.info, outputs=output))}
    return replace(graph, ops=ops)


def test_a_product_with_one_is_its_other_factor():
    """It keeps its name, hands x on, and waits for the constant as it did."""
    found = without_neutral(silu()).ops["scaled"]
    assert (found.op_type, found.inputs, found.control_inputs) == ("Identity", ("x:0",), ("beta",))
    assert without_neutral(silu(0.0, "AddV2")).ops["scaled"].op_type == "Identity"


def test_what_changes_something_or_is_fetched_stays():
    """A factor of two, a sum with one, a quotient of one, and what the caller asks for."""
    for graph in (silu(2.0), silu(kind="AddV2"), silu(kind="RealDiv"), silu(fetches=["scaled:0"])):
        assert without_neutral(graph) is graph


def test_on_gpus_it_takes_no_memory():
    """Beside y, x and the product are held in the program, and x alone as it runs."""
    graph = silu()
    costs = draw_costs(graph)
    peaks = []
    for accelerated in (False, True):
        steps = PossibleSteps(graph, costs, accelerated=accelerated)
        step = StepMemory(steps.graph, costs, dict.fromkeys(graph.ops, "GPU:0"), ["GPU:0", "CPU:0"])
        peaks.append(max(step.peaks(order)["GPU:0"] for order in steps.orders))
    assert [peak // KIB for peak in peaks] == [3, 2]
