"""Graphs in which tables are split by rows: NodeDefs rewritten in place.

A lookup becomes one in every part, of ids that are clipped to it, and the rows are joined by
selection: sums would turn a NaN of one part, or a negative zero, into something else.  All sizes
are known before it runs, so what crosses between devices is what a plan says.  (Ids that are
partitioned first send each row once, and nobody knows before how many go where.)

The first part is not clipped below, the last not above: an id that the whole refuses is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.flat_nodes import rename_hints
from placer.extraction.graph_defs.op_definitions import attribute, called_function
from placer.extraction.graph_defs.protobufs import copied, fill_constant, fill_shape
from placer.extraction.splitting.parts import Table
from placer.graph.op_types import CALLS, REF_VARIABLES
from placer.graph.tensor_names import data_inputs, full_tensor, is_control, op_of

STALE = ("_class", "_output_shapes", "_handle_shapes", "_handle_dtypes")
_OUTPUT = {  # in functions, the name of the first output where it is not "output"
    **dict.fromkeys(("Sub", "Minimum", "Maximum", "GreaterEqual", "Less", "LogicalAnd"), "z"),
    "Where": "index",
    "ReadVariableOp": "value",
    "VarIsInitializedOp": "is_initialized",
    "RestoreV2": "tensors",
}

Parts = tuple[Table, list[str]]
"""A table, and the tensors that its parts are in a scope."""


class ScopeSplitter:
    """The nodes of a graph (``function`` ``""``) or of a function, in which ``handles`` (tensors as
    they are spelled there) are those of tables.

    ``library`` are the names of all functions; ``keys`` becomes the names of tables in checkpoints,
    which hold the parts as tensors of their own, or as slices of the whole if ``sliced``.
    """

    def __init__(
        self,
        nodes: Any,
        handles: Mapping[str, Parts],
        library: Iterable[str],
        function: str = "",
        *,
        sliced: bool = False,
    ) -> None:
        self.nodes = nodes
        self.function = function
        self.sliced = sliced
        self.calls = CALLS | set(library)
        self.by_name = {node.name: node for node in nodes}
        self.readers: dict[str, list[tuple[Any, int]]] = {}
        for node in nodes:
            for slot, text in enumerate(data_inputs(node.input)):
                self.readers.setdefault(self.tensor(text), []).append((node, slot))
        self.found = {self.tensor(text): parts for text, parts in handles.items()}
        self.spread: set[str] = set()
        self.keys: dict[str, Table] = {}
        self.groups: dict[str, list[Any]] = {}
        self.renamed: dict[str, str] = {}

    def split(self) -> dict[str, Table]:
        """Rewrites all that reads the tables; their names in checkpoints.

        Raises :class:`ModelError` for what cannot be split.
        """
        queue = list(self.found)
        for tensor in queue:  # grows meanwhile
            for node, slot in self.readers.get(tensor, ()):
                self._split_reader(node, slot, *self.found[tensor])
            queue += islice(self.found, len(queue), None)
        for name in sorted(self.spread):
            self._spread(self.by_name[name])
        self._rebuild()
        return self.keys

    def tensor(self, text: str) -> str:
        """A tensor, spelled in one way."""
        return text if self.function else full_tensor(text)

    def output(self, node: Any, number: int = 0) -> str:
        """An output of a node as its readers here spell it."""
        if not self.function:
            return f"{node.name}:{number}" if number else str(node.name)
        return f"{node.name}:{_OUTPUT.get(node.op, 'output')}:{number}"

    def refuse(self, node: Any, table: Table, why: str = "") -> ModelError:
        """The error for a reader of a table that takes more than some of its rows."""
        where = f" of function {self.function}" if self.function else ""
        return ModelError(
            f"{table.name} cannot be split by rows: {node.name}{where} ({node.op}) "
            f"{why or 'reads or writes it as a whole'}; only lookups of rows can be split"
        )

    # what reads a table

    def _split_reader(self, node: Any, slot: int, table: Table, parts: list[str]) -> None:
        if node.op in self.calls or node.op == "SaveV2":
            self.spread.add(node.name)
            return
        rule = _RULES.get((node.op, slot))
        if rule is None:
            raise self.refuse(node, table)
        rule(self, node, table, parts)

    def gather(self, node: Any, table: Table, parts: list[str]) -> None:
        """A lookup: one in each part."""
        if attribute(node.attr, "batch_dims").i or not self._is_of_rows(node):
            raise self.refuse(node, table, "does not look up rows")
        inputs = data_inputs(node.input)
        ids, others = inputs[1], inputs[2:]
        number = self._id_type(node, table)
        group = self.groups.setdefault(node.name, [])
        starts = table.starts
        joined = ""
        for part, (handle, first, after) in enumerate(zip(parts, starts, starts[1:], strict=False)):
            name = table.part(node.name, part)
            local = ids
            if part:
                start = self._constant(group, f"{name}/first", first, number)
                local = self._add(group, f"{name}/local", "Sub", [local, start], T=number)
                zero = self._constant(group, f"{name}/zero", 0, number)
                local = self._add(group, f"{name}/from_zero", "Maximum", [local, zero], T=number)
            if part < table.count - 1:
                last = self._constant(group, f"{name}/last", after - first - 1, number)
                local = self._add(group, f"{name}/to_last", "Minimum", [local, last], T=number)
            lookup = self._like(group, node, name, [handle, local, *others])
            rows = self.output(lookup)
            if part:
                here = self._mask(group, name, ids, start, number, len(table.shape) - 1)
                is_last = part == table.count - 1
                join = node.name if is_last else f"{name}/joined"
                dtype = node.attr["dtype" if node.op == "ResourceGather" else "Tparams"].type
                inputs = [here, rows, joined]
                joined = self._add(group, join, "SelectV2", inputs, T=dtype)
            else:
                joined = rows
        group[-1].device = node.device

    def _id_type(self, node: Any, table: Table) -> int:
        """The type of the ids, if it can count all rows."""
        number = int(node.attr["Tindices"].type)
        # of int32 and int16
        if table.shape[0] - 1 > {3: 2**31 - 1, 5: 2**15 - 1}.get(number, 2**63 - 1):
            raise self.refuse(node, table, "has ids of a type too small for all rows")
        return number

    def _mask(
        self, group: list[Any], name: str, ids: str, start: str, number: int, row_rank: int
    ) -> str:
        """Whether each id is of this part or a later one, with an axis of one for each of a row."""
        mask = self._add(group, f"{name}/reached", "GreaterEqual", [ids, start], T=number)
        for axis in range(row_rank):
            last = self._constant(group, f"{name}/axis_{axis}", -1, _INT32)
            types = {"T": _BOOL, "Tdim": _INT32}
            mask = self._add(group, f"{name}/mask_{axis}", "ExpandDims", [mask, last], **types)
        return mask

    def _is_of_rows(self, node: Any) -> bool:
        if node.op != "GatherV2":
            return True
        axis = self.by_name.get(op_of(data_inputs(node.input)[2]))
        return axis is not None and axis.op == "Const" and _is_zero(axis)

    def update(self, node: Any, table: Table, _: list[str]) -> None:
        """A sparse update: of each part with the rows that are in it, which are looked for."""
        if node.name in self.groups:  # it was found by another of its variables
            return
        inputs = data_inputs(node.input)
        found = [self.found.get(self.tensor(text)) for text in inputs]
        variables, ids_at = APPLIES.get(node.op, (1, 1))
        rows_at = 2 if node.op in SCATTERS else ids_at - 1
        for text, other in zip(inputs[:variables], found, strict=False):
            if other is None or other[0].starts != table.starts:
                raise self.refuse(
                    node, table, f"updates {op_of(text)}, too, which must be split into as many"
                )
        number = self._id_type(node, table)
        dtype = node.attr["dtype" if "dtype" in node.attr else "T"].type
        group = self.groups.setdefault(node.name, [])
        copies = []
        for part, span in enumerate(pairwise(table.starts)):
            name = table.part(node.name, part)
            update = inputs[ids_at], inputs[rows_at]
            ids, rows = self._of_part(group, name, update, span, (number, dtype))
            pairs = zip(inputs, found, strict=True)
            own = [text if pair is None else pair[1][part] for text, pair in pairs]
            own[ids_at], own[rows_at] = ids, rows
            copies.append(self._like(group, node, name, own))
        self._wait_for(group, node, copies)

    def _of_part(
        self,
        group: list[Any],
        name: str,
        update: tuple[str, str],
        span: tuple[int, int],
        types: tuple[int, int],
    ) -> tuple[str, str]:
        """The ids within ``span``, counted from the first of these, and the updates of those."""
        number, dtype = types
        first = self._constant(group, f"{name}/first", span[0], number)
        local = self._add(group, f"{name}/all", "Sub", [update[0], first], T=number)
        zero = self._constant(group, f"{name}/zero", 0, number)
        size = self._constant(group, f"{name}/size", span[1] - span[0], number)
        above = self._add(group, f"{name}/above", "GreaterEqual", [local, zero], T=number)
        below = self._add(group, f"{name}/below", "Less", [local, size], T=number)
        within = self._add(group, f"{name}/within", "LogicalAnd", [above, below])
        where = self._add(group, f"{name}/where", "Where", [within], T=_BOOL)
        flat = self._constant(group, f"{name}/flat", [-1], _INT32)
        shapes = {"T": _INT64, "Tshape": _INT32}
        chosen = self._add(group, f"{name}/chosen", "Reshape", [where, flat], **shapes)
        axis = self._constant(group, f"{name}/axis", 0, _INT32)
        ends = []
        for end, text, kind in (("ids", local, number), ("rows", update[1], dtype)):
            gather = {"Tparams": kind, "Tindices": _INT64, "Taxis": _INT32}
            inputs = [text, chosen, axis]
            ends.append(self._add(group, f"{name}/{end}", "GatherV2", inputs, **gather))
        return ends[0], ends[1]

    def each(self, node: Any, table: Table, parts: list[str]) -> None:
        """A read, or what passes one on: one of each part, which its own readers read."""
        group = self.groups.setdefault(node.name, [])
        inputs = data_inputs(node.input)[1:]
        copies = [
            self._like(group, node, table.part(node.name, number), [part, *inputs])
            for number, part in enumerate(parts)
        ]
        tensor = self.tensor(self.output(node))
        self.found[tensor] = table, [self.output(copy) for copy in copies]
        self._wait_for(group, node, copies)

    def side_effect(self, node: Any, table: Table, parts: list[str]) -> None:
        """An op without outputs: one for each part."""
        group = self.groups.setdefault(node.name, [])
        copies = [
            self._like(group, node, table.part(node.name, number), [part])
            for number, part in enumerate(parts)
        ]
        self._wait_for(group, node, copies)

    def assign(self, node: Any, table: Table, parts: list[str]) -> None:
        """An assignment: of the part's rows, as they are restored, of another table, or cut out of
        the value."""
        group = self.groups.setdefault(node.name, [])
        value = data_inputs(node.input)[1]
        other = self.found.get(self.tensor(value), (table, None))[1]
        values = other or self._restored(value, table) or self._cut(group, node, value, table)
        copies = [
            self._like(group, node, table.part(node.name, number), pair)
            for number, pair in enumerate(zip(parts, values, strict=True))
        ]
        self._wait_for(group, node, copies)

    def assigned(self, node: Any, table: Table, _: list[str]) -> None:
        """A table that is assigned to another: to one in the same parts."""
        other = self.found.get(self.tensor(node.input[0]))
        if other is None or other[0].starts != table.starts:
            raise self.refuse(node, table)

    def shape(self, node: Any, table: Table, _: list[str]) -> None:
        """The shape of a table does not change."""
        constant = type(node)(name=node.name, device=node.device)
        number = attribute(node.attr, "out_type").type or _INT32
        fill_constant(constant, list(table.shape), number)
        constant.input.extend(filter(is_control, node.input))
        self.groups[node.name] = [constant]

    def is_initialized(self, node: Any, table: Table, parts: list[str]) -> None:
        """Whether all parts are."""
        group = self.groups.setdefault(node.name, [])
        before = self.tensor(self.output(node))
        found = [
            self.output(self._like(group, node, table.part(node.name, number), [part]))
            for number, part in enumerate(parts)
        ]
        joined = found[0]
        for number, other in enumerate(found[1:], 1):
            is_last = number == table.count - 1
            name = node.name if is_last else f"{node.name}/all_{number}"
            joined = self._add(group, name, "LogicalAnd", [joined, other])
        self.renamed[before] = joined

    # savers

    def _restored(self, value: str, table: Table) -> list[str] | None:
        """The parts as a checkpoint holds them, if ``value`` is restored from one."""
        source = self.by_name.get(op_of(value))
        while source is not None and source.op == "Identity":
            value = data_inputs(source.input)[0]
            source = self.by_name.get(op_of(value))
        if source is None or source.op != "RestoreV2":
            return None
        number = int(value.rpartition(":")[2]) if ":" in value else 0
        names, slices = (self.by_name[op_of(text)] for text in data_inputs(source.input)[1:3])
        keys = names.attr["value"].tensor.string_val
        spans = slices.attr["value"].tensor.string_val
        key = keys[number].decode()
        self.keys[key] = table
        (keys[number], spans[number]), *rest = table.stored(key, sliced=self.sliced)
        at = len(keys)
        keys.extend([key for key, _ in rest])
        spans.extend([span for _, span in rest])
        types = source.attr["dtypes"].list.type
        types.extend([types[number]] * len(rest))
        for constant in (names, slices):
            _resize(constant, len(keys))
        source.attr.pop("_output_shapes", None)
        more = [self.output(source, at + extra) for extra in range(len(rest))]
        return [self.output(source, number), *more]

    def _cut(self, group: list[Any], node: Any, value: str, table: Table) -> list[str]:
        name = f"{node.name}/rows"
        sizes = self._constant(group, f"{name}/sizes", [s[0] for s in table.shapes], _INT64)
        axis = self._constant(group, f"{name}/axis", 0, _INT32)
        dtype = node.attr["dtype" if "dtype" in node.attr else "T"].type
        self._add(group, name, "SplitV", [value, sizes, axis], T=dtype, Tlen=_INT64)
        group[-1].attr["num_split"].i = table.count
        return [self.output(group[-1], number) for number in range(table.count)]

    def _spread(self, node: Any) -> None:
        """Gives a call or a saver the parts in place of the tables that it reads."""
        inputs: list[str] = []
        types: list[int] = []
        own = {"SaveV2": "dtypes"}.get(node.op, "Tin")
        given = list(attribute(node.attr, own).list.type)
        fixed = len(data_inputs(node.input)) - len(given) if given else 0
        for slot, text in enumerate(data_inputs(node.input)):
            found = self.found.get(self.tensor(text))
            inputs.extend([text] if found is None else found[1])
            if given and slot >= fixed:
                types.extend([given[slot - fixed]] * (1 if found is None else found[0].count))
            if found is not None and node.op == "SaveV2":
                self._spread_keys(node, slot - fixed, found[0])
        if node.op == "SaveV2":
            self._flatten_keys(node)
        if given:
            node.attr[own].list.type[:] = types
        self.spread.discard(node.name)
        node.input[:] = [*inputs, *filter(is_control, node.input)]
        for key in STALE:
            node.attr.pop(key, None)

    def _spread_keys(self, node: Any, number: int, table: Table) -> None:
        names, slices = (self.by_name[op_of(text)] for text in data_inputs(node.input)[1:3])
        keys, spans = (n.attr["value"].tensor.string_val for n in (names, slices))
        if spans[number]:
            raise self.refuse(node, table, f"saves a slice of it ({spans[number].decode()})")
        # one entry stands for all parts until every tensor had its turn: numbers stay
        stored = table.stored(keys[number].decode(), sliced=self.sliced)
        self.keys[keys[number].decode()] = table
        keys[number], spans[number] = (b"\0".join(texts) for texts in zip(*stored, strict=True))

    def _flatten_keys(self, node: Any) -> None:
        names, slices = (self.by_name[op_of(text)] for text in data_inputs(node.input)[1:3])
        keys, spans = (n.attr["value"].tensor.string_val for n in (names, slices))
        for constant, texts in ((names, keys), (slices, spans)):
            texts[:] = [text for joined in texts for text in joined.split(b"\0")]
            _resize(constant, len(texts))

    # new nodes

    def _like(self, group: list[Any], node: Any, name: str, inputs: Sequence[str]) -> Any:
        """A copy of ``node`` that reads ``inputs`` and may run anywhere."""
        copy = copied(node)
        copy.name = name
        copy.device = ""
        copy.input[:] = [*inputs, *filter(is_control, node.input)]
        for key in STALE:
            copy.attr.pop(key, None)
        group.append(copy)
        return copy

    def _add(
        self, group: list[Any], name: str, op: str, inputs: Sequence[str], **types: int
    ) -> str:
        node = type(self.nodes[0])(name=name, op=op, input=inputs)
        for key, number in types.items():
            node.attr[key].type = number
        group.append(node)
        return self.output(node)

    def _constant(self, group: list[Any], name: str, value: Any, number: int) -> str:
        node = type(self.nodes[0])(name=name)
        fill_constant(node, value, number)
        group.append(node)
        return self.output(node)

    def _wait_for(self, group: list[Any], node: Any, copies: Iterable[Any]) -> None:
        """Makes the ops that waited for ``node`` wait for all of its ``copies``."""
        inputs = [f"^{copy.name}" for copy in copies]
        group.append(type(node)(name=node.name, op="NoOp", input=inputs))

    def _rebuild(self) -> None:
        """Writes the nodes back, each with what it became; nothing may read what is gone."""
        for name, group in self.groups.items():
            taken = [n.name for n in group if n.name != name and n.name in self.by_name]
            if taken:
                raise ModelError(f"the model has an op called {taken[0]}: {name} cannot be split")
        new = [n for node in self.nodes for n in self.groups.get(node.name, [node])]
        silent = {n.name for n in new if n.op == "NoOp" and n.name in self.groups}
        for node in new:
            if gone := sorted(silent.intersection(map(op_of, data_inputs(node.input)))):
                raise ModelError(f"{node.name} ({node.op}) reads {gone[0]}, a table that is split")
            for slot, text in enumerate(node.input):
                if not is_control(text) and self.tensor(text) in self.renamed:
                    node.input[slot] = self.renamed[self.tensor(text)]
            rename_hints(node, self._left)
        del self.nodes[:]
        self.nodes.extend(new)

    def _left(self, op: str) -> str:
        """An op, ``""`` for one that is split."""
        return "" if op in self.groups or self.tensor(op) in self.found else op


def split_variable(node: Any, table: Table) -> list[Any]:
    """The variables of the parts of a ``VarHandleOp`` or ``VariableV2``."""
    shared = node.attr["shared_name"].s.decode() or ("" if node.op in REF_VARIABLES else node.name)
    found = []
    for number, shape in enumerate(table.shapes):
        part = copied(node)
        part.name = table.part(node.name, number)
        part.device = ""
        fill_shape(part.attr["shape"].shape, shape)
        if shared:
            part.attr["shared_name"].s = table.part(shared, number).encode()
        for key in STALE:
            part.attr.pop(key, None)
        found.append(part)
    return found


def called_tables(
    nodes: Iterable[Any],
    tables: Mapping[str, Table],
    library: Iterable[str],
    tensor: Callable[[str], str],
) -> Iterable[tuple[str, dict[int, Table]]]:
    """Each call among ``nodes`` (of its function), with the tables that are given to it by the
    number of the argument; ``tables`` are by the spelling that ``tensor`` makes of an input."""
    names = set(library)
    for node in nodes:
        if node.op in CALLS or node.op in names:
            inputs = enumerate(map(tensor, data_inputs(node.input)))
            yield called_function(node), {i: tables[t] for i, t in inputs if t in tables}


def _resize(constant: Any, size: int) -> None:
    constant.attr["value"].tensor.tensor_shape.dim[0].size = size
    constant.attr.pop("_output_shapes", None)


def _is_zero(constant: Any) -> bool:
    from tensorflow.python.framework import tensor_util

    return not tensor_util.MakeNdarray(constant.attr["value"].tensor).any()


_BOOL, _INT32, _INT64 = 10, 3, 9

SCATTERS = {f"ResourceScatter{how}" for how in ("Add", "Sub", "Update", "Mul", "Div", "Min", "Max")}
"""Read a variable, ids and rows."""

APPLIES = {
    "ResourceSparseApplyAdagrad": (2, 4),
    "ResourceSparseApplyAdagradV2": (2, 5),
    "ResourceSparseApplyMomentum": (2, 4),
    "ResourceSparseApplyKerasMomentum": (2, 4),
    "ResourceSparseApplyProximalAdagrad": (2, 6),
    "ResourceSparseApplyProximalGradientDescent": (1, 5),
    "ResourceSparseApplyFtrl": (3, 4),
    "ResourceSparseApplyFtrlV2": (3, 4),
    "ResourceSparseApplyRMSProp": (3, 8),
    "ResourceSparseApplyAdadelta": (3, 7),
}
"""How many variables an optimizer's update reads first, and where its ids are, behind the rows."""

_RULES: dict[tuple[str, int], Callable[[ScopeSplitter, Any, Table, list[str]], None]] = {
    ("ResourceGather", 0): ScopeSplitter.gather,
    ("GatherV2", 0): ScopeSplitter.gather,
    ("Gather", 0): ScopeSplitter.gather,
    ("ReadVariableOp", 0): ScopeSplitter.each,
    ("Identity", 0): ScopeSplitter.each,
    ("AssignVariableOp", 0): ScopeSplitter.assign,
    ("AssignVariableOp", 1): ScopeSplitter.assigned,
    ("Assign", 0): ScopeSplitter.assign,
    ("VariableShape", 0): ScopeSplitter.shape,
    ("VarIsInitializedOp", 0): ScopeSplitter.is_initialized,
    ("DisableCopyOnRead", 0): ScopeSplitter.side_effect,
    ("DestroyResourceOp", 0): ScopeSplitter.side_effect,
    **{(op, 0): ScopeSplitter.update for op in SCATTERS},
    **{(op, slot): ScopeSplitter.update for op, (n, _) in APPLIES.items() for slot in range(n)},
}
