"""Each export is opened by the tool it is for, and holds the figures of the step."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from itertools import pairwise

import pytest
from jsonschema import Draft202012Validator
from perfetto import perfetto
from steps_by_hand import drawn_step

from placer.application.measuring.event_files import TAG, write_event_file
from placer.errors import UsageError
from placer.rendering.exports.collapsed_graph import collapse
from placer.rendering.exports.graphs import dot, graphml
from placer.rendering.exports.model_explorer import model_explorer, node_data
from placer.rendering.exports.trace import trace_json

HOSTILE = '<&">]]>\\n"; evil [\\"\x07\u202e\n/'
EVERY_OP = 1000

_NUMBER = {"type": "number", "minimum": 0}
_EVENT = {"name": {"type": "string"}, "pid": {"type": "integer"}}
TRACE_EVENT_FORMAT = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["ph", "name", "pid"],
                "properties": _EVENT,
                "oneOf": [
                    {
                        "required": ["ts", "dur", "tid", "cat"],
                        "properties": {"ph": {"const": "X"}, "ts": _NUMBER, "dur": _NUMBER},
                    },
                    {
                        "required": ["ts", "args"],
                        "properties": {
                            "ph": {"const": "C"},
                            "ts": _NUMBER,
                            "args": {"additionalProperties": {"type": "number"}},
                        },
                    },
                    {
                        "required": ["ts", "tid", "id", "cat"],
                        "properties": {"ph": {"enum": ["s", "t", "f"]}, "ts": _NUMBER},
                    },
                    {"required": ["args"], "properties": {"ph": {"const": "M"}}},
                ],
            },
        },
    },
}
"""What the document "Trace Event Format" asks of the kinds of events that are written."""


@pytest.fixture(params=["", HOSTILE], ids=["plain", "hostile"])
def named(request):
    """Metrics and step; the names may be hostile."""
    metrics, step, _ = drawn_step(request.param)
    return metrics, step


def test_the_trace_is_in_trace_event_format(named):
    """Slices are the ops with their times, counters reach the predicted peaks, slices of a thread
    do not overlap, and every arrow begins and ends in a slice."""
    metrics, step = named
    trace = json.loads(trace_json(step))
    Draft202012Validator(TRACE_EVENT_FORMAT).validate(trace)
    events = trace["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    slices = [event for event in events if event["ph"] == "X"]
    ops = {e["name"]: e for e in slices if processes[e["pid"]] != "links"}
    assert list(ops) == list(step.ops)
    for number, name in enumerate(step.ops):
        assert ops[name]["ts"] == pytest.approx(step.start_seconds[number] * 1e6, abs=1e-3)
        assert processes[ops[name]["pid"]] == step.devices[step.device_of[number]]
    peaks = defaultdict(int)
    for event in events:
        if event["ph"] == "C":
            device = processes[event["pid"]]
            peaks[device] = max(peaks[device], sum(event["args"].values()))
    assert peaks == {n: t.peak_bytes for n, t in metrics.timelines.items() if t.peak_bytes}
    by_thread = defaultdict(list)
    for event in slices:
        by_thread[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_thread.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    arrows = [event for event in events if event["ph"] in "stf"]
    assert len({event["id"] for event in arrows}) == len(step.sent)
    for event in arrows:
        spans = by_thread[event["pid"], event["tid"]]
        assert any(start <= event["ts"] <= finish for start, finish in spans)


@pytest.mark.slow
def test_perfetto_reads_the_trace(tmp_path):
    """Perfetto finds every op with its device and times, every counter at the predicted peak and
    every arrow, and complains of nothing."""
    metrics, step, _ = drawn_step(HOSTILE)
    (tmp_path / "trace.json").write_text(trace_json(step))
    with perfetto(tmp_path / "trace.json", tmp_path) as query:
        slices = query(
            "select slice.name, process.name, ts - (select min(ts) from slice), dur from slice"
            " join thread_track on track_id = thread_track.id join thread using (utid)"
            " join process using (upid) where process.name != 'links'"
        )
        flows = query(
            "select a.name, b.name from flow"
            " join slice a on slice_out = a.id join slice b on slice_in = b.id"
        )
        counters = query(
            "select process.name, ts, sum(value) from counter"
            " join process_counter_track t on track_id = t.id join process using (upid)"
            " group by process.name, ts"
        )
        errors = query("select name, value from stats where severity = 'error' and value > 0")
    assert sorted(slices) == sorted(
        [name, step.devices[step.device_of[op]], start, finish - start]
        for op, name in enumerate(step.ops)
        for start, finish in [_nanoseconds(step.start_seconds[op], step.finish_seconds[op])]
    )
    arrows = [
        pair
        for sent in step.sent
        for path in [[sent.op, *sorted(sent.readers, key=lambda op: step.start_seconds[op])[:1]]]
        for pair in _pairs(step, sent, path)
    ]
    assert sorted(flows) == sorted(arrows)
    peaks = {name: max(v for n, _, v in counters if n == name) for name, _, _ in counters}
    assert peaks == {n: t.peak_bytes for n, t in metrics.timelines.items() if t.peak_bytes}
    assert errors == []


def _nanoseconds(*seconds):
    return [int(each * 1e9) for each in seconds]


def _pairs(step, sent, path):
    names = [step.ops[path[0]], sent.transfer.tensor, *(step.ops[op] for op in path[1:])]
    return [list(pair) for pair in pairwise(names)]


def test_networkx_reads_the_graphml(named):
    """Every op is a node with its device and its bytes, every data edge an edge."""
    import networkx

    _, step = named
    graph = networkx.parse_graphml(graphml(step, EVERY_OP))
    assert graph.number_of_nodes() == len(step.ops)
    devices = [step.devices[number] for number in step.device_of]
    assert [data["device"] for _, data in graph.nodes(data=True)] == devices
    assert sum(data["flops"] for _, data in graph.nodes(data=True)) == sum(step.flops)
    pairs = {(e.producer, op) for op, es in enumerate(step.edges) for e in es if e.index >= 0}
    assert graph.number_of_edges() == len(pairs)


def test_collapsed_scopes_keep_the_sums():
    """In three nodes net/ is one, x another: one edge with the bytes of x, sent to GPU:0."""
    _, step, _ = drawn_step()
    found = collapse(step, 2)
    assert [node.name for node in found.nodes] == ["x", "net/"]
    assert found.nodes[1].op_counts == {"GPU:0": 2, "GPU:1": 2}
    assert found.nodes[1].flops == sum(step.flops)
    (edge,) = found.edges
    assert (edge.bytes, edge.transfer_bytes) == (2048, 2048)
    assert len(collapse(step, 4).nodes) == 4  # x, net/w, net/one/, net/two/
    assert len(collapse(step, EVERY_OP).nodes) == len(step.ops)


def test_pydot_reads_the_dot(named):
    """The file parses, has every node and edge, and labels hold the names."""
    pydot = pytest.importorskip("pydot")
    _, step = named
    collapsed = collapse(step, EVERY_OP)
    (graph,) = pydot.graph_from_dot_data(dot(step, EVERY_OP))
    nodes = [node for node in graph.get_nodes() if node.get_name() != "node"]
    assert len(nodes) == len(collapsed.nodes)
    assert len(graph.get_edges()) == len(collapsed.edges)
    assert all("op" in node.get_label() for node in nodes)


def test_without_pydot_one_sentence_says_what_to_install(monkeypatch):
    """And names the format that needs nothing more."""
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(UsageError, match=r"graph-placer\[dot\].*--to graphml"):
        dot(drawn_step()[1], EVERY_OP)


def test_model_explorer_has_every_op_and_transfer(named):
    """Nodes are the ops under their scopes with their devices, edges what they read; the overlay
    is the transfers, and the data name the nodes."""
    _, step = named
    (graph,) = json.loads(model_explorer(step))["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert list(nodes) == list(step.ops)
    for number, (name, node) in enumerate(nodes.items()):
        assert "/".join(filter(None, [node["namespace"], node["label"]])) == name
        attributes = {row["key"]: row["value"] for row in node["attrs"]}
        assert attributes["device"] == step.devices[step.device_of[number]]
        sources = [step.ops[edge.producer] for edge in step.edges[number]]
        assert [edge["sourceNodeId"] for edge in node["incomingEdges"]] == sources
    (found,) = graph["tasksData"]["edgeOverlaysDataListLeftPane"]
    (overlay,) = found["overlays"]
    sent = [(s.op, reader) for s in step.sent for reader in s.readers]
    assert [(e["sourceNodeId"], e["targetNodeId"]) for e in overlay["edges"]] == [
        (step.ops[source], step.ops[target]) for source, target in sent
    ]
    data = json.loads(node_data(step))
    assert data["results"].keys() == nodes.keys()
    assert sum(row["value"] for row in data["results"].values()) == pytest.approx(3.0)
    assert [stop["stop"] for stop in data["gradient"]] == [0, 1]


@pytest.mark.slow
def test_tensorboard_reads_the_log(tmp_path, named):
    """Its own loader finds the graph with the devices, and the run with times and memory."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    _, step = named
    folder = tmp_path / "log"
    write_event_file(step, folder)
    with pytest.raises(UsageError, match="exists already"):
        write_event_file(step, folder)
    log = accumulator.EventAccumulator(str(folder))
    log.Reload()
    nodes = {node.name: node for node in log.Graph().node}
    assert nodes.keys() == set(step.ops)
    for number, name in enumerate(step.ops):
        assert nodes[name].device.endswith(f"device:{step.devices[step.device_of[number]]}")
        assert len(nodes[name].input) == len(step.edges[number])
    assert log.Tags()["run_metadata"] == [TAG]
    stats = {
        node.node_name: node
        for device in log.RunMetadata(TAG).step_stats.dev_stats
        for node in device.node_stats
    }
    assert stats.keys() == set(step.ops)
    for number, name in enumerate(step.ops):
        assert stats[name].all_start_micros == round(step.start_seconds[number] * 1e6)
        held = sum(size or 0 for size in step.output_bytes[number]) + step.persistent_bytes[number]
        assert sum(memory.total_bytes for memory in stats[name].memory) == held
