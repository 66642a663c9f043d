"""Data-parallel replicas against the program that they split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from strategies.training_programs import recommender

import placer
from placer.errors import UsageError
from placer.strategies.gradients import average_gradients

STEPS = 20
REPLICAS = ["GPU:0", "GPU:1"]


def optimizer() -> Any:
    import keras

    return keras.optimizers.Adam(1e-2)


def specs(batch: list[Any]) -> list[Any]:
    """The batch with its size unknown."""
    return [tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype) for tensor in batch]


def plain_losses(program: Any, batch: int, steps: int = STEPS) -> list[float]:
    """The losses of the whole batch on one device."""
    loss_of, variables, data = program(batch)
    update = optimizer()

    @tf.function
    def step(*data):
        with tf.GradientTape() as tape:
            loss = loss_of(*data)
        update.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return [float(step(*data)) for _ in range(steps)]


def test_losses_are_those_of_mirrored_strategy():
    """TensorFlow's own data parallelism on two logical devices gives the same five losses.  Without
    collectives: TensorFlow numbers those of every strategy of a process alike, and refuses the
    next one whose shapes differ."""
    loss_of, variables, data = recommender(8)
    step = placer.data_parallel(loss_of, REPLICAS, optimizer=tf_sgd(variables), variables=variables)
    ours = [float(step(*data)) for _ in range(5)]

    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        mirrored_loss, mirrored, _ = recommender(8)
    halves = [[tensor[:4] for tensor in data], [tensor[4:] for tensor in data]]

    @tf.function
    def mirrored_step():
        def replica(context):
            which = context.replica_id_in_sync_group
            inputs = [
                tf.where(which == 0, a, b)
                if a.shape.rank == 1
                else tf.cond(which == 0, lambda a=a: a, lambda b=b: b)
                for a, b in zip(*halves, strict=True)
            ]
            with tf.GradientTape() as tape:
                loss = mirrored_loss(*inputs)
            gradients = tape.gradient(loss, mirrored)
            dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
            averaged = context.all_reduce(tf.distribute.ReduceOp.MEAN, dense)
            for variable, gradient in zip(mirrored, averaged, strict=True):
                variable.assign_sub(0.1 * gradient)
            return loss

        def run():
            return replica(tf.distribute.get_replica_context())

        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(run), axis=None)

    np.testing.assert_allclose(ours, [float(mirrored_step()) for _ in range(5)], rtol=1e-5)


def tf_sgd(variables: Any) -> Any:
    """Plain gradient descent, as an object with ``apply_gradients``."""

    class Descent:
        def apply_gradients(self, pairs):
            for gradient, variable in pairs:
                variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))

    return Descent()


class Recorded:
    """An optimizer that keeps what it is given."""

    def apply_gradients(self, pairs):
        self.pairs = {variable.name: gradient for gradient, variable in pairs}


def averaged(loss_of, data, **options) -> dict[str, Any]:
    """The gradients that two replicas apply, by variable, traced and run once."""
    recorded = Recorded()
    step = placer.data_parallel(loss_of, REPLICAS, optimizer=recorded, **options)
    taken: dict[str, Any] = {}

    @tf.function
    def run(*data):
        step.python_function(*data)
        return recorded.pairs

    taken.update(run(*data))
    return taken


def test_gradients_are_weighted_by_examples():
    """Three examples over two replicas: two and one; the mean over all is what is applied."""
    weight = tf.Variable(0.0, name="weight")
    data = [tf.constant([1.0, 2.0, 6.0])]
    found = averaged(lambda x: tf.reduce_mean(weight * x), data)
    assert float(found["weight:0"]) == pytest.approx(3.0)
    found = averaged(lambda x: tf.reduce_sum(weight * x), data, reduction="sum")
    assert float(found["weight:0"]) == pytest.approx(9.0)


def test_sparse_gradients_stay_sparse_and_missing_ones_are_left_out():
    """A table keeps its IndexedSlices with the indices of both replicas; an unused variable is not
    updated."""
    table, unused = tf.Variable(tf.ones((5, 2)), name="table"), tf.Variable(1.0, name="unused")
    data = [tf.constant([0, 3, 3, 4])]
    found = averaged(
        lambda ids: tf.reduce_mean(tf.gather(table, ids)), data, variables=[table, unused]
    )
    assert set(found) == {"table:0"}
    assert isinstance(found["table:0"], tf.IndexedSlices)
    assert found["table:0"].indices.numpy().tolist() == [0, 3, 3, 4]
    dense = tf.convert_to_tensor(found["table:0"]).numpy()
    np.testing.assert_allclose(dense[:, 0], [0.125, 0, 0, 0.25, 0.125])


def test_rows_that_all_parts_have_are_added_up():
    """The whole batch has a gradient for each position once, and optimizers square the rows before
    they add those of one index; rows of words are as many as in the whole."""
    words, places = tf.Variable(tf.ones((6, 2))), tf.Variable(tf.ones((3, 2)))

    def gradients(ids):
        with tf.GradientTape() as tape:
            found = tf.gather(words, ids) * tf.gather(places, tf.range(tf.shape(ids)[1]))
            loss = tf.reduce_mean(found * tf.cast(ids, tf.float32)[..., None])
        return list(zip((words, places), tape.gradient(loss, (words, places)), strict=True))

    @tf.function
    def both(ids):
        parts = average_gradients([gradients(ids[:2]), gradients(ids[2:])], [0.5, 0.5])
        return [gradient for _, gradient in gradients(ids)], [gradient for _, gradient in parts]

    whole, parts = both(tf.constant([[0, 1, 2], [3, 4, 5], [5, 4, 0], [2, 2, 2]]))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.indices, other.indices)
        np.testing.assert_allclose(one.values, other.values, rtol=1e-6)


def test_clipping_sees_the_averaged_gradients():
    """Replicas with gradients 2 and -2 average to nothing: there is nothing to clip."""
    weight = tf.Variable(0.0, name="weight")
    seen = []

    def clip(gradients):
        seen.extend(gradients)
        return tf.clip_by_global_norm(gradients, 0.5)[0]

    found = averaged(lambda x: tf.reduce_mean(weight * x), [tf.constant([2.0, -2.0])], clip=clip)
    assert len(seen) == 1
    assert float(found["weight:0"]) == 0.0
    found = averaged(lambda x: tf.reduce_mean(weight * x), [tf.constant([2.0, 2.0])], clip=clip)
    assert float(found["weight:0"]) == pytest.approx(0.5)


def test_outputs_are_combined_as_declared():
    """Concatenated in the order of the batch, averaged by examples, or summed."""
    step = placer.data_parallel(
        lambda x: {"rows": x * 2, "mean": tf.reduce_mean(x), "sum": tf.reduce_sum(x)},
        REPLICAS,
        outputs={"rows": "concat", "mean": "mean", "sum": "sum"},
    )
    found = step(tf.constant([1.0, 2.0, 6.0]))
    assert found["rows"].numpy().tolist() == [2.0, 4.0, 12.0]
    assert float(found["mean"]) == pytest.approx(3.0)
    assert float(found["sum"]) == pytest.approx(9.0)


def test_ragged_and_sparse_batches_are_split_by_rows():
    """Three rows over two replicas: the lengths come back in order."""
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    lengths = placer.data_parallel(lambda x: x.row_lengths(), REPLICAS)
    assert lengths(ragged).numpy().tolist() == [2, 0, 1]
    sparse = tf.sparse.from_dense([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]])
    sums = placer.data_parallel(lambda x: tf.sparse.reduce_sum(x, axis=1), REPLICAS)
    assert sums(sparse).numpy().tolist() == [1.0, 2.0, 7.0]


def test_every_replica_can_have_feeds_of_its_own():
    """Without split each argument has one entry per replica, weighted by its examples."""
    weight = tf.Variable(0.0, name="weight")
    data = [[tf.constant([1.0]), tf.constant([2.0, 6.0])]]
    found = averaged(lambda x: tf.reduce_mean(weight * x), data, split=False)
    assert float(found["weight:0"]) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: placer.data_parallel(abs, ["GPU:0"]), "two devices or more, got 1"),
        (lambda: placer.data_parallel(abs, ["GPU:0", 0]), "named twice"),
        (lambda: placer.data_parallel(abs, REPLICAS, outputs="max"), "can be concat, mean, sum"),
        (lambda: placer.data_parallel(abs, REPLICAS, reduction="max"), "can be mean, sum"),
        (lambda: placer.data_parallel(abs, REPLICAS)(tf.zeros((1, 2))), "use at most 1, or"),
        (lambda: placer.data_parallel(abs, REPLICAS)(tf.constant(1.0)), "is a scalar"),
        (lambda: placer.data_parallel(abs, REPLICAS)(), "was given no tensor"),
        (
            lambda: placer.data_parallel(lambda a, b: a, REPLICAS)(tf.zeros(4), tf.zeros(5)),
            "4 and 5 examples",
        ),
        (
            lambda: placer.data_parallel(tf.reduce_mean, REPLICAS)(tf.zeros(4)),
            "give outputs='mean'",
        ),
        (
            lambda: placer.data_parallel(abs, REPLICAS, split=False)([tf.zeros(4)] * 3),
            "one entry for each of 2 replicas; it has 3",
        ),
        (
            lambda: placer.data_parallel(tf.reduce_sum, REPLICAS, optimizer=Recorded())(
                tf.zeros(4)
            ),
            "depends on no trainable variable",
        ),
    ],
)
def test_wrong_requests_are_refused(call, told):
    """With what was found and what would work."""
    with pytest.raises(UsageError, match=told):
        call()


def test_a_batch_that_turns_out_too_small_is_refused_when_it_runs():
    """The size is unknown while the step is traced."""
    step = placer.data_parallel(abs, REPLICAS, input_signature=[tf.TensorSpec((None,))])
    assert step(tf.constant([-1.0, 2.0])).numpy().tolist() == [1.0, 2.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="smaller than the number of parts"):
        step(tf.constant([1.0]))


def test_sizes_are_numbers_under_the_behaviour_of_tensorflow_1():
    """Dimensions are objects there, which no set can hold."""
    from placer.strategies.batches import count_examples

    v1 = tf.compat.v1
    v1.disable_v2_tensorshape()
    try:
        with tf.Graph().as_default():
            x, y = v1.placeholder(tf.float32, [4, 2]), v1.placeholder(tf.float32, [None])
            assert count_examples((x, y)) == 4
            assert type(count_examples((x, y))) is int
    finally:
        v1.enable_v2_tensorshape()
