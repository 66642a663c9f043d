"""What tensor lists keep alive."""

from graphs_by_hand import draw, draw_costs

from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.memory.timelines import predict_memory


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


def test_an_element_that_is_taken_out_goes_with_its_reader():
    """Two elements of 400 bytes; the first one taken is freed when it was read, the other stays.

    a, b --> push, push --> pop --> reader
    """
    graph = draw(
        "empty=EmptyTensorList -> push=TensorListPushBack -> push2=TensorListPushBack",
        "a -> push",
        "b -> push2 -> pop=TensorListPopBack",
        "pop:1 -> reader ..> after",
        "pop:0 -> rest=TensorListStack",
        "after ..> rest",
        dtypes={"empty": "variant", "push": "variant", "push2": "variant", "pop:0": "variant"},
        bytes={"a": 400, "b": 400, "pop:1": 400, "rest": 400},
    )
    found = _bytes(graph, draw_costs(graph))
    assert found["pop"] == 800
    assert found["after"] == 400 + 4


def test_the_sum_of_two_lists_has_the_elements_of_both():
    """A list of four elements and one with a single element: as large as the first."""
    graph = draw(
        "x=Placeholder -> cut=TensorListFromTensor -> sum=AddN -> stack=TensorListStack",
        "shape=Const -> cut",
        "empty=EmptyTensorList -> push=TensorListPushBack -> sum",
        "a -> push",
        "sum ..> after ..> stack",
        dtypes={name: "variant" for name in ("cut", "empty", "push", "sum")} | {"shape": "int32"},
        bytes={"x": 400, "a": 4, "stack": 400},
    )
    costs = estimate_costs(graph)
    assert _bytes(graph, costs)["after"] == 400 + 4


def test_zeros_like_a_list_are_as_many():
    graph = draw(
        "x=Placeholder -> cut=TensorListFromTensor -> zeros=ZerosLike -> stack=TensorListStack",
        "shape=Const -> cut",
        "zeros ..> after ..> stack",
        dtypes={"cut": "variant", "zeros": "variant", "shape": "int32"},
        bytes={"x": 400, "stack": 400},
    )
    assert _bytes(graph, estimate_costs(graph))["after"] == 400 + 4
