"""What Grappler's virtual cluster says: seconds of ops, seconds of steps, memory over a step.

    python benchmarks/step_time/referee.py REQUEST ANSWER

A process of its own: TensorFlow's private interface may crash it.

Grappler inserts a send and a receive where a tensor crosses, and takes both to cost nothing
(``kSend`` and ``kRecv`` of ``op_level_cost_estimator.cc`` are ``PredictIdentity``).  So there are
two figures: with free transfers, and with links.  For the second every link is one more device of
the cluster, and what crosses it, tensor or control edge, once per receiving device, is an op on it
that takes the link's latency and the tensor's bytes at its bandwidth; the same for what is fetched.
The readers wait for that op by a control edge, so that no shape gets lost:

    GPU:0    producer ---(the tensor, free)---> reader   GPU:1
                |                                 ^
    link        '--> sent ----> arrived ----------'

``arrived`` takes no time on a device of its own.  It is there because Grappler takes an op to be
ready at the end of that input which *began* last (``GetOutputNodes`` of ``virtual_scheduler.cc``),
not of that which ended last: what ends late must be followed by something that begins late.

Grappler estimates all ops and schedules them, links included.  Sizes are those that the placers
know.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

TIME_LIMIT_SECONDS = 600.0
_FIRST_LINK = 10
_ARRIVALS = _FIRST_LINK - 1
_SENT = "Snapshot"
"""An op that Grappler has no rule for, and so takes to read and write its bytes."""

_GPU_ARCHITECTURE = "7"
_GPU_FLOPS_PER_CYCLE = 128
"""Operations per cycle of a multiprocessor by ``GetDeviceInfo`` of ``op_level_cost_estimator.cc``:
64 cores with an FMA each.  The frequency is chosen to give the device's peak."""


def seconds_of_ops(path: Path, extraction: Any, cluster: Any) -> dict[str, dict[str, float]]:
    """Grappler's seconds of every op it runs, loops and branches too, by device type."""
    kinds = {device.type: device for device in reversed(cluster.devices)}
    everywhere = {
        kind: dict.fromkeys(extraction.graph.ops, device.name) for kind, device in kinds.items()
    }
    found = _ask({**_request(path, extraction, cluster), "placements": everywhere, "traced": True})
    return {
        kind: {name: seconds for name, _, _, _, seconds, _ in found[kind]["trace"]}
        for kind in everywhere
    }


def judge(
    path: Path,
    extraction: Any,
    costs: Any,
    cluster: Any,
    placements: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """By strategy, the seconds of a step with ``links`` and with ``free`` transfers, and the
    ``peak_bytes`` by device."""
    devices = [device.name for device in cluster.devices]
    links = {(a, b): cluster.link(a, b) for a in devices for b in devices if a != b}
    return _ask(
        {
            **_request(path, extraction, cluster),
            "host": cluster.host.name,
            "links": {ends: (link.bandwidth, link.latency) for ends, link in links.items()},
            "bytes": {
                name: costs[tensor.producer].output_bytes[tensor.index] or 0
                for name, tensor in extraction.graph.tensors.items()
            },
            "placements": {
                name: {**placement, **dict.fromkeys(extraction.graph.feeds, cluster.host.name)}
                for name, placement in placements.items()
            },
        }
    )


def trace(path: Path, extraction: Any, cluster: Any, placement: Mapping[str, str]) -> Any:
    """Grappler's ``peak_bytes`` by device of a placement with free transfers, and what it ran: a
    list of op, device, start, end and seconds, bytes of the outputs."""
    request = {**_request(path, extraction, cluster), "placements": {"": dict(placement)}}
    return _ask({**request, "traced": True})[""]


def _request(path: Path, extraction: Any, cluster: Any) -> dict[str, Any]:
    """What Grappler has to know of the program and the devices."""
    model, graph = extraction.model, extraction.graph
    return {
        "path": str(path),
        "choice": {
            "tag_set": ",".join(model.get("tags") or ()) or None,
            "signature": model.get("signature") or None,
            "outputs": model.get("outputs") or None,
        },
        "bindings": dict(extraction.bindings),
        "devices": [
            (d.name, d.type, d.peak_flops, d.memory_bandwidth, d.memory_limit_bytes)
            for d in cluster.devices
        ],
        "shapes": {
            name.removesuffix(":0"): tensor.properties.shape
            for name, tensor in graph.tensors.items()
            if graph.ops[tensor.producer].op_type == "Placeholder"
        },
    }


def _ask(request: Mapping[str, Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("request", "answer")]
        files[0].write_bytes(pickle.dumps(request))
        done = subprocess.run(
            [sys.executable, __file__, *map(str, files)],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            timeout=TIME_LIMIT_SECONDS,
            check=False,
        )
        if not files[1].exists():
            last = done.stderr.decode(errors="replace").strip()[-300:]
            raise RuntimeError(f"Grappler's process ended with {done.returncode}: {last}")
        return json.loads(files[1].read_text())


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, in this process."""
    from tensorflow.python.grappler import cluster as grappler_cluster
    from tensorflow.python.grappler import item as grappler_item

    from cost_models.device_names import canonical, full_name
    from placer.extraction.graph_defs.protobufs import fill_shape
    from placer.extraction.reading.loading import load_program

    program = load_program(request["path"], **request["choice"])
    devices = [named_device(full_name(name), *rest) for name, *rest in request["devices"]]
    links = request.get("links", {})
    link_names = {ends: full_name(f"GPU:{_FIRST_LINK + n}") for n, ends in enumerate(links)}
    wired = [
        named_device(link_names[ends], "GPU", 1e12, 2.0 * bandwidth, 1 << 40)
        for ends, (bandwidth, _) in links.items()
    ]
    wired.append(named_device(full_name(f"GPU:{_ARRIVALS}"), "GPU", 1e12, 1e12, 1 << 40))
    found = {}
    for strategy, placement in request["placements"].items():
        full_names = {op: full_name(device) for op, device in placement.items()}
        meta = meta_graph(program, request["bindings"], full_names)
        for node in meta.graph_def.node:
            if request["shapes"].get(node.name) is not None:
                fill_shape(node.attr["shape"].shape, request["shapes"][node.name])
        item = grappler_item.Item(meta)
        cluster = grappler_cluster.Cluster(devices=devices, disable_timeline=False)
        ran = list(executions(cluster.MeasureCosts(item)[2]))
        peaks = cluster.DeterminePeakMemoryUsage(item)
        found[strategy] = {
            "free": max(execution.end for execution in ran),
            "peak_bytes": {canonical(name): max(0, peak[0]) for name, peak in peaks.items()},
        }
        if request.get("traced"):
            found[strategy]["trace"] = [
                (e.name, e.device, e.start, e.end, e.seconds, e.output_bytes) for e in ran
            ]
        if links:
            _send_over_links(meta, placement, request, link_names)
            item = grappler_item.Item(meta)
            cluster = grappler_cluster.Cluster(devices=[*devices, *wired], disable_timeline=False)
            ran = list(executions(cluster.MeasureCosts(item)[2]))
            found[strategy]["links"] = max(execution.end for execution in ran)
    return found


def meta_graph(program: Any, bindings: Any, placement: Mapping[str, str]) -> Any:
    """The program as Grappler takes it: every op on its device of ``placement`` (full
    names), inputs with their bound shapes."""
    from tensorflow.core.protobuf import meta_graph_pb2

    from placer.application.running.generated_inputs import bound_shapes
    from placer.extraction.graph_defs.protobufs import fill_shape

    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(program.graph_def)
    by_key = bound_shapes(program, bindings)
    shapes = {item.op: by_key[item.key] for item in program.inputs}
    for node in meta_graph.graph_def.node:
        node.device = placement[node.name]
        if node.name in shapes and "shape" in node.attr:
            fill_shape(node.attr["shape"].shape, shapes[node.name])
    withhold_kernels(meta_graph.graph_def)  # Grappler computes constants
    fetched = meta_graph.collection_def["train_op"]
    fetched.node_list.value.extend([*program.output_ops, *program.targets])
    return meta_graph


def named_device(
    name: str, kind: str, peak_flops: float, memory_bandwidth: float, memory_bytes: float
) -> Any:
    """Grappler's description of a device."""
    from tensorflow.core.protobuf import device_properties_pb2

    properties = device_properties_pb2.DeviceProperties(
        type=kind,
        num_cores=1,
        frequency=round(peak_flops / 1e6 / (_GPU_FLOPS_PER_CYCLE if kind == "GPU" else 1)),
        bandwidth=round(memory_bandwidth / 1e3),
        memory_size=int(memory_bytes),
        environment={"architecture": _GPU_ARCHITECTURE},
    )
    return device_properties_pb2.NamedDevice(name=name, properties=properties)


def withhold_kernels(graph_def: Any) -> None:
    """Leaves only what may run while a model is read a kernel, functions included, in place."""
    from placer.extraction.graph_defs.op_definitions import OpDefinitions
    from placer.extraction.graph_defs.protobufs import all_nodes
    from placer.extraction.graph_defs.pure_ops import may_run, withhold_kernel

    definitions = OpDefinitions()
    for node in all_nodes(graph_def):
        if not may_run(node.op, definitions):
            withhold_kernel(node)


class Execution(NamedTuple):
    """An op that Grappler's scheduler ran on ``device`` (full name), from when to when and for how
    long in seconds, and the bytes of its outputs as far as it knows their shapes."""

    name: str
    device: str
    start: float
    end: float
    seconds: float
    output_bytes: tuple[int, ...]


def executions(stats: Any) -> Iterator[Execution]:
    """What ran, each op once, of the ``StepStats`` of a cluster with a timeline.

    That is in nanoseconds; the other results of ``MeasureCosts`` are rounded down to microseconds.
    A ``Merge`` is run for every input that comes, and said to last from the first to the last: it
    takes no time.
    """
    for device in stats.dev_stats:
        times_run = Counter(node.node_name for node in device.node_stats)
        for node in {node.node_name: node for node in device.node_stats}.values():
            start, lasts = node.all_start_nanos * 1e-9, node.op_end_rel_nanos * 1e-9
            yield Execution(
                name=node.node_name,
                device=device.device,
                start=start,
                end=start + lasts,
                seconds=lasts if times_run[node.node_name] == 1 else 0.0,
                output_bytes=tuple(
                    output.tensor_description.allocation_description.allocated_bytes
                    for output in node.output
                ),
            )


def _send_over_links(
    meta: Any,
    placement: Mapping[str, str],
    request: Mapping[str, Any],
    link_names: Mapping[tuple[str, str], str],
) -> None:
    """Put an op on the link wherever something crosses, once per receiving device.

    What enters a ``Merge`` is left out: Grappler runs it as soon as any of its inputs is there, the
    control edge too.
    """
    from tensorflow.core.framework.types_pb2 import DT_FLOAT

    from cost_models.device_names import full_name

    graph_def, host = meta.graph_def, request["host"]
    links, sizes = request["links"], request["bytes"]
    crossing: dict[tuple[str, str], str] = {}

    def send(tensor: str, source: str, target: str) -> str:
        """The op that ends when ``tensor`` has arrived; names that come first run first."""
        if (tensor, target) not in crossing:
            bandwidth, latency = links[source, target]
            number = len(crossing)
            size = sizes.get(tensor, 0) + latency * bandwidth
            message = graph_def.node.add(name=f"0_message_{number}", op="Placeholder")
            message.attr["shape"].shape.dim.add(size=max(1, round(size / 4)))
            producer = tensor.removeprefix("^").partition(":")[0]
            sent = graph_def.node.add(name=f"sent_{number}", op=_SENT)
            sent.input.extend([message.name, f"^{producer}"])
            sent.attr["T"].type = message.attr["dtype"].type = DT_FLOAT
            sent.device = message.device = link_names[source, target]
            arrived = graph_def.node.add(name=f"arrived_{number}", op="NoOp")
            arrived.input.append(f"^{sent.name}")
            arrived.device = full_name(f"GPU:{_ARRIVALS}")
            crossing[tensor, target] = arrived.name
        return crossing[tensor, target]

    for node in list(graph_def.node):
        target = placement[node.name]
        if node.op in ("Merge", "RefMerge"):
            continue
        for name in list(node.input):
            producer, _, index = name.removeprefix("^").partition(":")
            if placement[producer] != target:
                tensor = name if name.startswith("^") else f"{producer}:{index or 0}"
                node.input.append("^" + send(tensor, placement[producer], target))
    fetched = meta.collection_def["train_op"].node_list.value
    for end in dict.fromkeys(fetched):
        if placement[end] != host and f"{end}:0" in sizes:
            fetched.append(send(f"{end}:0", placement[end], host))


def main() -> None:
    request, answer = (Path(name) for name in sys.argv[1:3])
    answer.write_text(json.dumps(measure(pickle.loads(request.read_bytes()))))


if __name__ == "__main__":
    main()
