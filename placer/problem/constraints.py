"""Where each op may run, and why not elsewhere.

Sources of constraints, strongest first: fed values arrive on the host; pins of the user; kernels
that TensorFlow does not have for a device; device strings in the graph; colocation groups, which
spread each of these to every member.  Beside the devices that are left, an op with a CPU kernel may
be on the host (in a cluster with tasks: on their CPUs), unless a pin or a device string holds it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

from cost_models import device_names, kernels
from cost_models.byte_sizes import format_count
from cost_models.devices import Cluster
from cost_models.op_info import OpInfo, ask_once
from placer.errors import UsageError
from placer.graph.op_graph import ColocationGroup, Op, OpGraph
from placer.graph.program_source import Warning_
from placer.graph.walks import grouped
from placer.problem.grouping import (
    CPU_CODES,
    Restriction,
    asked_groups,
    kept_on_host,
    merged_groups,
)
from placer.problem.pins import Pin, dtypes_of, pinned_devices

_PREFERRED = "TensorFlow prefers the CPU kernel, whose elements are in host memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintOptions:
    """The constraints that the user asked for.

    ``pins`` map globs of op names, ``pin_types`` globs of op types, to device names;
    ``keep_together`` are globs whose ops share one device; with ``colocate_gradients`` every
    gradient op shares that of its forward op, with ``keep_colocation`` every op that of those which
    its ``_class`` names.
    """

    pins: Mapping[str, str] = field(default_factory=dict)
    pin_types: Mapping[str, str] = field(default_factory=dict)
    keep_together: tuple[str, ...] = ()
    clear_devices: bool = False
    colocate_gradients: bool = False
    keep_colocation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Restrictions of every op before groups are merged, and the groups.

    ``groups`` covers every op once; ``group_devices`` (same order) is what all members allow,
    ``()`` where they contradict each other.  ``on_cpus`` says which groups all open CPUs can run,
    ``spillable`` which of them nothing keeps from being there.  ``warnings`` are (code, message,
    ops).

    ``asked_groups`` are those that the user asked for, by how; ``own_groups`` what the groups would
    be without them.
    """

    restrictions: Mapping[str, Restriction]
    groups: tuple[ColocationGroup, ...]
    group_devices: tuple[tuple[str, ...], ...]
    on_cpus: tuple[bool, ...]
    spillable: tuple[bool, ...]
    own_groups: tuple[ColocationGroup, ...]
    asked_groups: Mapping[str, tuple[ColocationGroup, ...]] = field(default_factory=dict)
    warnings: tuple[Warning_, ...] = ()

    @property
    def first_choice(self) -> dict[str, str]:
        """Every op on the first device it may use: what one device would hold.

        Groups that contradict themselves follow their first member.
        """
        return {
            op: (devices or self.restrictions[group.ops[0]].devices)[0]
            for group, devices in zip(self.groups, self.group_devices, strict=True)
            for op in group.ops
        }


def find_constraints(graph: OpGraph, cluster: Cluster, options: ConstraintOptions) -> Constraints:
    """The constraints of ``graph`` on ``cluster``.

    Raises :class:`UsageError` as :func:`placer.problem.pins.pinned_devices`.
    """
    host_only = _host_only_reasons(graph)
    pins, warnings = pinned_devices(graph, cluster, options.pins, options.pin_types, host_only)
    feeds = frozenset(graph.feeds)
    restrictions = dict.fromkeys(graph.ops, _unrestricted(cluster))  # as most ops are
    ignored = []
    for name, op in graph.ops.items():
        if not op.device and not (name in host_only or name in feeds or name in pins):
            continue
        asked = "" if options.clear_devices else op.device
        restriction = _restriction(op, asked, feeds, cluster, pins, host_only)
        if restriction is not None:
            restrictions[name] = restriction
            is_host_only = op.device and restriction.code == "host_only_kernel"
            if is_host_only and not _asked_devices(op, _own_cpus(cluster)):
                ignored.append(name)
    stuck = _without_cpu_kernel(graph)
    wanted = asked_groups(
        graph, options.keep_together, options.colocate_gradients, options.keep_colocation
    )
    groups = merged_groups(graph, restrictions, chain.from_iterable(wanted.values()))
    alike: dict[tuple[int, ...], tuple[tuple[str, ...], bool]] = {}
    found = []
    for group in groups:
        members = [restrictions[op] for op in group.ops]
        key = tuple(dict.fromkeys(map(id, members)))
        if key not in alike:
            several = tuple({id(member): member for member in members}.values())
            devices = _group_devices(several, cluster)
            alike[key] = devices, not _is_held(several, devices)
        devices, is_free = alike[key]
        is_bound = any(restrictions[op].code in CPU_CODES for op in group.ops)
        found.append((devices, is_free, not is_bound and stuck.isdisjoint(group.ops)))
    if ignored:
        told = f"no kernel on the device asked for: {format_count(len(ignored), 'op')} on the CPU"
        warnings.append(("device_string_ignored", told, tuple(ignored)))
    accelerators = sum(device.type != "CPU" for device in cluster.devices)
    if stuck and not accelerators:
        types = ", ".join(sorted({graph.ops[name].op_type for name in stuck}))
        message = (
            f"no CPU can run {types} as the graph has it, and no other device is given: TensorFlow "
            "will refuse the program"
        )
        warnings.append(("no_cpu_kernel", message, tuple(sorted(stuck))))
    warnings.extend(kept_on_host(wanted, restrictions) if accelerators else ())
    warnings.extend(_tied_by_control_flow(graph) if accelerators > 1 else ())
    return Constraints(
        restrictions=restrictions,
        groups=groups,
        group_devices=tuple([devices for devices, _, _ in found]),
        on_cpus=tuple([on_cpus for _, _, on_cpus in found]),
        spillable=tuple([is_free and on_cpus for _, is_free, on_cpus in found]),
        own_groups=merged_groups(graph, restrictions) if wanted else groups,
        asked_groups=wanted,
        warnings=tuple(warnings),
    )


def _is_held(members: Sequence[Restriction], devices: Sequence[str]) -> bool:
    """Whether a feed, a kernel, a pin, or a device string that the group keeps to, says where it
    may be."""
    return any(
        member.code in ("fed", "host_only_kernel", "pinned")
        or (member.code == "device_string" and set(member.devices).issuperset(devices))
        for member in members
    )


def _without_cpu_kernel(graph: OpGraph) -> set[str]:
    """The ops that no CPU can run, or not all that runs in them.  Of a type without any known
    kernel it is taken that one can."""

    def is_stuck(info: OpInfo) -> bool:
        return kernels.known(info.op) and not kernels.has_cpu_kernel(info)

    @cache  # many ops may run one body
    def body_is_stuck(name: str) -> bool:
        return bool(stuck_in(graph.functions[name]))

    def stuck_in(body: OpGraph) -> set[str]:
        alone = ask_once(is_stuck, body.infos)
        return {
            op.name
            for op, stuck in zip(body.ops.values(), alone, strict=True)
            if stuck or any(map(body_is_stuck, chain.from_iterable(op.bodies.values())))
        }

    return stuck_in(graph)


def _tied_by_control_flow(graph: OpGraph) -> Iterator[Warning_]:
    """A warning if loops or branches tie variables to one device; it names the way out."""
    read = grouped((name, tensor) for name, tensor in graph.handle_reads if graph.ops[name].bodies)
    handles = {name: len({*names}) for name, names in read.items()}
    # fewer are nothing to warn of
    tied = sorted((name for name in handles if handles[name] >= 4), key=lambda n: -handles[n])
    if tied:
        first = graph.ops[tied[0]]
        message = (
            f"{first.name} ({first.op_type}) uses {handles[first.name]:,} resources in its bodies, "
            "which must share one device with all ops on them"
        )
        if first.op_type in ("If", "StatelessIf", "Case", "StatelessCase"):
            message += (
                ". To avoid this in a Keras training step, use mixed_bfloat16 or compile with "
                "auto_scale_loss=False"
            )
        yield "tied_by_control_flow", message, tuple(tied)


def _host_only_reasons(graph: OpGraph) -> dict[str, str]:
    """Why those ops cannot run on a GPU that cannot."""
    found = {
        name: _host_only_reason(op, graph, graph.functions)
        for (name, op), kernel in zip(graph.ops.items(), graph.gpu_kernels.values(), strict=True)
        if kernel is None or op.bodies
    }
    found |= {name: _PREFERRED for name in _iterators(graph)}
    return {name: reason for name, reason in found.items() if reason}


def _iterators(graph: OpGraph) -> Iterator[str]:
    """Yields the ops on handles whose CPU kernels TensorFlow prefers, and that ask for no device:
    the elements of an iterator are in host memory, whichever kernel gives them."""
    for name, op in graph.ops.items():
        handled = any(t.dtype == "resource" for t in (*op.info.inputs, *op.info.outputs))
        if handled and not op.device and kernels.prefers_cpu(op.info):
            yield name


def _host_only_reason(op: Op, graph: OpGraph, functions: Mapping[str, OpGraph]) -> str:
    """Why the op cannot run on a GPU, ``""`` if it can; functional control flow follows its
    bodies, since they run where it runs."""
    for function in chain.from_iterable(op.bodies.values()):
        body = functions[function]
        for inner in body.ops.values():
            if reason := _host_only_reason(inner, body, functions):
                return f"{inner.name} in its body {function}: {reason}"
    if graph.gpu_kernels[op.name] is None:
        platforms = kernels.platforms_of(op.info)
        if platforms:
            return f"{op.op_type} was exported for {', '.join(platforms)} only"
        return f"TensorFlow has no GPU kernel for {op.op_type}{dtypes_of(op)}"
    return ""


def _restriction(
    op: Op,
    device_string: str,
    feeds: frozenset[str],
    cluster: Cluster,
    pins: Mapping[str, Pin],
    host_only: Mapping[str, str],
) -> Restriction | None:
    """Returns what keeps an op from some devices, ``None`` if only its kind decides."""
    if op.name in feeds:
        host = cluster.host.name
        return Restriction(devices=(host,), code="fed", reason=f"fed values arrive on {host}")
    if op.name in pins:
        device, request = pins[op.name]
        return Restriction(
            devices=(device,),
            code="pinned",
            reason=f"pinned by {request}",
            request=request,
            unasked=_own_cpus(cluster) if op.name in host_only else _unrestricted(cluster).devices,
        )
    if op.name in host_only:
        cpus = _own_cpus(cluster)
        asked = _asked_devices(op, cpus) if device_string else ()
        return Restriction(
            devices=asked or cpus, code="host_only_kernel", reason=host_only[op.name]
        )
    if device_string:
        names = tuple(d.name for d in cluster.devices)
        asked = _asked_devices(op, names)
        if not asked:
            raise UsageError(
                f"op {op.name} asks for device {op.device!r}, which matches none of "
                f"{', '.join(names)}; ignore the graph's device strings with --clear-devices, or "
                f"name such a device with --devices"
            )
        if len(asked) < len(names):
            return Restriction(
                devices=asked,
                code="device_string",
                reason=f"its device string is {op.device}",
                request=f"the device string {op.device!r}",
                unasked=_unrestricted(cluster).devices,
            )
    return None


def open_cpus(cluster: Cluster) -> tuple[str, ...]:
    """The CPUs that all ops may use that can.  The client of a cluster with tasks is for what is
    fed, fetched or pinned there, or runs in no task, unless the cluster opens it (``any_ops``)."""
    in_task = {d.name: device_names.parse(d.name).job is not None for d in cluster.devices}
    has_tasks = any(in_task.values())
    cpus = (device for device in cluster.devices if device.type == "CPU")
    return tuple(d.name for d in cpus if in_task[d.name] or d.any_ops or not has_tasks)


def _own_cpus(cluster: Cluster) -> tuple[str, ...]:
    """Where ops go that only a CPU can run."""
    return open_cpus(cluster) or (cluster.host.name,)


def _unrestricted(cluster: Cluster) -> Restriction:
    """Every accelerator; every open CPU where there is none."""
    gpus = tuple(d.name for d in cluster.devices if d.type != "CPU")
    return Restriction(devices=gpus or _own_cpus(cluster))


def _asked_devices(op: Op, names: Iterable[str]) -> tuple[str, ...]:
    """The devices that match what the op asks for: one device string, or one of several."""
    wishes = op.device.split("|")
    try:
        return tuple(
            name for name in names if any(device_names.matches(wish, name) for wish in wishes)
        )
    except ValueError as error:
        raise UsageError(
            f"op {op.name} carries the device string {op.device!r}: {error}; "
            f"ignore the graph's device strings with --clear-devices"
        ) from error


def _group_devices(members: Sequence[Restriction], cluster: Cluster) -> tuple[str, ...]:
    """The devices that all members allow; ``()`` where feeds, kernels and pins contradict.

    A member restricted for a reason decides; one that is free to choose follows it, even to the
    CPU.  Device strings of the graph give way where the others contradict them, as they do under
    TensorFlow's soft placement.
    """
    names = [device.name for device in cluster.devices]
    hard = [r.devices for r in members if r.code in ("fed", "host_only_kernel", "pinned")]
    soft = [r.devices for r in members if r.code == "device_string"]
    free = [r.devices for r in members if not r.code]
    shared = _common(names, hard)
    for wish in (*soft, *free):
        shared = _common(shared, [wish]) or shared
    return tuple(shared)


def _common(names: Iterable[str], sets: Sequence[Sequence[str]]) -> list[str]:
    return [name for name in names if all(name in devices for devices in sets)]
