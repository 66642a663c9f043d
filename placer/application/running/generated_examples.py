"""Made-up serialised ``tf.Example`` messages, which the ops that parse them accept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placer.extraction.graph_defs.parsing_ops import DENSE, Feature, Parser

if TYPE_CHECKING:
    import numpy

DEFAULT_LENGTH = 8
"""Values in a row of a feature, or along an open dimension, that no binding gives a length."""


def made_up_examples(
    parsers: Sequence[Parser],
    shape: Sequence[int],
    ragged: Mapping[str, Sequence[int | None]],
    random: numpy.random.Generator,
) -> numpy.ndarray[Any, Any]:
    """Messages with every feature that ``parsers`` ask for, in an array of ``shape``.

    Values are as for inputs: floats in [0, 1), integers 0 or 1, strings ``"abc"``; ``ragged`` has
    the mean lengths of features, by key.
    """
    import numpy
    import tensorflow as tf

    features = {feature.key: feature for parser in parsers for feature in parser.features}
    found = numpy.empty(math.prod(shape), object)
    for number in range(found.size):
        example = tf.train.Example()
        for key, feature in features.items():
            sizes = ragged.get(key) or (None,)
            length = sizes[-1] if sizes[-1] is not None else DEFAULT_LENGTH
            _fill(example.features.feature[key], feature, _count(feature, length), random)
        found[number] = example.SerializeToString()
    return found.reshape(tuple(shape))


def _count(feature: Feature, length: int) -> int:
    if feature.kind != DENSE:
        return length
    return math.prod(length if size is None else size for size in feature.shape or ())


def _fill(message: Any, feature: Feature, count: int, random: numpy.random.Generator) -> None:
    """Gives a ``tf.train.Feature`` so many values."""
    if feature.dtype == "string":
        message.bytes_list.value.extend([b"abc"] * count)
    elif feature.dtype == "int64":
        message.int64_list.value.extend(random.integers(0, 2, count).tolist())
    else:
        message.float_list.value.extend(random.random(count).tolist())
