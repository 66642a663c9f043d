"""What Grappler's virtual cluster says of placements: seconds of a step, peak bytes by device.

    python benchmarks/step_time/referee.py REQUEST ANSWER

A process of its own: TensorFlow's private interface may crash it.  ``REQUEST`` is what
:func:`write_request` wrote.
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


def judge(
    path: Path, extraction: Any, cluster: Any, placements: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """By strategy, the ``seconds`` of a step and the ``peak_bytes`` by device; or ``error``."""
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

    program = load_program(request["path"], **request["choice"])
    devices = [named_device(full_name(name), *rest) for name, *rest in request["devices"]]
    found = {}
    for strategy, placement in request["placements"].items():

        def device_of(op: str, placement: Mapping[str, str] = placement) -> str:
            return full_name(placement[op])

        item = grappler_item.Item(meta_graph(program, request["bindings"], device_of))
        cluster = grappler_cluster.Cluster(devices=devices)
        _, seconds, _ = cluster.MeasureCosts(item)
        peaks = cluster.DeterminePeakMemoryUsage(item)
        found[strategy] = {
            "seconds": seconds,
            "peak_bytes": {canonical(name): peak[0] for name, peak in peaks.items()},
        }
    return found


def main() -> None:
    request, answer = (Path(name) for name in sys.argv[1:3])
    answer.write_text(json.dumps(measure(pickle.loads(request.read_bytes()))))


if __name__ == "__main__":
    main()
