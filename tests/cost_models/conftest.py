"""Ops of a live TensorFlow graph as cost rules see them."""

import pytest

from cost_models.op_info import OpInfo, TensorProperties

_SMALL = 64


@pytest.fixture(scope="session")
def op_info_of():
    """A function from a tf.Operation to its OpInfo, values of constant inputs included."""
    tf = pytest.importorskip("tensorflow")

    def properties(tensor):
        dims = tensor.shape.as_list() if tensor.shape.rank is not None else None
        value = tf.get_static_value(tensor) if tensor.dtype.is_integer else None
        small = value is not None and value.size <= _SMALL
        return TensorProperties(
            dtype=tensor.dtype.base_dtype.name,
            shape=None if dims is None else tuple(dims),
            value=tuple(value.ravel().tolist()) if small else None,
        )

    def attribute(value):
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, list):
            return tuple(attribute(item) for item in value)
        if isinstance(value, tf.DType):
            return value.name
        return value

    def op_info(op):
        names = [name for name in op.node_def.attr if name != "value"]
        return OpInfo(
            op=op.type,
            inputs=tuple(map(properties, op.inputs)),
            outputs=tuple(map(properties, op.outputs)),
            attributes={name: attribute(op.get_attr(name)) for name in names},
        )

    return op_info
