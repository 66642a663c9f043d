"""Placements that others make, by name, under the solver's own interface: to compare with and start
from.  None of them searches, and none proves anything."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines.layers import layers
from placer.solving.baselines.list_scheduling import heft, m_etf
from placer.solving.baselines.sequential import (
    balanced,
    contiguous,
    first_fit,
    m_topo,
    one_device,
    round_robin_variables,
    tensorflow_default,
)
from placer.solving.baselines.tables import smallest_tables
from placer.solving.baselines.tasks import DoesNotFitError

ONE_DEVICE, SMALLEST_TABLES = "one-device", "smallest-tables"

__all__ = ["BASELINES", "ONE_DEVICE", "SMALLEST_TABLES", "DoesNotFitError"]

BASELINES: Mapping[str, Callable[[PlacementProblem], tuple[int, ...]]] = MappingProxyType(
    {
        ONE_DEVICE: one_device,
        "tensorflow-default": tensorflow_default,
        "first-fit": first_fit,
        "balanced": balanced,
        "m-topo": m_topo,
        "m-etf": m_etf,
        "heft": heft,
        "contiguous": contiguous,
        "layers": layers,
        "round-robin-variables": round_robin_variables,
        SMALLEST_TABLES: smallest_tables,
    }
)
"""Functions from a problem to one device number per op; they raise :class:`DoesNotFitError`."""
