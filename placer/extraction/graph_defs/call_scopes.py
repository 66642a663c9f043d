"""Function bodies as they are called: one scope per call, from the main graph down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
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
            raise ModelError(f"an op is called {name!r}, which is not a valid name")
    return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Scope:
    """One instance of a function body, or the main graph.

    ``prefix`` leads the flat names of its ops, ``path`` are the calls above it, ``order`` is its
    place among all scopes in the order of the file.  ``conditional`` is what waits for either
    branch of the outermost conditional around it, if there is one.
    """

    nodes: Mapping[str, NodeDef]
    function: str = ""
    parent: Scope | None = None
    call: Any = None
    definition: Any = None
    prefix: str = ""
    path: tuple[tuple[str, str], ...] = ()
    order: tuple[int, ...] = ()
    device: str = ""
    call_inputs: Sequence[str] = ()
    arguments: Mapping[str, int] = field(default_factory=dict)
    returns: Sequence[str] = ()
    conditional: tuple[Scope, str] | None = None

    @cached_property
    def positions(self) -> dict[str, int]:
        """The place of every node in the file."""
        return {name: index for index, name in enumerate(self.nodes)}

    def descend(self, call: Any, definition: Any, nodes: Iterable[Any]) -> Scope:
        """The scope of the body of ``definition``, with these ``nodes``, that ``call`` calls."""
        name, signature = definition.signature.name, definition.signature
        is_branch = BRANCH in call.attr  # which is no op of the file
        conditional = self.conditional
        if conditional is None and is_branch:
            conditional = self, decoded(call.attr[BRANCH].s)
        lengths = [argument_length(argument, call.attr) for argument in signature.input_arg]
        positions = accumulate(lengths, initial=0)
        given = [argument.name for argument in signature.input_arg]
        return Scope(
            nodes=name_nodes(nodes, name),
            function=name,
            parent=self,
            call=call,
            definition=definition,
            prefix=f"{self.prefix}{call.name}/",
            path=self.path if is_branch else (*self.path, (self.function, call.name)),
            order=(*self.order, self.positions[call.name]),
            device=call.device or self.device,
            call_inputs=data_inputs(call.input),
            arguments=dict(zip(given, positions, strict=False)),
            returns=[t for a in signature.output_arg for t in _returned(a, definition, call)],
            conditional=conditional,
        )

    def begins(self, node: Any) -> bool:
        """Whether nothing inside this body comes before ``node``."""
        return all(source_of(name) in self.arguments for name in node.input)

    @cached_property
    def has_anchor(self) -> bool:
        """Whether the call waits for something, so that its body must wait for it too."""
        above = self.parent
        assert above is not None
        return any(map(is_control, self.call.input)) or (
            above.parent is not None and above.begins(self.call) and above.has_anchor
        )

    def calls(self, function: str) -> bool:
        """Whether this scope is inside the body of ``function``."""
        if self.parent is None:
            return False
        return self.function == function or self.parent.calls(function)


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
        self.graph_def = graph_def
        self.library = functions_by_name(graph_def)
        self.callable = CALLS | self.library.keys()
        self.definitions = definitions
        self.lowers = lowers
        main = graph_def.node
        self.root = Scope(nodes=name_nodes(lower_conditionals(main) if lowers_main else main))
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
        nodes = lower_conditionals(nodes) if self.lowers else nodes
        self.scopes[key] = scope.descend(node, self.library[name], nodes)
        return self.scopes[key]

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
