"""What Grappler's virtual cluster says of placements: seconds of a step, peak bytes by device.

    python benchmarks/step_time/referee.py REQUEST ANSWER

A process of its own: TensorFlow's private interface may crash it.

Grappler inserts a send and a receive where a tensor crosses, and takes both to cost nothing
(``kSend`` and ``kRecv`` of ``op_level_cost_estimator.cc`` are ``PredictIdentity``).  So there are
two figures: with free transfers, and with links, where every link is one more device of the cluster
and what crosses it is an op there (``Snapshot``, which reads and writes its bytes; the device's
memory is twice as fast as the link).  Latency is left out, and so are integers (sizes, indices)
and tensors of loops.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

TIME_LIMIT_SECONDS = 600.0
_FIRST_LINK = 10
_SENT = ("bfloat16", "float16", "float32", "float64", "complex64", "bool", "uint8")
"""Behind an op of its own an integer would be no known shape any more."""


def judge(
    path: Path, extraction: Any, cluster: Any, placements: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """By strategy, the seconds of a step with ``links`` and with ``free`` transfers, and the
    ``peak_bytes`` by device; or ``error``."""
    model = extraction.model
    request = {
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
        "links": {
            (a.name, b.name): cluster.link(a.name, b.name).bandwidth
            for a in cluster.devices
            for b in cluster.devices
            if a.name != b.name
        },
        "dtypes": {
            name: tensor.properties.dtype
            for name, tensor in extraction.graph.tensors.items()
            if tensor.properties.dtype in _SENT
        },
        "shapes": {
            name.removesuffix(":0"): tensor.properties.shape
            for name, tensor in extraction.graph.tensors.items()
            if extraction.graph.ops[tensor.producer].op_type == "Placeholder"
        },
        "placements": {name: dict(placement) for name, placement in placements.items()},
    }
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("request", "answer")]
        files[0].write_bytes(pickle.dumps(request))
        command = [sys.executable, __file__, *map(str, files)]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=TIME_LIMIT_SECONDS, check=False
        )
        if not files[1].exists():
            last = done.stderr.decode(errors="replace").strip()[-300:]
            return {"error": f"ended with {done.returncode}: {last}"}
        return json.loads(files[1].read_text())


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, in this process."""
    from tensorflow.python.grappler import cluster as grappler_cluster
    from tensorflow.python.grappler import item as grappler_item

    from cost_models.device_names import canonical, full_name
    from placer.application.grappler_costs import meta_graph, named_device
    from placer.extraction.loading import load_program
    from placer.extraction.scratch_graphs import fill_shape

    program = load_program(request["path"], **request["choice"])
    devices = [named_device(full_name(name), *rest) for name, *rest in request["devices"]]
    links = {pair: full_name(f"GPU:{_FIRST_LINK + n}") for n, pair in enumerate(request["links"])}
    wired = [
        *devices,
        *(
            named_device(links[pair], "GPU", 1e12, 2.0 * bandwidth, 1 << 40)
            for pair, bandwidth in request["links"].items()
        ),
    ]
    found = {}
    for strategy, placement in request["placements"].items():

        def device_of(op: str, placement: Mapping[str, str] = placement) -> str:
            return full_name(placement[op])

        meta = meta_graph(program, request["bindings"], device_of)
        for node in meta.graph_def.node:
            if request["shapes"].get(node.name) is not None:
                fill_shape(node.attr["shape"].shape, request["shapes"][node.name])
        plain = grappler_cluster.Cluster(devices=devices)
        item = grappler_item.Item(meta)
        _, free, _ = plain.MeasureCosts(item)
        peaks = plain.DeterminePeakMemoryUsage(item)
        _send_over_links(meta.graph_def, placement, request["dtypes"], links)
        _, seconds, _ = grappler_cluster.Cluster(devices=wired).MeasureCosts(
            grappler_item.Item(meta)
        )
        found[strategy] = {
            "links": seconds,
            "free": free,
            "peak_bytes": {canonical(name): max(0, peak[0]) for name, peak in peaks.items()},
        }
    return found


def _send_over_links(
    graph_def: Any,
    placement: Mapping[str, str],
    dtypes: Mapping[str, str],
    links: Mapping[tuple[str, str], str],
) -> None:
    """Put an op on the link wherever a tensor crosses, once per receiving device."""
    from tensorflow import as_dtype

    loops = {node.name for node in graph_def.node if node.op in ("NextIteration", "Enter", "Exit")}
    crossing: dict[tuple[str, str], str] = {}
    for node in list(graph_def.node):
        target = placement[node.name]
        for place, name in enumerate(node.input):
            producer, _, index = name.partition(":")
            tensor = f"{producer}:{index or 0}"
            if name.startswith("^") or tensor not in dtypes or producer in loops:
                continue
            source = placement[producer]
            if source == target:
                continue
            copy = crossing.get((tensor, target))
            if copy is None:
                copy = crossing[tensor, target] = f"sent_{len(crossing)}"
                sent = graph_def.node.add(name=copy, op="Snapshot", input=[name])
                sent.device = links[source, target]
                sent.attr["T"].type = as_dtype(dtypes[tensor]).as_datatype_enum
            node.input[place] = copy


def main() -> None:
    request, answer = (Path(name) for name in sys.argv[1:3])
    answer.write_text(json.dumps(measure(pickle.loads(request.read_bytes()))))


if __name__ == "__main__":
    main()
