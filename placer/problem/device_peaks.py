"""The prediction for one device of a problem."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.byte_sizes import MEBIBYTE

LEAST_LIMIT_BYTES = MEBIBYTE
"""TensorFlow is told limits in MiB: a cap below one is no allocator's, and holds for peaks."""


def required_bytes(peak_bytes: int, need_bytes: int | None, usable_bytes: int) -> int:
    """The memory that a device requires, which caps, gates and screens hold against
    ``usable_bytes`` (the cap less its reserve).

    It is the highest need of the allocator over the orders of a step, and never less than the
    highest peak; where no allocator is given so little, it is the peak.
    """
    return max(peak_bytes, (need_bytes or 0) if usable_bytes >= LEAST_LIMIT_BYTES else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """The predicted peak of one device, or what its allocator needs for it, and the moment it
    happens: op number -> bytes that the op needs then in the memory of its device, wherever that
    is.

    Whatever the placement, the sum over the ops of a device, with their resident bytes, must not
    be above what is predicted for the device at that moment.
    """

    peak_bytes: int
    moment: Mapping[int, int]
