"""Tensor lists and tensor arrays, where they copy.

A list hands out references (those ops are free); bringing elements into one tensor, or cutting one
tensor into elements, copies (``tensorflow/core/kernels/list_kernels.h``, ``tensor_array_ops.cc``).
"""

from __future__ import annotations

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes


@cost_rule("""
    TensorListStack TensorListGather TensorListConcat TensorListConcatV2 TensorArrayGather
    TensorArrayGatherV2 TensorArrayGatherV3 TensorArrayConcat TensorArrayConcatV2
    TensorArrayConcatV3 TensorArrayPack
""")
def join_work(info: OpInfo) -> Work:
    """The elements are read and written into the output."""
    return Work(bytes_accessed=2 * counted_bytes(info.outputs[0]))


@cost_rule("""
    TensorListFromTensor TensorListScatter TensorListScatterV2 TensorListScatterIntoExistingList
    TensorListSplit
""")
def split_list_work(info: OpInfo) -> Work:
    """The tensor is read and written as the list's elements, which are new buffers."""
    size = counted_bytes(info.inputs[0])
    if info.op == "TensorListScatterIntoExistingList":
        size = counted_bytes(info.inputs[1])
    return Work(bytes_accessed=2 * size, temporary_bytes=size)


_ARRAY_VALUE = {"Scatter": 2, "Unpack": 1, "Split": 1}


@cost_rule("""
    TensorArrayScatter TensorArrayScatterV2 TensorArrayScatterV3 TensorArraySplit
    TensorArraySplitV2 TensorArraySplitV3 TensorArrayUnpack
""")
def split_array_work(info: OpInfo) -> Work:
    """As for lists; the value's place among the inputs differs."""
    place = next(at for kind, at in _ARRAY_VALUE.items() if kind in info.op)
    size = counted_bytes(info.inputs[place])
    return Work(bytes_accessed=2 * size, temporary_bytes=size)


@cost_rule("TensorListPushBackBatch")
def push_batch_work(info: OpInfo) -> Work:
    """The tensor is cut into one element per list."""
    return Work(bytes_accessed=2 * counted_bytes(info.inputs[1]))
