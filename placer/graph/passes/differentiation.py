"""How TensorFlow calls what it differentiates: names and types of gradients and updates."""

import re
from functools import cache

_GRADIENTS = re.compile(r"(?:gradients|gradient_tape)(_\d+)?_?")
"""Scopes under which automatic differentiation repeats the names of what it differentiates."""

TAPE_GRADIENT = re.compile(r"(?:.*/)?gradient_tape(?:_\d+)?/(.+)")
"""Ops of a tape, with the scope of what they differentiate (``tensorflow/python/eager/
backprop.py``)."""

V1_GRADIENT = re.compile(r"(?:.*/)?gradients(?:_\d+)?/(.+)_grad/.+")
"""Ops of ``tf.gradients``, with the op that they differentiate (``tensorflow/python/ops/
gradients_util.py``)."""


def is_gradient_name(name: str) -> bool:
    """Whether automatic differentiation names its ops so.

    >>> is_gradient_name("gradient_tape/dense/MatMul"), is_gradient_name("dense/MatMul")
    (True, False)
    """
    if "gradient" not in name:
        return False
    return bool(TAPE_GRADIENT.fullmatch(name) or V1_GRADIENT.fullmatch(name))


_UPDATE = re.compile("(Resource)?(Sparse)?(Apply|Assign|Scatter|StridedSliceAssign)")
_GRADIENT = re.compile(r".*(Backprop.*|Grad(V\d)?|(?<!Stop)(?<!Prevent)Gradient)")
MAYBE_FORWARD = frozenset({"Conv2DBackpropInput", "Conv2DBackpropInputV2", "Conv3DBackpropInputV2"})
"""Types of gradients that transposed convolutions of the forward pass have too."""


@cache
def is_update_type(op_type: str) -> bool:
    """Whether ops of this type write a variable.

    >>> is_update_type("ResourceApplyAdam"), is_update_type("MatMul")
    (True, False)
    """
    return _UPDATE.match(op_type) is not None


@cache
def is_gradient_type(op_type: str) -> bool:
    """Whether ops of this type compute gradients.

    >>> is_gradient_type("ReluGrad"), is_gradient_type("StopGradient")
    (True, False)
    """
    return _GRADIENT.fullmatch(op_type) is not None


def differentiated(name: str) -> tuple[str | None, str]:
    """The scope before those of automatic differentiation (``None`` without these), and the rest.

    >>> differentiated("step/gradient_tape/encoder/MatMul/MatMul_1")
    ('step/', 'encoder/MatMul/MatMul_1')
    >>> differentiated("encoder/MatMul")
    (None, 'encoder/MatMul')
    """
    parts = name.split("/")
    found = [i for i, part in enumerate(parts[:-1]) if _GRADIENTS.fullmatch(part)]
    first = found[-1] + 1 if found else 0
    rest = "/".join(part.removesuffix("_grad") for part in parts[first:])
    return ("".join(f"{part}/" for part in parts[: found[0]]) if found else None), rest
