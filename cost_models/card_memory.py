"""How much of a card's memory TensorFlow hands out.

::

    total  -  context  -  kept back  =  usable
    15.0 GiB  0.4 GiB     1.0 GiB       13.6 GiB        a T4

The driver and the CUDA context take their part first.  Of what is free then, TensorFlow keeps a
fixed amount back for libraries and for other programs, by compute capability (``MinSystemMemory``
of ``tensorflow/core/common_runtime/gpu/gpu_device.cc``; versions before 2.5 kept back a share).
"""

from dataclasses import dataclass
from typing import ClassVar

from cost_models.byte_sizes import MEBIBYTE

_SMALL_CARD_BYTES = 2**31
_KEPT_BACK_OF_SMALL = 225 * MEBIBYTE
_KEPT_BACK = ((7, 500 * MEBIBYTE), (8, 1050 * MEBIBYTE), (9, 1536 * MEBIBYTE))
"""By the first major compute capability that it no longer holds for."""
_KEPT_BACK_OF_NEWEST = 1800 * MEBIBYTE

_CONTEXT_BYTES = 200 * MEBIBYTE
_CONTEXT_SHARE = 0.0107
"""Share of the total.  Fitted to what TensorFlow logged on cards of 15 to 140 GiB with nothing else
running (``benchmarks/usable_memory``); it grows with a card's page tables and processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardMemory:
    """The memory of a card in bytes: what the driver reports as its total, what the driver and the
    CUDA context take of it (an estimate), and what TensorFlow keeps back."""

    total_bytes: int
    context_bytes: int
    kept_back_bytes: int
    IN_JSON: ClassVar = ("usable_bytes",)

    @property
    def usable_bytes(self) -> int:
        """Bytes that TensorFlow's allocator may hand out."""
        return max(0, self.total_bytes - self.context_bytes - self.kept_back_bytes)


def card_memory(total_bytes: int, compute_capability: str) -> CardMemory:
    """The parts of a card's memory; ``compute_capability`` is as ``"7.5"``.

    >>> card_memory(15360 * 2**20, "7.5").usable_bytes // 2**20
    13945
    """
    context_bytes = _CONTEXT_BYTES + round(_CONTEXT_SHARE * total_bytes)
    return CardMemory(
        total_bytes=total_bytes,
        context_bytes=context_bytes,
        kept_back_bytes=_kept_back_bytes(
            total_bytes - context_bytes, int(compute_capability.partition(".")[0])
        ),
    )


def card_that_hands_out(usable_bytes: int, compute_capability: str) -> CardMemory:
    """The card of which TensorFlow hands out ``usable_bytes``.

    >>> card_that_hands_out(8 * 2**30, "8.0").usable_bytes == 8 * 2**30
    True
    """
    major = int(compute_capability.partition(".")[0])
    available = usable_bytes + _KEPT_BACK_OF_SMALL
    if available >= _SMALL_CARD_BYTES:
        available = usable_bytes + _kept_back_bytes(_SMALL_CARD_BYTES, major)
    total_bytes = round((available + _CONTEXT_BYTES) / (1 - _CONTEXT_SHARE))
    return CardMemory(
        total_bytes=total_bytes,
        context_bytes=total_bytes - available,
        kept_back_bytes=available - usable_bytes,
    )


def _kept_back_bytes(available_bytes: int, major: int) -> int:
    """``MinSystemMemory`` for what is free and the major compute capability."""
    if available_bytes < _SMALL_CARD_BYTES:
        return _KEPT_BACK_OF_SMALL
    return next((size for below, size in _KEPT_BACK if major < below), _KEPT_BACK_OF_NEWEST)
