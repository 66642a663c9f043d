"""A predicted step as a networkx graph: every op and every tensor, with what was found of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placer.prediction.predicted_step import PredictedStep

if TYPE_CHECKING:
    from networkx import MultiDiGraph


def networkx_graph(step: PredictedStep) -> MultiDiGraph[str]:
    """The flat graph with plain attributes, which GraphML holds as well.

    Nodes are ops by name: ``op_type``, ``device``, ``group`` (ops with the same one share a
    device; absent if nothing holds the op), ``flops``, ``bytes_accessed``, ``seconds`` and
    ``start_seconds`` (of its run in the predicted step), ``resident_bytes`` (kept from step to
    step), ``temporary_bytes`` (while it runs) and ``output_bytes``.  Edges are reads: ``tensor``
    (its name), ``bytes`` (0 where the tensor has no size), ``crosses`` (the reader is on
    another device); an edge with ``control`` only says what runs first.

    :meth:`~placer.problem.placement_problem.PlacementProblem.from_networkx` reads the same names.
    """
    from networkx import MultiDiGraph

    graph: MultiDiGraph[str] = MultiDiGraph()
    graph.add_nodes_from((name, _node(step, op)) for op, name in enumerate(step.ops))
    for op, name in enumerate(step.ops):
        for edge in step.edges[op]:
            source = step.ops[edge.producer]
            found: dict[str, Any] = {"crosses": step.device_of[edge.producer] != step.device_of[op]}
            if edge.index < 0:
                found["control"] = True
            else:
                found["tensor"] = f"{source}:{edge.index}"
                found["bytes"] = step.output_bytes[edge.producer][edge.index] or 0
            graph.add_edge(source, name, **found)
    return graph


def _node(step: PredictedStep, op: int) -> dict[str, Any]:
    found = {
        "op_type": step.op_types[op],
        "device": step.devices[step.device_of[op]],
        "flops": step.flops[op],
        "bytes_accessed": step.bytes_accessed[op],
        "seconds": step.finish_seconds[op] - step.start_seconds[op],
        "start_seconds": step.start_seconds[op],
        "resident_bytes": step.persistent_bytes[op],
        "temporary_bytes": step.temporary_bytes[op],
        "output_bytes": sum(size or 0 for size in step.output_bytes[op]),
    }
    group = step.groups[op]
    return found if group is None else {**found, "group": group}
