"""Which ops run in place, and which reads copy."""

from graphs_by_hand import draw

from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.costs.variants import COPY, FUSED, IN_PLACE, SIDE_INPUT


def _in_place(graph):
    found = estimate_costs(graph, in_place=True)
    return {name for name, cost in found.items() if cost.variant == IN_PLACE}


def test_the_last_reader_of_a_tensor_writes_over_it():
    """b and d read a; d is on top of the thread pool and runs first, so b may write over it.

    x --> a --> b --> c
          '---> d
    """
    graph = draw(
        "x=Placeholder -> first=Relu",
        "a=MatMul -> b=Relu -> c=Relu",
        "x -> a -> d=Relu",
        feeds=["x"],
        fetches=["first:0", "c:0", "d:0"],
    )
    assert _in_place(graph) == {"b", "c"}


def test_an_alias_is_owned_with_what_it_is_of():
    """A reshaped product is written over, unless the product is fetched."""
    drawn = ["x=Placeholder -> a -> shaped=Reshape -> relu=Relu"]
    assert _in_place(draw(*drawn, feeds=["x"], fetches=["relu:0"])) == {"relu"}
    assert not _in_place(draw(*drawn, feeds=["x"], fetches=["relu:0", "a:0"]))


def test_constants_fetched_tensors_and_variables_are_not_written_over():
    graph = draw(
        "c=Const -> of_constant=Relu",
        "handle=VarHandleOp -> read=ReadVariableOp -> of_variable=Relu",
        "x=Placeholder -> a -> of_fetched=Relu",
        dtypes={"handle": "resource"},
        feeds=["x"],
        fetches=["a:0"],
    )
    assert not _in_place(graph)


def test_a_read_copies_a_variable_that_is_accessed_row_by_row():
    """400 bytes are read and written; without the gather the read costs nothing."""
    read = "handle=VarHandleOp -> read=ReadVariableOp -> y"
    bytes_ = {"read": 400}
    plain = draw(read, dtypes={"handle": "resource"}, bytes=bytes_)
    assert estimate_costs(plain)["read"].bytes_accessed == 0
    graph = draw(
        read,
        "handle -> rows=ResourceGather",
        "ids=Placeholder -> rows",
        dtypes={"handle": "resource", "ids": "int32"},
        bytes=bytes_,
        feeds=["ids"],
    )
    cost = estimate_costs(graph)["read"]
    assert cost.bytes_accessed == 800
    assert cost.variant == COPY


def _fused(*lines, trains=False, fetches=("relu:0",)):
    graph = draw(
        *lines,
        attributes={"norm": {"is_training": trains}},
        feeds=["x"],
        fetches=fetches,
    )
    return {name: cost.gpu_kind for name, cost in estimate_costs(graph).items() if cost.gpu_kind}


NORM = "x=Placeholder -> norm=FusedBatchNormV3"


def test_an_activation_behind_a_normalisation_is_fused_at_inference():
    """TensorFlow's optimiser runs both as one kernel, unless the step between is read elsewhere."""
    line = f"{NORM} -> relu=Relu"
    assert _fused(line)["relu"] == FUSED
    assert "relu" not in _fused(line, trains=True)
    assert "relu" not in _fused(line, fetches=("relu:0", "norm:0"))
    assert "relu" not in _fused(line, "norm -> other", fetches=("relu:0", "other:0"))
    assert "tanh" not in _fused(f"{NORM} -> tanh=Tanh", fetches=("tanh:0",))


def test_a_sum_between_normalisation_and_activation_is_fused_with_them():
    """The shortcut of a residual block is read within the kernel of the normalisation.

    x --> norm --> sum --> relu
    '---> a -------'
    """
    lines = f"{NORM} -> sum=AddV2 -> relu=Relu", "x -> a -> sum"
    found = _fused(*lines)
    assert (found["relu"], found["sum"]) == (FUSED, SIDE_INPUT)
    read = _fused(*lines, "sum -> other", fetches=("relu:0", "other:0"))
    assert "relu" not in read
    assert "sum" not in read
