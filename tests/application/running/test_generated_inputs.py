"""Input values: what is given is held against what the program takes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from placer.application.running.generated_inputs import input_values
from placer.errors import UsageError
from placer.extraction.graph_defs.program import ProgramInput

PROGRAM = SimpleNamespace(
    inputs=(
        ProgramInput(key="x", tensor="x:0", dtype="float32", shape=(None, 3)),
        ProgramInput(key="free", tensor="free:0", dtype="int32", shape=None),
    )
)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"y": 1}, "no input 'y'; the inputs are x, free"),
        ({"x": np.zeros((2, 4))}, r"'x' have shape \[2, 4\]; the model takes \[\?, 3\]"),
        ({"x": np.zeros(3)}, r"'x' have shape \[3\]"),
        ({"x": [["a", "b", "c"]]}, "'x' cannot be made float32"),
        ([1.0], "the model takes 2 inputs .*got 1 value"),
    ],
)
def test_values_that_do_not_fit_are_refused(given, told):
    """Before anything runs, in the words of the model's inputs."""
    pytest.importorskip("tensorflow")
    with pytest.raises(UsageError, match=told):
        input_values(PROGRAM, given)


def test_values_that_fit_are_taken():
    """In the dtype of the input; an input of unknown shape takes any."""
    pytest.importorskip("tensorflow")
    found = input_values(PROGRAM, {"x": np.ones((5, 3)), "free": [[1]]})
    assert (found["x"].dtype, found["x"].shape) == (np.float32, (5, 3))
    assert (found["free"].dtype, found["free"].shape) == (np.int32, (1, 1))


def test_made_up_examples_parse():
    """They have the features that the program parses, of their types, shapes and lengths."""
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        examples = v1.placeholder(tf.string, [None], "examples")
        found = tf.io.parse_example(
            tf.identity(examples),
            {
                "dense": tf.io.FixedLenFeature([2, 3], tf.float32),
                "name": tf.io.FixedLenFeature([], tf.string),
                "history": tf.io.VarLenFeature(tf.int64),
                "tags": tf.io.RaggedFeature(tf.string),
                "steps": tf.io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True),
            },
        )
    item = ProgramInput(key="in", tensor="examples:0", dtype="string", shape=(None,))
    program = SimpleNamespace(inputs=(item,), graph_def=graph.as_graph_def())
    bindings = {"batch_size": 4, "ragged": {"history": (None, 5)}}
    values = input_values(program, None, bindings)
    assert values["in"].shape == (4,)
    with v1.Session(graph=graph) as session:
        parsed = session.run(found, {"examples:0": values["in"]})
    assert parsed["dense"].shape == (4, 2, 3)
    assert list(parsed["name"]) == [b"abc"] * 4
    assert tuple(parsed["history"].dense_shape) == (4, 5)
    assert parsed["tags"].to_list() == [[b"abc"] * 8] * 4
    assert parsed["steps"].shape[::2] == (4, 2)
    assert list(input_values(program, None, bindings)["in"]) == list(values["in"])


def test_made_up_sequences_parse():
    """Steps of every listed feature, as many as are bound, beside features of the context."""
    tf = pytest.importorskip("tensorflow")
    from placer.extraction.reading.loading import load_program

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sequences")])
    def parse(sequences):
        context, steps, lengths = tf.io.parse_sequence_example(
            sequences,
            {"user": tf.io.FixedLenFeature([], tf.int64), "tags": tf.io.VarLenFeature(tf.string)},
            {
                "frames": tf.io.FixedLenSequenceFeature([2], tf.float32),
                "words": tf.io.VarLenFeature(tf.string),
                "clicks": tf.io.RaggedFeature(tf.int64),
            },
        )
        return context, steps, lengths

    ragged = {"frames": (None, 5), "words": (None, 4, 2), "clicks": (None, 3), "tags": (None, 6)}
    values = input_values(load_program(parse), None, {"batch_size": 4, "ragged": ragged})
    context, steps, lengths = parse(values["sequences"])
    assert context["user"].shape == (4,)
    assert tuple(context["tags"].dense_shape) == (4, 6)
    assert steps["frames"].shape == (4, 5, 2)
    assert list(lengths["frames"]) == [5] * 4
    assert tuple(steps["words"].dense_shape) == (4, 4, 2)
    assert steps["clicks"].bounding_shape().numpy().tolist() == [4, 3, 1]


def test_what_is_decoded_is_made_up_as_such():
    """Pictures and sounds, as they are fed, in base64, out of messages and in loops; a picture of
    the size that its op was bound to."""
    tf = pytest.importorskip("tensorflow")
    from placer.extraction.reading.loading import load_program

    def picture(message):
        feature = {"image": tf.io.FixedLenFeature([], tf.string)}
        encoded = tf.io.parse_single_example(message, feature)["image"]
        return tf.image.resize(tf.io.decode_jpeg(encoded, channels=3), (8, 8))

    texts = tf.TensorSpec([None], tf.string)

    @tf.function(input_signature=[texts] * 5)
    def decode(plain, coded, cropped, sounds, messages):
        return (
            tf.io.decode_png(plain[0], channels=4, name="picture"),
            tf.io.decode_image(tf.io.decode_base64(coded)[1], expand_animations=False),
            tf.image.decode_and_crop_jpeg(cropped[0], [8, 16, 24, 32], channels=3),
            tf.map_fn(
                lambda text: tf.audio.decode_wav(text)[0], sounds, fn_output_signature="float32"
            ),
            tf.map_fn(picture, messages, fn_output_signature="float32"),
        )

    shapes = {"picture": (20, 30, 4)}
    values = input_values(load_program(decode), None, {"batch_size": 2, "shapes": shapes})
    plain, coded, cropped, sounds, pictures = decode(*values.values())
    assert plain.shape == (20, 30, 4)
    assert coded.shape[2] == 3
    assert cropped.shape == (24, 32, 3)
    assert sounds.shape[::2] == (2, 1)
    assert pictures.shape == (2, 8, 8, 3)
    for found in (plain, coded, cropped, pictures[0], pictures[1]):
        assert float(tf.math.reduce_std(tf.cast(found, "float32"))) > 1


def test_the_shape_of_a_sparse_placeholder_is_fed_with_it():
    """Its default has -1 for the batch, which no op takes."""
    tf = pytest.importorskip("tensorflow")
    from placer.application.running.generated_inputs import default_feeds
    from placer.extraction.reading.loading import load_program

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        ids = v1.sparse_placeholder(tf.int64, [None, 5], "ids")
        tf.identity(tf.sparse.to_dense(ids), "y")
    program = load_program(graph, outputs=["y"])
    bindings = {"batch_size": 4, "ragged": {"ids": (None, 2)}}
    values = input_values(program, None, bindings)
    feeds = {item.tensor: values[item.key] for item in program.inputs}
    feeds |= default_feeds(program, values, bindings)
    with v1.Session(graph=graph) as session:
        assert session.run("y:0", feeds).shape == (4, 5)
