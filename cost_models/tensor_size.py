"""Bytes of a tensor, and the one rule for unknown dimensions.

The rule: a tensor whose shape is not fully known has no size (``None``), never a guessed one.
Where work has to be counted all the same, :func:`element_count` and :func:`counted_bytes` take an
unknown dimension as 1, and the cost is marked inaccurate.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TypeGuard

from cost_models.op_info import Shape, TensorProperties

_DTYPES: Mapping[int | None, str] = {
    # TensorFlow gives each element of a type under 8 bits a byte of its own.
    1: """
        bool int8 uint8 qint8 quint8 float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz
        float8_e5m2fnuz int4 uint4 int2 uint2 float4_e2m1fn
    """,
    2: "int16 uint16 float16 bfloat16 qint16 quint16",
    4: "int32 uint32 float32 qint32",
    8: "int64 uint64 float64 complex64",
    16: "complex128",
    # How much these hold follows from no shape.
    None: "string variant resource",
}
_ELEMENT_BYTES = {dtype: size for size, listed in _DTYPES.items() for dtype in listed.split()}


MOST_ELEMENTS = 2**63 - 1
"""TensorFlow's counts of elements are signed integers of 64 bits."""

MOST_SIZE = 2**31 - 2
"""The largest size of a dimension that a ``Shape`` op of 32 bits returns: TensorFlow refuses
2^31-1, too."""


def element_bytes(dtype: str) -> int | None:
    """Bytes of one element in memory, ``None`` for strings, variants and resources.

    ``ValueError`` if TensorFlow has no such dtype.

    >>> element_bytes("float32"), element_bytes("string")
    (4, None)
    """
    try:
        return _ELEMENT_BYTES[dtype]
    except KeyError:
        if dtype.endswith("_ref"):
            return element_bytes(dtype.removesuffix("_ref"))
        known = ", ".join(_ELEMENT_BYTES)
        raise ValueError(f"unknown dtype {dtype!r}; known are {known}") from None


def spell_shape(shape: Shape, first: object = 32) -> str:
    """Returns a shape as options take it, with ``first`` and 128 for sizes that are unknown.

    >>> spell_shape((None, 8, None)), spell_shape((None, 8), "?"), spell_shape(None)
    ('32x8x128', '?x8', '32x128')
    """
    sizes = (None, None) if shape is None else shape
    return "x".join(str((128 if i else first) if n is None else n) for i, n in enumerate(sizes))


def is_known(shape: Shape) -> TypeGuard[tuple[int, ...]]:
    """Are the rank and every dimension known?

    >>> is_known((8, 128)), is_known((None, 128)), is_known(None)
    (True, False, False)
    """
    return shape is not None and None not in shape


def tensor_bytes(properties: TensorProperties) -> int | None:
    """Bytes of the tensor, ``None`` where its shape is not fully known or says nothing of it.

    >>> tensor_bytes(TensorProperties(dtype="float32", shape=(8, 128)))
    4096
    """
    return _bytes(properties.dtype, properties.shape) if is_known(properties.shape) else None


def element_count(properties: TensorProperties) -> int:
    """Number of elements, unknown dimensions and an unknown rank taken as 1.

    >>> element_count(TensorProperties(dtype="float32", shape=(None, 128)))
    128
    """
    return _count(properties.shape)


def counted_shape(shape: Shape) -> tuple[int, ...]:
    """The dimensions, unknown ones taken as 1; an unknown rank is a scalar.

    >>> counted_shape((None, 128)), counted_shape(None)
    ((1, 128), ())
    """
    if shape is None:
        return ()
    return tuple([1 if dimension is None else dimension for dimension in shape])


def counted_bytes(properties: TensorProperties) -> int:
    """Bytes of the tensor for counting traffic: unknown dimensions are taken as 1.

    A string, variant or resource counts nothing: what moves is a reference.
    """
    return _bytes(properties.dtype, properties.shape) or 0


# A graph of 50,000 ops has a few hundred shapes, each asked for several times per op.


@lru_cache(maxsize=1 << 16)
def _count(shape: Shape) -> int:
    return prod(counted_shape(shape))


@lru_cache(maxsize=1 << 16)
def _bytes(dtype: str, shape: Shape) -> int | None:
    size = element_bytes(dtype)
    return None if size is None else size * _count(shape)
