"""Which ops of a program depend on its batch, and which of the others each part has of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from placer.errors import UsageError
from placer.extraction.division.division import Division
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.scratch_graphs import LARGE_CONSTANT_ELEMENTS, constant_elements
from placer.graph.op_types import READS
from placer.graph.tensor_names import source_of
from placer.graph.walks import grouped, reached


@dataclass(frozen=True, eq=False)
class BatchedOps:
    """The ops of a ``program`` that a ``division`` copies, and those that stay."""

    program: FlatProgram
    division: Division

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """The nodes by name."""
        return {node.name: node for node in self.program.graph_def.node}

    @cached_property
    def sources(self) -> dict[str, str]:
        """The tensors of the divided inputs by the op that is fed."""
        return {
            item.op: item.tensor.removesuffix(":0")
            for item in self.program.inputs
            if item.key in self.division.inputs
        }

    @cached_property
    def batched(self) -> set[str]:
        """The ops that depend on the divided inputs, by data or control edges."""
        nodes = self.program.graph_def.node
        readers = grouped((name, node.name) for node in nodes for name in _read(node))
        found = {*reached(self.sources, lambda name: readers.get(name, ()))} - self.sources.keys()
        if not found:
            raise UsageError("nothing in the program depends on the batch: nothing to divide")
        return found

    @cached_property
    def path(self) -> tuple[tuple[str, str], ...]:
        """The call path of the function that the batch is given to."""
        paths = {self.program.call_path[name][:1] for name in self.batched}
        if len(paths) > 1:
            raise UsageError(
                "the program cannot be divided: its batch goes through several functions of the "
                "main graph; divide a function that holds all of it (--signature)"
            )
        return paths.pop()

    @cached_property
    def own_ops(self) -> tuple[frozenset[str], frozenset[str]]:
        """The handles of variables that a part on its own devices has copies of, and its other
        ops: constants that batched ops read, reads of these variables, and what is computed from
        both alone."""
        if not self.division.is_apart:
            return frozenset(), frozenset()
        own = self.nodes.keys() & set(self.division.variables)
        fixed = set(own)
        definitions = self.program.definitions
        for node in self.program.graph_def.node:
            definition = definitions.find(node.op)
            if definition is None or node.name in self.batched:
                continue
            if definition.is_stateful and node.op not in READS:
                continue
            if (node.input or node.op == "Const") and all(name in fixed for name in _read(node)):
                fixed.add(node.name)
        fixed -= set(self.program.captured_constants)
        wanted = set(self.batched)
        for node in reversed(self.program.graph_def.node):
            if node.name in wanted:
                wanted.update(name for name in _read(node) if name in fixed)
        found = [self.nodes[name] for name in (fixed & wanted) - own]
        size = sum(_constant_bytes(node) for node in found if node.op == "Const")
        if self.division.parts * size > 1 << 30:  # a protobuf holds 2 GiB
            most = LARGE_CONSTANT_ELEMENTS
            found = [n for n in found if n.op != "Const" or constant_elements(n) <= most]
        return frozenset(own & wanted), frozenset(node.name for node in found)

    @cached_property
    def shared(self) -> list[str]:
        """The ops that stay, without constants that only the undivided ops read."""
        shared = [name for name in self.nodes if name not in self.batched]
        read = set(self.program.output_ops).union(*(_read(self.nodes[name]) for name in shared))
        return [name for name in shared if name in read or name not in self.own_ops[1]]

    @cached_property
    def last(self) -> list[str]:
        """The batched ops that nobody reads."""
        read = set[str]().union(*map(_read, self.program.graph_def.node))
        return [name for name in self.nodes if name in self.batched and name not in read]


def _read(node: Any) -> set[str]:
    """The ops that a node reads or waits for."""
    return {source_of(name) for name in node.input}


def _constant_bytes(node: Any) -> int:
    from tensorflow.python.framework import dtypes

    size = dtypes.as_dtype(attribute(node.attr, "dtype").type).size
    return int(constant_elements(node) * size)
