"""Published placement instances (msr-fiddle/dnn-partitioning) as placement problems."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from small_problems import problem_of

from placer.problem import PlacementProblem

BYTES_PER_MILLISECOND = 2**31 / 1000


def read_throughput_instance(path: Path) -> PlacementProblem:
    """The instance with one CPU, in seconds: accelerators pay once for what they send and once per
    tensor that they receive, the CPU does not."""
    data = json.loads(path.read_text())
    accelerators = data["maxFPGAs"]
    problem = replace(
        read_instance(path),
        capacity_bytes=(int(data["maxSizePerFPGA"]),) * accelerators + (2**50,),
    )
    devices = accelerators + 1
    return replace(
        problem,
        device_names=(*problem.device_names[:-1], f"GPU:{accelerators - 1}", "CPU:0"),
        host=accelerators,
        allowed=(tuple(range(devices)),) * len(data["nodes"]),
        transient_bytes=(0,) * devices,
        seconds=tuple(
            (*[node["fpgaLatency"] / 1e3] * accelerators, node["cpuLatency"] / 1e3)
            for node in data["nodes"]
        ),
        bandwidth=((BYTES_PER_MILLISECOND * 1e3,) * devices,) * devices,
        latency=((0.0,) * devices,) * devices,
        objective="throughput",
        occupied=(True,) * accelerators + (False,),
        multicast=True,
    )


def read_instance(path: Path) -> PlacementProblem:
    """The instance without its CPUs: accelerators of one size, each tensor sent once per device."""
    data = json.loads(path.read_text())
    number = {node["id"]: index for index, node in enumerate(data["nodes"])}
    consumers: dict[int, list[int]] = {}
    size: dict[int, int] = {}
    for edge in data["edges"]:
        producer = number[edge["sourceId"]]
        consumers.setdefault(producer, []).append(number[edge["destId"]])
        size[producer] = round(edge["cost"] * BYTES_PER_MILLISECOND)
    colours: dict[object, int] = {}
    group = [
        colours.setdefault(node.get("colorClass", ("own", node["id"])), len(colours))
        for node in data["nodes"]
    ]
    return problem_of(
        resident=[int(node["size"]) for node in data["nodes"]],
        tensors=[(producer, consumers[producer], size[producer]) for producer in consumers],
        capacity=[int(data["maxSizePerFPGA"])] * data["maxFPGAs"],
        group=group,
    )
