"""Programs that use several devices in other ways than by moving ops.

Training steps are built in parts from their loss (``towers``, ``pieces``); programs that exist
already are divided by :mod:`placer.extraction.division`, as ``requests`` says.
"""

from __future__ import annotations

from placer.strategies.pieces import micro_batches
from placer.strategies.towers import asynchronous_towers, data_parallel

__all__ = ["asynchronous_towers", "data_parallel", "micro_batches"]
