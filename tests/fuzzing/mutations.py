"""Seeded harm to bytes, texts, messages, graphs and JSON: one function per kind of content.

Every function takes the content and a ``random.Random`` and decides by that alone, so that a
format, a seed and an index name one mutation for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

EXTREMES = (0, 1, -1, -2, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
HUGE_VARINT = b"\xff\xff\xff\xff\x0f"
"""4 GiB as a length prefix."""

STRANGE_NAMES = ("", "^", "a:b:c", ":0", "x:-1", "x:99999999999999999999", "^^x", "a/../b", "\x00")
STRANGE_NAMES += ("\u202e\U0001f4a5", "_", "x" * 5000, "{{node x}}", "loc:@", "[bold]", "%s%n")


def mutate_bytes(content: bytes, random: Random) -> bytes:
    """``content`` with bits flipped, or a span cut, doubled, overwritten, moved or replaced."""
    return random.choice(
        (_flip_bits, _flip_bits, _truncate, _cut, _double, _overwrite, _swap, _prefix, _not_utf8)
    )(content, random)


def mutate_text(content: bytes, random: Random) -> bytes:
    """A text with lines or words harmed, else as any bytes."""
    harms = (_swap_lines, _drop_lines, _repeat_lines, _change_word, _nest_braces)
    if random.random() < 0.4:
        return mutate_bytes(content, random)
    text = content.decode(errors="replace")
    return random.choice(harms)(text, random).encode(errors="replace")


def mutate_message(message: Any, random: Random) -> None:
    """Any protobuf message with one to three fields cleared, doubled, swapped or made extreme."""
    for _ in range(random.randint(1, 3)):
        fields = list(_fields(message))
        if fields:
            owner, field = random.choice(fields)
            _harm_field(owner, field, random)


def mutate_graph(graph_def: Any, random: Random) -> None:
    """A GraphDef that says something wrong in one to three places: see ``GRAPH_HARMS``."""
    for _ in range(random.choice((1, 1, 2, 3))):
        if _node_lists(graph_def):
            random.choice(GRAPH_HARMS)(graph_def, random)


def mutate_json(content: bytes, random: Random) -> bytes:
    """A JSON document with one to three values or keys replaced; now and then harmed as text."""
    if random.random() < 0.25:
        return mutate_text(content, random)
    document = json.loads(content)
    for _ in range(random.randint(1, 3)):
        document = _harm_json(document, random)
    text = json.dumps(document, indent=1)
    text = text.replace(f'"{_MANY_DIGITS}"', "9" * 6000).replace(f'"{_DEEP}"', "[" * 100_000)
    return text.encode()


# --- bytes


def _span(content: bytes, random: Random, longest: int = 200) -> tuple[int, int]:
    start = random.randrange(max(len(content), 1))
    return start, min(len(content), start + random.randint(1, longest))


def _flip_bits(content: bytes, random: Random) -> bytes:
    result = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8, 64)) if content else 0):
        result[random.randrange(len(result))] ^= 1 << random.randrange(8)
    return bytes(result)


def _truncate(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _cut(content: bytes, random: Random) -> bytes:
    start, end = _span(content, random)
    return content[:start] + content[end:]


def _double(content: bytes, random: Random) -> bytes:
    start, end = _span(content, random, 2000)
    return content[:end] + content[start:end] * random.choice((1, 1, 50)) + content[end:]


def _overwrite(content: bytes, random: Random) -> bytes:
    start, end = _span(content, random, 16)
    filling = random.choice((b"\x00", b"\xff", None))
    span = random.randbytes(end - start) if filling is None else filling * (end - start)
    return content[:start] + span + content[end:]


def _swap(content: bytes, random: Random) -> bytes:
    (a, b), (c, d) = sorted((_span(content, random), _span(content, random)))
    if b > c:
        return content[:a] + content[c:d] + content[a:c] + content[d:]
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _prefix(content: bytes, random: Random) -> bytes:
    """An enormous length where one byte was."""
    start, _ = _span(content, random)
    return content[:start] + HUGE_VARINT + content[start + 1 :]


def _not_utf8(content: bytes, random: Random) -> bytes:
    """One name in the file, everywhere it stands, in bytes that are no UTF-8."""
    names = re.findall(rb"[A-Za-z_][A-Za-z0-9_/]{2,40}", content)
    if not names:
        return content
    name = random.choice(names)
    return content.replace(name, b"\xff\xc0" + name[2:])


# --- text


def _swap_lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "".join(lines)


def _drop_lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    start = random.randrange(len(lines))
    del lines[start : start + random.choice((1, 1, 5))]
    return "".join(lines)


def _repeat_lines(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    start = random.randrange(len(lines))
    end = start + random.choice((1, 1, 8))
    return "".join(lines[:end] + lines[start:end] * random.choice((1, 30)) + lines[end:])


def _change_word(text: str, random: Random) -> str:
    words = list(re.finditer(r"-?\d+|\w+|\"[^\"\n]*\"", text))
    if not words:
        return text
    word, other = random.choice(words), random.choice(words)
    new = random.choice((other.group(), str(random.choice(EXTREMES)), '"\\377\\300"', "1e999", "{"))
    return text[: word.start()] + new + text[word.end() :]


def _nest_braces(text: str, random: Random) -> str:
    depth = random.choice((50, 500, 5000))
    opening = 'attr { key: "k" value { func { name: "f" '
    return text + 'node { name: "deep" op: "NoOp" ' + opening * depth + "} } } " * depth + "}"


# --- any message


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every (owner, field) that is set, at any depth."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is None:
            continue
        if _is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in sorted(value):
                    yield from _fields(value[key])
        elif field.is_repeated:
            for item in value:
                yield from _fields(item)
        else:
            yield from _fields(value)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _harm_field(owner: Any, field: Any, random: Random) -> None:
    value = getattr(owner, field.name)
    if random.random() < 0.25:
        owner.ClearField(field.name)
    elif _is_map(field):
        key = random.choice(sorted(value))
        value.pop(key)
    elif field.is_repeated:
        _harm_repeated(owner, field, value, random)
    elif field.message_type is None:
        setattr(owner, field.name, _strange_scalar(field, value, random))
    else:
        owner.ClearField(field.name)


def _harm_repeated(owner: Any, field: Any, value: Any, random: Random) -> None:
    index = random.randrange(len(value))
    choice = random.randrange(4)
    if choice == 0:
        del value[index]
    elif choice == 1:
        value.extend([value[index]] * random.choice((1, 1, 300)))
    elif field.message_type is None:
        value[index] = _strange_scalar(field, value[index], random)
    else:
        other = random.randrange(len(value))
        kept = type(value[index])()
        kept.CopyFrom(value[index])
        value[index].CopyFrom(value[other])
        value[other].CopyFrom(kept)


def _strange_scalar(field: Any, value: Any, random: Random) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        if isinstance(value, bytes):
            return random.choice((b"", b"\xff\xfe", b"\x00" * 40, random.randbytes(9)))
        return random.choice((*STRANGE_NAMES, value[:-1], value + "x"))
    if kind == field.CPPTYPE_BOOL:
        return not value
    if kind == field.CPPTYPE_ENUM:
        return random.choice((0, 1, 3, 7, 20, 21, 22, 23, 101, 119, 999))
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random.choice((0.0, -1.0, float("nan"), float("inf"), 1e300))
    low, high = {
        field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
        field.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
        field.CPPTYPE_UINT32: (0, 2**32 - 1),
        field.CPPTYPE_UINT64: (0, 2**64 - 1),
    }[kind]
    return min(max(random.choice(EXTREMES), low), high)


# --- graphs


def _node_lists(graph_def: Any) -> list[Any]:
    """The node lists that have nodes: the main graph's (three times as likely) and functions'."""
    lists = [*[graph_def.node] * 3, *(function.node_def for function in graph_def.library.function)]
    return [nodes for nodes in lists if nodes]


def _some_node(graph_def: Any, random: Random) -> tuple[Any, Any]:
    nodes = random.choice(_node_lists(graph_def))
    return nodes, random.choice(nodes)


def _delete_node(graph_def: Any, random: Random) -> None:
    nodes, _ = _some_node(graph_def, random)
    del nodes[random.randrange(len(nodes))]


def _duplicate_node(graph_def: Any, random: Random) -> None:
    nodes, node = _some_node(graph_def, random)
    nodes.add().CopyFrom(node)


def _rename_input(graph_def: Any, random: Random) -> None:
    nodes, node = _some_node(graph_def, random)
    other = random.choice(nodes).name
    names = (other, other, f"{other}:1", f"{other}:7", f"^{other}", f"{other}:y:0", node.name)
    name = random.choice((*names, random.choice(STRANGE_NAMES)))
    if node.input and random.random() < 0.7:
        node.input[random.randrange(len(node.input))] = name
    else:
        node.input.append(name)


def _drop_inputs(graph_def: Any, random: Random) -> None:
    _, node = _some_node(graph_def, random)
    del node.input[random.randrange(len(node.input) + 1) :]


def _swap_inputs(graph_def: Any, random: Random) -> None:
    nodes, node = _some_node(graph_def, random)
    other = random.choice(nodes)
    mine, theirs = list(node.input), list(other.input)
    node.input[:], other.input[:] = theirs, mine


def _change_op(graph_def: Any, random: Random) -> None:
    nodes, node = _some_node(graph_def, random)
    types = ("NoOp", "Placeholder", "While", "If", "Merge", "Switch", "Enter", "NextIteration")
    types += ("PartitionedCall", "SymbolicGradient", "VarHandleOp", "Einsum", "NotAnOp", "_Arg")
    types += ("TensorListStack", "IteratorGetNext", "Case", "For", "LoopCond", "RefMerge", "PyFunc")
    functions = [function.signature.name for function in graph_def.library.function]
    node.op = random.choice((*types, random.choice(nodes).op, *functions))


def _rename_node(graph_def: Any, random: Random) -> None:
    nodes, node = _some_node(graph_def, random)
    node.name = random.choice((*STRANGE_NAMES, random.choice(nodes).name))


def _retype_attribute(graph_def: Any, random: Random) -> None:
    """An attribute with the value of any other, of another kind as likely as not."""
    (_, node), (_, other) = _some_node(graph_def, random), _some_node(graph_def, random)
    if node.attr and other.attr:
        key, source = random.choice(sorted(node.attr)), random.choice(sorted(other.attr))
        value = type(other.attr[source])()
        value.CopyFrom(other.attr[source])
        node.attr[key].CopyFrom(value)


def _drop_attribute(graph_def: Any, random: Random) -> None:
    _, node = _some_node(graph_def, random)
    if node.attr:
        del node.attr[random.choice(sorted(node.attr))]


def _change_dtype(graph_def: Any, random: Random) -> None:
    _, node = _some_node(graph_def, random)
    typed = [key for key in sorted(node.attr) if node.attr[key].WhichOneof("value") == "type"]
    if typed:
        node.attr[random.choice(typed)].type = random.choice((0, 2, 3, 7, 10, 20, 21, 101, 120, 77))


def _change_shape(graph_def: Any, random: Random) -> None:
    """A shape with huge, negative or too many dimensions."""
    nodes = [node for nodes in _node_lists(graph_def) for node in nodes]
    shapes = [
        shape
        for node in nodes
        for key in sorted(node.attr)
        for shape in (
            *([node.attr[key].shape] if node.attr[key].HasField("shape") else []),
            *([node.attr[key].tensor.tensor_shape] if node.attr[key].HasField("tensor") else []),
            *node.attr[key].list.shape,
        )
    ]
    if not shapes:
        return
    shape = random.choice(shapes)
    for _ in range(random.choice((1, 1, 2, 300))):
        shape.dim.add(size=random.choice(EXTREMES))
    if random.random() < 0.2:
        shape.unknown_rank = True


def _call_itself(graph_def: Any, random: Random) -> None:
    """A function that calls a function, perhaps itself, directly or through control flow."""
    functions = graph_def.library.function
    if not functions:
        return _deep_calls(graph_def, random)
    caller, called = random.choice(functions), random.choice(functions).signature.name
    op = random.choice(("PartitionedCall", "While", "If", "Case", called))
    node = caller.node_def.add(name="again", op=op)
    node.input.extend(argument.name for argument in caller.signature.input_arg)
    for key in {"While": ("cond", "body"), "If": ("then_branch", "else_branch")}.get(op, ("f",)):
        node.attr[key].func.name = called
    if op == "Case":
        node.attr["branches"].list.func.add(name=called)
    for key in ("Tin", "T"):
        node.attr[key].list.type.extend(a.type for a in caller.signature.input_arg)
    caller.control_ret["again"] = "again"
    return None


def _deep_calls(graph_def: Any, random: Random) -> None:
    """A thousand functions that call one another in a row, once or twice each."""
    depth, width = random.choice(((1000, 1), (3000, 1), (40, 2), (5, 30)))
    for level in range(depth):
        function = graph_def.library.function.add()
        function.signature.name = f"deep_{level}"
        for number in range(width):
            node = function.node_def.add(name=f"call_{number}", op="StatefulPartitionedCall")
            node.attr["f"].func.name = f"deep_{level + 1}"
            function.control_ret[node.name] = node.name
    last = graph_def.library.function.add()
    last.signature.name = f"deep_{depth}"
    last.node_def.add(name="end", op="NoOp")
    last.control_ret["end"] = "end"
    call = graph_def.node.add(name="deep", op="StatefulPartitionedCall")
    call.attr["f"].func.name = "deep_0"
    graph_def.node[0].input.append("^deep")


def _deep_attribute(graph_def: Any, random: Random) -> None:
    """An attribute with functions in functions, fifty or ninety deep (a hundred are readable)."""
    _, node = _some_node(graph_def, random)
    function = node.attr["deep"].func
    for level in range(random.choice((10, 30))):
        function.name = f"f{level}"
        function = function.attr["deep"].func


def _long_chain(graph_def: Any, random: Random) -> None:
    """Thousands of ops in a row behind one op."""
    last = random.choice(graph_def.node).name
    for number in range(random.choice((1500, 4000))):
        node = graph_def.node.add(name=f"chain_{number}", op="Identity")
        node.input.append(last)
        node.attr["T"].type = 1
        last = node.name


def _break_function(graph_def: Any, random: Random) -> None:
    """A function with an argument, a result or a name that does not fit its body."""
    functions = graph_def.library.function
    if not functions:
        return
    function, other = random.choice(functions), random.choice(functions)
    choice = random.randrange(5)
    if choice == 0:
        function.signature.name = other.signature.name
    elif choice == 1 and function.signature.input_arg:
        del function.signature.input_arg[random.randrange(len(function.signature.input_arg))]
    elif choice == 2:
        function.signature.output_arg.add(name="extra", type=1)
    elif choice == 3 and function.ret:
        function.ret[random.choice(sorted(function.ret))] = random.choice(STRANGE_NAMES)
    else:
        function.control_ret["lost"] = "nowhere"


def _change_device(graph_def: Any, random: Random) -> None:
    _, node = _some_node(graph_def, random)
    devices = ("/gpu:*", "/job:worker/task:99999999999", "nonsense", "/device:TPU:0", "/gpu:-1")
    node.device = random.choice((*devices, *STRANGE_NAMES))


def _change_class(graph_def: Any, random: Random) -> None:
    nodes, node = _some_node(graph_def, random)
    values = (f"loc:@{random.choice(nodes).name}".encode(), b"loc:@gone", b"\xff\xff", b"")
    node.attr["_class"].list.s.append(random.choice(values))


GRAPH_HARMS: tuple[Callable[[Any, Random], None], ...] = (
    _delete_node,
    _duplicate_node,
    _rename_input,
    _rename_input,
    _drop_inputs,
    _swap_inputs,
    _change_op,
    _change_op,
    _rename_node,
    _retype_attribute,
    _retype_attribute,
    _drop_attribute,
    _change_dtype,
    _change_shape,
    _call_itself,
    _deep_calls,
    _deep_attribute,
    _long_chain,
    _break_function,
    _change_device,
    _change_class,
)

# --- JSON

_MANY_DIGITS, _DEEP = "many digits", "deep nesting"
_STRANGE_VALUES = (None, True, [], {}, "", -1, 0, 1e308, 2**63, "GPU:99", "\ud800", "\x1b[31m")
_STRANGE_VALUES += (float("nan"), float("inf"), _MANY_DIGITS, _DEEP, ["a"], {"a": 1}, "x" * 9000)


def _harm_json(document: Any, random: Random) -> Any:
    places = list(_places(document))
    if not places:
        return random.choice(_STRANGE_VALUES)
    owner, key = random.choice(places)
    other, other_key = random.choice(places)
    choice = random.randrange(5)
    if choice == 0:
        del owner[key]
    elif choice == 1:
        owner[key], other[other_key] = other[other_key], owner[key]
    elif choice == 2 and isinstance(owner, dict):
        owner[random.choice((*STRANGE_NAMES, str(other_key)))] = owner.pop(key)
    else:
        owner[key] = random.choice(_STRANGE_VALUES)
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)
