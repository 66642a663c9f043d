"""Sizes of parsed features, split texts and looked-up ids, held against runs of TensorFlow."""

from __future__ import annotations

import pytest

from placer.errors import ShapeError, UsageError
from placer.extraction import extract
from placer.extraction.shapes.ragged_sources import RaggedSource
from placer.pipeline.workload import require_known_shapes

ROWS, IDS, WORDS = 6, 5, 3


def example_graph():
    """Serialised examples with a sparse, a ragged and a dense feature, pooled per example."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        examples = v1.placeholder(tf.string, [None], "examples")
        features = {
            "history": tf.io.VarLenFeature(tf.int64),
            "tags": tf.io.RaggedFeature(tf.string),
            "dense": tf.io.FixedLenFeature([2], tf.float32),
        }
        found = tf.io.parse_example(examples, features)
        table = v1.get_variable("table", [10, 4])
        pooled = tf.nn.safe_embedding_lookup_sparse(table, found["history"])
        tf.identity(pooled, "pooled")
        tf.identity(found["tags"].values, "tags")
        tf.identity(tf.reduce_max(tf.strings.length(found["tags"]), axis=1), "longest")
        tf.identity(found["dense"], "dense")
    return graph


def shapes_of(extraction, *names):
    """The shapes of tensors."""
    return [extraction.graph.tensors[f"{name}:0"].properties.shape for name in names]


def run_examples(graph):
    """The shapes that a run has on examples of the lengths above."""
    import tensorflow as tf

    def example():
        message = tf.train.Example()
        message.features.feature["history"].int64_list.value.extend(range(IDS))
        message.features.feature["tags"].bytes_list.value.extend([b"a"] * WORDS)
        message.features.feature["dense"].float_list.value.extend([0.0, 1.0])
        return message.SerializeToString()

    v1 = tf.compat.v1
    with v1.Session(graph=graph) as session:
        session.run(graph.get_operation_by_name("table/Assign"))
        values = session.run(
            ["pooled:0", "tags:0", "dense:0", "longest:0"],
            {"examples:0": [example() for _ in range(ROWS)]},
        )
    return [value.shape for value in values]


@pytest.mark.slow
def test_lengths_of_parsed_features_are_bound_by_their_keys():
    """All shapes follow, those of what is pooled per example too, as a run has them."""
    graph = example_graph()
    found = extract(
        graph,
        outputs=["pooled", "tags", "dense", "longest"],
        batch_size=ROWS,
        ragged={"history": (None, IDS), "tags": (ROWS, WORDS)},
    )
    assert found.unknown == ()
    names = ("pooled", "tags", "dense", "longest")
    assert shapes_of(found, *names) == run_examples(graph)


@pytest.mark.slow
def test_one_message_names_all_features_without_a_length():
    """In the words of the model, with the option that says each."""
    found = extract(example_graph(), outputs=["pooled", "tags"], batch_size=ROWS)
    told = [message for code, message, _ in found.warnings if code == "ragged_open"]
    assert [message.split(" is ")[0] for message in told] == ["history", "tags"]
    with pytest.raises(
        ShapeError, match=r"ragged={'history': \(None, 'VALUES'\)}.*{'tags': \(None, 'VALUES'\)}"
    ):
        require_known_shapes(found)


@pytest.mark.slow
def test_lengths_that_do_not_fit_are_refused():
    """A name that is no feature, and rows that the batch contradicts."""
    graph = example_graph()
    with pytest.raises(UsageError, match=r"'clicks'.*there are: history, tags"):
        extract(graph, outputs=["pooled"], batch_size=ROWS, ragged={"clicks": (None, 3)})
    with pytest.raises(UsageError, match="gives 7 rows, there are 6"):
        extract(graph, outputs=["pooled"], batch_size=ROWS, ragged={"history": (7, 3)})


def text_graph():
    """Texts, split, looked up, and padded to four words."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        texts = v1.placeholder(tf.string, [None], "texts")
        with tf.name_scope("vectorise"):
            words = tf.strings.split(texts)
            table = tf.lookup.StaticVocabularyTable(
                tf.lookup.KeyValueTensorInitializer(["a"], [1], tf.string, tf.int64), 2
            )
            ids = tf.ragged.map_flat_values(table.lookup, words)
            padded = ids.to_tensor(shape=[None, 4])
        tf.identity(padded, "padded")
        tf.identity(ids.values, "ids")
    return graph


@pytest.mark.slow
def test_words_of_a_text_are_bound_by_the_scope_that_splits_it():
    """What is padded has as many rows as there are texts; an id for every word."""
    found = extract(text_graph(), batch_size=ROWS, ragged={"vectorise": (None, WORDS)})
    numbered = RaggedSource(
        name="t_1", op="m/t_1/StringSplitV2", kind="split", tensor="", outputs=()
    )
    assert not numbered.is_called("t")
    assert numbered.may_be_called("t")
    assert found.unknown == ()
    assert shapes_of(found, "padded", "ids") == [(ROWS, 4), (ROWS * WORDS,)]


@pytest.mark.slow
def test_a_lookup_has_one_value_for_every_key():
    """Also where the file states its shape in part; nothing is said to depend on data."""
    import tensorflow as tf

    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a"], [1], tf.string, tf.int64), 0
    )

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.string, "words")])
    def look_up(words):
        return tf.one_hot(table.lookup(words), 4)

    found = extract(look_up, batch_size=5)
    assert found.unknown == ()
    assert "data_dependent_shape" not in {code for code, _, _ in found.warnings}
    (shape,) = {
        op.info.outputs[0].shape
        for op in found.graph.ops.values()
        if op.op_type == "LookupTableFindV2"
    }
    assert shape == (5, 3)


def test_the_shapes_of_a_source():
    """A sparse one has indices of its rank, a ragged one a row split more than rows."""
    sparse = RaggedSource(name="f", op="p", kind="sparse", tensor="x", outputs=(0, 1, 2))
    assert sparse.shapes(4, 3) == {0: (12, 2), 1: (12,), 2: (2,)}
    assert sparse.shapes(None, 3) == {0: (3, 1), 1: (3,), 2: (1,)}
    ragged = RaggedSource(name="f", op="p", kind="ragged", tensor="x", outputs=(5, 6))
    assert ragged.shapes(4, 3) == {5: (12,), 6: (5,)}
    assert ragged.values(2, 3) == {6: (0, 3, 6)}
    assert sparse.values(2, 2) == {0: (0, 0, 0, 1, 1, 0, 1, 1), 2: (2, 2)}
    assert sparse.values(None, 2) == {0: (0, 1), 2: (2,)}
    assert sparse.values(1 << 16, 2) == {2: (1 << 16, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("is_one", [False, True])
def test_steps_of_sequences_are_bound_by_the_keys_of_their_features(is_one):
    """Dense, sparse and ragged ones, with a mean of values a step, as a run has them; of one
    message or of a batch."""
    import tensorflow as tf

    from placer.application.running.generated_inputs import input_values
    from placer.extraction.reading.loading import load_program

    features = {
        "frames": tf.io.FixedLenSequenceFeature([2], tf.float32),
        "words": tf.io.VarLenFeature(tf.string),
        "clicks": tf.io.RaggedFeature(tf.int64),
    }
    parse = tf.io.parse_single_sequence_example if is_one else tf.io.parse_sequence_example

    @tf.function(input_signature=[tf.TensorSpec([] if is_one else [None], tf.string, name="m")])
    def padded(messages):
        context, steps, *_ = parse(messages, {"tags": tf.io.VarLenFeature(tf.string)}, features)
        return {
            "frames": steps["frames"],
            "words": tf.sparse.to_dense(steps["words"]),
            "clicks": steps["clicks"].to_tensor(),
            "tags": tf.sparse.to_dense(context["tags"]),
        }

    lengths = {"frames": (None, 5), "words": (None, 4, 2), "clicks": (None, 3), "tags": (None, 6)}
    found = extract(padded, batch_size=ROWS, ragged=lengths)
    assert found.unknown == ()
    values = input_values(load_program(padded), None, {"batch_size": ROWS, "ragged": lengths})
    run = padded(values["m"])
    said = dict(found.outputs)
    assert {key: found.graph.tensors[said[key]].properties.shape for key in run} == {
        key: tuple(value.shape) for key, value in run.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("by_splits", [True, False])
def test_what_is_padded_has_rows_of_equal_length(by_splits):
    """Two levels, by row splits or by the row of every element: sizes that nothing asks for are
    those of rows that are equally long, and are said to depend on data."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        values = v1.placeholder(tf.float32, [60, 2], "values")
        if by_splits:
            outer, inner = (v1.placeholder(tf.int64, [n], f"splits_{n}") for n in (4, 13))
            ragged = tf.RaggedTensor.from_nested_row_splits(values, [outer, inner], validate=False)
        else:
            rows, inner = (v1.placeholder(tf.int64, [n], f"rows_{n}") for n in (12, 60))
            flat = tf.RaggedTensor.from_value_rowids(values, inner, 12, validate=False)
            ragged = tf.RaggedTensor.from_value_rowids(flat, rows, 3, validate=False)
        tf.identity(ragged.to_tensor(), "padded")
    found = extract(graph, outputs=["padded"])
    assert shapes_of(found, "padded") == [(3, 4, 5, 2)]
    assert "data_dependent_shape" in {code for code, _, _ in found.warnings}


@pytest.mark.slow
def test_parts_of_a_ragged_tensor_are_known_by_who_pads_them():
    """A graph without specs: an op that reads values and row splits says what they are."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        values = v1.placeholder(tf.int64, [None], "ids")
        splits = v1.placeholder(tf.int64, [None], "ids_1")
        ragged = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        tf.identity(ragged.to_tensor(), "padded")
    found = extract(graph, outputs=["padded"], batch_size=4, ragged={"ids": (None, 7)})
    assert shapes_of(found, "padded") == [(4, 7)]


@pytest.mark.slow
def test_crosses_and_counts_of_rows_follow_from_their_inputs():
    """Crosses of dense columns have one value for each combination, counts one row for each."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        a, b = v1.placeholder(tf.string, [None, 2], "a"), v1.placeholder(tf.int64, [None, 3], "b")
        tf.identity(tf.sparse.to_dense(tf.sparse.cross_hashed([a, b], 50)), "crossed")
        size, none = tf.constant(9, tf.int64), tf.zeros([0])
        tf.raw_ops.DenseBincount(input=b, size=size, weights=none, name="counted")
        counts = tf.math.bincount(b, axis=-1, minlength=9, maxlength=9)
        tf.identity(counts, "between")
        splits, flat = tf.range(5, dtype=tf.int64) * 3, tf.reshape(b, [-1])
        tf.raw_ops.RaggedBincount(
            splits=splits, values=flat, size=size, weights=none, name="ragged"
        )
    names = ("crossed", "counted", "between", "ragged")
    found = extract(graph, outputs=names, batch_size=4)
    assert found.unknown == ()
    assert "data_dependent_shape" not in {code for code, _, _ in found.warnings}
    with v1.Session(graph=graph) as session:
        fed = {"a:0": [["x", "y"]] * 4, "b:0": [[1, 2, 3]] * 4}
        run = session.run([f"{name}:0" for name in names], fed)
    assert shapes_of(found, *names) == [value.shape for value in run]
