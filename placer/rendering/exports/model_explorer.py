"""A predicted step for Model Explorer (https://github.com/google-ai-edge/model-explorer).

Its own readers of TensorFlow models number the nodes, and know nothing of functions that are
inlined, so the graph is written too, in its JSON format: nodes are the ops by their names, coloured
by device, the transfers an overlay.  The data of nodes is a file beside it.
"""

import json

from cost_models.byte_sizes import format_bytes, format_count
from placer.prediction.predicted_step import PredictedStep
from placer.rendering.exports.graphs import device_colours
from placer.rendering.quantities import format_seconds

_TRANSFER_COLOUR = "#c62828"


def model_explorer(step: PredictedStep) -> str:
    """The graph as JSON: ops under their scopes, with device and costs."""
    colours = device_colours(step)
    overlay = {
        "name": "transfers",
        "edgeColor": _TRANSFER_COLOUR,
        "edges": [
            {
                "sourceNodeId": step.ops[sent.op],
                "targetNodeId": step.ops[reader],
                "label": format_bytes(sent.transfer.bytes),
            }
            for sent in step.sent
            for reader in sent.readers
        ],
    }
    graph = {
        "id": "placement",
        "nodes": [_node(step, op, colours) for op in range(len(step.ops))],
        "tasksData": {
            "edgeOverlaysDataListLeftPane": [
                {"type": "edge_overlays", "name": "transfers", "overlays": [overlay]}
            ]
        },
    }
    return json.dumps({"label": "placer", "graphs": [graph]}, allow_nan=False) + "\n"


def _node(step: PredictedStep, op: int, colours: dict[str, str]) -> dict[str, object]:
    scope, _, label = step.ops[op].rpartition("/")
    device = step.devices[step.device_of[op]]
    figures = {
        "op type": step.op_types[op],
        "device": device,
        "seconds": format_seconds(step.finish_seconds[op] - step.start_seconds[op]),
        "flops": format_count(step.flops[op], "flop"),
        "output bytes": format_bytes(sum(size or 0 for size in step.output_bytes[op])),
        "resident bytes": format_bytes(step.persistent_bytes[op]),
    }
    return {
        "id": step.ops[op],
        "label": label,
        "namespace": scope,
        "attrs": [{"key": key, "value": value} for key, value in figures.items()],
        "style": {"backgroundColor": colours[device]},
        "incomingEdges": [
            {
                "sourceNodeId": step.ops[edge.producer],
                "sourceNodeOutputId": str(edge.index),
                "targetNodeInputId": str(number),
            }
            for number, edge in enumerate(step.edges[op])
        ],
    }


def node_data(step: PredictedStep) -> str:
    """Node data for that graph: of every op its seconds, from light to dark.

    The file holds one graph's data without the graph's name, so that it can be laid over whatever
    name the graph has there.
    """
    results = {
        name: {"value": finish - start}
        for name, start, finish in zip(
            step.ops, step.start_seconds, step.finish_seconds, strict=True
        )
    }
    gradient = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#d9822b"}]
    return json.dumps({"results": results, "gradient": gradient}, allow_nan=False) + "\n"
