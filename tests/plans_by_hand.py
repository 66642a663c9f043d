"""A plan and a report written by hand, for tests that need no TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placer.plan.plan import Plan
from placer.plan.report import (
    ComputeFacts,
    Hotspot,
    IndivisibleGroup,
    InputFacts,
    MemoryFacts,
    ModelFacts,
    Report,
)
from placer.plan.rows import PlanMetrics, PlannedDevice, SolverAnswer
from placer.prediction.metrics import LiveBuffer, Transfer
from placer.problem.conflict import CapInConflict, Conflict, Fix, OpsInConflict

MIB = 1 << 20


def device_row(name: str, **changes: Any) -> PlannedDevice:
    """A row of ``devices``: cap 100 MiB, peak 60 MiB, unless ``changes`` say otherwise."""
    row = PlannedDevice(
        name=name,
        type=name.partition(":")[0],
        model="",
        memory_limit_bytes=100 * MIB,
        usable_bytes=100 * MIB,
        resident_bytes=40 * MIB,
        peak_memory_bytes=60 * MIB,
        spilled_bytes=0,
        busy_seconds=0.002,
    )
    return replace(row, **changes)


def transfer_row(tensor: str, source: str, target: str, size: int | None, kind: str) -> Transfer:
    """A row of ``transfers``."""
    return Transfer(
        tensor=tensor, source=source, target=target, bytes=size, kind=kind, memory="device"
    )


def small_plan(**changes: Any) -> Plan:
    """Four ops on two GPUs and the host: one tensor crosses, one is fed, one fetched."""
    plan = Plan(
        model={
            "path": "models/small",
            "fingerprint": "f00d",
            "sha256": None,
            "format": "saved_model",
            "signature": "serving_default",
        },
        bindings={
            "batch_size": 32,
            "shapes": {"x": [32, 8]},
            "dims": {"T": {"size": 8, "of": ["x:1"]}},
        },
        devices=(
            device_row("GPU:0", model="T4"),
            device_row("GPU:1", model="T4", peak_memory_bytes=90 * MIB),
            device_row("CPU:0", resident_bytes=0, peak_memory_bytes=1024, busy_seconds=0.0),
        ),
        placement={"x": "CPU:0", "a": "GPU:0", "w": "GPU:1", "b": "GPU:1"},
        variables={"weight": "GPU:1"},
        transfers=(
            transfer_row("x:0", "CPU:0", "GPU:0", 1024, "feed"),
            transfer_row("a:0", "GPU:0", "GPU:1", 3 * MIB, "data"),
            transfer_row("b:0", "GPU:1", "CPU:0", 128, "fetch"),
            transfer_row("^a", "GPU:0", "GPU:1", 4, "control"),
        ),
        metrics=PlanMetrics(
            transfer_bytes=3 * MIB + 1024,
            transfer_count=2,
            fetch_bytes=128,
            sent_bytes=3 * MIB + 1024 + 128,
            messages=4,
            step_seconds=0.0041,
            bottleneck_seconds=0.002,
            critical_path_seconds=0.004,
        ),
        solver=SolverAnswer(
            status="OPTIMAL",
            objective="transfer",
            value=3 * MIB + 1024,
            lower_bound=3 * MIB + 1024,
            relative_gap=0.0,
            seconds=1.5,
            seed=0,
        ),
        tensorflow_version="2.21.0",
        tool_version="0.1.0",
    )
    return replace(plan, **changes)


def infeasible_plan() -> Plan:
    """A plan for a problem that no placement solves."""
    unknown = {"resident_bytes": None, "peak_memory_bytes": None, "busy_seconds": None}
    return small_plan(
        devices=(device_row("GPU:0", spilled_bytes=None, **unknown),),
        placement={},
        variables={},
        transfers=(),
        metrics=PlanMetrics(),
        solver=replace(
            small_plan().solver,
            status="INFEASIBLE",
            value=None,
            lower_bound=None,
            relative_gap=None,
        ),
        conflict=Conflict(
            reason="overfull",
            caps=(CapInConflict(device="GPU:0", usable_bytes=100 * MIB),),
            pins=(
                OpsInConflict(
                    request="--pin 'a*=GPU:0'",
                    devices=("GPU:0",),
                    ops=("a", "ab"),
                    op_count=2,
                    bytes=70 * MIB,
                ),
            ),
            groups=(OpsInConflict(ops=("w", "x"), op_count=2, bytes=40 * MIB),),
            devices=("GPU:0",),
            needed_bytes=120 * MIB,
            usable_bytes=100 * MIB,
            other_bytes=10 * MIB,
            is_smallest=True,
            fixes=(Fix(kind="caps", change="--max-memory GPU:0=120MiB", note=""),),
        ),
    )


def small_report(**changes: Any) -> Report:
    """A report on a model with one layer, of which two op types are known."""
    spots = (
        Hotspot(
            name="MatMul",
            op_count=2,
            flops=4_000_000,
            bytes_accessed=2 * MIB,
            output_bytes=MIB,
            seconds=0.003,
        ),
        Hotspot(
            name="Relu",
            op_count=1,
            flops=1000,
            bytes_accessed=8000,
            output_bytes=4000,
            seconds=0.001,
        ),
    )
    report = Report(
        model=ModelFacts(
            format="saved_model",
            path="models/small",
            signature="serving_default",
            tags=("serve",),
            fingerprint="f00d",
            op_count=4,
            file_op_count=100,
            op_type_count=2,
            function_count=0,
            inputs=(
                InputFacts(key="x", dtype="float32", declared_shape=(None, 8), bound_shape=(32, 8)),
            ),
            outputs=("y",),
            batch_size=32,
            variable_count=1,
            unsized_variable_count=0,
            parameter_count=1024,
            parameter_bytes={"float32": 4096},
        ),
        memory=MemoryFacts(
            weight_bytes=4096,
            constant_bytes=16,
            peak_bytes=5 * MIB,
            peak_op="a",
            optimizer_state_bytes=8,
            metrics_bytes=0,
            table_bytes=0,
            widest_op_bytes=0,
            low_bytes=4 * MIB,
            high_bytes=6 * MIB,
            scopes_at_peak={"layer": 5 * MIB},
            bytes_at_peak={
                "activation": 5 * MIB - 4120,
                "weights": 4096,
                "constant": 16,
                "optimizer_state": 8,
            },
            largest_at_peak=(LiveBuffer(op="a", bytes=3 * MIB, kind="activation", until="b"),),
        ),
        compute=ComputeFacts(
            flops=4_001_000,
            bytes_accessed=2 * MIB + 8000,
            step_seconds=0.0041,
            busy_seconds=0.004,
            reference="one T4",
            by_op_type=spots,
            by_scope=tuple(replace(spot, name=f"layer/{spot.name.lower()}") for spot in spots),
            unmodelled_share=0.0,
            inaccurate_share=0.0,
        ),
        largest_group=IndivisibleGroup(
            op_count=3, resident_bytes=4096, needed_bytes=8192, example="w", reasons=("resource",)
        ),
        no_gpu_kernel={"RandomShuffle": 1},
        unknown_share=0.0,
    )
    return replace(report, **changes)
