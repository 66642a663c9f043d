"""A Keras training step in replicas that have their own variables, one replica per device.

Every replica reads its own copy of weights and optimizer slots; the gradients are joined by an
all-reduce, and every replica runs the optimizer on what comes out of it, which is the same for all.
So the replicas stay alike, and no weight travels.  What a step writes besides (metrics, statistics
of batch normalisation, states of random layers) stays one variable, as it is of other replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from placer.strategies.all_reduce import all_reduce, require_reducible
from placer.strategies.gradients import Pairs
from placer.strategies.keras_steps import KerasStep
from placer.strategies.parts import HOST, variables_free
from placer.strategies.pieces import in_pieces
from placer.strategies.replicas import in_replica, known_groups, parts_of, side_by_side
from placer.strategies.requests import TrainingDivision


def divided_train_step(model: Any, division: TrainingDivision) -> Callable[[Any], Any]:
    """``model.train_step`` in the parts that ``division`` says.

    Raises :class:`UsageError` for a model with several optimizers, and when it is traced for one
    whose gradients are not applied once.
    """
    if division.replicated:
        return ReplicatedKerasStep(model, division)
    step = KerasStep(model)
    if division.replicas:
        groups = [list(group) for group in division.replicas]
        return side_by_side(step, groups, speeds=division.speeds)
    return in_pieces(step, division.pieces, division.in_flight)


class ReplicatedKerasStep(KerasStep):
    """The whole step of a Keras model in replicas with their own variables, as it is
    traced; errors as for :func:`divided_train_step`."""

    def __init__(self, model: Any, division: TrainingDivision) -> None:
        super().__init__(model)
        self._groups = known_groups([list(group) for group in division.replicas])
        self._speeds = division.speeds
        self._replicas: list[dict[int, Any]] = []

    def __call__(self, *batch: Any) -> Any:
        """The logs of the whole batch, once every replica has updated its variables."""
        graph, groups = tf.compat.v1.get_default_graph(), self._groups
        with variables_free():
            own = [
                graph.capture(handle, name=f"replicated_{number}")
                for number, handle in enumerate(self._handles())
            ]
        with variables_free(own):
            parts, weights = parts_of(batch, len(groups), self._speeds, split=True)
            outputs, gradients = list[Any](), list[Pairs]()
            # forward and backward
            for number, part in enumerate(parts):
                with self._replica(number):
                    _, output, pairs = self.backward(part)
                require_reducible(pairs)
                outputs.append(output)
                gradients.append(pairs)
            # one sum for all, and the same update in each
            scopes = [partial(in_replica, group) for group in groups]
            names = [name for group in groups for name in group]
            summed = all_reduce(gradients, self.shares(weights), scopes, names)
            for number, pairs in enumerate(summed):
                with self._replica(number):
                    self.apply(pairs)
            with tf.device(HOST):
                return self.logs(outputs, weights)

    def tidy(self, graph: Any) -> None:
        """Lets what the traced ``graph`` returns wait for nothing but what it is made of: each wait
        for an update of another device is a message.  A step ends when all its ops have ended, the
        updates (the graph's control outputs) among them."""
        for end in {op.name: op for t in graph.outputs for op in t.op.control_inputs}.values():
            if end.type == "NoOp":
                end._remove_all_control_inputs()

    @property
    def replicas(self) -> list[tuple[Any, Any]]:
        """The variables of the replicas but the first: (the model's Keras variable, a variable
        without a value, which whoever runs the step gives it); the optimizer has to be built."""
        kept = _replicated(self.model)
        if not self._replicas:
            self._replicas = [
                {id(variable): _empty_like(variable, number) for variable in kept}
                for number in range(1, len(self._groups))
            ]
        return [(variable, known[id(variable)]) for known in self._replicas for variable in kept]

    def _handles(self) -> list[Any]:
        """The handles of all replicas, those of the first replica first."""
        known = [variable._value.handle for variable in _replicated(self.model)]
        return known + [replica.handle for _, replica in self.replicas]

    @contextmanager
    def _replica(self, number: int) -> Iterator[None]:
        """The model with the variables of one replica, on its device."""
        kept = _replicated(self.model)
        before = [variable._value for variable in kept]
        try:
            for variable in kept if number else ():
                replica = self._replicas[number - 1][id(variable)]
                replica._unique_id = variable._value._unique_id  # by which optimizers know slots
                variable._value = replica
            with in_replica(self._groups[number]):
                yield
        finally:
            for variable, value in zip(kept, before, strict=True):
                variable._value = value


def _replicated(model: Any) -> list[Any]:
    """The variables of which every replica has its own: weights, frozen ones too, and all that the
    optimizer keeps."""
    layers = model._flatten_layers()
    found = [variable for layer in layers for variable in layer._trainable_variables]
    return list({id(v): v for v in (*found, *model.optimizer.variables)}.values())


def _empty_like(variable: Any, number: int) -> Any:
    """A variable like a Keras one, without a value: it takes no memory."""
    value = variable._value
    with tf.init_scope():
        return resource_variable_ops.UninitializedVariable(
            trainable=value.trainable,
            name=f"replica_{number}/{variable.path}",
            shape=value.shape,
            dtype=value.dtype,
        )
