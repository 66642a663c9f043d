from tensorflow.core.framework import node_def_pb2

from placer.application.verifying.partition_graphs import (
    ActualTransfer,
    RuntimeNames,
    read_execution,
)

CPU = "/job:localhost/replica:0/task:0/device:CPU:"


class Graph:
    def __init__(self):
        self.node = []

    def add(self, name, op, device, *inputs, **attributes):
        node = node_def_pb2.NodeDef(name=name, op=op, device=CPU + str(device), input=inputs)
        for key, value in attributes.items():
            if isinstance(value, int):
                node.attr[key].i = value
            else:
                node.attr[key].s = value.encode()
        self.node.append(node)

    def send(self, name, source, target, value):
        ends = {"send_device": CPU + str(source), "recv_device": CPU + str(target)}
        self.add(name, "_Send", source, value, tensor_name=f"edge_{name}", **ends)
        self.add(f"{name}r", "_Recv", target, tensor_name=f"edge_{name}", **ends)


def test_sends_become_tensors_and_control_edges_of_the_flat_graph():
    """Data, an argument and a control edge cross; each is named as in the flat graph."""
    graph = Graph()
    graph.add("x", "_Arg", 0, index=0)
    graph.send("x/_1", 0, 1, "x")
    graph.add("mul", "Mul", 1, "x/_1r", "x/_1r")
    graph.send("mul/_2", 1, 0, "mul:0")
    graph.add("add", "Add", 0, "mul/_2r", "mul/_2r")
    graph.add("mul/ctrl/_3", "Const", 1, "^mul")
    graph.send("mul/_4", 1, 2, "mul/ctrl/_3")
    graph.add("mul/_5", "Identity", 2, "mul/_4r")
    names = RuntimeNames(
        ops=frozenset({"feed", "call/mul", "call/add"}), prefix="call/", arguments=("feed:0",)
    )
    found = read_execution([graph], names)
    assert found.devices == {"feed": "CPU:0", "call/mul": "CPU:1", "call/add": "CPU:0"}
    assert found.transfers == {
        ActualTransfer(tensor="feed:0", source="CPU:0", target="CPU:1"),
        ActualTransfer(tensor="call/mul:0", source="CPU:1", target="CPU:0"),
        ActualTransfer(tensor="^call/mul", source="CPU:1", target="CPU:2"),
    }


def test_a_lowered_loop_is_read_as_the_loop():
    """Exits are the loop's outputs, resources left out; its inner sends are marked as inside.

    Of two loop variables that are no resources the first one's exit is pruned: _7 was its number.
    """
    graph = Graph()
    graph.add("while/enter/_1", "Enter", 1)
    graph.add("while/exit/_8", "Exit", 1)
    graph.send("a", 1, 0, "while/exit/_8")
    graph.send("b", 1, 0, "while/LoopCond/_3")
    graph.add("while/LoopCond/_3", "LoopCond", 1)
    names = RuntimeNames(ops=frozenset({"while"}), loop_outputs={"while": (0, 2)})
    found = read_execution([graph], names)
    assert found.inner_devices == {"while": frozenset({"CPU:1"})}
    assert found.transfers == {
        ActualTransfer(tensor="while:2", source="CPU:1", target="CPU:0"),
        ActualTransfer(
            tensor="while/LoopCond/_3:0", source="CPU:1", target="CPU:0", inside="while"
        ),
    }


def test_a_value_that_is_only_handed_back_is_a_fetch():
    """A session sends its results to the host: no op reads them there."""
    graph = Graph()
    graph.add("y", "Relu", 1)
    graph.send("y/_1", 1, 0, "y")
    graph.add("_retval_y_0_0", "_Retval", 0, "y/_1r")
    (transfer,) = read_execution([graph], RuntimeNames(ops=frozenset({"y"}))).transfers
    assert transfer == ActualTransfer(tensor="y:0", source="CPU:1", target="CPU:0", fetch=True)
