"""Our temporaries beside the bytes that TensorFlow's CPU kernels allocate for themselves.

TensorFlow must be imported with oneDNN off for that, so the ops run in an interpreter of their own
(this file run as a script).
"""

import json
import sys

import pytest
from fuzzing.warm_children import run_python

from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import op_cost

X, Y = (4, 16, 16, 8), (4, 16, 16, 12)
CONVOLUTION = {"strides": [1, 1, 1, 1], "padding": "SAME"}
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
NORM = {"x": X, "scale": (8,), "offset": (8,), "mean": (8,), "variance": (8,)}

EQUATIONS = {
    "ij,jk->ik": [(5, 7), (7, 9)],
    "ij,jk->ki": [(5, 7), (7, 9)],
    "abc,cde->abde": [(3, 5, 7), (7, 9, 2)],
    "BTNH,BSNH->BNTS": [(2, 5, 4, 6), (2, 7, 4, 6)],
    "aecd,abcd->acbe": [(2, 5, 4, 6), (2, 7, 4, 6)],
    "bhqk,bhkd->bqhd": [(2, 3, 5, 6), (2, 3, 6, 7)],
    "...ij,jk->...ik": [(3, 5, 7), (7, 9)],
    "bij,jk->bik": [(3, 5, 7), (7, 9)],
    "abc->cab": [(3, 4, 5)],
    "abc->ca": [(3, 4, 5)],
}

# A tuple is the shape of a float input, a list a constant.
CASES = {
    "convolution": ("Conv2D", {"input": X, "filter": (3, 3, 8, 12), **CONVOLUTION}),
    "grouped convolution": ("Conv2D", {"input": X, "filter": (3, 3, 4, 12), **CONVOLUTION}),
    "filter gradient": (
        "Conv2DBackpropFilter",
        {"input": X, "filter_sizes": [3, 3, 8, 12], "out_backprop": Y, **CONVOLUTION},
    ),
    "filter gradient, large": (
        "Conv2DBackpropFilter",
        {
            "input": (4, 64, 64, 32),
            "filter_sizes": [3, 3, 32, 64],
            "out_backprop": (4, 64, 64, 64),
            **CONVOLUTION,
        },
    ),
    "input gradient, one image": (
        "Conv2DBackpropInput",
        {
            "input_sizes": [1, 16, 16, 8],
            "filter": (3, 3, 8, 12),
            "out_backprop": (1, 16, 16, 12),
            **CONVOLUTION,
        },
    ),
    "input gradient, small images": (
        "Conv2DBackpropInput",
        {"input_sizes": list(X), "filter": (3, 3, 8, 12), "out_backprop": Y, **CONVOLUTION},
    ),
    "input gradient, large": (
        "Conv2DBackpropInput",
        {
            "input_sizes": [4, 64, 64, 32],
            "filter": (3, 3, 32, 64),
            "out_backprop": (4, 64, 64, 64),
            **CONVOLUTION,
        },
    ),
    "depthwise filter gradient": (
        "DepthwiseConv2dNativeBackpropFilter",
        {"input": X, "filter_sizes": [3, 3, 8, 1], "out_backprop": X, **CONVOLUTION},
    ),
    "depthwise filter gradient, padded": (
        "DepthwiseConv2dNativeBackpropFilter",
        {
            "input": (4, 16, 16, 9),
            "filter_sizes": [3, 3, 9, 1],
            "out_backprop": (4, 16, 16, 9),
            **CONVOLUTION,
        },
    ),
    "depthwise filter gradient, two for one": (
        "DepthwiseConv2dNativeBackpropFilter",
        {
            "input": (6, 16, 16, 5),
            "filter_sizes": [5, 3, 5, 2],
            "out_backprop": (6, 16, 16, 10),
            **CONVOLUTION,
        },
    ),
    "pooling": ("MaxPool", {"input": X, **POOL}),
    "pooling gradient": (
        "MaxPoolGrad",
        {"orig_input": X, "orig_output": (4, 8, 8, 8), "grad": (4, 8, 8, 8), **POOL},
    ),
    "sum of first and third": ("Sum", {"input": X, "axis": [0, 2]}),
    "sum of second and fourth": ("Mean", {"input": X, "axis": [1, 3]}),
    "sum of the middle": ("Max", {"input": X, "axis": [1, 2]}),
    "sum of the outer two of three": ("Sum", {"input": (4, 5, 6), "axis": [0, 2]}),
    "sum past a dimension of one": ("Sum", {"input": (4, 1, 6, 5), "axis": [0, 2]}),
    "softmax": ("Softmax", {"logits": (10, 20)}),
    "cross entropy": (
        "SoftmaxCrossEntropyWithLogits",
        {"features": (10, 20), "labels": (10, 20)},
    ),
    "batch norm": ("FusedBatchNormV3", {**NORM, "is_training": True}),
    "batch norm at inference": ("FusedBatchNormV3", {**NORM, "is_training": False}),
    "list": ("TensorListFromTensor", {"tensor": X, "element_shape": [16, 16, 8]}),
    "product": ("MatMul", {"a": (5, 7), "b": (7, 9)}),
    "batch product": ("BatchMatMulV2", {"x": (3, 7, 5), "y": (3, 7, 9), "adj_x": True}),
    "transpose": ("Transpose", {"x": X, "perm": [0, 3, 1, 2]}),
    **{
        equation: ("Einsum", {"inputs": s, "equation": equation})
        for equation, s in EQUATIONS.items()
    },
}


WITHIN_TEMPORARIES = {"MaxPoolGrad", "TensorListFromTensor"}
"""Ops whose outputs are parts of what their kernels take for themselves, or have no bytes."""


def _run_cases():
    """Write a JSON object: per case the op as a cost rule sees it, and the bytes of temporaries
    and outputs that TensorFlow recorded."""
    import tensorflow as tf
    from conftest import op_info_of

    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        ops = {name: _op(tf, op_type, arguments) for name, (op_type, arguments) in CASES.items()}
    config = v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=2)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    with v1.Session(graph=graph, config=config) as session:
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        session.run(list(ops.values()), options=options, run_metadata=metadata)
    stats = {n.node_name: n for d in metadata.step_stats.dev_stats for n in d.node_stats}
    op_info = op_info_of.__wrapped__()
    sys.stdout.write(
        json.dumps({name: _row(op_info(op), stats[op.name]) for name, op in ops.items()})
    )


def _op(tf, op_type, arguments):
    """The op with random inputs of the given shapes."""

    def value(argument):
        if isinstance(argument, tuple):
            return tf.random.uniform(argument)
        return (
            [value(a) if isinstance(a, tuple) else a for a in argument]
            if isinstance(argument, list)
            else argument
        )

    outputs = getattr(tf.raw_ops, op_type)(**{k: value(a) for k, a in arguments.items()})
    return (outputs[0] if isinstance(outputs, tuple) else outputs).op


def _row(info, stats):
    return {
        "op": info.op,
        "inputs": [(t.dtype, t.shape, t.value) for t in info.inputs],
        "outputs": [(t.dtype, t.shape, t.value) for t in info.outputs],
        "attributes": info.attributes,
        "temporary_bytes": stats.memory_stats.temp_memory_size,
        "asked_for": [
            record.alloc_bytes
            for memory in stats.memory
            for record in memory.allocation_records
            if record.alloc_bytes > 0
        ],
        "output_bytes": {
            output.slot: output.tensor_description.allocation_description.requested_bytes
            for output in stats.output
        },
    }


def _tensors(rows):
    return tuple(
        TensorProperties(dtype=dtype, shape=None if shape is None else tuple(shape), value=value)
        for dtype, shape, value in rows
    )


def cost_of(row):
    return op_cost(
        OpInfo(
            op=row["op"],
            inputs=_tensors(row["inputs"]),
            outputs=_tensors(row["outputs"]),
            attributes=row["attributes"],
        )
    )


@pytest.fixture(scope="module")
def recorded():
    pytest.importorskip("tensorflow")
    ran = run_python([__file__])
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_temporaries_and_outputs_are_those_tensorflow_records(name, recorded):
    """Temporary bytes equal the kernel's own record, output bytes what it allocated."""
    row = recorded[name]
    cost = cost_of(row)
    assert cost.temporary_bytes == row["temporary_bytes"]
    for slot, size in row["output_bytes"].items():
        assert cost.output_bytes[int(slot)] in (size, None)
    assert not cost.inaccurate


@pytest.mark.parametrize("name", EQUATIONS)
def test_chunks_before_the_output_are_those_tensorflow_records(name, recorded):
    """In the order of the requests; what is freed in between is not asked."""
    row = recorded[name]
    assert [*cost_of(row).temporary_chunks, *row["output_bytes"].values()] == row["asked_for"]


@pytest.mark.parametrize("name", [name for name in CASES if name not in EQUATIONS])
def test_other_kernels_ask_for_their_outputs_first(name, recorded):
    row = recorded[name]
    assert not cost_of(row).temporary_chunks
    if row["temporary_bytes"] and row["op"] not in WITHIN_TEMPORARIES:
        assert row["asked_for"][0] == row["output_bytes"]["0"]


if __name__ == "__main__":
    _run_cases()
