"""A TensorFlow program in, one flat graph out.

A name loads its module at first use: who starts the reading process needs neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.extraction.extraction import Extraction as Extraction
    from placer.extraction.extractor import extract as extract

_HOMES = {"Extraction": "placer.extraction.extraction", "extract": "placer.extraction.extractor"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
