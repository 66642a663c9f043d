"""Whole machines by name (``data/machines.toml``): their cards, and which pairs NVLink joins."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from cost_models.devices import Cluster, Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """``count`` cards of the preset ``model``.  NVLink joins all of them (``all``, bytes/s each
    way) or ``pairs``, (card, card, links), with ``bandwidth`` of each link; others PCIe."""

    model: str
    count: int
    all: float = 0.0
    bandwidth: float = 0.0
    pairs: tuple[tuple[int, int, int], ...] = ()
    source: str = ""

    def links(self, names: Sequence[str]) -> dict[tuple[str, str], Link]:
        """The NVLinks between the cards, called ``names``, both ways."""
        every = itertools.combinations(range(self.count), 2)
        rates = {(a, b): self.all for a, b in every} if self.all else {}
        rates |= {(a, b): count * self.bandwidth for a, b, count in self.pairs}
        latency = Cluster(devices=()).default_link.latency
        return {
            (names[source], names[target]): Link(bandwidth=rate, latency=latency)
            for (a, b), rate in rates.items()
            for source, target in ((a, b), (b, a))
        }


@cache
def machines() -> Mapping[str, Machine]:
    """All known machines by name, read at the first call."""
    text = (Path(__file__).parent / "data" / "machines.toml").read_text(encoding="utf-8")
    found = {}
    for name, row in tomllib.loads(text).items():
        pairs = tuple((a, b, count) for a, b, count in row.pop("pairs", ()))
        found[name] = Machine(pairs=pairs, **row)
    return MappingProxyType(found)


def machine(name: str) -> Machine | None:
    """The machine called ``name``, whatever its case.

    >>> machine("dgx-a100-40gb").model
    'A100-40GB'
    """
    return next((m for key, m in machines().items() if key.casefold() == name.casefold()), None)
