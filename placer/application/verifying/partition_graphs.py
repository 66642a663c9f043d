"""Devices and transfers of a run, read from the graphs that TensorFlow partitioned.

After placement TensorFlow cuts a graph into one per device and joins them with ``_Send`` and
``_Recv`` (``core/graph/graph_partition.cc``).  Control edges become a constant and a send of
their own.  ``While``, ``If`` and ``Case`` may have been lowered to ``Enter``, ``Switch``,
``Merge`` and their like, whose names begin with the op's (``lower_while_op.cc`` and
``lower_if_op.cc`` in ``core/common_runtime``), and calls leave ``Func/CALL/input/_N`` identities.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorflow.core.framework import types_pb2

from cost_models.device_names import canonical
from placer.extraction.graph_defs.protobufs import NodeDef
from placer.graph.op_types import LOOPS
from placer.graph.tensor_names import op_of, source_of, split_tensor

SEND_TYPES = frozenset({"_Send", "_HostSend"})
RECEIVE_TYPES = frozenset({"_Recv", "_HostRecv"})

_CONTROL_CONSTANT = re.compile(r"(.+)/ctrl(?:/_|_S|_G)\d+")
"""On a cluster _S between tasks (master_session.cc), _G between devices of one (graph_mgr.cc)."""
_SESSION_FEED = re.compile(r"_arg_(.+)_\d+_\d+")
_CLUSTER_FEED = re.compile(r"_recv_(.+)_(\d+)")
_LOWERED_EXIT = re.compile(r"(.+)/exit/_(\d+)")
_LOWERED_CONDITION = re.compile(r"(.+)/LoopCond/_(\d+)")
_RUNTIME_SUFFIX = re.compile(r"/_\d+$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ActualTransfer:
    """One tensor (``"op:0"``, or ``"^op"`` for a control edge) sent to one device.

    ``inside`` names the control-flow op whose lowered body or machinery sends it, ``""`` if the
    tensor is one of the flat graph.  ``fetch``: it is sent to be handed to the caller only.
    ``forwarded``: another device of the task received it first.
    """

    tensor: str
    source: str
    target: str
    inside: str = ""
    fetch: bool = False
    forwarded: bool = False


@dataclass(frozen=True, kw_only=True)
class Execution:
    """``devices`` maps flat op names to the canonical device they ran on; ``inner_devices`` maps
    a control-flow op to the devices of what it was lowered to, a constant to those that it was
    copied to.  ``fused`` are flat ops that ran as one kernel with ops before them
    (``mkl_layout_pass.cc`` in ``core/common_runtime`` does so in the partitions, where oneDNN is
    on)."""

    devices: Mapping[str, str]
    inner_devices: Mapping[str, frozenset[str]]
    transfers: frozenset[ActualTransfer]
    fused: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class RuntimeNames:
    """How names at run time become names of the flat graph.

    ``prefix`` stands before every name (TensorFlow 2 leaves out the outermost call).
    ``arguments`` are the flat tensors that the function's arguments stand for, by number.
    ``loop_outputs`` lists, for every ``While``, the numbers of its outputs that are no resources:
    those leave a lowered loop through an ``Exit`` each, in this order.
    """

    ops: frozenset[str]
    prefix: str = ""
    arguments: tuple[str, ...] = ()
    loop_outputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def runtime_names(nodes: Sequence[Any], arguments: Sequence[str] = ()) -> RuntimeNames:
    """How the names of the flat ``nodes`` are found again, without a prefix."""
    loops = {node.name: node.attr["T"].list.type for node in nodes if node.op in LOOPS}
    return RuntimeNames(
        ops=frozenset(node.name for node in nodes),
        arguments=tuple(arguments),
        loop_outputs={
            name: tuple(n for n, dtype in enumerate(dtypes) if dtype != types_pb2.DT_RESOURCE)
            for name, dtypes in loops.items()
        },
    )


def read_execution(
    partition_graphs: Iterable[Any],
    names: RuntimeNames,
    named: Callable[[str], str] = canonical,
) -> Execution:
    """Devices, which ``named`` gives their names, and transfers of one run, by flat op."""
    nodes = {node.name: node for graph in partition_graphs for node in graph.node}
    reader = _Reader(nodes, names, named)
    devices: dict[str, str] = {}
    inner: dict[str, set[str]] = {}
    fused: set[str] = set()
    for node in nodes.values():
        if node.op in SEND_TYPES | RECEIVE_TYPES or _CONTROL_CONSTANT.fullmatch(node.name):
            continue
        flat = reader.flat_name(node)
        if flat in names.ops:
            devices[flat] = named(node.device)
            if node.op.startswith(("_Mkl", "_Fused")):
                fused.add(flat)
        elif owner := reader.owner(node.name):
            inner.setdefault(owner, set()).add(named(node.device))
    sends = (node for node in nodes.values() if node.op in SEND_TYPES)
    return Execution(
        devices=devices,
        inner_devices={name: frozenset(found) for name, found in inner.items()},
        fused=frozenset(fused),
        transfers=frozenset(found for node in sends if (found := reader.transfer(node))),
    )


def _edge(node: Any) -> tuple[str, ...]:
    """Returns what a send and its receive have in common."""
    return tuple(node.attr[k].s.decode() for k in ("tensor_name", "send_device", "recv_device"))


class _Reader:
    def __init__(
        self, nodes: Mapping[str, NodeDef], names: RuntimeNames, named: Callable[[str], str]
    ) -> None:
        self.nodes, self.names, self.named = nodes, names, named
        self.exits = self._lowered_exits()
        self.only_fetched = self._only_fetched()
        self.sends = {_edge(node): node for node in nodes.values() if node.op in SEND_TYPES}

    def _lowered_exits(self) -> dict[str, str]:
        """The flat tensor of every ``Exit`` of a lowered loop.

        A session prunes the exits that nobody reads, so their numbers decide, not their count:
        for n loop variables, lowering names in this order the LoopCond, n switches, a control
        pivot and n exits, counting up.
        """
        conditions, exits = {}, []
        for name, node in self.nodes.items():
            if node.op == "LoopCond" and (match := _LOWERED_CONDITION.fullmatch(name)):
                conditions[match[1]] = int(match[2])
            elif node.op == "Exit" and (match := _LOWERED_EXIT.fullmatch(name)):
                exits.append((name, match[1], int(match[2])))
        found = {}
        for name, loop, number in exits:
            flat = self.names.prefix + loop
            outputs = self.names.loop_outputs.get(flat, ())
            position = number - conditions.get(loop, number) - len(outputs) - 2
            if 0 <= position < len(outputs):
                found[name] = f"{flat}:{outputs[position]}"
        return found

    def _only_fetched(self) -> frozenset[tuple[str, str]]:
        """(tensor_name, receiving device) pairs whose receivers only hand a value back."""
        readers: dict[str, set[str]] = {}
        for node in self.nodes.values():
            ends = node.op in SEND_TYPES and node.attr["client_terminated"].b
            for name in node.input:
                readers.setdefault(source_of(name), set()).add("_Retval" if ends else node.op)
        return frozenset(
            (node.attr["tensor_name"].s.decode(), node.attr["recv_device"].s.decode())
            for node in self.nodes.values()
            if node.op in RECEIVE_TYPES and readers.get(node.name) == {"_Retval"}
        )

    def flat_name(self, node: Any) -> str:
        if node.op == "_Arg":
            return op_of(self._argument(node))
        return self.names.prefix + str(node.name)

    def _argument(self, node: Any) -> str:
        """The flat tensor that an ``_Arg`` stands for."""
        fed = _SESSION_FEED.fullmatch(node.name)
        if fed and fed[1] in self.names.ops:
            return f"{fed[1]}:0"
        index = node.attr["index"].i
        if index < len(self.names.arguments):
            return str(self.names.arguments[index])
        return f"{self.names.prefix}{node.name}:0"

    def owner(self, name: str) -> str:
        """The op of the flat graph that a node of the run-time machinery belongs to."""
        name = re.sub(r"^(Func/|_cloop)+", "", name)
        while name:
            flat = self.names.prefix + _RUNTIME_SUFFIX.sub("", name)
            if flat in self.names.ops:
                return flat
            name = name.rpartition("/")[0]
        return ""

    def transfer(self, send: Any) -> ActualTransfer | None:
        """Returns the transfer of a send node; ``None`` for one between equal devices."""
        source = self.named(send.attr["send_device"].s.decode())
        target = self.named(send.attr["recv_device"].s.decode())
        if source == target:
            return None
        name, index = split_tensor(send.input[0])
        first = self.sends.get(_edge(self.nodes[name]))  # of what this only sends on
        if first is not None:
            name, index = split_tensor(first.input[0])
        tensor, inside = self._tensor(self.nodes[name], index)
        key = send.attr["tensor_name"].s.decode(), send.attr["recv_device"].s.decode()
        return ActualTransfer(
            tensor=tensor,
            source=source,
            target=target,
            inside=inside,
            fetch=key in self.only_fetched,
            forwarded=first is not None,
        )

    def _tensor(self, node: Any, index: int) -> tuple[str, str]:
        """The flat tensor behind an output of a run-time node, and the op it is inside of."""
        control = _CONTROL_CONSTANT.fullmatch(node.name)
        if control:
            return self._control_source(control[1])
        if node.op == "_Arg":
            return self._argument(node), ""
        if node.name in self.exits:
            return self.exits[node.name], ""
        fed = _CLUSTER_FEED.fullmatch(node.name)
        if fed and node.op in RECEIVE_TYPES and node.attr["client_terminated"].b:
            return f"{fed[1]}:{fed[2]}", ""
        flat = self.names.prefix + node.name
        if flat in self.names.ops:
            return f"{flat}:{index}", ""
        return f"{flat}:{index}", self.owner(node.name) or "?"

    def _control_source(self, name: str) -> tuple[str, str]:
        flat = self.names.prefix + name
        node = self.nodes.get(name)
        if node is not None and node.op == "_Arg":
            flat = op_of(self._argument(node))
        if flat in self.names.ops:
            return f"^{flat}", ""
        executed = re.fullmatch(r"(.+)/(?:LoopExecuted|branch_executed)/_\d+", name)
        if executed and self.names.prefix + executed[1] in self.names.ops:
            return f"^{self.names.prefix}{executed[1]}", ""
        return f"^{flat}", self.owner(name) or "?"
