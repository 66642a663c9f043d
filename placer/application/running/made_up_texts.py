"""Made-up texts that hold what a program makes of them: messages, pictures, sounds."""

from __future__ import annotations

import base64
import io
import math
import struct
import wave
import zlib
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

_BLOCK = 8
"""Pixels along each side of a block of one color."""

_SAMPLES = 16_000
"""Samples of a sound: one second."""


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
            size = (_SAMPLES, decoding.channels or 1)
            found = wav(self.random.integers(-(1 << 15), 1 << 15, size))
        else:
            height, width = [side or _SIDE for side in sizes[-3:-1]] or (_SIDE, _SIDE)
            blocks = (-(-height // _BLOCK), -(-width // _BLOCK), decoding.channels or 3)
            pixels = self.random.integers(0, 256, blocks)
            make = jpeg if decoding.kind == JPEG else png
            found = make(pixels, height, width)
        return base64.urlsafe_b64encode(found).rstrip(b"=") if decoding.in_base64 else found


def _count(feature: Feature, length: int) -> int:
    """Values of a feature, one step of it if it is listed."""
    if feature.kind != DENSE:
        return length
    return math.prod(length if size is None else size for size in feature.shape or ())


def wav(samples: numpy.ndarray[Any, Any]) -> bytes:
    """A sound of 16 bits: ``samples`` has a column for each channel."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(_SAMPLES)
        file.writeframes(samples.astype("<i2").tobytes())
    return written.getvalue()


def png(blocks: numpy.ndarray[Any, Any], height: int, width: int) -> bytes:
    """A picture whose ``blocks`` of eight by eight pixels have one color each: one to four
    channels of 0 to 255."""
    pixels = blocks.astype("u1").repeat(_BLOCK, 0).repeat(_BLOCK, 1)[:height, :width]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    colors = {1: 0, 2: 4, 3: 2, 4: 6}[blocks.shape[2]]
    header = struct.pack(">IIBBBBB", width, height, 8, colors, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def jpeg(blocks: numpy.ndarray[Any, Any], height: int, width: int) -> bytes:
    """A gray picture of the first channel of ``blocks``, for what decodes nothing but JPEG.

    A block is one number, its mean, written as the difference from that of the block before: the
    count of its bits in four bits, then these.  One more bit says that the block has nothing else.
    """
    bits, before = "", 128
    for level in map(int, blocks[:, :, 0].ravel()):
        size = abs(level - before).bit_length()
        number = level - before if level >= before else level - before + (1 << size) - 1
        bits += f"{size:04b}" + (f"{number:0{size}b}" if size else "") + "0"
        before = level
    bits += "1" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    segments = (
        (0xDB, b"\0" + b"\x08" * 64),  # a mean counts eight times
        (0xC0, struct.pack(">BHHBBBB", 8, height, width, 1, 1, 0x11, 0)),
        (0xC4, b"\0" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12))),
        (0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0"),
        (0xDA, b"\x01\x01\0\0\x3f\0"),
    )
    written = (struct.pack(">BBH", 0xFF, kind, len(text) + 2) + text for kind, text in segments)
    return b"\xff\xd8" + b"".join(written) + data + b"\xff\xd9"
