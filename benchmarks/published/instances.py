"""Instances of msr-fiddle/dnn-partitioning (J. Tarnawski et al., Efficient Algorithms for Device
Placement of DNN Graph Operators, NeurIPS 2020) as placement problems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from placer.problem.placement_problem import PlacementProblem, ProblemTensor

BYTES_PER_MILLISECOND = 2**31 / 1000
"""Costs of edges are milliseconds at 2**31 bytes/s; the problem has bytes."""

_CPU_BYTES = 2**50


def read_instance(path: Path, objective: str) -> PlacementProblem:
    """The instance as a problem.

    For ``"transfer"`` without its CPUs: accelerators of one size, every tensor sent once per
    receiving device.  For ``"throughput"`` with one CPU, in seconds: an accelerator pays once for
    a tensor that it sends and once for one that it receives, the CPU does not.
    """
    data = json.loads(path.read_text())
    nodes = data["nodes"]
    accelerators = int(data["maxFPGAs"])
    has_cpu = objective == "throughput"
    devices = accelerators + has_cpu
    colours: dict[object, int] = {}
    return PlacementProblem(
        op_names=tuple(str(node["id"]) for node in nodes),
        device_names=tuple(f"GPU:{d}" for d in range(accelerators)) + ("CPU:0",) * has_cpu,
        host=devices - 1,
        resident_bytes=tuple(int(node["size"]) for node in nodes),
        temporary_bytes=(0,) * len(nodes),
        seconds=tuple(
            (*[node["fpgaLatency"] / 1e3] * accelerators, *[node["cpuLatency"] / 1e3] * has_cpu)
            for node in nodes
        ),
        group=tuple(
            colours.setdefault(node.get("colorClass", ("own", node["id"])), len(colours))
            for node in nodes
        ),
        allowed=(tuple(range(devices)),) * len(nodes),
        spillable=(False,) * len(nodes),
        tensors=_tensors(data),
        control_edges=(),
        capacity_bytes=(int(data["maxSizePerFPGA"]),) * accelerators + (_CPU_BYTES,) * has_cpu,
        transient_bytes=(0,) * devices,
        live_bytes=(),
        bandwidth=((BYTES_PER_MILLISECOND * 1e3,) * devices,) * devices,
        latency=((0.0,) * devices,) * devices,
        objective=objective,
        spill="never",
        occupied=(True,) * accelerators + (False,) * has_cpu,
        multicast=True,
    )


def _tensors(data: dict[str, Any]) -> tuple[ProblemTensor, ...]:
    """One tensor per node with edges out of it; all of them cost the same."""
    number = {node["id"]: index for index, node in enumerate(data["nodes"])}
    consumers: dict[int, list[int]] = {}
    size: dict[int, int] = {}
    for edge in data["edges"]:
        producer = number[edge["sourceId"]]
        consumers.setdefault(producer, []).append(number[edge["destId"]])
        size[producer] = round(edge["cost"] * BYTES_PER_MILLISECOND)
    return tuple(
        ProblemTensor(producer=producer, consumers=tuple(consumers[producer]), bytes=size[producer])
        for producer in consumers
    )


def milliseconds(problem: PlacementProblem, value: float) -> float:
    """A value of the objective in the milliseconds of the instance."""
    return value * 1e3 if problem.objective == "throughput" else value / BYTES_PER_MILLISECOND


def split_of(problem: PlacementProblem, device_of: Sequence[int]) -> dict[str, Any]:
    """The placement in the authors' form: ``{"fpgas": [{"nodes": [...]}, ...], "cpus": [...]}``."""
    nodes: list[list[int]] = [[] for _ in problem.device_names]
    for name, device in zip(problem.op_names, device_of, strict=True):
        nodes[device].append(int(name))
    split: dict[str, Any] = {"fpgas": [], "cpus": []}
    for name, ids in zip(problem.device_names, nodes, strict=True):
        split["cpus" if name.startswith("CPU") else "fpgas"].append({"nodes": ids})
    return split
