"""A Keras model's training step in the parts that a division says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from placer.strategies.keras_replicas import ReplicatedKerasStep
from placer.strategies.keras_steps import KerasStep
from placer.strategies.pieces import in_pieces
from placer.strategies.requests import TrainingDivision
from placer.strategies.towers import side_by_side


def divided_train_step(model: Any, division: TrainingDivision) -> Callable[[Any], Any]:
    """``model.train_step`` in the parts that ``division`` says.

    Raises :class:`UsageError` for a model with several optimizers, and when it is traced for one
    whose loss is no mean over examples, or whose gradients are not applied once.
    """
    if division.replicated:
        return ReplicatedKerasStep(model, division)
    step = KerasStep(model)
    if division.towers:
        groups = [list(group) for group in division.towers]
        return side_by_side(step, groups, speeds=division.speeds)
    return in_pieces(step, division.pieces, division.in_flight)
