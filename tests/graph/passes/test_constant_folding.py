"""What TensorFlow computes once, and what stays of it."""

from graphs_by_hand import draw, draw_costs

from placer.graph.passes.constant_folding import find_folded
from placer.prediction.memory.timelines import StepMemory

LARGE = 1 << 20


def drawn():
    """A gradient of a mean: 1/N is repeated, halved, and times x.

    n --> tile --> half --> y --> z
                            |
                       x ---'
    """
    graph = draw(
        "n=Const -> tile=Tile -> half=RealDiv -> y=Mul -> z",
        "two=Const -> half",
        "x -> y",
        bytes=dict.fromkeys(("tile", "half", "x", "y", "z"), LARGE),
    )
    return graph, draw_costs(graph)


def test_what_constants_alone_decide_stays_where_others_read_it():
    """Of two ops in a row the last one's result; the product with x is computed in every step."""
    graph, _ = drawn()
    assert find_folded(graph) == {"tile": (), "half": (0,)}


def test_a_gpu_has_it_from_the_start_and_never_gives_it_back():
    """A MiB on the GPU; on a CPU half is written over tile, and y over half."""
    graph, costs = drawn()
    peaks = {}
    for device in ("GPU:0", "CPU:0"):
        step = StepMemory(graph, costs, dict.fromkeys(graph.ops, device), (device,))
        peaks[device] = step.peaks(tuple(graph.ops))[device]
        assert step.resident_bytes(device) == (1 << 20 if device == "GPU:0" else 0)
    assert peaks == {"GPU:0": 3 << 20, "CPU:0": 2 << 20}


def test_small_large_and_fetched_results_are_left_as_they_are():
    """Below 64 KiB, above 10 MiB, and where a session gives them out."""
    for size, fetches in ((400, ()), (12 << 20, ()), (LARGE, ["tile:0"])):
        graph = draw(
            "n=Const -> tile=Tile -> y=Mul",
            "x -> y",
            bytes=dict.fromkeys(("tile", "x", "y"), size),
            fetches=fetches,
        )
        assert find_folded(graph) == {}


def test_weights_of_a_frozen_graph_are_there_once():
    """Their Identity is computed once, and the constant goes; another that is read stays."""
    graph = draw("w=Const -> r=Identity -> y", "x -> y", "c=Const -> y", bytes=LARGE)
    costs = draw_costs(graph, persistent_bytes={"w": LARGE, "c": LARGE})
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), ("GPU:0",))
    assert step.resident["GPU:0"] == {"c": LARGE, "r": LARGE}
