"""Devices of graphs that are built here for a session of this process.

Where the GPUs of a plan are absent, a session would run what asks for them on ``CPU:0`` without a
word.  Here such ops ask for the logical CPU devices that a rehearsal has in their place, which
``placer.session_config(plan)`` gives the session.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cost_models.device_names import full_name, parse
from placer.application.devices.device_mapping import (
    DeviceMapping,
    forbids_absence,
    is_local,
    own_mapping,
    process_mapping,
)

_LOG = logging.getLogger(__name__)


def session_mapping(devices: Iterable[str], missing: str = "warn") -> DeviceMapping:
    """The devices of this process that stand for ``devices``, with a warning where it rehearses
    (:class:`UsageError` where ``missing`` is ``"error"``).

    Devices of other tasks are where the session's target is: a plan with any is left as it is.
    """
    refuses = forbids_absence(missing)
    names = set(devices)
    if not all(is_local(parse(name)) for name in names):
        return own_mapping(names)
    mapping = process_mapping(names, on_hardware=refuses)
    if mapping.absent:
        _LOG.warning(
            "%s: %s, which placer.session_config(plan) gives the session. A graph that is to run "
            "elsewhere is made by placer.apply(graph, plan)",
            mapping.absence,
            mapping.replacement,
        )
    return mapping


def device_function(placement: Mapping[str, str], *, missing: str = "warn") -> Callable[[Any], str]:
    """A function from an op (anything with ``.name``) to the full name of its device.

    Ops that ``placement`` does not know get ``""``.  Where devices of it are absent it gives those
    that rehearse them, with a warning; where ``missing`` is ``"error"`` it raises
    :class:`UsageError`.  A process without TensorFlow has no devices to look at: it gives the
    planned ones.
    """
    names = set(placement.values())
    if "tensorflow" in sys.modules:
        mapping = session_mapping(names, missing)
        full_names = {name: mapping.stand_in(name) for name in names}
    else:
        full_names = {name: full_name(name) for name in names}
    return lambda op: full_names.get(placement.get(op.name, ""), "")
