"""A predicted step as a graph file, collapsed by scope: GraphML and DOT."""

import io
import re
from typing import Any

from cost_models.byte_sizes import format_bytes, format_count
from placer.errors import UsageError
from placer.prediction.predicted_step import PredictedStep
from placer.rendering.exports.collapsed_graph import CollapsedNode, collapse
from placer.rendering.quantities import format_seconds

_COLOURS = (
    "#6ba3e8", "#f0a35e", "#6cc3a0", "#d58bc6", "#d9c355",
    "#e58484", "#62bfd0", "#a894e6", "#a5bf62", "#c4a484",
)  # fmt: skip
_PALE = '"#99a1ad"'

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""


def graphml(step: PredictedStep, most_nodes: int) -> str:
    """GraphML, as networkx reads it: nodes and edges with their sums as attributes."""
    import networkx

    collapsed = collapse(step, most_nodes)
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for number, node in enumerate(collapsed.nodes):
        graph.add_node(
            f"n{number}",
            label=_NOT_IN_XML.sub("\ufffd", node.name),
            device=node.device,
            devices=" ".join(sorted(node.op_counts)),
            op_count=node.op_count,
            seconds=node.seconds,
            flops=float(node.flops),
            resident_bytes=node.resident_bytes,
            output_bytes=node.output_bytes,
        )
    for edge in collapsed.edges:
        ends = (f"n{edge.source}", f"n{edge.target}")
        graph.add_edge(*ends, bytes=edge.bytes, transfer_bytes=edge.transfer_bytes)
    target = io.BytesIO()
    networkx.write_graphml(graph, target, named_key_ids=True)
    return target.getvalue().decode()


def dot(step: PredictedStep, most_nodes: int) -> str:
    """DOT for Graphviz: nodes coloured by device, edges that cross devices bold.

    Raises :class:`UsageError` without pydot.
    """
    try:
        import pydot
    except ImportError as error:
        raise UsageError(
            "--to dot requires pydot, which is not installed: pip install 'graph-placer[dot]', or "
            "write --to graphml"
        ) from error
    collapsed, colours = collapse(step, most_nodes), device_colours(step)
    graph = pydot.Dot("placement", rankdir="TB")
    graph.set_node_defaults(shape="box", style="filled", fontname="Helvetica")
    for number, node in enumerate(collapsed.nodes):
        label = f'"{_escaped(_label(node))}"'
        graph.add_node(pydot.Node(f"n{number}", label=label, **_fill(node, colours)))
    for edge in collapsed.edges:
        drawn = pydot.Edge(f"n{edge.source}", f"n{edge.target}")
        if edge.transfer_bytes:
            drawn.set("label", f'"{format_bytes(edge.transfer_bytes)}"')
            drawn.set("penwidth", 3)
        else:
            drawn.set("color", _PALE)
        graph.add_edge(drawn)
    return str(graph.to_string())


def device_colours(step: PredictedStep) -> dict[str, str]:
    """A colour for every device, grey for CPUs: those of the HTML page."""
    from placer.prediction.step.routes import is_cpu

    accelerators = [name for name in step.devices if not is_cpu(name)]
    return {
        name: "#a9b1bd" if is_cpu(name) else _COLOURS[accelerators.index(name) % len(_COLOURS)]
        for name in step.devices
    }


def _label(node: CollapsedNode) -> str:
    places = ", ".join(f"{name}: {count:,}" for name, count in sorted(node.op_counts.items()))
    amount = f"{format_count(node.op_count, 'op')}, {format_seconds(node.seconds)}"
    return f"{node.name}\n{amount}\n{places}"


def _fill(node: CollapsedNode, colours: dict[str, str]) -> dict[str, Any]:
    """One colour, or stripes in proportion to the ops on each device."""
    if len(node.op_counts) == 1:
        return {"fillcolor": f'"{colours[node.device]}"'}
    counts = node.op_counts.items()
    shares = ":".join(f"{colours[name]};{count / node.op_count:.4f}" for name, count in counts)
    return {"fillcolor": f'"{shares}"', "style": "striped"}


def _escaped(text: str) -> str:
    """Text for a quoted string of DOT: control characters replaced, the rest escaped."""
    text = "".join(sign if sign >= " " or sign == "\n" else "\ufffd" for sign in text)
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
