"""Tensor lists and tensor arrays, where they copy.

A list hands out references (those ops are free); bringing elements into one tensor, or cutting one
tensor into elements, copies (``tensorflow/core/kernels/list_kernels.h``, ``tensor_array_ops.cc``).
"""

from collections.abc import Mapping

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


_CUT_INPUT: Mapping[int, str] = {
    0: "TensorListFromTensor TensorListScatter TensorListScatterV2 TensorListSplit",
    1: """
        TensorListScatterIntoExistingList TensorArraySplit TensorArraySplitV2 TensorArraySplitV3
        TensorArrayUnpack
    """,
    2: "TensorArrayScatter TensorArrayScatterV2 TensorArrayScatterV3",
}
_CUT = {op_type: place for place, listed in _CUT_INPUT.items() for op_type in listed.split()}


@cost_rule(*_CUT)
def split_work(info: OpInfo) -> Work:
    """The tensor is read and written as elements, which are new buffers."""
    size = counted_bytes(info.inputs[_CUT[info.op]])
    return Work(bytes_accessed=2 * size, temporary_bytes=size)


@cost_rule("TensorListPushBackBatch")
def push_batch_work(info: OpInfo) -> Work:
    """The tensor is cut into one element per list."""
    return Work(bytes_accessed=2 * counted_bytes(info.inputs[1]))
