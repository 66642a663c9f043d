"""A predicted step of a drawn graph on two GPUs, and the plan it belongs to."""

from __future__ import annotations

from typing import Any

from graphs_by_hand import draw, draw_cluster, draw_costs
from plans_by_hand import device_row, small_plan

from placer.graph.name_scopes import build_scope_tree
from placer.graph.op_graph import Variable
from placer.pipeline.solved_plan import plan_metrics
from placer.plan.plan import Plan
from placer.prediction.metrics import Metrics, Transfer
from placer.prediction.predicted_step import Edge, PredictedStep, Sent, StepBuffer, describe_step
from placer.prediction.prediction import predict

KIB = 1024


def drawn_step(prefix: str = "") -> tuple[Metrics, PredictedStep, dict[str, str]]:
    """Metrics, step and placement of

        x ---> net/one/a --.--> net/two/b ---> net/two/c (fetched)
        net/w (4 KiB) -----'                     ^
                 net/one/a ........ control ....:

    with one/ on GPU:0 and two/ on GPU:1; every op takes a second, every tensor is 2 KiB and on the
    link 2 µs.  ``prefix`` stands before every name but x.
    """
    a, b, c, w = (f"{prefix}net/{name}" for name in ("one/a", "two/b", "two/c", "w"))
    graph = draw(
        f"x=Placeholder, {w}=VarHandleOp -> {a} -> {b} -> {c}",
        f"{a} ..> {c}",
        bytes={"x": 2 * KIB, a: 2 * KIB, b: 2 * KIB, c: 2 * KIB},
        dtypes={w: "resource"},
        feeds=["x"],
        fetches=[f"{c}:0"],
        variables=[Variable(name="weight", handle=w, dtype="float32", shape=(1024,))],
    )
    placement = {"x": "CPU:0", w: "GPU:0", a: "GPU:0", b: "GPU:1", c: "GPU:1"}
    costs = draw_costs(graph, flops={a: 10**9, b: 10**9, c: 10**9}, persistent_bytes={w: 4 * KIB})
    cluster = draw_cluster("GPU:0", "GPU:1")
    metrics = predict(graph, costs, placement, cluster)
    return metrics, describe_step(graph, costs, placement, cluster, metrics), placement


def empty_step() -> PredictedStep:
    """The step of a graph without ops."""
    graph, cluster = draw(), draw_cluster("GPU:0")
    return describe_step(graph, {}, {}, cluster, predict(graph, {}, {}, cluster))


def drawn_plan(prefix: str = "", **changes: Any) -> Plan:
    """The plan of :func:`drawn_step`, its figures those predicted."""
    metrics, step, placement = drawn_step(prefix)
    rows = [
        device_row(
            device,
            resident_bytes=timeline.resident_bytes,
            peak_memory_bytes=metrics.peaks[device].high_bytes,
            peak_expected_bytes=metrics.peaks[device].expected_bytes,
            peak_low_bytes=metrics.peaks[device].low_bytes,
            busy_seconds=metrics.schedule.busy_seconds[device],
        )
        for device, timeline in metrics.timelines.items()
    ]
    transfers = metrics.transfers
    plan = {
        "devices": tuple(rows),
        "placement": placement,
        "transfers": tuple(transfers),
        "metrics": plan_metrics(metrics),
        "step": lambda: step,
    }
    return small_plan(**(plan | changes))


def long_step(layers: int, ops_per_layer: int = 20) -> PredictedStep:
    """A chain of ops in ``layers`` scopes ``model/layer_0``, ..., half on GPU:0, half on GPU:1;
    every op takes a millisecond and a kilobyte, which lives until the next has run."""
    count = layers * ops_per_layer
    names = tuple(
        f"model/layer_{op // ops_per_layer}/op_{op % ops_per_layer}" for op in range(count)
    )
    half = count // 2
    sent = Sent(
        transfer=Transfer(
            tensor=f"{names[half - 1]}:0", source="GPU:0", target="GPU:1", bytes=KIB, kind="data"
        ),
        op=half - 1,
        start_seconds=half * 1e-3,
        finish_seconds=half * 1e-3,
        readers=(half,),
    )
    buffers = tuple(
        StepBuffer(
            op=op, device=int(op >= half), bytes=KIB, kind="activation", first=op, last=op + 1
        )
        for op in range(count - 1)
    )
    return PredictedStep(
        ops=names,
        op_types=("MatMul",) * count,
        devices=("GPU:0", "GPU:1"),
        device_of=tuple(int(op >= half) for op in range(count)),
        edges=((), *((Edge(producer=op, index=0),) for op in range(count - 1))),
        flops=(2 * KIB,) * count,
        bytes_accessed=(2 * KIB,) * count,
        output_bytes=((KIB,),) * count,
        persistent_bytes=(0,) * count,
        temporary_bytes=(0,) * count,
        start_seconds=tuple(op * 1e-3 for op in range(count)),
        finish_seconds=tuple((op + 1) * 1e-3 for op in range(count)),
        order=tuple(range(count)),
        buffers=buffers,
        memory_bytes={},
        unused_bytes=(0, 0),
        sent=(sent,),
        step_seconds=count * 1e-3,
        scopes=build_scope_tree(names),
    )
