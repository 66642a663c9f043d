"""Pins: which ops are asked for, on which device, and whether they can run there."""

import shlex
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from operator import attrgetter

from cost_models import device_names, kernels
from cost_models.byte_sizes import format_count
from cost_models.devices import Cluster
from placer.errors import UsageError, near_names, some
from placer.graph.op_graph import Op, OpGraph
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import slot_owners

Pin = tuple[str, str]
"""The device of a pinned op, and how that was asked for."""


def pinned_devices(
    graph: OpGraph,
    cluster: Cluster,
    pins: Mapping[str, str],
    pin_types: Mapping[str, str],
    host_only: Mapping[str, str],
) -> tuple[dict[str, Pin], list[Warning_]]:
    """The pin of every op that a glob of names (``pins``) or of types matches, and warnings of
    globs that match ops without a kernel.

    Raises :class:`UsageError` if a pin matches no op, or names a device that is not there or has
    no kernel for any op that it matches.
    """
    pinned: dict[str, Pin] = {}
    warnings: list[Warning_] = []
    for patterns, key, flag in (
        (pin_types, attrgetter("op_type"), "--pin-type"),
        (pins, attrgetter("name"), "--pin"),
    ):
        for glob, device in patterns.items():
            pin = pin_request(flag, glob, device)
            target = _known_device(device, cluster, pin)
            handles = _handles_called(glob, graph) if flag == "--pin" else frozenset()
            matched = [
                op for op in graph.ops.values() if fnmatchcase(key(op), glob) or op.name in handles
            ]
            if not matched:
                what = "op or variable name" if flag == "--pin" else "op type"
                names = [key(op) for op in graph.ops.values()]
                if flag == "--pin":
                    names += [variable.name for variable in graph.variables]
                raise UsageError(
                    f"{pin}: no {what} in the graph of {len(graph.ops):,} ops matches {glob!r}"
                    f"{hint_of(glob, names)}"
                )
            is_accelerator = any(d.name == target and d.type != "CPU" for d in cluster.devices)
            unable = {
                op.name: reason
                for op in matched
                if op.name not in graph.feeds
                and (reason := _no_kernel(op, is_accelerator, host_only))
            }
            fed = tuple(op.name for op in matched if op.name in graph.feeds)
            if fed and target != cluster.host.name:
                message = (
                    f"{pin} matches {format_count(len(fed), 'fed op')}: fed values arrive on "
                    f"{cluster.host.name}, whatever is asked for"
                )
                warnings.append(("pin_of_fed", message, fed))
            if len(unable) == len(matched):
                name, reason = next(iter(unable.items()))
                raise UsageError(
                    f"{pin}: no op that matches can run there: {reason} ({name}); pin to another "
                    "device, or leave the choice to the solver"
                )
            if unable:
                message = f"{pin} matches {format_count(len(unable), 'op')} without a kernel there"
                warnings.append(("pin_without_kernel", f"{message}: not pinned", tuple(unable)))
            pinned |= {op.name: (target, pin) for op in matched if op.name not in unable}
    return _pinned_slots(graph, pinned) | pinned, warnings


def hint_of(glob: str, names: Iterable[str]) -> str:
    """The end of a message that ``glob`` matches none of the ``names``: those that are like it,
    else the first of them."""
    known = list(dict.fromkeys(names))
    near = near_names(glob, known)
    stars = " (* also matches /)" if "*" in glob else ""
    return near or f"{stars}; there are {some(known) or 'none'}"


def _handles_called(glob: str, graph: OpGraph) -> frozenset[str]:
    """The handles of the variables whose names, as a plan has them, match ``glob``."""
    return frozenset(v.handle for v in graph.variables if fnmatchcase(v.name, glob))


def _pinned_slots(graph: OpGraph, pinned: Mapping[str, Pin]) -> dict[str, Pin]:
    """The pins of the optimizer's slots, each of which goes with its variable."""
    handles = {variable.name: variable.handle for variable in graph.variables}
    if pinned.keys().isdisjoint(handles.values()):
        return {}
    return {
        handles[slot]: pinned[handles[owner]]
        for slot, owner in slot_owners(handles).items()
        if handles[owner] in pinned
    }


def pin_request(flag: str, glob: str, device: str) -> str:
    """How a pin was asked for, as one would type it."""
    return f"{flag} {shlex.quote(f'{glob}={device}')}"


def _no_kernel(op: Op, is_accelerator: bool, host_only: Mapping[str, str]) -> str:
    """Why the op cannot run on such a device, ``""`` if it can."""
    if is_accelerator:
        return host_only.get(op.name, "")
    if kernels.known(op.op_type) and not kernels.has_cpu_kernel(op.info):
        if platforms := kernels.platforms_of(op.info):
            return f"{op.op_type} was exported for {', '.join(platforms)} only"
        return f"TensorFlow has no CPU kernel for {op.op_type}{dtypes_of(op)}"
    return ""


def _known_device(device: str, cluster: Cluster, pin: str) -> str:
    names = [d.name for d in cluster.devices]
    try:
        name = device_names.canonical(device)
    except ValueError as error:
        raise UsageError(f"{pin}: {error}") from error
    if name not in names:
        raise UsageError(f"{pin}: there is no device {name} among {', '.join(names)}")
    return name


def dtypes_of(op: Op) -> str:
    """The dtypes of an op, as the end of a sentence."""
    dtypes = dict.fromkeys(p.dtype for p in (*op.info.inputs, *op.info.outputs))
    return f" on {', '.join(dtypes)}" if dtypes else ""
