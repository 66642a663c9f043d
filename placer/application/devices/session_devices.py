"""Devices of graphs that are built here for a session of this process.

Where the GPUs of a plan are absent, a session would run what asks for them on ``CPU:0`` without a
word.  Here such ops ask for the logical CPU devices that a rehearsal has in their place, which
``placer.session_config(plan)`` gives the session.
"""

import logging
import sys
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from cost_models.device_names import full_name, parse
from placer.application.devices.device_mapping import (
    DeviceMapping,
    forbids_absence,
    is_local,
    own_mapping,
    process_mapping,
)
from placer.errors import ArgumentError, UsageError
from placer.graph.op_types import CALLS

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
            "%s: %s. Start the session with config=placer.session_config(plan). "
            "For a graph to run on a machine with the planned devices: placer.apply(graph, plan)",
            mapping.absence,
            mapping.replacement,
        )
    return mapping


def device_function(placement: Mapping[str, str], *, missing: str = "warn") -> Callable[[Any], str]:
    """A function from an op (anything with ``.name``) to the full name of its device.

    Ops that ``placement`` does not know (initialisers, summaries, savers) keep what an inner scope
    asks for; ops built under ``tf.device(None)``, for which TensorFlow does not ask, get theirs
    when an op that reads them is built.  A call has the device of the planned ops of its function.
    Where devices are absent it gives those that rehearse them, with a warning; without TensorFlow
    in the process, the planned ones.

    Raises :class:`UsageError` where far more ops are unknown than known (another program), where
    the ops of a function are on several devices, and for absent devices where ``missing`` is
    ``"error"``.
    """
    names = set(placement.values())
    if "tensorflow" in sys.modules:
        mapping = session_mapping(names, missing)
        full_names = {name: mapping.stand_in(name) for name in names}
    else:
        full_names = {name: full_name(name) for name in names}
    graphs: weakref.WeakKeyDictionary[Any, _SeenGraph] = weakref.WeakKeyDictionary()

    def device_of(op: Any) -> str:
        if not hasattr(op, "name"):
            raise ArgumentError(
                f"a device function takes an op, as tf.compat.v1.device calls it; got {op!r}"
            )
        graph = getattr(op, "graph", None)
        if _is_body(graph, graphs):
            return str(op.device)
        called = _device_of_call(op, placement)
        device = full_names.get(called or placement.get(op.name, ""), "")
        if graph is not None:
            seen = graphs.setdefault(graph, _SeenGraph(placement))
            seen.add(op.name, is_planned=bool(device))
            for source in seen.not_asked(op):
                source._set_device(full_names[placement[source.name]])
        return device or str(getattr(op, "device", ""))

    return device_of


def _is_body(graph: Any, graphs: Container[Any]) -> bool:
    """Whether a graph is the body of a function that is built within one of these graphs."""
    outer = getattr(graph, "outer_graph", None)
    return outer is not None and (outer in graphs or _is_body(outer, graphs))


def _device_of_call(op: Any, placement: Mapping[str, str]) -> str:
    """The device of all planned ops of the function that ``op`` calls, "" if there are none."""
    op_type, graph = getattr(op, "type", ""), getattr(op, "graph", None)
    is_function = getattr(graph, "_is_function", CALLS.__contains__)
    if op_type not in CALLS and not is_function(op_type):  # as TensorFlow 1 calls it, by its name
        return ""
    found = {on for name, on in placement.items() if name.startswith(f"{op.name}/")}
    if len(found) > 1:
        raise UsageError(
            f"the plan has the ops of the function that {op.name} calls on "
            f"{', '.join(sorted(found))}, which a device function cannot make: build the graph "
            "without one and place it with placer.apply(graph, plan)"
        )
    return min(found, default="")


class _SeenGraph:
    """The ops of one graph that were built under a plan, counted."""

    def __init__(self, placement: Mapping[str, str]) -> None:
        self.placement = placement
        self.planned = self.foreign = self.scoped = 0
        self.scope = ""
        self.asked: set[str] = set()

    def not_asked(self, op: Any) -> Iterator[Any]:
        """Yields the planned ops among those that ``op`` waits for which TensorFlow did not ask
        for, each once."""
        waiting = [op]
        while waiting:
            reader = waiting.pop()
            for source in (*(tensor.op for tensor in reader.inputs), *reader.control_inputs):
                if source.name not in self.asked and source.name in self.placement:
                    self.asked.add(source.name)
                    waiting.append(source)
                    yield source

    def add(self, name: str, *, is_planned: bool) -> None:
        """Counts an op.  Raises :class:`UsageError` once the graph is another program."""
        self.asked.add(name)
        if is_planned:
            self.planned += 1
            return
        if self._belongs(name):
            return
        self.foreign += 1
        inner = name
        while "/" in inner and inner not in self.placement:
            inner = inner.partition("/")[2]
        if inner in self.placement:
            self.scope, self.scoped = name.removesuffix(f"/{inner}"), self.scoped + 1
        share = self.foreign > 8 * self.planned
        if not share or self.foreign < min(64, len(self.placement)):  # too few to judge by
            return
        reason = (
            f"they are built under one more name scope, {self.scope!r}"
            if self.scoped * 2 > self.foreign
            else f"the last one is {name!r}"
        )
        raise UsageError(
            f"the graph that is built is not the one that the plan was made for: {self.foreign:,} "
            f"of its first {self.foreign + self.planned:,} ops are not in the plan, and {reason}; "
            "build the planned graph first, under the same names, or make the plan for this one"
        )

    def _belongs(self, name: str) -> bool:
        """Whether an op stands in the scope of a planned one, as initialisers do."""
        while "/" in name:
            name = name.rpartition("/")[0]
            if name in self.placement:
                return True
        return False
