"""What tensor lists keep alive."""

from graphs_by_hand import draw, draw_costs

from placer.prediction.costs import estimate_costs
from placer.prediction.memory import predict_memory


def _bytes(graph, costs):
    placement = dict.fromkeys(graph.ops, "GPU:0")
    timeline = predict_memory(graph, costs, placement, ("CPU:0", "GPU:0"))["GPU:0"]
    return dict(zip(timeline.order, timeline.bytes, strict=True))


def test_an_item_lives_as_long_as_its_list():
    """a would be freed after the push; in the list it stays until the list was stacked.

    list --> push --> stack        a --> push
    """
    graph = draw(
        "empty=EmptyTensorList -> push=TensorListPushBack -> stack=TensorListStack",
        "a -> push",
        "push ..> meanwhile ..> stack",
        "stack ..> after",
        dtypes={"empty": "variant", "push": "variant"},
        bytes={"a": 400, "stack": 400},
    )
    found = _bytes(graph, draw_costs(graph))
    assert found["meanwhile"] == 400 + 4
    assert found["stack"] == 400 + 400
    assert found["after"] == 4


def test_cutting_a_tensor_into_a_list_copies_it():
    """The list holds as much as the tensor, and an element that is read keeps it."""
    graph = draw(
        "x=Placeholder -> cut=TensorListFromTensor -> item=TensorListGetItem -> y=Neg",
        "shape=Const -> cut",
        "y -> z=Neg",
        dtypes={"cut": "variant", "shape": "int32"},
        bytes={"x": 400, "item": 4, "y": 4},
    )
    found = _bytes(graph, estimate_costs(graph))
    assert found["cut"] == 400 + 400
    assert found["item"] == 400


def test_a_loop_fills_its_list():
    """Seven trips that add 400 bytes each leave a list that holds 2,800.

    body: i, list, x --> i, push(list, relu(x)), x
    """
    body = draw(
        "i=Placeholder -> i2=Identity",
        "list=Placeholder -> push=TensorListPushBack",
        "x=Placeholder -> item=Relu -> push",
        "x -> x2=Identity",
        dtypes={"list": "variant", "push": "variant"},
        bytes={"x": 400, "item": 400, "x2": 400},
        feeds=["i", "list", "x"],
        fetches=["i2:0", "push:0", "x2:0"],
    )
    condition = draw(
        "i=Placeholder -> any=Any",
        "list=Placeholder",
        "x=Placeholder",
        feeds=["i", "list", "x"],
        fetches=["any:0"],
    )
    graph = draw(
        "i=Placeholder, list=EmptyTensorList, x=Placeholder -> while=While",
        "while:1 -> stack=TensorListStack",
        "while:2 -> y=Neg",
        dtypes={"list": "variant", "while:1": "variant"},
        bytes={"x": 400, "while:2": 400, "stack": 2800, "y": 400},
        bodies={"while": {"cond": ("condition",), "body": ("body",)}},
        functions={"condition": condition, "body": body},
    )
    costs = estimate_costs(graph, trip_count=7)
    assert costs["while"].held_bytes == (0, 2800, 0)
    assert costs["while"].output_bytes[1] is None
    assert _bytes(graph, costs)["stack"] >= 2800 + 2800
