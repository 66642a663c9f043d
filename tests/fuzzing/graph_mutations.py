"""Seeded harm to graphs: what a GraphDef says is made wrong, and it stays readable as a message."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from fuzzing.mutations import EXTREMES, STRANGE_NAMES


def mutate_graph(graph_def: Any, random: Random) -> None:
    """A GraphDef that says something wrong in one to three places: see ``GRAPH_HARMS``."""
    for _ in range(random.choice((1, 1, 2, 3))):
        if _node_lists(graph_def):
            random.choice(GRAPH_HARMS)(graph_def, random)


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
