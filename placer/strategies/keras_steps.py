"""A Keras model's own training step in parts: towers side by side, or pieces in turn.

Every part runs ``model.train_step`` on its examples, whatever that does, but for the optimizer:
what a part would apply is recorded, the gradients are averaged, weighted by examples, and applied
once.  So loss scale, clipping, accumulation, averages of weights and schedules, which all live in
the optimizer, see one gradient and one step.  Metrics add up part by part in their variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from placer.errors import UsageError
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.training_steps import keras_variables
from placer.graph.tensor_names import source_of
from placer.strategies.gradients import Pairs
from placer.strategies.parts import DividedStep
from placer.strategies.pieces import in_pieces
from placer.strategies.requests import TrainingDivision
from placer.strategies.towers import side_by_side

MEANS = ("sum_over_batch_size", "mean")
"""Reductions of Keras whose loss of a batch is the mean of its parts' by examples."""

_SEED = "seed_generator_state"
"""What Keras calls the state of a layer that draws random numbers."""


def divided_train_step(model: Any, division: TrainingDivision) -> Callable[[Any], Any]:
    """``model.train_step`` in the parts that ``division`` says.

    Raises :class:`UsageError` for a model with several optimizers, and when it is traced for one
    whose loss is no mean over examples, or whose gradients are not applied once.
    """
    step = KerasStep(model)
    if division.towers:
        groups = [list(group) for group in division.towers]
        return side_by_side(step, groups, speeds=division.speeds)
    return in_pieces(step, division.pieces, division.in_flight)


class KerasStep(DividedStep):
    """What every part of a batch runs of a Keras model, and how the parts become one step.

    Raises :class:`UsageError` for a model with several optimizers.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model.train_step, model.optimizer, None, "mean", None, "mean")
        self.model = model
        others = [
            name
            for name, value in vars(model).items()
            if isinstance(value, keras.optimizers.Optimizer) and value is not model.optimizer
        ]
        if others:
            raise UsageError(
                f"{model.name!r} has an optimizer of its own besides the compiled one "
                f"({others[0]}), and parts of a batch update once, at the end"
            )

    def backward(self, part: tuple[Any, ...]) -> tuple[Any, Any, Pairs]:
        """No loss, the logs and the gradients of one part."""
        (data,) = part
        applied: list[Pairs] = []
        with _recorded(self.optimizer, applied), _means_only(self.model):
            logs = self.model.train_step(data)
        if len(applied) != 1:
            raise UsageError(
                f"the train_step of {self.model.name!r} applies gradients {len(applied)} times, "
                "and parts of a batch update once, at the end"
            )
        if not isinstance(logs, Mapping):
            raise UsageError(
                f"the train_step of {self.model.name!r} gives a {type(logs).__name__}; parts of a "
                "batch need its logs as a dictionary of names to scalars"
            )
        return None, logs, applied[0]

    def update(
        self, losses: Sequence[Any], outputs: Sequence[Any], pairs: Pairs, weights: Sequence[Any]
    ) -> Any:
        """The logs of the whole batch, once the gradients are applied; there are no ``losses``."""
        del losses
        found = {id(variable): gradient for variable, gradient in pairs}
        known = self.model.trainable_weights
        self.optimizer.apply_gradients([(found.get(id(v)), v) for v in known])
        return _joined_logs(self.model, outputs, weights)


@contextmanager
def _recorded(optimizer: Any, applied: list[Pairs]) -> Iterator[None]:
    """What ``optimizer`` would apply goes to ``applied`` instead."""

    def record(grads: Any, trainable_variables: Any = None) -> None:
        variables = optimizer._trainable_variables
        variables = variables if trainable_variables is None else trainable_variables
        applied.append(list(zip(variables, grads, strict=True)))

    with _replaced(optimizer, "apply", record):
        yield


@contextmanager
def _means_only(model: Any) -> Iterator[None]:
    """Refuses a loss of which the parts' mean, weighted by examples, is not that of the whole."""
    compute = model.compute_loss

    def checked(
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        found = compute(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        if any(getattr(v, "_keras_mask", None) is not None for v in tf.nest.flatten(y_pred)):
            raise UsageError(
                f"the loss of {model.name!r} is a mean over what its mask leaves, which differs "
                "from part to part of a batch"
            )
        for loss in getattr(model._compile_loss, "_flat_losses", None) or ():
            if loss.loss.reduction not in MEANS:
                raise UsageError(
                    f"the loss {loss.name!r} of {model.name!r} has reduction="
                    f"{loss.loss.reduction!r}; parts of a batch need a mean over the examples"
                )
        return found

    with _replaced(model, "compute_loss", checked):
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner`` with another method meanwhile, whatever it does when attributes are set."""
    before = vars(owner).get(name)
    vars(owner)[name] = value
    try:
        yield
    finally:
        if before is None:
            del vars(owner)[name]
        else:
            vars(owner)[name] = before


def _joined_logs(
    model: Any, found: Sequence[Mapping[str, Any]], weights: Sequence[Any]
) -> dict[str, Any]:
    """The logs of all parts as one: of a metric, which has seen all parts by then, the last; else
    the mean, weighted by examples."""
    logs = {}
    for name, last in found[-1].items():
        if _reads_state(model, last):
            logs[name] = last
            continue
        parts = [tf.convert_to_tensor(part[name]) for part in found]
        scaled = [value * tf.cast(w, value.dtype) for value, w in zip(parts, weights, strict=True)]
        logs[name] = tf.add_n(scaled)
    return logs


def _reads_state(model: Any, value: Any) -> bool:
    """Whether ``value`` depends on what a metric of ``model`` holds."""
    handles = {id(variable._value.handle) for variable in model.metrics_variables}
    graph = tf.compat.v1.get_default_graph()
    inner = {id(inside.op) for outside, inside in graph.captures if id(outside) in handles}
    waiting, seen = [tf.convert_to_tensor(value).op], set[int]()
    while waiting:
        op = waiting.pop()
        if id(op) in inner:
            return True
        if id(op) not in seen:
            seen.add(id(op))
            waiting += [tensor.op for tensor in op.inputs]
    return False


def written_state(model: Any, function: Any) -> list[str]:
    """The paths of the variables that a training step changes besides what the optimizer and the
    metrics do: statistics of the batch, which parts of it have of their own."""
    kept = {id(v._value.handle): v.path for v in model.non_trainable_variables}
    for variable in (*model.metrics_variables, *model.optimizer.variables):
        kept.pop(id(variable._value.handle), None)
    program = load_program(function)
    paths = {name: kept.get(id(handle)) for name, handle in program.captures.items()}
    nodes = [node for node in program.graph_def.node if node.op.startswith("Assign")]
    found = {paths.get(source_of(node.input[0])) for node in nodes if node.input}
    return sorted(path for path in found if path and not path.endswith(_SEED))


def draws_numbers(model: Any) -> bool:
    """Whether a part of a batch draws other random numbers than the whole."""
    return any(v.path.endswith(_SEED) for v in keras_variables(model))
