"""What a placement costs, recomputed from the placement alone.  Knows no solver."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.prediction.costs.op_costs import estimate_costs as estimate_costs
    from placer.prediction.memory.live_moments import moment_finder as moment_finder
    from placer.prediction.memory.timelines import predict_memory as predict_memory
    from placer.prediction.orders.possible_steps import predict_peak_ranges as predict_peak_ranges
    from placer.prediction.prediction import predict as predict
    from placer.prediction.scoring import score as score
    from placer.prediction.times.schedule import predict_schedule as predict_schedule
    from placer.prediction.transfers import predict_transfers as predict_transfers

_HOMES = {
    "estimate_costs": "costs.op_costs",
    "moment_finder": "memory.live_moments",
    "predict": "prediction",
    "predict_memory": "memory.timelines",
    "predict_peak_ranges": "orders.possible_steps",
    "predict_schedule": "times.schedule",
    "predict_transfers": "transfers",
    "score": "scoring",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'placer.prediction' has no attribute {name!r}")
    return getattr(import_module(f"placer.prediction.{_HOMES[name]}"), name)
