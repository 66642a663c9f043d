"""The memory of a step beside the tensors that are decided about."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from placer.prediction.memory.buffers import Buffer
from placer.prediction.memory.lifetimes import Simulation

if TYPE_CHECKING:
    from placer.fitting.reduction import StepReduction


class HeldBytes(Simulation):
    """The bytes in the memory of the device beside the outputs of nodes: at every place of the
    order (``beside``), and before it, when the last op is done (``between``)."""

    def __init__(self, reduction: StepReduction) -> None:
        super().__init__(reduction.layout, reduction.order)
        self.device, count = reduction.device, len(reduction.order)
        self.at, self.across = [0] * (count + 2), [0] * (count + 2)
        self.run()
        chosen = reduction.chosen
        for op in chosen.nodes:
            for root in chosen.large[op]:
                size, first = reduction.layout.bytes[root], reduction.place[op]
                places = [reduction.place[reader] for reader in reduction.readers[root]]
                self._count(first, max(places, default=first), -size)
        self.beside = [max(size, 0) for size in accumulate(self.at[:count])]
        self.between = [max(size, 0) for size in accumulate(self.across[:count])]

    def _count(self, first: int, last: int, size: int) -> None:
        self.at[first] += size
        self.at[last + 1] -= size
        self.across[first + 1] += size
        self.across[last + 1] -= size

    def _record(self, buffer: Buffer, last: int) -> None:
        if buffer.device == self.device and buffer.first <= last:
            self._count(buffer.first, last, buffer.bytes)

    def _overwrite(self, op: int, source: int, old: Buffer, value: int) -> Buffer:
        new = super()._overwrite(op, source, old, value)
        if new is not old and old.device == self.device:  # it is there between the two ops
            self.across[self.now] += old.bytes
            self.across[self.now + 1] -= old.bytes
        return new
