"""Flaws for bounds: each takes a right function and gives a wrong one."""

from __future__ import annotations

from collections import Counter
from typing import Any


def joined_too_soon(joined: Any) -> Any:
    """Units are never parted that are joined by a third of the ceiling."""

    def flawed(nets: Any, ceiling: int) -> Any:
        found = joined(nets, ceiling)
        shared = Counter({pair: 3 * size for pair, size in found.shared.items()})
        incident = Counter({unit: 3 * size for unit, size in found.incident.items()})
        return found._replace(shared=shared, incident=incident)

    return flawed


def followers_with_a_value(may_follow: Any) -> Any:
    """Units follow that a value is asked for."""

    def flawed(self: Any, unit: int, size: int, joined: Any) -> bool:
        asked, self.asked = self.asked, [False] * len(self.asked)
        found: bool = may_follow(self, unit, size, joined)
        self.asked = asked
        return found

    return flawed


def sets_of_too_few_devices(sets: Any) -> Any:
    """One device holds nothing."""

    def flawed(self: Any, worths: Any, deadline: float) -> Any:
        self.count -= 1
        found = sets(self, worths, deadline)
        self.count += 1
        return found

    return flawed


def cuts_for_sale(least_signed: Any) -> Any:
    """Sets are worth what they are cut by once more."""

    def flawed(self: Any, price: Any, inside: Any, outside: Any, **how: Any) -> Any:
        value, nodes = least_signed(self, price, inside, outside, **how)
        return 2 * value - int(price[nodes].sum()), nodes

    return flawed


def dear_sets_left_out(least_signed: Any) -> Any:
    """Sets without the dearest hub say nothing."""

    def flawed(self: Any, price: Any, inside: Any, outside: Any, **how: Any) -> Any:
        if len(inside) and len(outside):
            return int(abs(price).sum()), inside[:0]
        found: tuple[int, Any] = least_signed(self, price, inside, outside, **how)
        return found

    return flawed
