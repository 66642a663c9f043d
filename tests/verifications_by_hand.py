"""A verification written by hand, for tests that need no TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placer.application.verifying.verification_result import (
    OpRow,
    OutputRow,
    TransferRow,
    VariableRow,
    Verification,
)


def small_verification(**changes: Any) -> Verification:
    """Four ops of which one is fed, two predicted transfers, a variable and an output."""
    found = Verification(
        ops=(
            OpRow(op="x", requested="GPU:0", actual="CPU:0", code="fed"),
            OpRow(op="a", requested="GPU:0", actual="GPU:0"),
            OpRow(op="w", requested="GPU:1", actual="GPU:1"),
            OpRow(op="b", requested="GPU:1", actual="GPU:1"),
        ),
        transfers=(
            TransferRow(
                tensor="a:0",
                source="GPU:0",
                target="GPU:1",
                kind="data",
                predicted=True,
                actual=True,
            ),
            TransferRow(
                tensor="b:0",
                source="GPU:1",
                target="CPU:0",
                kind="fetch",
                predicted=True,
                actual=False,
                code="returned",
            ),
        ),
        variables=(VariableRow(variable="weight", requested="GPU:1", actual="GPU:1"),),
        outputs=(
            OutputRow(
                output="y", equal=True, max_absolute_difference=0.0, max_relative_difference=0.0
            ),
        ),
        rehearsed=True,
        applied=False,
        planned=True,
        stand_ins={"CPU:0": "CPU:0", "GPU:0": "CPU:1", "GPU:1": "CPU:2"},
    )
    return replace(found, **changes)


def failed_verification() -> Verification:
    """One op and one output that nothing explains."""
    return small_verification(
        ops=(OpRow(op="a", requested="GPU:0", actual="CPU:0", code="unexplained"),),
        outputs=(
            OutputRow(
                output="y", equal=False, max_absolute_difference=0.5, max_relative_difference=0.1
            ),
        ),
    )
