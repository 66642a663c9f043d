"""The memory of a step beside the tensors that are decided about."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from placer.prediction.memory.lifetimes import Simulation
from placer.prediction.memory.run import Wanted

if TYPE_CHECKING:
    from placer.fitting.reduction import StepReduction


class HeldBytes:
    """The bytes in the memory of the device beside the outputs of nodes: at every place of the
    order (``beside``), and before it, when the last op is done (``between``)."""

    def __init__(self, reduction: StepReduction) -> None:
        count = len(reduction.order)
        self.at, self.across = [0] * (count + 2), [0] * (count + 2)
        simulation = Simulation(reduction.layout, reduction.order, wanted=Wanted(records=True))
        for _, device, size, _, first, last, _, _, goes_on in simulation.records().tolist():
            if simulation.device_names[device] == reduction.device:
                self._count(first, last, size)
                if goes_on:  # it is there between the two ops
                    self.across[last + 1] += size
                    self.across[last + 2] -= size
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
