"""Published placement instances (msr-fiddle/dnn-partitioning) as placement problems."""

from __future__ import annotations

import json
from pathlib import Path

from small_problems import problem_of

from placer.problem import PlacementProblem

BYTES_PER_MILLISECOND = 2**31 / 1000


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
