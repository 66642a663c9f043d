"""Training steps by every strategy, placed and applied, against the unplaced step of the whole."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from long_tests import sometimes
from strategies.test_replicas import STEPS, optimizer, plain_losses, specs
from strategies.training_programs import PROGRAMS

import placer

BATCH = 7
GROUPS = {
    "replicas": [["GPU:0"], ["GPU:1"]],
    "hybrid": [["GPU:0", "GPU:1"], ["GPU:2", "GPU:3"]],
}
STRATEGIES: dict[str, tuple[str, Any]] = {
    "replicas": ("2xGPU:1GiB", lambda f, **o: placer.data_parallel(f, GROUPS["replicas"], **o)),
    "hybrid": ("4xGPU:1GiB", lambda f, **o: placer.data_parallel(f, GROUPS["hybrid"], **o)),
    "micro-batches": ("2xGPU:1GiB", lambda f, **o: placer.micro_batches(f, 3, **o)),
    "pipeline": ("2xGPU:1GiB", lambda f, **o: placer.micro_batches(f, 4, in_flight=2, **o)),
    "order": ("2xGPU:1GiB", lambda f, **o: placer.micro_batches(f, 1, **o)),
}
"""Devices, and the step that a strategy makes of a loss; "order" is the whole step on two devices,
with control edges for low memory."""

ORDERED = {"transformer", "recommender"}
"""The programs in which some order lowers the peak: not the loop, nor one convolution."""


@cache
def whole_losses(name: str) -> list[float]:
    return plain_losses(PROGRAMS[name], BATCH)


ALWAYS = {
    ("recurrent", "replicas"),
    ("recommender", "micro-batches"),
    ("convolutional", "hybrid"),
    ("recommender", "pipeline"),
    ("transformer", "order"),
}
"""Every strategy and every program; the other pairs with PLACER_LONG_TESTS."""


@pytest.mark.parametrize(
    ("name", "strategy"), sometimes(itertools.product(PROGRAMS, STRATEGIES), ALWAYS)
)
def test_twenty_losses_are_those_of_the_unplaced_step(name, strategy):
    """Seven examples on two or four devices (the replicas know neither their number nor, in the
    recurrent program, the length of the sequences): 20 losses within 1e-4 of the whole batch's
    (sums are taken in another order), every op where it was asked to be, and the predicted
    transfers, no others."""
    devices, build = STRATEGIES[strategy]
    loss_of, variables, data = PROGRAMS[name](BATCH)
    shapes, known = {}, None
    if strategy == "replicas":
        known = specs(data)
    if strategy == "replicas" and name == "recurrent":
        known[0], shapes = tf.TensorSpec((None, None, 4)), {"batch_0": (None, 7, 4)}
    step = build(loss_of, optimizer=optimizer(), variables=variables, input_signature=known)
    program = step.get_concrete_function(*(data if known is None else ()))
    plan = placer.place(
        program,
        devices,
        batch_size=BATCH,
        shapes=shapes,
        objective="throughput" if strategy in ("pipeline", "order") else "transfer",
        order="memory" if strategy == "order" else "free",
        **({"work_limit": 1, "time_limit": 60} if strategy == "order" else {"time_limit": 0.5}),
    )
    if strategy == "order" and name in ORDERED:
        assert plan.control_edges
    if strategy in GROUPS:
        assert_replicas_stay_in_their_groups(plan, GROUPS[strategy])
    placed = placer.apply(program, plan)
    found = placer.verify(placed, plan, data)
    found.raise_for_mismatch()
    assert found.counts["matched_ops"] == found.counts["ops"]
    assert found.counts["actual_transfers"] == found.counts["matched_transfers"]
    losses = [float(placed(*data)) for _ in range(STEPS)]
    np.testing.assert_allclose(losses, whole_losses(name), rtol=1e-4)
    assert losses[-1] < losses[0]


def assert_replicas_stay_in_their_groups(plan: Any, groups: Sequence[Sequence[str]]) -> None:
    """Whatever touches no variable is on a device of its replica, loops that read some too."""
    for group in groups:
        scope = "_".join(["replica", *(name.replace(":", "_") for name in group)])
        placed = {op: device for op, device in plan.placement.items() if f"{scope}/" in op}
        loops = [op for op in placed if op.endswith(("while", "while_grad"))]
        inside = [op for op, device in placed.items() if device in group]
        assert len(inside) > 0.7 * len(placed) > 5
        assert set(loops) <= set(inside)
