"""Op types that cost nothing on purpose, by the reason why.

They compute nothing that grows with a tensor, or what they do is counted elsewhere.
"""

import re
from collections.abc import Mapping
from functools import cache

FREE: Mapping[str, str] = {
    # The output is the input's buffer: a reference is passed on.
    "alias": """
        Identity IdentityN StopGradient PreventGradient Snapshot Reshape
        Squeeze ExpandDims Bitcast GuaranteeConst PlaceholderWithDefault EnsureShape RefIdentity
        ReadVariableOp _ReadVariablesOp DebugIdentity DebugIdentityV2 DebugIdentityV3 Copy CopyHost
        XlaSharding TPUReplicatedInput TPUReplicatedOutput TensorMapSize
    """,
    # The value is there before the step starts; a constant or variable costs memory, not time.
    "value at hand": """
        Const HostConst ImmutableConst VarHandleOp _VarHandlesOp Variable VariableV2
        TemporaryVariable DestroyTemporaryVariable VarIsInitializedOp
        IsVariableInitialized DestroyResourceOp DisableCopyOnRead Placeholder PlaceholderV2 _Arg
        _DeviceArg _Retval _DeviceRetval FakeParam
    """,
    # A few integers about shapes, computed on the host.
    "shape arithmetic": """
        Shape ShapeN Size Rank VariableShape BroadcastArgs BroadcastGradientArgs ConcatOffset
        InvertPermutation TensorListElementShape TensorListLength TensorArraySizeV3
        TensorArraySizeV2 TensorArraySize
    """,
    # The executor's own: order and control flow, without a kernel of weight.
    "control": """
        NoOp ControlTrigger Assert Abort Enter RefEnter Exit RefExit Switch RefSwitch _SwitchN Merge
        RefMerge NextIteration RefNextIteration LoopCond RefSelect Barrier
        MergeV2Checkpoints ShardedFilename
    """,
    # The function they call is costed on its own.
    "call": """
        PartitionedCall StatefulPartitionedCall TPUPartitionedCall While StatelessWhile If
        StatelessIf Case StatelessCase For SymbolicGradient RemoteCall XlaLaunch XlaLaunchV2
    """,
    # Handles of stacks, arrays, lists, queues, tables, iterators and generators.
    "handle": """
        StackV2 Stack StackCloseV2 StackClose TensorArrayV3 TensorArrayV2 TensorArray
        TensorArrayGradV3 TensorArrayGradWithShape TensorArrayCloseV3 EmptyTensorList
        HashTable HashTableV2 AnonymousHashTable MutableHashTable MutableHashTableV2
        AnonymousMutableHashTable MutableDenseHashTable MutableDenseHashTableV2
        AnonymousMutableDenseHashTable MutableHashTableOfTensors MutableHashTableOfTensorsV2
        AnonymousMutableHashTableOfTensors LookupTableSizeV2 FIFOQueue FIFOQueueV2
        PaddingFIFOQueueV2 RandomShuffleQueueV2 PriorityQueueV2 QueueCloseV2 QueueSizeV2 QueueSize
        QueueClose Iterator IteratorV2 OneShotIterator AnonymousIterator AnonymousIteratorV2
        AnonymousIteratorV3 IteratorToStringHandle IteratorFromStringHandle MakeIterator
        DeleteIterator IteratorGetNextAsOptional OptionalFromValue OptionalNone OptionalGetValue
        OptionalHasValue MutexV2 MutexLock ConsumeMutexLock EmptyTensorMap
        ConditionalAccumulator ResourceConditionalAccumulator StatelessRandomGetKeyCounter
        StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg AnonymousSeedGenerator
        AnonymousRandomSeedGenerator
    """,
    # A push or pop keeps or hands out a reference; nothing is copied.
    "reference kept": """
        StackPush StackPushV2 StackPop StackPopV2 TensorArrayWrite TensorArrayWriteV2
        TensorArrayWriteV3 TensorArrayRead TensorArrayReadV2 TensorArrayReadV3
        TensorListPushBack TensorListPopBack TensorListSetItem TensorListGetItem TensorListReserve
        TensorListResize TensorListConcatLists QueueEnqueue QueueEnqueueV2 QueueDequeue
        QueueDequeueV2
    """,
    # What they do with other devices is the partitioner's: a transfer, not an op's work.
    "transfer": """
        _Send _Recv _HostSend _HostRecv Send Recv
    """,
    # Marks of a compiler that do not run.
    "compiler mark": """
        TPUReplicateMetadata TPUCompilationResult ConfigureDistributedTPU ShutdownDistributedTPU
        XlaClusterOutput
    """,
}

_DATASET = re.compile(r"Dataset(V\d+)?$")
_CATEGORIES = {op_type: why for why, listed in FREE.items() for op_type in listed.split()}


@cache
def free_category(op_type: str) -> str | None:
    """Why ``op_type`` costs nothing, or ``None`` if it is not free.

    A dataset op (``MapDataset``, ``PrefetchDatasetV2``) makes a handle; its elements are made
    when an iterator asks for them.

    >>> free_category("Reshape"), free_category("MapDataset"), free_category("MatMul")
    ('alias', 'handle', None)
    """
    if _DATASET.search(op_type):
        return "handle"
    return _CATEGORIES.get(op_type)
