"""Facts about tensors while shapes are inferred, and how two of them combine."""

from dataclasses import dataclass, replace

from cost_models.op_info import Shape


@dataclass(frozen=True, slots=True)
class ElementState:
    """The content of a handle or a list: dtype and shape of the variable or of every element.

    ``length`` is the number of elements of a TensorList, ``None`` if unknown.  ``value`` is what
    every element holds, if all that is ``written`` to the list is one small known value.
    """

    dtype: str
    shape: Shape
    length: int | None = None
    value: tuple[int, ...] | None = None
    written: bool = False


@dataclass(frozen=True, slots=True)
class TensorState:
    """Dtype and shape of a tensor; ``element`` for resource handles and TensorLists.

    ``value`` holds the elements of a small integer tensor, if they are known.
    """

    dtype: str
    shape: Shape
    element: ElementState | None = None
    value: tuple[int, ...] | None = None


def widen_shapes(first: Shape, second: Shape) -> Shape:
    """The shape that covers both: a dimension is known only where both agree.

    >>> widen_shapes((8, 128), (8, 64)), widen_shapes((8,), None)
    ((8, None), None)
    """
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))


def sharpen_shape(shape: Shape, other: Shape) -> Shape:
    """``shape`` with unknown dimensions taken from ``other``; ``shape`` where they contradict.

    >>> sharpen_shape((None, 128), (8, None)), sharpen_shape((8,), (8, 128))
    ((8, 128), (8,))
    """
    if shape is None:
        return other
    if other is None or len(shape) != len(other):
        return shape
    return tuple(b if a is None else a for a, b in zip(shape, other, strict=True))


def join_elements(first: ElementState | None, second: ElementState | None) -> ElementState | None:
    """Returns the content of a list that is written as ``first`` and as ``second``.

    An element shape that one side leaves open is taken from the other; where both are known and
    differ the dimension is unknown.
    """
    if first is None or second is None:
        return first or second
    length = first.length if first.length == second.length else None
    if first.shape is None or second.shape is None:
        shape = first.shape if second.shape is None else second.shape
    elif len(first.shape) != len(second.shape):
        shape = None
    else:
        shape = tuple(
            b if a is None else a if b is None or a == b else None
            for a, b in zip(first.shape, second.shape, strict=True)
        )
    value = first.value if first.value == second.value or not second.written else None
    if not first.written:
        value = second.value
    written = first.written or second.written
    return ElementState(first.dtype or second.dtype, shape, length, value, written)


def widen_states(first: TensorState, second: TensorState) -> TensorState:
    """The state that covers both, as for a loop variable before and after one iteration."""
    if first.dtype == "resource":
        return first
    shape = widen_shapes(first.shape, second.shape)
    element = join_elements(first.element, second.element)
    value = first.value if first.value == second.value else None
    return replace(first, shape=shape, element=element, value=value)
