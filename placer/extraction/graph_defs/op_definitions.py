"""Definitions of op types: TensorFlow's registry first, then the ones a file carries."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.protobufs import AttrValue
from placer.graph.op_types import CALLS

DEVICES_ATTRIBUTE = "_placer_devices"
"""Devices of which an op asks for one, with ``|`` between them."""

MOST_TENSORS = 1_000_000
"""More inputs or outputs than any op has; a larger count in a file is damage."""


class OpDefinitions:
    """Op definitions by op type.

    ``stripped_ops`` are the definitions stored in a MetaGraphDef, used for op types that this
    TensorFlow does not know; ``functions`` are the FunctionDefs that can be called by their name
    as an op type.
    """

    def __init__(self, stripped_ops: Iterable[Any] = (), functions: Iterable[Any] = ()) -> None:
        from tensorflow.python.framework import op_def_registry

        self.registered = op_def_registry.get  # TensorFlow's own, whatever the file says
        self._found: dict[str, Any | None] = {}
        self._stored = {definition.name: definition for definition in stripped_ops}
        self._stored.update({function.signature.name: function.signature for function in functions})

    def find(self, op_type: str) -> Any | None:
        """The ``OpDef`` of an op type, or ``None`` where neither TensorFlow nor the file knows."""
        if op_type not in self._found:
            self._found[op_type] = self.registered(op_type) or self._stored.get(op_type)
        return self._found[op_type]

    def is_registered(self, op_type: str) -> bool:
        """Does TensorFlow know the op type?"""
        return self.registered(op_type) is not None

    def defaults(self, op_type: str) -> dict[str, AttrValue]:
        """The AttrValues that the attributes of an op type have where none is written."""
        definition = self.find(op_type)
        attributes = definition.attr if definition is not None else ()
        return {a.name: a.default_value for a in attributes if a.HasField("default_value")}

    def output_offset(self, node: Any, output: str) -> int:
        """The number of the first tensor of the named output of ``node``.

        Raises :class:`ModelError` if the op type has no such output.  Unknown op types are taken
        to have one output.
        """
        definition = self.find(node.op)
        if definition is None:
            return 0
        offset = 0
        for argument in definition.output_arg:
            if argument.name == output:
                return offset
            offset += argument_length(argument, node.attr)
        raise ModelError(f"op {node.name!r} of type {node.op} has no output called {output!r}")


@cache
def _empty() -> AttrValue:
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.AttrValue()


def attribute(attributes: Any, key: str) -> Any:
    """The AttrValue called ``key``, an empty one if there is none.

    Plain indexing would write an empty attribute into the node.
    """
    return attributes[key] if key in attributes else _empty()


def argument_length(argument: Any, attributes: Any) -> int:
    """How many tensors an ``OpDef.ArgDef`` stands for, given the attributes of the node.

    Raises :class:`ModelError` for a count that no op can have.
    """
    name = argument.number_attr
    if name:
        count = int(attribute(attributes, name).i)
        if not 0 <= count <= MOST_TENSORS:
            raise ModelError(
                f"the attribute {name!r} says that an op has {count:,} inputs or outputs"
            )
        return count
    if argument.type_list_attr:
        return len(attribute(attributes, argument.type_list_attr).list.type)
    return 1


def output_number(text: str, reference: str) -> int:
    """The number in ``reference`` behind its colon.

    Raises :class:`ModelError` if it is none that an output can have.

    >>> output_number("2", "Split:2")
    2
    """
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_TENSORS))):
        raise ModelError(f"an op reads {reference!r}, which names no output")
    return int(text)


def decoded(value: bytes) -> str:
    r"""A name out of an attribute; bytes that are no UTF-8 stay distinct.

    >>> decoded(b"loc:@w"), decoded(b"\xff")
    ('loc:@w', '\\xff')
    """
    return value.decode(errors="backslashreplace")


def called_function(call: Any) -> str:
    """The function that a call calls: its attribute ``f``, else its op type."""
    return str(attribute(call.attr, "f").func.name if call.op in CALLS else call.op)


def called_functions(node: Any) -> list[tuple[str, Any]]:
    """The attributes of ``node`` that name functions, in order, each with its NameAttrList."""
    found = [(key, name) for key, value in node.attr.items() for name in functions_of(value)]
    return sorted(found, key=lambda pair: pair[0]) if found else found


def functions_of(value: Any) -> Sequence[Any]:
    """The functions that an AttrValue names, as NameAttrLists."""
    kind = value.WhichOneof("value")
    if kind == "func":
        return (value.func,)
    return value.list.func if kind == "list" else ()
