"""A placement problem as a networkx graph, and a networkx graph as a placement problem.

Between the two is the document that ``placer.problem/1`` files hold, so nothing here needs to know
the problem's class.

Attributes of a node, all optional:

- ``resident_bytes`` (0): what it holds all the time; ``temporary_bytes`` (0): while it runs.
- ``seconds``: of one run, a number or a mapping from device names or types (``"GPU"``).  Without
  it the roofline of ``flops`` (0) and ``bytes_accessed`` (0), and 0 without these.
- ``output_bytes`` (0): of what it writes, where its edges do not say.
- ``group``: nodes with the same one share a device.
- ``allowed``: the devices that it can run on, a name or several (every accelerator; every device
  where there is none).  ``pin``: those it was asked to run on; a conflict may name the request.
- ``spillable``: with ``offload="auto"`` it may be on the host too (yes, if its time is known, and
  unless it is pinned or has ``allowed``).

Attributes of an edge, all optional:

- ``bytes``: of the tensor that it carries, instead of its node's ``output_bytes``.
- ``tensor``: edges of a node with the same one carry one tensor, which is sent once to every device
  that reads it.  Edges without carry their node's output if they have no ``bytes``, else a tensor
  each.
- ``control``: it only says what runs first.

Other attributes stay unread: ``device`` is what a plan found (``plan.networkx()``) and no request.
One that is nearly the name of these is taken for a misspelling, and refused.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cost_models.clusters import parse_cluster
from cost_models.devices import Cluster
from placer.errors import UsageError
from placer.problem.networkx_attributes import (
    Document,
    check_spelling,
    devices_of,
    edges_of,
    node_row,
)
from placer.problem.placement_costs import beyond_fastest, cost_link, slower_bytes

if TYPE_CHECKING:
    from networkx import DiGraph, MultiDiGraph


_REST = "problem"
"""The attribute of a whole graph with what no node and no edge of it holds, as JSON."""

_READ_OF_NODES = (
    *("resident_bytes", "temporary_bytes", "seconds", "flops", "bytes_accessed", "output_bytes"),
    *("group", "allowed", "pin", "spillable"),
)

_OF_NODES = ("resident_bytes", "temporary_bytes", "seconds", "group", "allowed", "spillable")


def document_of(
    graph: DiGraph[Any] | MultiDiGraph[Any],
    devices: str | Cluster | None,
    *,
    max_memory: str | Mapping[int | str, int | str] | None = None,
    reserve: str | int | None = None,
    objective: str = "transfer",
    offload: str = "auto",
) -> Document:
    """The document of the problem that ``graph`` poses.

    Without ``devices``, those that :func:`graph_of` wrote into the graph.  Raises
    :class:`UsageError` for a graph with undirected edges or a cycle, and for an attribute that
    cannot be read, with the node that has it.
    """
    _check_directed(graph, cycles=devices is None)
    for node, found in graph.nodes(data=True):
        check_spelling(f"node {node!r}", found, _READ_OF_NODES)
    for source, target, found in graph.edges(data=True):
        check_spelling(f"edge {source!r} -> {target!r}", found, ("bytes", "tensor", "control"))
    number = {node: index for index, node in enumerate(graph)}
    rest: Document
    if devices is None:
        rest = _kept_rest(graph)
        names, properties = rest["device_names"], None
    else:
        cluster = (
            devices if isinstance(devices, Cluster) else _cluster(devices, max_memory, reserve)
        )
        rest = _rest_of_cluster(cluster) | {"objective": objective, "spill": offload}
        names, properties = [device.name for device in cluster.devices], cluster.devices
    host = names[rest["host"]]
    rows = [node_row(node, graph.nodes[node], names, properties, host) for node in graph]
    groups = _number_groups(rows)
    if devices is not None:
        _agree(rows, groups, list(graph))
        # those that a pin leaves out count too: a request changes no cost
        workers = [[d for d in row["able"] if d != rest["host"]] for row in rows]
        slower = [beyond_fastest(row["seconds"], at) for row, at in zip(rows, workers, strict=True)]
        rest["slower_bytes"] = list(map(list, slower_bytes(slower, cost_link(cluster))))
    tensors, control = edges_of(graph, number)
    requests = [
        {"name": f"pin {node}={','.join(pins)}", "kind": "pin", "ops": [number[node]],
         "devices": [names.index(name) for name in pins]}
        for node in graph
        if (pins := devices_of(node, graph.nodes[node], "pin", names))
    ]  # fmt: skip
    tensors += [tuple(row) for row in rest.pop("unread", ())]
    tensors.sort(key=lambda row: row[0])
    return {
        "op_names": [str(node) for node in graph],
        **{name: [row[name] for row in rows] for name in _OF_NODES},
        "tensors": [
            {"producer": producer, "consumers": readers, "bytes": size}
            for _, producer, readers, size in tensors
        ],
        "control_edges": control,
        **({"requests": requests} if requests else {}),
        **rest,
    }


def graph_of(document: Document) -> MultiDiGraph[str]:
    """The problem of ``document`` as a graph that :func:`document_of` reads back, whole.

    Raises :class:`UsageError` if two ops have one name.
    """
    from networkx import MultiDiGraph

    names = document["op_names"]
    if len(set(names)) < len(names):
        raise UsageError("two ops of the problem have the same name; a graph cannot hold both")
    device_names = document["device_names"]
    edges_of = {"op_names", "tensors", "control_edges", *_OF_NODES}
    rest = {name: value for name, value in document.items() if name not in edges_of}
    rest["unread"] = [
        (index, tensor["producer"], [], tensor["bytes"])
        for index, tensor in enumerate(document["tensors"])
        if not tensor["consumers"]
    ]
    graph: MultiDiGraph[str] = MultiDiGraph()
    graph.graph[_REST] = json.dumps(rest, sort_keys=True)
    columns = zip(*(document[name] for name in _OF_NODES), strict=True)
    for name, (resident, temporary, seconds, group, allowed, spillable) in zip(
        names, columns, strict=True
    ):
        graph.add_node(
            name,
            resident_bytes=resident,
            temporary_bytes=temporary,
            seconds=dict(zip(device_names, seconds, strict=True)),
            group=group,
            allowed=[device_names[device] for device in allowed],
            spillable=spillable,
        )
    for index, tensor in enumerate(document["tensors"]):
        for reader in tensor["consumers"]:
            ends = names[tensor["producer"]], names[reader]
            graph.add_edge(*ends, tensor=index, bytes=tensor["bytes"])
    for index, (before, after) in enumerate(document["control_edges"]):
        graph.add_edge(names[before], names[after], control=True, position=index)
    return graph


def _check_directed(graph: DiGraph[Any] | MultiDiGraph[Any], *, cycles: bool) -> None:
    import networkx

    if not graph.is_directed():
        raise UsageError("the graph has no directions; pose the problem with a networkx.DiGraph")
    names = [str(node) for node in graph]
    if len(set(names)) < len(names):
        raise UsageError("two nodes of the graph have the same name as text; rename one of them")
    if not cycles and not networkx.is_directed_acyclic_graph(graph):
        cycle = " -> ".join(str(ends[0]) for ends in networkx.find_cycle(graph)[:8])
        raise UsageError(f"the graph has a cycle ({cycle}); leave out the edges that close it")


def _cluster(
    devices: str, max_memory: str | Mapping[int | str, int | str] | None, reserve: str | int | None
) -> Cluster:
    try:
        return parse_cluster(str(devices), max_memory, reserve)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _kept_rest(graph: DiGraph[Any] | MultiDiGraph[Any]) -> Document:
    """Returns the fields that :func:`graph_of` kept beside nodes and edges."""
    kept = graph.graph.get(_REST)
    if kept is None:
        raise UsageError('the graph names no devices; give them, such as devices="2xGPU:8GiB"')
    try:
        rest: Document = dict(json.loads(kept))
        rest["device_names"], rest["host"] = list(rest["device_names"]), int(rest["host"])
        rest["device_names"][rest["host"]]
    except (TypeError, ValueError, KeyError, IndexError, RecursionError) as error:
        raise UsageError(f"the graph's {_REST!r} is not what was written: {error}") from error
    return rest


def _rest_of_cluster(cluster: Cluster) -> Document:
    """The fields of the document that say what the devices are."""
    names = [device.name for device in cluster.devices]
    links = [[cluster.link(source, target) for target in names] for source in names]
    return {
        "device_names": names,
        "host": names.index(cluster.host.name),
        "capacity_bytes": [device.usable_bytes for device in cluster.devices],
        "transient_bytes": [0] * len(names),
        "live_bytes": [],
        "bandwidth": [[link.bandwidth for link in row] for row in links],
        "latency": [[link.latency for link in row] for row in links],
        "parallel_ops": [device.parallel_ops for device in cluster.devices],
    }


def _number_groups(rows: Sequence[Document]) -> list[list[int]]:
    """The ops of every group; the groups are numbered in the order in which they appear, unless all
    of them are numbers."""
    numbers: dict[Hashable, int] = {}
    if all(type(row["group"]) is int for row in rows):
        numbers = {("group", row["group"]): row["group"] for row in rows}
    members: dict[int, list[int]] = {}
    for op, row in enumerate(rows):
        given = row["group"]
        key = ("alone", op) if given is None else ("group", given)
        row["group"] = numbers.setdefault(key, len(numbers))
        members.setdefault(row["group"], []).append(op)
    return list(members.values())


def _agree(
    rows: Sequence[Document], groups: Sequence[Sequence[int]], nodes: Sequence[Hashable]
) -> None:
    """A group may go where all of it may."""
    for ops in groups:
        common = [d for d in rows[ops[0]]["allowed"] if all(d in rows[op]["allowed"] for op in ops)]
        if not common and any(rows[op]["allowed"] for op in ops):
            raise UsageError(
                f"the group of node {nodes[ops[0]]!r} ({len(ops)} nodes) has no device that all "
                "of it may use; change group, allowed or pin of one of them"
            )
        spillable = all(rows[op]["spillable"] for op in ops)
        for op in ops:
            rows[op]["allowed"], rows[op]["spillable"] = common, spillable
