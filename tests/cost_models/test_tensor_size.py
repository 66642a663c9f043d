import pytest

from cost_models.op_info import TensorProperties
from cost_models.tensor_size import (
    counted_bytes,
    counted_shape,
    element_bytes,
    element_count,
    tensor_bytes,
)

UNSIZED = ("string", "variant", "resource")


def test_every_dtype_has_tensorflows_size():
    """For each of TensorFlow's dtypes the bytes per element are DType.size, and none for what a
    shape does not size."""
    dtypes = pytest.importorskip("tensorflow.python.framework.dtypes")
    names = {name for name in dtypes._TYPE_TO_STRING.values() if not name.endswith("_ref")}
    assert len(names) > 30
    for name in names:
        name = dtypes.as_dtype(name).name
        expected = None if name in UNSIZED else dtypes.as_dtype(name).size
        assert element_bytes(name) == expected, name
        assert element_bytes(f"{name}_ref") == expected


def test_real_tensors_have_that_many_bytes():
    """Buffers that TensorFlow really allocates have the bytes we say, four-bit integers too."""
    tf = pytest.importorskip("tensorflow")
    numbers = "float16 bfloat16 float32 float64 int8 uint16 int64 complex64 complex128 bool"
    for name in numbers.split():
        buffer = tf.zeros([3, 5], tf.as_dtype(name)).numpy()
        assert tensor_bytes(TensorProperties(dtype=name, shape=(3, 5))) == buffer.nbytes, name
    for name in ("int4", "uint4"):
        buffer = tf.cast(tf.ones([7], tf.int8), tf.as_dtype(name)).numpy()
        assert tensor_bytes(TensorProperties(dtype=name, shape=(7,))) == buffer.nbytes == 7


@pytest.mark.parametrize("shape", [None, (None,), (3, None), (0, None)])
def test_unknown_shapes_have_no_size(shape):
    """A tensor with an unknown rank or dimension has no size, and counts ones for its work."""
    properties = TensorProperties(dtype="float32", shape=shape)
    assert tensor_bytes(properties) is None
    assert counted_shape(shape) == tuple(1 if d is None else d for d in shape or ())
    assert counted_bytes(properties) == 4 * element_count(properties)


@pytest.mark.parametrize("dtype", UNSIZED)
def test_what_a_shape_does_not_size_has_no_size(dtype):
    """Strings, variants and resources have no bytes, whatever their shape."""
    properties = TensorProperties(dtype=dtype, shape=(3,))
    assert tensor_bytes(properties) is None
    assert counted_bytes(properties) == 0


def test_an_empty_and_a_scalar_tensor():
    """No elements are no bytes; a scalar is one element."""
    assert tensor_bytes(TensorProperties(dtype="float32", shape=(0, 3))) == 0
    assert tensor_bytes(TensorProperties(dtype="float64", shape=())) == 8


def test_a_mistyped_dtype_is_refused():
    """What TensorFlow does not know raises and lists what it knows."""
    with pytest.raises(ValueError, match=r"unknown dtype 'float23'.*float32"):
        element_bytes("float23")
