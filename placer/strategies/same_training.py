"""Whether a Keras training step in parts trains what the whole batch trains.

The graph of the loss decides first: what is proved to be a mean over the examples may be divided,
what mixes them may not.  Where no rule decides, the step is run once on the host, whole and in
parts, with the same random numbers, and the gradients are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from placer.errors import PlacerError, ShapeError, UsageError
from placer.extraction.divisibility.batch_op import MixesExamples, Undecided
from placer.extraction.divisibility.divisibility import require_mean_loss
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.training_steps import batch_specs, trace_step
from placer.extraction.shapes.binding import capture_states
from placer.graph.program_source import Bindings
from placer.strategies.batches import count_examples, split_batch, split_sizes
from placer.strategies.gradients import average_gradients
from placer.strategies.keras_steps import SEED, KerasStep, replaced
from placer.strategies.parts import HOST, shares_of
from placer.strategies.random_draws import Draws


def check_parts(model: Any, data: Any, parts: int, *, is_exact: bool = True) -> None:
    """Raises :class:`UsageError` unless ``model`` is shown to train the same on the batch ``data``
    in so many parts; without ``is_exact`` batch normalisation may have statistics of its own."""
    size = int(count_examples(tuple(tf.nest.flatten(data, expand_composites=False))))
    reason, _ = decide_division(
        model, batch_specs(data), size, parts, lambda: data, is_exact=is_exact
    )
    if reason:
        raise UsageError(
            f"the batch of {model.name!r} is not divided: {reason}.  Bind it without dividing: "
            "placer.place(placer.training_step(...))"
        )


def decide_division(
    model: Any,
    specs: Any,
    examples: int,
    parts: int,
    batch: Callable[[], Any],
    *,
    bindings: Bindings | None = None,
    is_exact: bool = True,
) -> tuple[str, bool]:
    """Why a batch of so many ``examples`` may not be divided into ``parts``, "" if it may, and
    whether the graph alone says so.

    ``batch`` gives one like ``specs``, for what the graph does not decide; ``bindings`` are the
    sizes of other open dimensions.  Without ``is_exact`` statistics of batch normalisation are
    taken to be given.
    """
    with ExitStack() as stack:
        if not is_exact:
            stack.enter_context(_given_statistics(model))
        try:
            _require_mean(model, specs, examples, parts, bindings)
        except (Undecided, ShapeError) as reason:
            told = _why_parts_differ(model, batch, parts)
            shown = f"its loss is not shown to be a mean over the examples ({reason})"
            return (f"{shown}: {told}" if told else ""), False
        except MixesExamples as reason:
            return f"its loss is not a mean over the examples: {reason}", True
        except PlacerError as error:
            return error.message, False
    return "", True


def _require_mean(
    model: Any, specs: Any, examples: int, parts: int, bindings: Bindings | None
) -> None:
    """Raises as :func:`~placer.extraction.divisibility.divisibility.require_mean_loss` for the
    loss whose gradients ``model`` applies."""
    step = KerasStep(model)

    def losses(data: Any) -> list[Any]:
        for is_taken in (False, True):
            with _gradients_recorded(is_taken=is_taken) as recorded:
                _, _, pairs = step.backward((data,))
            if len(recorded) == 1:
                break  # else gradients may be what the loss is made of
        wanted = {id(gradient) for _, gradient in pairs if gradient is not None}
        found = [(target, ids & wanted) for target, ids in recorded if ids & wanted]
        if wanted - set().union(*(ids for _, ids in found)):
            raise Undecided("its train_step changes the gradients before it applies them")
        return [tensor for target, _ in found for tensor in tf.nest.flatten(target)]

    function = trace_step(model, specs, "train_step", losses, values=False)
    if path := _assigned(model, function.graph):
        raise UsageError(
            f"its train_step assigns {path} itself, which each part of a batch would do, before "
            "the gradients of all are applied"
        )
    program = load_program(function, fingerprinted=False)
    known: Bindings = {"shapes": {}, **(bindings or {}), "batch_size": examples}
    require_mean_loss(program, capture_states(program), examples, parts, known)


def _assigned(model: Any, graph: Any) -> str | None:
    """The path of a variable of ``model`` that ``graph``, which applies no gradients, assigns;
    metrics, states of random draws and statistics of batch normalisation are left to others."""
    known = {id(v._value.handle): v.path for v in model.variables if not v.path.endswith(SEED)}
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            for variable in layer.non_trainable_variables:
                known.pop(id(variable._value.handle), None)
    for variable in model.metrics_variables:
        known.pop(id(variable._value.handle), None)
    paths = {id(inner): known.get(id(outer)) for outer, inner in graph.captures}
    ops = (op for op in graph.get_operations() if op.type.startswith("Assign"))
    return next(filter(None, (paths.get(id(op.inputs[0])) for op in ops)), None)


@contextmanager
def _gradients_recorded(*, is_taken: bool) -> Iterator[list[tuple[Any, set[int]]]]:
    """Yields what gradients are taken of meanwhile, with their ids.  Unless ``is_taken`` they are
    zeros: loops without gradients keep nothing."""
    recorded: list[tuple[Any, set[int]]] = []
    kept: list[Any] = []  # ids stay those of one object
    take = tf.GradientTape.gradient

    def gradient(tape: Any, target: Any, sources: Any, *args: Any, **settings: Any) -> Any:
        if is_taken:
            found = take(tape, target, sources, *args, **settings)
        else:
            found = tf.nest.map_structure(tf.zeros_like, sources)
        flat = tf.nest.flatten(found)
        kept.extend(flat)
        recorded.append((target, {id(each) for each in flat}))
        return found

    tf.GradientTape.gradient = gradient
    try:
        yield recorded
    finally:
        tf.GradientTape.gradient = take


@contextmanager
def _given_statistics(model: Any) -> Iterator[None]:
    """``model`` with the moving statistics of its batch normalisation meanwhile."""
    with ExitStack() as stack:
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.BatchNormalization):
                stack.enter_context(replaced(layer, "call", partial(_untrained, layer.call)))
        yield


def _untrained(
    call: Callable[..., Any], inputs: Any, training: Any = None, mask: Any = None
) -> Any:
    del training
    return call(inputs, training=False, mask=mask)


def _why_parts_differ(model: Any, batch: Callable[[], Any], parts: int) -> str:
    """Runs a step of ``model`` whole and in parts, updating nothing: how gradients differ, in
    words, or "" if they do not."""
    state = [*model.non_trainable_variables, *model.metrics_variables]
    before = [variable.numpy() for variable in state]
    try:
        data = batch()
        both = tf.function(partial(_both, model, parts), jit_compile=False, autograph=False)
        norm, difference = both.get_concrete_function(data)(data)
    except (tf.errors.OpError, PlacerError, Undecided, ValueError, TypeError) as error:
        return f"a step in parts could not be run to see it ({str(error).splitlines()[0]})"
    finally:
        for variable, value in zip(state, before, strict=True):
            variable.assign(value)
    if difference <= 1e-5 * norm:  # rounding in float32
        return ""
    return f"the gradients of its parts differ from those of the whole by {difference / norm:.1%}"


def _both(model: Any, parts: int, data: Any) -> tuple[Any, Any]:
    """The norm of the gradients of a batch, and of their difference from those of its parts."""
    step = KerasStep(model)
    examples = count_examples(tuple(tf.nest.flatten(data, expand_composites=False)))
    sizes = split_sizes(examples, parts)
    draws, found = Draws(examples), []
    with tf.device(HOST):
        with draws.recorded():
            _, _, whole = step.backward((data,))
        start = 0
        for size, part in zip(sizes, split_batch((data,), sizes), strict=True):
            with draws.replayed(start, size):
                found.append(step.backward(part)[2])
            start += size
        averaged = average_gradients(found, shares_of(sizes))
        return _norm([g for _, g in whole]), _norm(_differences(whole, averaged))


def _differences(whole: Sequence[Any], averaged: Sequence[Any]) -> list[Any]:
    known = {id(variable): gradient for variable, gradient in averaged}
    found = []
    for variable, gradient in whole:
        other = known.get(id(variable))
        if gradient is not None and other is not None:
            found.append(tf.convert_to_tensor(gradient) - tf.convert_to_tensor(other))
        elif gradient is not None or other is not None:
            found.append(tf.convert_to_tensor(other if gradient is None else gradient))
    return found


def _norm(gradients: Sequence[Any]) -> Any:
    dense = [tf.convert_to_tensor(each) for each in gradients if each is not None]
    return tf.norm(tf.stack([tf.norm(tf.cast(each, tf.float32)) for each in dense]))
