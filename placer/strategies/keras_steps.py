"""A Keras model's own training step in parts: replicas side by side, or pieces in turn.

Every part runs ``model.train_step`` on its examples, whatever that does, but for the optimizer:
what a part would apply is recorded, the gradients are averaged, weighted by examples, and applied
once.  So loss scale, clipping, accumulation, averages of weights and schedules, which all live in
the optimizer, see one gradient and one step.  Metrics add up part by part in their variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import keras
import tensorflow as tf

from placer.errors import UsageError
from placer.extraction.graph_defs.program import FlatProgram
from placer.graph.tensor_names import source_of
from placer.strategies.all_reduce import require_reducible
from placer.strategies.gradients import Pairs
from placer.strategies.parts import DividedStep

SEED = "seed_generator_state"
"""Keras's name for the state of a layer that draws random numbers."""


class KerasStep(DividedStep):
    """A Keras step in parts: the forward and backward pass of each, and how they become one step.

    Raises :class:`UsageError` for a model with several optimizers.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model.train_step, model.optimizer, None, "mean", None, "mean")
        self.model = model
        self._means: dict[int, tuple[Any, list[Any]]] = {}
        self._updated: list[Any] = []  # the variables that the step updates, as it gives them
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

    @property
    def optimizer(self) -> Any:
        """The model's, which while a step is traced may be another one than when it trains."""
        return self.model.optimizer

    def backward(self, part: tuple[Any, ...]) -> tuple[Any, Any, Pairs]:
        """No loss, the logs and the gradients of one part."""
        (data,) = part
        applied: list[Pairs] = []
        with (
            _recorded(self.optimizer, applied),
            self._means_deferred() as results,
        ):
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
        self._updated = [variable for variable, _ in applied[0]]
        return None, {k: results.get(id(v), v) for k, v in logs.items()}, applied[0]

    @contextmanager
    def _means_deferred(self) -> Iterator[dict[int, Any]]:
        """Means that are told of one number a batch hear of it once, when all parts have run;
        gives the metrics behind what they seem to be meanwhile, by ``id``."""
        results: dict[int, Any] = {}

        def defer(stack: ExitStack, metric: Any) -> None:
            update, result = metric.update_state, metric.result

            def told(values: Any, sample_weight: Any = None) -> None:
                if sample_weight is not None or tf.convert_to_tensor(values).shape.rank != 0:
                    update(values, sample_weight)
                    return
                self._means.setdefault(id(metric), (metric, []))[1].append(values)

            def seeming() -> Any:
                found = result()
                if id(metric) in self._means:
                    results[id(found)] = metric
                return found

            stack.enter_context(replaced(metric, "update_state", told))
            stack.enter_context(replaced(metric, "result", seeming))

        with ExitStack() as stack:
            for metric in self.model.metrics:
                if isinstance(metric, keras.metrics.Mean) and not isinstance(
                    metric, keras.metrics.MeanMetricWrapper
                ):
                    defer(stack, metric)
            yield results

    def update(
        self, losses: Sequence[Any], outputs: Sequence[Any], pairs: Pairs, weights: Sequence[Any]
    ) -> Any:
        """The logs of the whole batch, once the gradients are applied; there are no ``losses``."""
        del losses
        self.apply(pairs)
        return self.logs(outputs, weights)

    def apply(self, pairs: Pairs) -> None:
        """Runs the optimizer on the gradients of the whole batch."""
        found = {id(variable): gradient for variable, gradient in pairs}
        self.optimizer.apply_gradients([(found.get(id(v)), v) for v in self._updated])

    def logs(self, outputs: Sequence[Any], weights: Sequence[Any]) -> dict[str, Any]:
        """The logs of the whole batch."""
        for metric, values in self._means.values():
            metric.update_state(_mean(values, weights))
        self._means.clear()
        return _joined_logs(self.model, outputs, weights)


@contextmanager
def _recorded(optimizer: Any, applied: list[Pairs]) -> Iterator[None]:
    """Records in ``applied`` what ``optimizer`` would apply."""

    def record(grads: Any, trainable_variables: Any = None) -> None:
        variables = optimizer._trainable_variables
        variables = variables if trainable_variables is None else trainable_variables
        applied.append(list(zip(variables, grads, strict=True)))

    with replaced(optimizer, "apply", record):
        yield


def with_gradients(model: Any, trace: Callable[[], Any]) -> tuple[Any, str]:
    """Returns what ``trace`` gives of a training step of ``model``, and why no all-reduce joins the
    gradients that this applies: "" if one does."""
    optimizer, found = model.optimizer, list[str]()
    apply = getattr(optimizer, "apply", None)
    if apply is None:  # an optimizer of Keras 2
        return trace(), ""

    def told(grads: Any, trainable_variables: Any = None) -> Any:
        variables = optimizer._trainable_variables
        variables = variables if trainable_variables is None else trainable_variables
        try:
            require_reducible(list(zip(variables, grads, strict=False)))
        except UsageError as error:
            found.append(error.message)
        return apply(grads, trainable_variables)

    with replaced(optimizer, "apply", told):
        return trace(), "".join(found[:1])


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
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
        if isinstance(last, keras.metrics.Metric):
            logs[name] = last.result()
        elif _reads_state(model, last):
            logs[name] = last
        else:
            logs[name] = _mean([part[name] for part in found], weights)
    return logs


def _mean(parts: Sequence[Any], weights: Sequence[Any]) -> Any:
    """The mean of numbers of all parts, weighted by examples."""
    values = [tf.convert_to_tensor(part) for part in parts]
    return tf.add_n([v * tf.cast(w, v.dtype) for v, w in zip(values, weights, strict=True)])


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


def written_state(model: Any, program: FlatProgram) -> list[str]:
    """The paths of the variables that a training step changes besides what the optimizer and the
    metrics do: statistics of the batch, which parts of it have of their own."""
    kept = {id(v._value.handle): v.path for v in model.non_trainable_variables}
    for variable in (*model.metrics_variables, *model.optimizer.variables):
        kept.pop(id(variable._value.handle), None)
    paths = {name: kept.get(id(handle)) for name, handle in program.captures.items()}
    nodes = [node for node in program.graph_def.node if node.op.startswith("Assign")]
    found = {paths.get(source_of(node.input[0])) for node in nodes if node.input}
    return sorted(path for path in found if path and not path.endswith(SEED))


def draws_numbers(program: FlatProgram) -> bool:
    """Whether a part of a batch draws other random numbers than the whole."""
    bodies = (function.node_def for function in program.graph_def.library.function)
    nodes = chain(program.graph_def.node, *bodies)
    return any("Random" in node.op or "Multinomial" in node.op for node in nodes)
