"""Images whose channels come first on a GPU are copied where they enter and where they leave."""

from __future__ import annotations

from dataclasses import replace

from graphs_by_hand import draw, draw_costs

from cost_models.op_info import TensorProperties
from placer.prediction.memory.timelines import StepMemory

SIZE = 4 * 4 * 64 * 64 * 16
IMAGE = TensorProperties(dtype="float32", shape=(4, 64, 64, 16))


def layout(*lines, placement=None, images=None):
    """The layout of a graph of images, Conv2Ds with their channels first."""
    graph = draw(*lines, bytes=SIZE, feeds=["x"], fetches=["y:0"])
    for name, op in graph.ops.items():
        shape = (images or {}).get(name, IMAGE.shape)
        outputs = (replace(IMAGE, shape=shape),)
        graph.ops[name] = replace(op, info=replace(op.info, outputs=outputs))
    costs = draw_costs(graph)
    for op in graph.ops.values():
        if op.op_type == "Conv2D":
            costs[op.name] = replace(costs[op.name], channels_first=True)
    placed = dict.fromkeys(graph.ops, "GPU:0") | {"x": "CPU:0"} | (placement or {})
    return StepMemory(graph, costs, placed, ("CPU:0", "GPU:0", "GPU:1")).layout


def copies(found):
    """The names of ops after which an image is copied, one for each copy."""
    return [found.names[op] for op, rows in found.transposed.items() for _ in rows]


def test_an_image_is_turned_where_it_enters_and_where_it_leaves():
    """What lies between is in any order."""
    found = layout("x=Placeholder -> c=Conv2D -> r=Relu -> d=Conv2D -> y=ResizeBilinear")
    assert copies(found) == ["x", "d"]


def test_one_copy_serves_all_who_read_it():
    found = layout("x=Placeholder -> c=Conv2D, d=Conv2D -> a=AddV2 -> y=ResizeBilinear")
    assert copies(found) == ["x", "a"]


def test_what_is_broadcast_to_an_image_is_turned():
    """Its channels come last, as in the gradient of a mean."""
    found = layout(
        "m -> b=BroadcastTo",
        "x=Placeholder -> c=Conv2D",
        "b, c -> a=Mul -> y=ResizeBilinear",
        images={"m": (4, 1, 1, 16)},
    )
    assert copies(found) == ["x", "b", "a"]


def test_an_image_that_is_fetched_is_turned_before_it_is_sent():
    """The copy on the host is made of the turned one."""
    found = layout("x=Placeholder -> y=Conv2D")
    (turned, sent) = found.transposed[found.names.index("y")]
    assert turned[1] == sent[0]
    assert (found.memory[turned[1]], found.memory[sent[1]]) == ("GPU:0", "CPU:0")


def test_between_gpus_images_stay_as_they_are():
    found = layout("x=Placeholder -> c=Conv2D -> d=Conv2D -> y=Mean", placement={"d": "GPU:1"})
    assert copies(found)[:1] == ["x"]
    assert "c" not in copies(found)


def test_on_a_cpu_nothing_is_turned():
    found = layout("x=Placeholder -> y=Conv2D", placement={"y": "CPU:0"})
    assert not found.transposed


def test_the_image_that_was_turned_is_freed_if_nobody_else_reads_it():
    """At the convolution two are there, its input and its output: not the image as it was fed."""
    graph = draw("x=Placeholder -> c=Conv2D -> y=Relu", bytes=SIZE, feeds=["x"])
    for name, op in graph.ops.items():
        graph.ops[name] = replace(op, info=replace(op.info, outputs=(IMAGE,)))
    graph.ops["c"] = replace(graph.ops["c"], info=replace(graph.ops["c"].info, inputs=(IMAGE,)))
    costs = draw_costs(graph)
    costs["c"] = replace(costs["c"], channels_first=True)
    placed = {"x": "CPU:0", "c": "GPU:0", "y": "GPU:0"}
    step = StepMemory(graph, costs, placed, ("CPU:0", "GPU:0"))
    assert copies(step.layout) == ["x"]
    assert step.timelines()["GPU:0"].peak_bytes == 2 * SIZE
