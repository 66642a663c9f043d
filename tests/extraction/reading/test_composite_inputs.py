"""Ragged and sparse inputs: which part each fed tensor is, in every format, and how it is bound."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402

from placer.errors import UsageError  # noqa: E402
from placer.extraction.extractor import extract  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402
from placer.extraction.reading.training_steps import batch_specs  # noqa: E402

v1 = tf.compat.v1

COLUMNS, WIDTH = 100, 8


class Pooled(tf.Module):
    """An embedding of ids, pooled by row, and a matrix read by a sparse one."""

    def __init__(self):
        self.table = tf.Variable(tf.ones([COLUMNS, WIDTH]), name="table")

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int64)])
    def ragged(self, ids):
        embedded = tf.ragged.map_flat_values(lambda flat: tf.gather(self.table, flat), ids)
        return {"y": tf.reduce_sum(embedded, axis=1)}

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None, None], tf.int64)])
    def nested(self, ids):
        embedded = tf.ragged.map_flat_values(lambda flat: tf.gather(self.table, flat), ids)
        return {"y": tf.reduce_sum(tf.reduce_sum(embedded, axis=2), axis=1)}

    @tf.function(input_signature=[tf.SparseTensorSpec([None, COLUMNS], tf.float32)])
    def sparse(self, x):
        return {"y": tf.sparse.sparse_dense_matmul(x, self.table)}


POOLED = Pooled()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A SavedModel whose signatures know nothing but the parts."""
    folder = tmp_path_factory.mktemp("pooled") / "model"
    functions = {name: getattr(POOLED, name) for name in ("ragged", "nested", "sparse")}
    tf.saved_model.save(POOLED, folder, signatures=functions)
    return folder


def parts(program):
    """Role, level and whole of every input, by key."""
    return {
        item.key: item.part and (item.part.role, item.part.level, item.part.of)
        for item in program.inputs
    }


def shapes(extraction):
    """The shape of every input, by key."""
    ops = extraction.graph.ops
    return {item.key: ops[item.op].info.outputs[0].shape for item in extraction.inputs}


RAGGED = {"ids": ("flat_values", 0, "ids"), "ids_1": ("row_splits", 0, "ids")}
NESTED = {**RAGGED, "ids_2": ("row_splits", 1, "ids")}
SPARSE = {
    "x": ("indices", 0, "x"),
    "x_1": ("values", 0, "x"),
    "x_2": ("dense_shape", 0, "x"),
}


@pytest.mark.parametrize(
    ("name", "expected"), [("ragged", RAGGED), ("nested", NESTED), ("sparse", SPARSE)]
)
def test_live_functions_and_saved_signatures_tell_the_parts(saved, name, expected):
    """By the spec of the function, which a SavedModel keeps apart from the signature."""
    assert parts(load_program(saved, signature=name)) == expected
    live = parts(load_program(getattr(POOLED, name)))
    assert sorted(map(str, live.values())) == sorted(map(str, expected.values()))


def test_placeholders_of_version_1_tell_the_parts():
    """By the names that TensorFlow gives them; dense ones of such names are no parts."""
    with tf.Graph().as_default() as graph:
        x = v1.sparse_placeholder(tf.float32, [None, COLUMNS], name="x")
        tf.sparse.sparse_dense_matmul(x, tf.ones([COLUMNS, WIDTH]), name="y")
        ids = v1.ragged.placeholder(tf.int64, 1, [], name="ids")
        tf.identity(ids.values, name="flat")
        tf.identity(ids.row_splits, name="splits")
        best = v1.placeholder(tf.float32, [None, 5], name="best/values")
        where = v1.placeholder(tf.int64, [None, 5], name="best/indices")
        tf.gather(best, where, batch_dims=1, name="z")
    assert parts(load_program(graph)) == {
        "x/values": ("values", 0, "x"),
        "x/indices": ("indices", 0, "x"),
        "ids/flat_values": ("flat_values", 0, "ids"),
        "ids/row_splits_0": ("row_splits", 0, "ids"),
        "best/values": None,
        "best/indices": None,
    }
    bound = extract(graph, batch_size=4, ragged={"x": (None, 3), "ids": (4, 2)})
    assert shapes(bound)["x/indices"] == (12, 2)
    assert bound.graph.ops["y/SparseTensorDenseMatMul"].info.outputs[0].shape == (4, WIDTH)
    assert bound.unknown == ()


def test_an_op_that_reads_all_parts_tells_them():
    """Without telling names, as in a graph that was frozen out of a function."""
    with tf.Graph().as_default() as graph:
        parts_of_x = (
            v1.placeholder(tf.int64, [None, 2], name="a"),
            v1.placeholder(tf.float32, [None], name="b"),
            v1.placeholder(tf.int64, [2], name="c"),
        )
        table = tf.ones([COLUMNS, WIDTH])
        tf.raw_ops.SparseTensorDenseMatMul(
            a_indices=parts_of_x[0], a_values=parts_of_x[1], a_shape=parts_of_x[2], b=table
        )
    assert parts(load_program(graph)) == {
        "a": ("indices", 0, "a"),
        "b": ("values", 0, "a"),
        "c": ("dense_shape", 0, "a"),
    }


def test_keras_inputs_may_be_sparse():
    """They are traced as what they are, and keep their names."""
    x = keras.Input([COLUMNS], sparse=True, name="x")
    d = keras.Input([4], name="d")
    joined = keras.layers.Concatenate()([keras.layers.Dense(4)(x), d])
    model = keras.Model([x, d], keras.layers.Dense(2)(joined))
    assert parts(load_program(model)) == {**SPARSE, "d": None}


def test_the_batch_binds_rows_and_not_the_length_of_rows(saved):
    """One more row split than rows; how many values there are stays open, with a warning."""
    found = extract(saved, signature="nested", batch_size=32)
    assert shapes(found) == {"ids": (None,), "ids_1": (33,), "ids_2": (None,)}
    (message,) = (text for code, text, _ in found.warnings if code == "ragged_open")
    assert "with 32 rows" in message
    assert "--ragged ids=ROWSxLENGTHxLENGTH" in message
    found = extract(saved, signature="sparse", batch_size=32)
    assert shapes(found) == {"x": (None, 2), "x_1": (None,), "x_2": (2,)}
    assert found.graph.tensors[found.outputs[0][1]].properties.shape == (32, WIDTH)


def test_mean_lengths_say_the_rest(saved):
    """32 rows of 5 rows of 4: every size in the program follows, as a run has it."""
    found = extract(saved, signature="nested", ragged={"ids": (32, 5, 4)})
    assert shapes(found) == {"ids": (640,), "ids_1": (33,), "ids_2": (161,)}
    assert found.unknown == ()
    assert [code for code, *_ in found.warnings if code.startswith("ragged")] == ["ragged_size"]
    splits = [range(0, 161, 5), range(0, 641, 4)]
    ids = tf.RaggedTensor.from_nested_row_splits(tf.zeros([640], tf.int64), splits)
    real = POOLED.nested(ids)
    output = found.graph.tensors[found.outputs[0][1]].properties.shape
    assert output == tuple(real["y"].shape) == (32, WIDTH)
    many = extract(saved, signature="sparse", batch_size=16, ragged={"x": (None, 50)})
    assert shapes(many) == {"x": (800, 2), "x_1": (800,), "x_2": (2,)}


@pytest.mark.parametrize(
    ("signature", "ragged", "message"),
    [
        (
            "ragged",
            {"x": (3, 4)},
            r"'x' is not a ragged or sparse input \(there are: ids\)",
        ),
        (
            "ragged",
            {"ids": (3, 4, 5)},
            r"gives 3 sizes for 'ids', which takes 2: ragged={'ids': \('ROWS'",
        ),
        ("ragged", {"ids": (None, 5)}, "only the number of rows may be open"),
        ("ragged", {"ids": (5, None)}, "only the number of rows may be open"),
        ("sparse", {"x": (3, 5000)}, "gives 5,000 non-zeros to a row of 100 columns"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(saved, signature, ragged, message):
    """What was asked, what is there, and what to write."""
    with pytest.raises(UsageError, match=message):
        extract(saved, signature=signature, ragged=ragged)


def test_parts_keep_the_shapes_that_are_given_for_them(saved):
    """``--shape`` wins, and then nothing is open."""
    found = extract(saved, signature="ragged", batch_size=2, shapes={"ids": (7,)})
    assert shapes(found) == {"ids": (7,), "ids_1": (3,)}
    assert "ragged_open" not in [code for code, *_ in found.warnings]


def test_training_steps_take_ragged_and_sparse_batches():
    """They are traced as what ``fit`` gets, with an open batch; they were taken for dense ones."""
    ragged = tf.ragged.constant([[1, 2], [3]], dtype=tf.int64)
    sparse = tf.sparse.from_dense(tf.eye(2, COLUMNS))
    assert batch_specs((ragged, sparse)) == (
        tf.RaggedTensorSpec([None, None], tf.int64),
        tf.SparseTensorSpec([None, COLUMNS], tf.float32),
    )
