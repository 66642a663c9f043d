"""placer: find, prove, apply and verify the placement of TensorFlow programs on devices.

Nothing heavy is imported here; each name below loads its module at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from placer.application import apply as apply
    from placer.application import rehearsal_devices as rehearsal_devices
    from placer.application import verify as verify
    from placer.application.profiling import profile as profile
    from placer.calibration import calibrate as calibrate
    from placer.extraction import extract as extract
    from placer.pipeline import place as place
    from placer.pipeline import report as report
    from placer.plan import Plan as Plan

_HOMES = {
    "Plan": "placer.plan",
    "apply": "placer.application",
    "calibrate": "placer.calibration",
    "extract": "placer.extraction",
    "place": "placer.pipeline",
    "profile": "placer.application.profiling",
    "rehearsal_devices": "placer.application",
    "report": "placer.pipeline",
    "verify": "placer.application",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'placer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
