"""Made-up texts that hold what a program makes of them: messages, pictures, sounds."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placer.application.running.text_readers import JPEG, SOUND, Decoding, FedTexts
from placer.extraction.graph_defs.parsing_ops import DENSE, Feature, Parser

if TYPE_CHECKING:
    import numpy

DEFAULT_DIMENSION = 8
"""An open dimension that no binding names: not the first of an input, and the values in a row of a
feature."""

_SIDE = 256
"""Pixels of a picture along each side, unless its shape is bound."""


@dataclass(frozen=True, slots=True)
class TextMaker:
    """Makes texts: ``ragged`` has the mean lengths of features by key, ``shapes`` what was bound
    by op, such as the pictures that it decodes."""

    wanted: FedTexts
    ragged: Mapping[str, Sequence[int | None]]
    shapes: Mapping[str, Sequence[int | None]]
    random: numpy.random.Generator

    def texts(self, op: str, shape: Sequence[int]) -> numpy.ndarray[Any, Any]:
        """Texts that are fed to an op, in an array of ``shape``.

        Messages have every feature that the program parses; values are as for inputs: floats in
        [0, 1), integers 0 or 1, strings ``"abc"`` unless they are decoded.
        """
        import numpy

        found = numpy.empty(math.prod(shape), object)
        parsers, decoding = self.wanted.parsers.get(op), self.wanted.decoded.get((op, 0))
        for number in range(found.size):
            found[number] = self._message(parsers) if parsers else self._text(decoding)
        return found.reshape(tuple(shape))

    def _message(self, parsers: Sequence[Parser]) -> bytes:
        import tensorflow as tf

        is_sequence = any(parser.parses_sequences for parser in parsers)
        message: Any = tf.train.SequenceExample() if is_sequence else tf.train.Example()
        features = message.context if is_sequence else message.features
        for parser in parsers:
            for feature in parser.features:
                key, sizes = feature.key, self.ragged.get(feature.key) or (None, None)
                lengths = [DEFAULT_DIMENSION if size is None else size for size in sizes[1:]]
                decoded = (self.wanted.decoded.get((parser.op, n)) for n in feature.outputs)
                decoding = next(filter(None, decoded), None)
                if not feature.listed:
                    steps, count = [features.feature[key]], lengths[-1]
                else:
                    listed, count = (
                        message.feature_lists.feature_list[key].feature,
                        (*lengths, 1)[1],
                    )
                    steps = [listed.add() for _ in range(lengths[0] - len(listed))]
                for step in steps:
                    step.Clear()
                    self._fill(step, feature, _count(feature, count), decoding)
        return bytes(message.SerializeToString())

    def _fill(self, message: Any, feature: Feature, count: int, decoding: Decoding | None) -> None:
        """Gives a ``tf.train.Feature`` so many values."""
        if feature.dtype == "string":
            message.bytes_list.value.extend(self._text(decoding) for _ in range(count))
        elif feature.dtype == "int64":
            message.int64_list.value.extend(self.random.integers(0, 2, count).tolist())
        else:
            message.float_list.value.extend(self.random.random(count).tolist())

    def _text(self, decoding: Decoding | None) -> bytes:
        if decoding is None:
            return b"abc"
        sizes = self.shapes.get(decoding.op) or self.shapes.get(f"{decoding.op}:0") or ()
        if decoding.kind == SOUND:
            # a second of sound
            values = self.random.uniform(-1, 1, (16_000, decoding.channels or 1)).astype("f4")
        else:
            height, width = [side or _SIDE for side in sizes[-3:-1]] or (_SIDE, _SIDE)
            channels = 1 if decoding.kind == JPEG else decoding.channels or 3
            blocks = self.random.integers(0, 256, (-(-height // 8), -(-width // 8), channels), "u1")
            values = blocks.repeat(8, 0).repeat(8, 1)[:height, :width]  # else larger files
        found = _encoded(decoding.kind, values)
        return base64.urlsafe_b64encode(found).rstrip(b"=") if decoding.in_base64 else found


def _count(feature: Feature, length: int) -> int:
    """Values of a feature, one step of it if it is listed."""
    if feature.kind != DENSE:
        return length
    return math.prod(length if size is None else size for size in feature.shape or ())


def _encoded(kind: str, values: numpy.ndarray[Any, Any]) -> bytes:
    """A sound of samples in [-1, 1], or a picture: gray as JPEG, of one to four channels else."""
    import tensorflow as tf

    from placer.application.devices.graph_optimisers import switch_memory_optimiser_off

    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    switch_memory_optimiser_off(config)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        if kind == SOUND:
            return bytes(session.run(tf.audio.encode_wav(values, len(values))))
        encode = tf.io.encode_jpeg if kind == JPEG else tf.io.encode_png
        return bytes(session.run(encode(values)))
