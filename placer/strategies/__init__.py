"""Programs that use several devices in other ways than by moving ops."""

from __future__ import annotations

from placer.strategies.pieces import micro_batches
from placer.strategies.towers import data_parallel

__all__ = ["data_parallel", "micro_batches"]
