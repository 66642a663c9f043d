"""Effects of op types beside computing, as far as a run of a model is held to them."""

from collections.abc import Mapping

_DOES_TABLE = """
writes files: WriteFile Save SaveSlices SaveV2 MergeV2Checkpoints SaveDataset SaveDatasetV2
writes files: DistributedSave DatasetToTFRecord ExperimentalDatasetToTFRecord SnapshotDataset
writes files: SnapshotDatasetV2 CreateSummaryFileWriter CreateSummaryDbWriter DumpTensor
writes files: CalibrationStatisticsSaver SerializeTRTResource
runs Python: PyFunc PyFuncStateless EagerPyFunc
opens connections: DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3 RegisterDataset
opens connections: DataServiceDatasetV4 RegisterDatasetV2 RpcServer RpcServerStart RpcClient RpcCall
opens connections: RpcServerRegister FileSystemSetConfiguration ConfigureDistributedTPU
opens connections: _ConfigureDistributedTPU ConfigureAndInitializeGlobalTPU
reads files whose names are known only then: ReaderRead ReaderReadV2 ReaderReadUpTo ReaderReadUpToV2
reads files whose names are known only then: SnapshotDatasetReader SnapshotChunkDataset
runs compiled code by its name: XlaCustomCall XlaCustomCallV2
runs SQL, which may write: SqlDataset ExperimentalSqlDataset
runs a graph that is data: DatasetFromGraph RemoteFusedGraphExecute DeserializeIterator
ends the process: Abort
"""
"""Effects of op types that do more than compute, whatever their inputs are."""

_FILES_TABLE = """
0: ReadFile MatchingFiles MatchingFilesDataset ExperimentalMatchingFilesDataset TextLineDataset
0: TFRecordDataset TFRecordDatasetV2 FixedLengthRecordDataset FixedLengthRecordDatasetV2 CSVDataset
0: CSVDatasetV2 ExperimentalCSVDataset LMDBDataset ExperimentalLMDBDataset LoadDataset
0: ListSnapshotChunksDataset Restore RestoreSlice RestoreV2 DTensorRestoreV2 LoadAndRemapMatrix
0,1: GenerateVocabRemapping
1: InitializeTableFromTextFile InitializeTableFromTextFileV2 CacheDataset CacheDatasetV2
1: InitializeTRTResource
"""
"""Numbers of the inputs that name files to read, and the op types that have them."""


def _by_type(table: str) -> dict[str, str]:
    rows = (line.partition(": ") for line in table.strip().splitlines())
    return {op_type: what for what, _, op_types in rows for op_type in op_types.split()}


DOES = _by_type(_DOES_TABLE)
FILE_INPUTS = {
    op_type: tuple(map(int, numbers.split(",")))
    for op_type, numbers in _by_type(_FILES_TABLE).items()
}

FILE_SETS = frozenset(
    {"MatchingFiles", "MatchingFilesDataset", "ExperimentalMatchingFilesDataset", "RecordInput"}
    | {"LMDBDataset", "ExperimentalLMDBDataset", "LoadDataset", "ListSnapshotChunksDataset"}
    | {"Restore", "RestoreSlice", "RestoreV2", "DTensorRestoreV2", "LoadAndRemapMatrix"}
)
"""For these a name stands for several files: a pattern, a folder, or the prefix of a checkpoint."""

CACHES = ("CacheDataset", "CacheDatasetV2")
"""These write to the file that they name, and keep what they have in memory if it is ``""``."""

FILE_ATTRIBUTES: Mapping[str, str] = {
    "ImmutableConst": "memory_region_name",
    "FixedUnigramCandidateSampler": "vocab_file",
    "Skipgram": "filename",
    "RecordInput": "file_pattern",
    "DecodeProtoV2": "descriptor_source",
    "EncodeProto": "descriptor_source",
}
"""Attributes that name files to read, by op type."""

OWN_DTYPE = "T"
"""The attribute in which an op says its dtype."""

COMPUTED_EARLY: Mapping[str, str] = {
    **dict.fromkeys(("ReadFile", "MatchingFiles", "GenerateVocabRemapping"), "string"),
    **{"DecodeProtoV2": "string", "EncodeProto": "int32", "ImmutableConst": ""},
    "DatasetFromGraph": "string",
    **dict.fromkeys(("DebugIdentity", "DebugNanCount", "DebugNumericSummary"), OWN_DTYPE),
    **dict.fromkeys(("Copy", "CopyHost"), OWN_DTYPE),
}
"""These read or write files and have no state: they run with the constants of the graph when that
is imported, whatever is fed later.  The dtype of their first input."""

NO_FILES = ("", "local://")
BYTES = "bytes://"

TARGET_ATTRIBUTES: Mapping[str, str] = {
    "debug_urls": "writes or sends debug data",
    "debug_ops_spec": "writes or sends debug data",
    "output_stream": "prints to a file",
}
"""Attributes that name where output goes, and what that does."""

STREAMS = ("stdout", "stderr", "log(info)", "log(warning)", "log(error)")

LATER = "reads files whose names are known only then"

PASSED = "placeholder"
"""An attribute whose value the caller of a function gives."""

IMPLEMENTS = "api_implements"
"""The attribute of functions that stand for each other
(``grappler/optimizers/implementation_selector.cc``)."""

_SAME_TABLE = """
first: Identity Reshape ExpandDims Squeeze StopGradient EnsureShape Slice StridedSlice Gather
first: GatherV2 Snapshot PlaceholderWithDefault Unpack
all: IdentityN Pack TensorSliceDataset TensorDataset
all but the last: ConcatV2
all but the first: Concat
"""
"""The inputs of which an op passes elements on, and the op types."""

_INPUTS = {
    "first": slice(1),
    "all": slice(None),
    "all but the last": slice(-1),
    "all but the first": slice(1, None),
}
SAME = {op_type: _INPUTS[which] for op_type, which in _by_type(_SAME_TABLE).items()}
