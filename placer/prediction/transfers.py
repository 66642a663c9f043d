"""Transfers between devices in one step.

Mirrors ``Partition`` of ``tensorflow/core/graph/graph_partition.cc``, which inserts one pair of
``_Send`` and ``_Recv`` per tensor, destination device and kind of memory there, and one per
source op and destination device of control edges.

One later rewrite is left out: constants of up to 16 elements on a CPU are copied to the other CPU
devices that read them (``core/common_runtime/replicate_constants_pass.cc``); accelerators of one
host are never spared that way.
"""

from collections.abc import Iterable, Iterator, Mapping

from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.graph.tensor_names import split_tensor
from placer.prediction.metrics import Transfer
from placer.prediction.step.routes import Routes, is_cpu


def largest_first(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    """The transfers, largest first, then by name; unsized ones last."""
    return tuple(
        sorted(
            transfers,
            key=lambda t: (t.bytes is None, -(t.bytes or 0), t.tensor, t.target, t.memory),
        )
    )


def list_transfers(
    graph: OpGraph, costs: Mapping[str, OpCost], routes: Routes, host: str
) -> Iterator[Transfer]:
    """The transfers of one step along ``routes``, in graph order.

    Fed values start at ``host`` and fetched ones end there; a fetched tensor that some op on the
    host reads anyway is not sent twice.  Control edges send no bytes.
    """
    # tensors with the places on other devices where they are read, each pair once
    home, reads, device_of = routes.home, routes.reads, routes.device_of
    on = {device: set[str]() for device in device_of.values()}
    for name, tensors in graph.output_names.items():
        on[device_of[name]].update(tensors)
    sent = {
        (tensor, place): None
        for name, op in graph.ops.items()
        if not on[device_of[name]].issuperset(op.inputs)
        for tensor, place in zip(op.inputs, reads[name], strict=True)
        if place[0] != home[tensor][0]
    }
    # fetched tensors that are not on the host and that no op there reads
    read_there = {tensor for tensor, place in sent if place[0] == host}
    fetched = [
        (tensor, (host, "host"))
        for tensor in dict.fromkeys(graph.fetches)
        if home[tensor][0] != host and tensor not in read_there
    ]
    feeds = frozenset(graph.feeds)
    for number, (tensor, place) in enumerate((*sent, *fetched)):
        producer, index = split_tensor(tensor)
        kind = "feed" if producer in feeds else "data"
        yield Transfer(
            tensor=tensor,
            source=home[tensor][0],
            target=place[0],
            bytes=costs[producer].output_bytes[index],
            kind=kind if number < len(sent) else "fetch",
            memory=place[1],
        )
    # one signal per op and other device that has a control edge from it
    edges = [(name, device_of[op.name]) for op in graph.ops.values() for name in op.control_inputs]
    for name, target in dict.fromkeys(edges):
        if device_of[name] != target:
            yield Transfer(
                tensor=f"^{name}",
                source=device_of[name],
                target=target,
                bytes=0,
                kind="control",
                memory="host" if is_cpu(target) else "device",
            )
