"""Families of TensorFlow's op types, each written down once.

A question that only one module asks (which ops share a buffer, which mix examples) has its list
there.  ``cost_models`` has its own: it knows nothing of ``placer``.
"""

from collections.abc import Mapping

LOOPS = frozenset({"While", "StatelessWhile"})
_BRANCH_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
}
BRANCHES = frozenset(_BRANCH_ATTRIBUTES)
"""Functional conditionals: one op that runs one of several functions."""

CONTROL_FLOW = LOOPS | BRANCHES
"""Functional control flow: one op that runs functions of the library."""

BODY_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(LOOPS, ("cond", "body")),
    **_BRANCH_ATTRIBUTES,
    "For": ("body",),
}
"""The attributes that name these functions, by op type."""

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
"""Calls of the function in their attribute ``f``; others have its name as their op type."""

ENTERS = frozenset({"Enter", "RefEnter"})
EXITS = frozenset({"Exit", "RefExit"})
SWITCHES = frozenset({"Switch", "RefSwitch"})
MERGES = frozenset({"Merge", "RefMerge"})
NEXT_ITERATIONS = frozenset({"NextIteration", "RefNextIteration"})
"""Control flow of TensorFlow 1, which is made of ops: ``Enter``, ``Exit`` and ``NextIteration`` of
loops, ``Switch`` and ``Merge`` of loops and branches."""

SPLITTERS = frozenset({"StringSplit", "StringSplitV2"})
"""Make one ragged row of words out of each text."""

PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})

REF_VARIABLES = frozenset({"Variable", "VariableV2", "AutoReloadVariable"})
"""Variables of TensorFlow 1: their output is a reference to the value."""

VARIABLES = REF_VARIABLES | {"VarHandleOp"}
"""Variables of both kinds; ``VarHandleOp`` gives out a resource handle."""

ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
"""The shared name of handles that share nothing (``ResourceHandle::ANONYMOUS_NAME``)."""

READ_VARIABLE = "ReadVariableOp"
"""Reads the whole value behind a resource handle."""

ASSIGNS = frozenset({"Assign", "AssignVariableOp"})

TABLES = frozenset(
    {"HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2"}
    | {"MutableHashTableOfTensors", "MutableHashTableOfTensorsV2"}
    | {"MutableDenseHashTable", "MutableDenseHashTableV2"}
)
TABLE_INITIALISERS = frozenset(
    {"InitializeTable", "InitializeTableV2", "InitializeTableFromTextFile"}
    | {"InitializeTableFromTextFileV2", "LookupTableImport", "LookupTableImportV2"}
    | {"InitializeTableFromDatasetV2"}
)
ITERATOR_INITIALISERS = frozenset({"MakeIterator", "MultiDeviceIteratorInit"})
"""Start an iterator over a dataset."""

RESTORES = frozenset({"RestoreV2", "Restore", "RestoreSlice"})
SAVERS = RESTORES | {"SaveV2", "Save", "SaveSlices", "MergeV2Checkpoints"}

READS = frozenset(
    {READ_VARIABLE, "ResourceGather", "ResourceGatherNd", "VarHandleOp", "VarIsInitializedOp"}
    | {"VariableShape", "LookupTableFind", "LookupTableFindV2", "LookupTableSizeV2", "Placeholder"}
)
"""Stateful op types whose execution nobody can observe: reading alone is no side effect."""

LIST_ITEM_INPUT: Mapping[str, int] = {"TensorListSetItem": 2, "TensorListPushBack": 1}
"""The input that an op puts into the TensorList that is its input 0."""

LIST_SHAPE_INPUT: Mapping[str, int] = {
    "TensorListGetItem": 2,
    "TensorListPopBack": 1,
    "TensorListStack": 1,
    "TensorListGather": 2,
    "TensorListFromTensor": 1,
    "TensorListReserve": 0,
    "EmptyTensorList": 0,
}
"""The input that states the shape of the elements of a TensorList."""

HANDLES = frozenset({"resource", "variant"})
"""Dtypes of tensors that stand for something else: TensorFlow refuses to fetch them."""
