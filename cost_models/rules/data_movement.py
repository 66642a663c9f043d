"""Ops that move bytes and compute nothing."""

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes, element_count


@cost_rule("""
    Transpose ConjugateTranspose Concat ConcatV2 Split SplitV Pack Unpack ParallelConcat Pad
    PadV2 MirrorPad MirrorPadGrad Tile TileGrad BroadcastTo Reverse ReverseV2 ReverseSequence
    Roll SpaceToBatch SpaceToBatchND BatchToSpace BatchToSpaceND SpaceToDepth DepthToSpace
    ExtractImagePatches ExtractVolumePatches ExtractGlimpse ExtractGlimpseV2 Cast _HostCast
    StochasticCastToInt Complex Real Imag Where DeepCopy MatrixDiag MatrixDiagV2 MatrixDiagV3
    MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixSetDiag MatrixSetDiagV2
    MatrixSetDiagV3 MatrixBandPart Diag DiagPart DataFormatDimMap DataFormatVecPermute
    StridedSliceGrad DynamicPartition DynamicStitch ParallelDynamicStitch SparseToDense
    SparseConcat SparseSplit SparseReorder SparseReshape SparseFillEmptyRows
    SparseFillEmptyRowsGrad SparseSlice SparseSliceGrad SparseAdd SparseAddGrad
    _ParallelConcatUpdate _CopyFromGpuToHost _CopyFromHostToGpu _ArrayToList _ListToArray
    LookupTableFind LookupTableFindV2 LookupTableInsert LookupTableInsertV2 LookupTableImportV2
    AssignVariableOp QueueEnqueueMany QueueEnqueueManyV2 QueueDequeueMany QueueDequeueManyV2
    QueueDequeueUpTo QueueDequeueUpToV2
""")
def copy_work(_info: OpInfo) -> Work:
    """Every input is read once, every output written once; no flops.

    ``AssignVariableOp`` has its value's bytes as traffic, though the buffer is often taken over.
    """
    return Work()


@cost_rule("CollectiveReduce CollectiveReduceV2")
def all_reduce_work(info: OpInfo) -> Work:
    """Received chunks are added to the tensor, and the sums take its place; the time on the links
    is not the device's.

    On a CPU all chunks that are received lie beside the tensor (``RingReducer::InitRingField`` of
    ``tensorflow/core/common_runtime/ring_reducer.cc``); NCCL has its own few megabytes.
    """
    size = counted_bytes(info.inputs[0])
    return Work(
        flops=element_count(info.inputs[0]),
        bytes_accessed=3 * size,
        temporary_bytes=size,
        gpu_temporary_bytes=0,
    )


@cost_rule("Fill ZerosLike OnesLike Range LinSpace OneHot Empty _ParallelConcatStart")
def fill_work(info: OpInfo) -> Work:
    """The outputs are written; of the inputs only shapes and scalars are read."""
    return Work(bytes_accessed=sum(map(counted_bytes, info.outputs)))


@cost_rule("Slice StridedSlice InplaceUpdate RandomCrop")
def slice_work(info: OpInfo) -> Work:
    """The slice is read and written; the rest of the input is not touched."""
    return Work(bytes_accessed=2 * counted_bytes(info.outputs[0]))


@cost_rule("Assign StridedSliceAssign ResourceStridedSliceAssign")
def assign_work(info: OpInfo) -> Work:
    """The value is read and written into the variable, the rest of which is not touched."""
    return Work(bytes_accessed=2 * counted_bytes(info.inputs[1 if info.op == "Assign" else 4]))


@cost_rule("TensorStridedSliceUpdate")
def slice_update_work(info: OpInfo) -> Work:
    """The tensor is copied, the value read and written over it."""
    return Work(
        bytes_accessed=2 * counted_bytes(info.outputs[0]) + 2 * counted_bytes(info.inputs[4])
    )


@cost_rule("AssignAdd AssignSub AssignAddVariableOp AssignSubVariableOp")
def assign_add_work(info: OpInfo) -> Work:
    """One flop per element: the variable and the value are read, the variable is written."""
    value = info.inputs[1]
    return Work(flops=element_count(value), bytes_accessed=3 * counted_bytes(value))
