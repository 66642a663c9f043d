"""Unknown dimensions: tied by name, left as declared, or those of dataset elements."""

import pytest

tf = pytest.importorskip("tensorflow")

from placer.errors import ShapeError, UsageError  # noqa: E402
from placer.extraction.analysis import analyse_program  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402
from placer.extraction.shapes.binding import resolve_shapes  # noqa: E402

v1 = tf.compat.v1


def test_names_tie_dimensions():
    """Dimensions with one name get one size, and the plan says which axes they are."""
    shapes, _, dims = resolve_shapes({"ids": ("B", "T"), "mask": ("B", "T", 4)}, {"B": 8, "T": 128})
    assert shapes == {"ids": (8, 128), "mask": (8, 128, 4)}
    assert dims == {
        "B": {"size": 8, "of": ["ids:0", "mask:0"]},
        "T": {"size": 128, "of": ["ids:1", "mask:1"]},
    }


def test_names_without_a_size_and_sizes_without_a_name_are_refused():
    """Both are typing errors, told with what to write."""
    with pytest.raises(
        UsageError, match=r"'ids' has a dimension 'T' without a size: add dims={'T'"
    ):
        resolve_shapes({"ids": ("B", "T")}, {"B": 8})
    with pytest.raises(UsageError, match=r"no shape uses T \(dims={'T': 128}\)"):
        resolve_shapes({"ids": ("B", 4)}, {"B": 8, "T": 128})


def test_a_dimension_may_stay_as_declared():
    """``None`` keeps what the program says, which the batch size may then bind."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 3], name="x")
        tf.identity(x, name="y")
    bound = analyse_program(load_program(graph), {}, batch_size=2, shapes={"x": (None, 5, None)})
    assert bound.graph.tensors["y:0"].properties.shape == (2, 5, 3)


def test_the_batch_size_binds_what_a_dataset_returns():
    """The leading unknown dimension of a dataset's elements is the batch, scalars have none."""
    with tf.Graph().as_default() as graph:
        data = tf.data.Dataset.from_tensor_slices((tf.zeros([10, 3]), tf.zeros([10])))
        iterator = v1.data.make_one_shot_iterator(data.batch(4))
        x, label = iterator.get_next()
        tf.matmul(x, tf.ones([3, 2]), name="y")
        tf.reduce_sum(label, name="total")
    assert x.shape.as_list() == [None, 3]
    program = load_program(graph)
    assert "y:0" in analyse_program(program, {}).unknown
    bound = analyse_program(program, {}, batch_size=4)
    assert bound.unknown == ()
    assert bound.warnings == ()
    assert bound.graph.tensors["y:0"].properties.shape == (4, 2)


def test_a_branch_that_does_not_fit_is_no_fault_of_the_binding():
    """What a conditional guards against may be impossible with the bound shapes."""
    with tf.Graph().as_default() as graph:
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [None, None], name="x")
            single = tf.equal(tf.shape(x)[1], 1)
            y = v1.cond(single, lambda: tf.squeeze(x, [1]), lambda: tf.reduce_sum(x, 1))
            tf.identity(y, name="y")
        finally:
            v1.enable_control_flow_v2()
    bound = analyse_program(load_program(graph), {}, shapes={"x": (4, 3)})
    assert [code for code, *_ in bound.warnings] == ["refused_op"]
    with tf.Graph().as_default() as graph:
        tf.squeeze(v1.placeholder(tf.float32, [None, None], name="x"), [1])
    with pytest.raises(ShapeError, match="shapes that were given do not fit"):
        analyse_program(load_program(graph), {}, shapes={"x": (4, 3)})
