"""NodeDefs of the flat graph: copied, renamed, cut off from what was left behind."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, Generic, TypeVar

from placer.errors import ModelError
from placer.extraction.graph_defs.added_control import ADDED_CONTROL
from placer.extraction.graph_defs.call_scopes import MOST_NESTED_CALLS, Scope
from placer.extraction.graph_defs.op_definitions import called_functions, decoded
from placer.extraction.graph_defs.protobufs import FunctionDef
from placer.graph.tensor_names import op_of
from placer.graph.walks import reached

Found = TypeVar("Found")


def strip_node(node: Any, *, is_anchor: bool) -> None:
    """Takes out of a copy without name and inputs what flat nodes do not have; an anchor becomes a
    NoOp."""
    if is_anchor:
        device = node.device
        node.Clear()
        node.op, node.device = "NoOp", device
        return
    for key in ("_output_shapes", ADDED_CONTROL):
        if key in node.attr:
            del node.attr[key]


def content_of(node: Any) -> bytes | None:
    """Op type, device and attributes of a node without name and inputs: the same for nodes that
    are alike in these; ``None`` for a large constant, which is like no other."""
    content: bytes = node.SerializeToString(deterministic=True)
    return content if len(content) <= 1000 else None  # else a large constant


class Contents(dict[str, bytes | None]):
    """The :func:`content_of` of every node of a flat graph by name, in the order of the nodes;
    ``inputs`` has what each reads and waits for.  It is empty (:data:`NO_CONTENTS`) for a graph
    that was made out of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: Mapping[str, Sequence[str]] = {}

    def named(self, nodes: Iterable[Any]) -> Iterable[tuple[str, Any]]:
        """The nodes of the graph with their names."""
        return zip(self, nodes, strict=True) if self else ((node.name, node) for node in nodes)

    def inputs_of(self, name: str, node: Any) -> Sequence[str]:
        """Returns the inputs of the node called ``name``, those that it only waits for included."""
        return self.inputs[name] if name in self.inputs else tuple(node.input)


NO_CONTENTS = Contents()


class ByContent(Generic[Found]):
    """Remembers the answer of ``find`` for all nodes that have one content."""

    def __init__(self, find: Callable[[Any], Found]) -> None:
        self.find = find
        self.found: dict[bytes, Found] = {}

    def of(self, node: Any, content: bytes | None) -> Found:
        """The answer for ``node``, whose :func:`content_of` is ``content``."""
        if content is None:
            return self.find(node)
        if content not in self.found:
            self.found[content] = self.find(node)
        return self.found[content]


_LOCATION = b"loc:@"


def hinted_op(entry: bytes) -> str:
    """The op that an entry of ``_class`` asks to share a device with, ``""`` if it asks for none.

    >>> hinted_op(b"loc:@w"), hinted_op(b"other")
    ('w', '')
    """
    return decoded(entry.removeprefix(_LOCATION)) if entry.startswith(_LOCATION) else ""


def hinted_ops(node: Any) -> list[str]:
    """The ops that ``_class`` of a node names."""
    entries = node.attr["_class"].list.s if "_class" in node.attr else ()
    return [name for name in map(hinted_op, entries) if name]


def rename_hints(node: Any, new_name: Callable[[str], str]) -> None:
    """Has ``_class`` of a node name, in place, what ``new_name`` makes of each op: none for ``""``;
    without any it goes."""
    names = dict.fromkeys(filter(None, map(new_name, hinted_ops(node))))
    if names:
        node.attr["_class"].list.s[:] = [_LOCATION + name.encode() for name in names]
    else:
        node.attr.pop("_class", None)


def retarget_classes(classed: Iterable[Any], nodes: Container[str]) -> None:
    """Makes ``_class`` entries that name ops outside the flat graph name a surviving member.

    ``classed`` are the nodes that have the attribute.
    """
    replacement: dict[str, str] = {}

    def survivor(own: str, target: str) -> str:
        found = target if target in nodes else replacement.setdefault(target, own)
        return "" if found == own else found

    for node in classed:
        rename_hints(node, partial(survivor, node.name))


def needed_library(referred: Iterable[str], library: Mapping[str, FunctionDef]) -> Any:
    """The functions ``referred`` to by nodes, and those that these refer to.

    Raises :class:`ModelError` if one of them reaches itself, or they nest too deep.
    """
    from tensorflow.core.framework import function_pb2

    @cache
    def called(name: str) -> list[str]:
        return [n for node in library[name].node_def for n in referred_functions(node, library)]

    kept = {name: called(name) for name in reached(referred, called)}
    _check_nesting(kept)
    result = function_pb2.FunctionDefLibrary()
    result.function.extend(library[name] for name in sorted(kept))
    return result


def _check_nesting(referred: Mapping[str, Iterable[str]]) -> None:
    depth: dict[str, int] = {}
    try:
        for name in TopologicalSorter(referred).static_order():
            depth[name] = 1 + max((depth[other] for other in referred[name]), default=0)
    except CycleError as error:
        cycle = " -> ".join(error.args[1][::-1])
        raise ModelError(f"functions refer to themselves: {cycle}") from error
    if max(depth.values(), default=0) > MOST_NESTED_CALLS:
        deepest = max(depth, key=lambda name: depth[name])
        raise ModelError(f"functions nest deeper than {MOST_NESTED_CALLS}, from {deepest!r} on")


def referred_functions(node: Any, library: Mapping[str, FunctionDef]) -> list[str]:
    """Names of library functions that a node calls or carries as an attribute."""
    names = [function.name for _, function in called_functions(node)]
    return [name for name in [node.op, *names] if name in library]


def bind_placeholders(scope: Scope, node: Any) -> None:
    """Replaces attributes that stand for an attribute of the call by its value."""
    for key in [k for k, v in node.attr.items() if v.WhichOneof("value") == "placeholder"]:
        wanted = node.attr[key].placeholder
        values = scope.call.attr["f"].func.attr if "f" in scope.call.attr else scope.call.attr
        if wanted in values:
            node.attr[key].CopyFrom(values[wanted])


def rename_classes(scope: Scope, node: Any, names: Mapping[tuple[Scope, str], str]) -> None:
    """Makes the ``_class`` entries of a body op name flat ops."""

    def flat(name: str) -> str:
        owner = scope
        while name in owner.arguments and owner.parent is not None:
            name = op_of(owner.call_inputs[owner.arguments[name]])
            owner = owner.parent
        return names.get((owner, name), owner.prefix + name)

    rename_hints(node, flat)
