"""Checkpoints read variable by variable, onto devices, and refused whole where they do not fit."""

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import ModelError, UsageError


class Network(tf.Module):
    """Two layers of 8 KiB, which stay empty where no values are asked for."""

    def __init__(self, names=("first", "second"), size=64):
        super().__init__()
        for number, name in enumerate(names):
            value = lambda n=number: tf.fill([32, size], float(n))  # noqa: E731
            setattr(self, name, tf.Variable(value, name=name))

    @tf.function(input_signature=[tf.TensorSpec([4, 32], name="x")])
    def run(self, x):
        return tf.matmul(
            tf.matmul(x, self.first, name="a"), self.second, transpose_b=True, name="b"
        )


@pytest.fixture
def saved(tmp_path):
    """(prefix, values) of a checkpoint with random values."""
    model = Network()
    rng = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(rng.random(variable.shape, np.float32))
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "model"))
    return prefix, [variable.numpy() for variable in model.variables]


def test_a_model_is_planned_without_memory_and_filled_on_its_devices(saved):
    """Empty while it is planned, empty on its devices, then loaded: nothing is copied again."""
    prefix, values = saved
    with placer.empty_variables():
        sketch = Network()
    assert not any(tf.raw_ops.VarIsInitializedOp(resource=v.handle) for v in sketch.variables)
    pins = {"a": "GPU:0", "b": "GPU:1"}
    plan = placer.place(sketch.run, "2xGPU:1GiB", pins=pins, time_limit=2)
    with plan.scope(values=False):
        model = Network()
    seen = []
    target = tf.train.Checkpoint(model=model)
    count = placer.load_checkpoint(target, prefix, progress=lambda *row: seen.append(row))
    assert count == sum(value.nbytes for value in values) == seen[-1][0] == seen[-1][1]
    placed = placer.apply(model.run, plan)
    assert all(moved.copy is moved.original for moved in placed.moved)
    found = {moved.name: placed.mapping.planned(moved.copy.device) for moved in placed.moved}
    assert found == plan.variables
    assert set(found.values()) == {"GPU:0", "GPU:1"}
    for variable, value in zip(model.variables, values, strict=True):
        assert np.array_equal(variable.numpy(), value)
    x = tf.ones([4, 32])
    assert np.array_equal(placed(x), model.run(x))


def test_a_checkpoint_with_a_missing_or_extra_variable_is_refused_whole(saved):
    """Both sides are named, nothing is loaded; ``partial`` loads what both have."""
    prefix, values = saved
    model = Network(names=("first", "third"))
    target = tf.train.Checkpoint(model=model)
    with pytest.raises(
        ModelError, match=r"checkpoint lacks model/third.*; the model lacks model/second"
    ) as caught:
        placer.load_checkpoint(target, prefix)
    assert "Nothing was loaded" in str(caught.value)
    assert np.all(model.first.numpy() == 0.0)
    placer.load_checkpoint(target, prefix, partial=True)
    assert np.array_equal(model.first.numpy(), values[0])


def test_another_shape_and_no_checkpoint_are_refused(saved, tmp_path):
    """The shapes of both sides, and what to give instead of a path that is none."""
    with pytest.raises(ModelError, match=r"\[32, 64\].*\(32, 16\)"):
        placer.load_checkpoint(tf.train.Checkpoint(model=Network(size=16)), saved[0])
    with pytest.raises(UsageError, match="a mapping of names to variables, got an object of type"):
        placer.load_checkpoint(3, saved[0])
    with pytest.raises(ModelError, match="no checkpoint"):
        placer.load_checkpoint(Network(), tmp_path / "nothing")
    (tmp_path / "w.weights.h5").write_bytes(b"HDF")
    with pytest.raises(UsageError, match=r"read .* with model\.load_weights"):
        placer.load_checkpoint(Network(), tmp_path / "w.weights.h5")


def test_checkpoints_of_tensorflow_1_go_by_names(tmp_path):
    """A checkpoint of names wants a mapping of names, and fills the variables it names."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weight = tf.compat.v1.get_variable("weight", initializer=tf.fill([3], 7.0))
        session.run(weight.initializer)
        saver = tf.compat.v1.train.Saver([weight])
        prefix = saver.save(session, str(tmp_path / "v1"), write_meta_graph=False)
    variable = tf.Variable(tf.zeros([3]))
    with pytest.raises(UsageError, match="mapping"):
        placer.load_checkpoint(tf.train.Checkpoint(v=variable), prefix)
    placer.load_checkpoint({"weight": variable}, prefix)
    assert variable.numpy().tolist() == [7.0] * 3
