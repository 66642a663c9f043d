"""Function bodies as they are called: one scope per call, from the main graph down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.conditionals import BRANCH, lower_conditionals
from placer.extraction.graph_defs.op_definitions import (
    OpDefinitions,
    argument_length,
    called_function,
    decoded,
    output_number,
)
from placer.extraction.graph_defs.protobufs import NodeDef, functions_by_name
from placer.graph.op_types import CALLS
from placer.graph.tensor_names import data_inputs, is_control, source_of

MOST_NESTED_CALLS = 100
"""Deeper calls than this are damage; programs nest ten or twenty deep."""


MOST_CALLS, MOST_OPS = 20_000, 3_000_000
"""Most calls and ops after inlining; a few functions that call one another twice are millions."""


def name_nodes(nodes: Iterable[Any], function: str = "") -> dict[str, NodeDef]:
    """``nodes`` by name.  Raises :class:`ModelError` if two have the same, or one a name that is
    read as that of a tensor or of a control edge."""
    nodes = list(nodes)
    names = [node.name for node in nodes]
    known = dict(zip(names, nodes, strict=True))
    text = "".join(names)
    if len(known) == len(names) and ":" not in text and "^" not in text:  # as nearly always
        return known
    found: dict[str, NodeDef] = {}
    for name, node in zip(names, nodes, strict=True):
        if found.setdefault(name, node) is not node:
            where = f"function {function!r}" if function else "the graph"
            raise ModelError(f"two ops of {where} are called {name!r}")
        if ":" in name or name.startswith("^"):
            raise ModelError(f"an op is called {name!r}: such a name is no op's")
    return found


class Scope:
    """One instance of a function body, or the main graph.

    ``prefix`` leads the flat names of its ops, ``path`` are the calls above it, ``order`` is its
    place among all scopes in the order of the file.  ``conditional`` is what waits for either
    branch of the outermost conditional around it, if there is one.
    """

    def __init__(self, nodes: Iterable[Any], function: str = "") -> None:
        self.nodes = name_nodes(nodes, function)
        self.positions = {name: index for index, name in enumerate(self.nodes)}
        self.function = function
        self.parent: Scope | None = None
        self.call: Any = None
        self.definition: Any = None
        self.prefix = ""
        self.path: tuple[tuple[str, str], ...] = ()
        self.order: tuple[int, ...] = ()
        self.device = ""
        self.call_inputs: list[str] = []
        self.arguments: dict[str, int] = {}
        self.returns: list[str] = []
        self.anchored: bool | None = None
        self.conditional: tuple[Scope, str] | None = None

    def descend(self, parent: Scope, call: Any, definition: Any) -> None:
        """Makes this the scope of the body of ``definition``, called by ``call`` in ``parent``."""
        self.parent, self.call, self.definition = parent, call, definition
        self.prefix = f"{parent.prefix}{call.name}/"
        self.path = parent.path  # where the call of a branch is no op of the file
        if BRANCH not in call.attr:
            self.path = (*parent.path, (parent.function, call.name))
        self.order = (*parent.order, parent.positions[call.name])
        self.device = call.device or parent.device
        self.conditional = parent.conditional
        if self.conditional is None and BRANCH in call.attr:
            self.conditional = parent, decoded(call.attr[BRANCH].s)
        self.call_inputs = data_inputs(call.input)
        position = 0
        for argument in definition.signature.input_arg:
            self.arguments[argument.name] = position
            position += argument_length(argument, call.attr)
        for argument in definition.signature.output_arg:
            self.returns.extend(_returned(argument, definition, call))

    def begins(self, node: Any) -> bool:
        """Whether nothing inside this body comes before ``node``."""
        return all(source_of(name) in self.arguments for name in node.input)

    def has_anchor(self) -> bool:
        """Whether the call waits for something, so that its body must wait for it too."""
        if self.anchored is None:
            assert self.parent is not None
            self.anchored = any(map(is_control, self.call.input)) or (
                self.parent.parent is not None
                and self.parent.begins(self.call)
                and self.parent.has_anchor()
            )
        return self.anchored

    def calls(self, function: str) -> bool:
        """Whether this scope is inside the body of ``function``."""
        scope: Scope | None = self
        while scope is not None and scope.parent is not None:
            if scope.function == function:
                return True
            scope = scope.parent
        return False


def _returned(argument: Any, definition: Any, call: Any) -> list[str]:
    reference = definition.ret[argument.name]
    if not (argument.number_attr or argument.type_list_attr):
        return [reference]
    return [f"{reference}:{index}" for index in range(argument_length(argument, call.attr))]


class CallTree:
    """The scopes of a graph, made as they are reached.

    Conditionals of functions are lowered unless ``lowers`` is ``False``, those of the main graph
    if it ``lowers_main``.
    """

    def __init__(
        self,
        graph_def: Any,
        definitions: OpDefinitions,
        *,
        lowers: bool = True,
        lowers_main: bool = False,
    ) -> None:
        self.library = functions_by_name(graph_def)
        self.callable = CALLS | self.library.keys()
        self.definitions = definitions
        self.lowers = lowers
        main = graph_def.node
        self.root = Scope(lower_conditionals(main) if lowers_main else main)
        self.scopes: dict[tuple[Scope, str], Scope] = {}
        self.calls = 0
        self.ops = 0

    def called(self, scope: Scope, node: Any) -> Scope | None:
        """The scope of the function that ``node`` calls, or ``None`` if it is a plain op.

        Raises :class:`ModelError` for a call of a missing function, or of one by itself.
        """
        op_type = node.op
        if op_type not in self.callable:
            return None
        key = scope, node.name
        if key in self.scopes:
            return self.scopes[key]
        name = called_function(node)
        flat = scope.prefix + node.name
        if name not in self.library:
            raise ModelError(f"op {flat!r} calls function {name!r}, which is not in the file")
        if scope.calls(name):
            raise ModelError(f"function {name!r} calls itself (at {flat!r})")
        if len(scope.path) >= MOST_NESTED_CALLS:
            raise ModelError(f"calls nest deeper than {MOST_NESTED_CALLS} at {name!r}")
        self._count(name)
        nodes = self.library[name].node_def
        body = Scope(lower_conditionals(nodes) if self.lowers else nodes, name)
        body.descend(scope, node, self.library[name])
        self.scopes[key] = body
        return body

    def _count(self, function: str) -> None:
        """Notes one more call, and refuses the one too many: calls can multiply at every level."""
        self.calls += 1
        self.ops += len(self.library[function].node_def)
        if self.calls > MOST_CALLS or self.ops > MOST_OPS:
            raise ModelError(
                f"the calls of the model multiply to more than {MOST_CALLS:,} calls or "
                f"{MOST_OPS:,} ops: the file is damaged"
            )

    def node(self, scope: Scope, name: str) -> Any:
        """The node called ``name`` in ``scope``; :class:`ModelError` if there is none."""
        if name not in scope.nodes:
            where = f"function {scope.function!r}" if scope.function else "the graph"
            raise ModelError(f"something reads {name!r}, which is not in {where}")
        return scope.nodes[name]

    def locate(self, scope: Scope, reference: str) -> tuple[Any | None, int]:
        """The node and output number of a data reference; no node: the number of an argument.

        References are ``node:1`` in the main graph, ``node:output_name:1`` in a function.
        """
        name, *rest = reference.split(":")
        if name in scope.arguments:
            return None, scope.arguments[name] + (output_number(rest[-1], reference) if rest else 0)
        node = self.node(scope, name)
        if not rest:
            return node, 0
        if rest[0].isdigit():
            return node, output_number(rest[0], reference)
        offset = self.definitions.output_offset(node, rest[0])
        return node, offset + (output_number(rest[1], reference) if len(rest) > 1 else 0)
