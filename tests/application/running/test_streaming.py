"""A model run a part at a time gives what the whole gives."""

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import UsageError


class Tower(tf.Module):
    """An embedding of 1 MB, then eight layers of 1 MB, a skip over all of them."""

    def __init__(self):
        super().__init__()
        generator = tf.random.Generator.from_seed(1)
        self.table = tf.Variable(generator.normal([1024, 256]), name="w")
        self.layers = [tf.Variable(generator.normal([512, 512]) / 20, name="w") for _ in range(8)]
        self.first = tf.Variable(generator.normal([256, 512]) / 20, name="first")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def serve(self, ids):
        x = start = tf.gather(self.table, ids) @ self.first
        for weight in self.layers:
            x = tf.nn.relu(x @ weight) + 0.5
        return {"y": x + start, "mean": tf.reduce_mean(x, 1)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream") / "model"
    model = Tower()
    tf.saved_model.save(model, folder, signatures=model.serve)
    return folder


def test_outputs_are_those_of_the_whole(saved):
    """Bit for bit, with two of nine megabytes in memory; weights of one name are told apart."""
    part = placer.stream(saved, 4 << 20)
    ids = tf.constant([3, 1, 4, 1, 5])
    whole = tf.saved_model.load(str(saved)).signatures["serving_default"](ids=ids)
    found = part(ids=ids)
    assert len(part.stages) >= 4
    assert part.weight_bytes <= 4 << 20
    assert set(found) == {"y", "mean"}
    for key in found:
        np.testing.assert_array_equal(found[key], whole[key])
    again = part(ids=tf.constant([9]))
    assert again["y"].shape == (1, 512)


def test_more_room_takes_fewer_stages(saved):
    """Everything at once is one stage."""
    assert len(placer.stream(saved, "64MiB").stages) == 1


@pytest.mark.parametrize("resident", [0, -1, "0MiB", "lots"])
def test_no_room_and_no_size_are_refused(tmp_path, resident):
    """Before the model is looked at."""
    with pytest.raises(UsageError, match="resident: "):
        placer.stream(tmp_path / "nothing", resident)


def test_what_cannot_be_streamed(saved, tmp_path):
    """Too little room for one layer, wrong inputs, and a program that writes its variables."""
    told = r"half of what resident allows, .*: give resident='2MiB'"
    with pytest.raises(UsageError, match=told):
        placer.stream(saved, "1MiB")
    with pytest.raises(UsageError, match="takes ids, and was given x"):
        placer.stream(saved, "4MiB")(x=1)

    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([], name="x")])
        def serve(self, x):
            return {"y": self.count.assign_add(x)}

    model = Counter()
    tf.saved_model.save(model, tmp_path / "counter", signatures=model.serve)
    with pytest.raises(UsageError, match="AssignAddVariableOp on the variable"):
        placer.stream(tmp_path / "counter", "4MiB")
