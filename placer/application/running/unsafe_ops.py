"""The effects of a program from a file beside computing, found before it runs.

A run reaches the ops that its outputs and targets need, what a loader runs (initialisers, the
restoring of weights), and every op of the functions that these call.  Among them, ops that write
files, print to one, run Python or open connections are refused, and so are those that read files,
unless each name of a file comes straight from the caller's inputs, an asset of the model, or a
constant that names something in the model's folder.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placer.application.running.op_effects import (
    BYTES,
    CACHES,
    COMPUTED_EARLY,
    DOES,
    FILE_ATTRIBUTES,
    FILE_INPUTS,
    FILE_SETS,
    IMPLEMENTS,
    LATER,
    NO_FILES,
    OWN_DTYPE,
    PASSED,
    SAME,
    STREAMS,
    TARGET_ATTRIBUTES,
)
from placer.errors import ModelError, some
from placer.extraction.files.model_paths import (
    ALLOW_UNSAFE,
    are_inside,
    constant_strings,
    is_inside,
)
from placer.extraction.graph_defs.op_definitions import called_functions, decoded, functions_of
from placer.extraction.graph_defs.protobufs import dtype_number, functions_by_name
from placer.extraction.graph_defs.pure_ops import PURE_OPS
from placer.graph.op_types import BRANCHES, CALLS
from placer.graph.tensor_names import data_inputs, full_tensor, is_control, op_of, source_of
from placer.graph.walks import grouped, reached

Names = frozenset[str]
"""Names of files; those that the caller gives are not among them."""

GIVEN: Names = frozenset()


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where a run begins: the ops ``ends`` of the main graph with the tensors ``fed``, or the
    function ``name`` with what stands behind its ``arguments`` (``None``: not known)."""

    ends: Sequence[str] = ()
    fed: frozenset[str] = frozenset()
    name: str = ""
    arguments: Sequence[Names | None] = ()


Reached = set[tuple[str, str]]
"""Names of ops, each after that of the function that it is in (``""``: the main graph)."""


def require_harmless(graph_def: Any, starts: Iterable[Start], folder: str | Path) -> Reached:
    """The ops that runs which begin at ``starts`` reach.

    Raises :class:`ModelError` naming those that do more than compute, if there are any; ``folder``
    is the model's.
    """
    found: dict[str, str] = {}
    reached: Reached = set()
    for start in starts:
        reach = _Reach(graph_def, start, Path(folder))
        found.update((where, does) for where, does in reach.harm())
        reached.update(reach.reached)
    if found:
        rows = [f"{where} {does}" for where, does in found.items()]
        raise ModelError(
            f"the model does more than compute when it runs: {some(rows, '; ')}; {ALLOW_UNSAFE}"
        )
    return reached


def disarm(graph_def: Any, reached: Reached) -> bool:
    """Keeps ops that read or write files and are not ``reached`` from running when TensorFlow
    computes constants of a graph that it imports, in place; whether there are any.

    It computes nothing that comes from a ``PlaceholderWithDefault``.  (Without a kernel, an op
    would be refused by sessions, which place every op.)
    """
    changed = False
    functions = ((f.signature.name, f.node_def) for f in graph_def.library.function)
    for body, nodes in (("", graph_def.node), *functions):
        found = [node for node in nodes if node.op in COMPUTED_EARLY]
        for node in found:
            if (body, node.name) not in reached:
                _open(node, nodes, in_function=bool(body))
                changed = True
    return changed


def _open(node: Any, nodes: Any, *, in_function: bool) -> None:
    """Puts a placeholder before the first input of a node, or in place of one without inputs."""
    dtype = COMPUTED_EARLY[node.op]
    if not data_inputs(node.input):
        kept = node.attr["dtype"].type
        node.op = "Placeholder"
        node.attr.clear()
        node.attr["dtype"].type = kept
        return
    name = f"{node.name}/placer_open"
    added = nodes.add(name=name, op="PlaceholderWithDefault", input=[node.input[0]])
    own = dtype == OWN_DTYPE
    added.attr["dtype"].type = node.attr[dtype].type if own else dtype_number(dtype)
    added.attr["shape"].shape.unknown_rank = True
    node.input[0] = f"{name}:output:0" if in_function else name


@dataclass(frozen=True, kw_only=True)
class _Body:
    """The main graph or a function: nodes by name, numbers of arguments by name."""

    nodes: Mapping[str, Any]
    arguments: Mapping[str, int] = field(default_factory=dict)


def _argument_numbers(arguments: Sequence[Any]) -> dict[str, int]:
    """The numbers of the arguments by name; where some are lists, whose lengths calls say, numbers
    that no call has."""
    lists = any(a.number_attr or a.type_list_attr for a in arguments)
    return {a.name: sys.maxsize if lists else number for number, a in enumerate(arguments)}


class _Reach:
    """The nodes that a run reaches, by function (``""``: the main graph) and name."""

    def __init__(self, graph_def: Any, start: Start, folder: Path) -> None:
        self.start, self.folder = start, folder
        self.library = functions_by_name(graph_def)
        self.gradients = {g.function_name: g.gradient_func for g in graph_def.library.gradient}
        self.alike = _alike(self.library)
        self.callers: dict[str, list[tuple[str, Any]]] = {}
        self.called_inside: set[str] = set()
        self.bodies: dict[str, _Body] = {"": _Body(nodes={n.name: n for n in graph_def.node})}
        self.reached: Reached = set()
        self.computed_early = False
        self._reach_main(start.ends)
        if start.name:
            self._reach_function(start.name)

    def _reach_main(self, ends: Iterable[str]) -> None:
        nodes = self.bodies[""].nodes

        def sources(name: str) -> list[str]:
            read = nodes[name].input
            kept = (t for t in read if is_control(t) or full_tensor(t) not in self.start.fed)
            return [source for source in map(source_of, kept) if source in nodes]

        for name in reached((end for end in ends if end in nodes), sources):
            self.reached.add(("", name))
            for function in self._calls("", nodes[name]):
                self._reach_function(function)

    def _reach_function(self, name: str) -> None:
        pending = [name]
        while pending:
            name = pending.pop()
            function = self.library.get(name)
            if function is None or name in self.bodies:
                continue
            self.bodies[name] = _Body(
                nodes={node.name: node for node in function.node_def},
                arguments=_argument_numbers(function.signature.input_arg),
            )
            for node in function.node_def:
                self.reached.add((name, node.name))
                pending += self._calls(name, node)
            indirect = [
                n for item in function.signature.attr for n in _named_by(item.default_value)
            ]
            indirect += [other for other in self.alike.get(name, ()) if other != name]
            indirect += [self.gradients[name]] if name in self.gradients else []
            self.called_inside.update(indirect)
            pending += indirect

    def _calls(self, body: str, node: Any) -> list[str]:
        """The functions that a node calls, and keeps that it does."""
        called = [function for _, function in called_functions(node)]
        names = [function.name for function in called]
        names += [node.op] if node.op in self.library else []
        for name in names:
            self.callers.setdefault(name, []).append((body, node))
        given = [name for function in called for name in _named(function.attr)]
        if node.op in self.library:
            given += _named(node.attr)
        self.called_inside.update(given)
        return names + given

    def harm(self) -> Iterator[tuple[str, str]]:
        """Yields the effects of reached ops beside computing: (op, what it does)."""
        for body, name in sorted(self.reached):
            node = self.bodies[body].nodes[name]
            if node.op in PURE_OPS:
                continue
            does = self._does(body, node)
            if does:
                inside = f" in function {body!r}" if body else ""
                yield f"op {name!r} ({node.op}){inside}", does

    def _does(self, body: str, node: Any) -> str:
        """Returns the effect of a node beside computing, ``""`` if it has none."""
        if node.op in DOES:
            return DOES[node.op]
        for key, does in TARGET_ATTRIBUTES.items():
            if key in node.attr and _targets(node.attr[key]):
                return does
        if node.op in FILE_ATTRIBUTES and FILE_ATTRIBUTES[node.op] in node.attr:
            return self._reads_attribute(node)
        self.computed_early = node.op in COMPUTED_EARLY
        inputs = data_inputs(node.input)
        for number in FILE_INPUTS.get(node.op, ()):
            names = self._names(body, inputs[number], set()) if number < len(inputs) else None
            does = self._reads(node, names)
            if does:
                return does
        return ""

    def _reads_attribute(self, node: Any) -> str:
        attribute = node.attr[FILE_ATTRIBUTES[node.op]]
        if attribute.WhichOneof("value") == PASSED:
            return LATER
        value = decoded(attribute.s)
        own = value in NO_FILES or value.startswith(BYTES) or self._is_own(node, value)
        return "" if own else f"reads {value!r}, which is not in the model's folder"

    def _reads(self, node: Any, names: Names | None) -> str:
        if names is None:
            return LATER
        if node.op in CACHES:
            return "" if names <= {""} else f"writes {min(names - {''})!r}"
        foreign = [name for name in sorted(names) if not self._is_own(node, name)]
        return f"reads {foreign[0]!r}, which is not in the model's folder" if foreign else ""

    def _is_own(self, node: Any, name: str) -> bool:
        return (are_inside if node.op in FILE_SETS else is_inside)(name, self.folder)

    def _names(self, body: str, tensor: str, seen: set[tuple[str, str]]) -> Names | None:
        """The constants among the strings of a tensor; ``None`` where they are not known."""
        name = op_of(tensor)
        if (body, name) in seen:
            return GIVEN
        seen.add((body, name))
        here = self.bodies[body]
        if not body and full_tensor(tensor) in self.start.fed:
            early = self.computed_early and name in here.nodes and here.nodes[name].op == "Const"
            return GIVEN if not early else self._constant(here.nodes[name])
        if name in here.arguments:
            return self._argument(body, here.arguments[name], seen)
        node = here.nodes.get(name)
        if node is None:
            return None
        if node.op == "Const":
            return self._constant(node)
        if node.op not in SAME:
            return None
        sources = data_inputs(node.input)[SAME[node.op]]
        return _union(self._names(body, source, seen) for source in sources)

    def _constant(self, node: Any) -> Names | None:
        strings = constant_strings(node)
        return None if strings is None else frozenset(strings)

    def _argument(self, body: str, number: int, seen: set[tuple[str, str]]) -> Names | None:
        """As :meth:`_names`, of what callers pass for the argument of a function."""
        if body in self.called_inside:  # not by a node that says what it passes
            return None
        found = [self._passed(*call, number, seen) for call in self.callers.get(body, ())]
        if body == self.start.name:
            arguments = self.start.arguments
            found.append(arguments[number] if number < len(arguments) else None)
        return _union(found) if found else None

    def _passed(
        self, body: str, node: Any, number: int, seen: set[tuple[str, str]]
    ) -> Names | None:
        """Returns the value that a call passes for an argument."""
        offset = 1 if node.op in BRANCHES else 0
        if node.op not in BRANCHES and node.op not in CALLS and node.op not in self.library:
            return None
        inputs = data_inputs(node.input)
        if number + offset >= len(inputs):
            return None
        return self._names(body, inputs[number + offset], seen)


def _named(attributes: Mapping[str, Any]) -> list[str]:
    """The functions that attributes of a function name, which it may call."""
    return [name for value in attributes.values() for name in _named_by(value)]


def _named_by(value: Any) -> list[str]:
    """The functions that a value of an attribute names, with those that these are given."""
    names = []
    for function in functions_of(value):
        names += [function.name, *_named(function.attr)]
    return names


def _targets(value: Any) -> bool:
    """Whether an attribute names where output goes, other than to the terminal."""
    if value.WhichOneof("value") == PASSED:
        return True
    return bool(value.list.s) or decoded(value.s) not in ("", *STREAMS)


def _alike(library: Mapping[str, Any]) -> dict[str, list[str]]:
    """Functions that TensorFlow may run in the place of each other, by name."""
    groups = grouped(
        (function.attr[IMPLEMENTS].s, name)
        for name, function in library.items()
        if IMPLEMENTS in function.attr
    )
    return {name: group for group in groups.values() for name in group}


def _union(found: Iterable[Names | None]) -> Names | None:
    names: Names = GIVEN
    for part in found:
        if part is None:
            return None
        names |= part
    return names
