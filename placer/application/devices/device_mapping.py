"""Which device of this process stands for each device of a plan.

On the hardware a plan was made for, every device stands for itself.  Where its accelerators are
absent, the plan is rehearsed: ``CPU:0`` stays, and every other device becomes a further logical
CPU device, so that placement, transfers and results can be checked on any machine.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cost_models.device_names import DeviceName, canonical, full_name, parse
from placer.errors import UsageError, require_count

_LOG = logging.getLogger(__name__)

HOST = "CPU:0"


def placed_on(plan: Any) -> set[str]:
    """The devices that ``plan`` uses.  Raises :class:`UsageError` if it has no placement,
    :class:`~placer.errors.InfeasibleError` if it says that nothing fits."""
    if not plan.placement:
        plan.raise_for_conflict()
        raise UsageError(
            f"the plan has no placement ({plan.solver.status}): placer explain PLAN or "
            "plan.summary() shows why"
        )
    return set(plan.placement.values())


@dataclass(frozen=True, kw_only=True)
class DeviceMapping:
    """``stand_ins`` maps canonical plan devices to canonical devices of this process; ``absent``
    are those that the machine lacks, ``present`` what it has instead."""

    stand_ins: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    present: tuple[str, ...] = ()

    @property
    def rehearsed(self) -> bool:
        """True where some device is stood in for by another one."""
        return any(
            device != stand_in and is_local(parse(stand_in))
            for device, stand_in in self.stand_ins.items()
        )

    @property
    def uses_accelerators(self) -> bool:
        """True where a device other than a CPU really runs."""
        return any(parse(name).type != "CPU" for name in self.stand_ins.values())

    @property
    def reference_device(self) -> str:
        """Where the unplaced program runs for comparison: the host if there are accelerators, one
        of which could be too small for all of it; else where TensorFlow chooses (``""``)."""
        return full_name(HOST) if self.uses_accelerators else ""

    @property
    def cpu_count(self) -> int:
        """How many logical CPU devices the process needs of its own."""
        names = [parse(name) for name in (HOST, *self.stand_ins.values())]
        return 1 + max(n.index or 0 for n in names if n.type == "CPU" and is_local(n))

    @property
    def absence(self) -> str:
        """Names the devices that the machine lacks, and those that it has."""
        verb = "is" if len(self.absent) == 1 else "are"
        here = ", ".join(self.present)
        return f"{_listed(self.absent)} {verb} absent (this machine has {here})"

    @property
    def replacement(self) -> str:
        """Says on which devices the ops of a rehearsal run, and what is left idle."""
        pairs = [f"{device} on {own}" for device, own in self.stand_ins.items() if device != own]
        text = f"all ops run on CPU devices ({', '.join(pairs)})"
        idle = [name for name in self.present if parse(name).type != "CPU"]
        return f"{text}, and {_listed(idle)} stays idle" if idle else text

    def stand_in(self, device: str) -> str:
        """The full name of the device that runs what asks for ``device``.

        An incomplete name that says CPU is the host; any other is dropped (``""``), which lets
        TensorFlow choose.
        """
        try:
            name = canonical(device)
        except ValueError:
            return full_name(HOST) if "CPU" in device.upper() else ""
        return full_name(self.stand_ins.get(name, name))

    def planned(self, device: str) -> str:
        """The canonical plan device that a device of this process stands for."""
        name = canonical(device)
        return next((plan for plan, own in self.stand_ins.items() if own == name), name)


def rehearsal_mapping(devices: Iterable[str]) -> DeviceMapping:
    """Logical CPU devices for ``devices``: CPU:0 itself, then accelerators, then further CPUs.

    ``ValueError`` if a name is not a device name.

    >>> dict(rehearsal_mapping(["GPU:0", "CPU:0"]).stand_ins)
    {'CPU:0': 'CPU:0', 'GPU:0': 'CPU:1'}
    """
    names = sorted({canonical(device) for device in devices} - {HOST}, key=_rehearsal_order)
    return DeviceMapping(
        stand_ins={HOST: HOST, **{name: f"CPU:{i}" for i, name in enumerate(names, start=1)}}
    )


def _rehearsal_order(device: str) -> tuple[bool, str, int, str, int]:
    name = parse(device)
    return name.type == "CPU", name.job or "", name.task or 0, name.type or "", name.index or 0


def is_local(name: DeviceName) -> bool:
    """Whether a device belongs to the process that feeds and fetches.

    >>> is_local(parse("GPU:0")), is_local(parse("/job:worker/task:0/device:GPU:0"))
    (True, False)
    """
    return name.job in (None, "localhost")


def own_mapping(devices: Iterable[str], *, host: str = HOST) -> DeviceMapping:
    """Every device as itself: they are all there; the host may have another name."""
    names = sorted(canonical(device) for device in devices)
    return DeviceMapping(stand_ins={**{name: name for name in names}, HOST: host})


def process_mapping(devices: Iterable[str], *, on_hardware: bool = False) -> DeviceMapping:
    """Every device as itself if this machine (physical devices, so that logical ones can still be
    configured) or a cluster that was joined has them all, else the rehearsal of ``devices``;
    :class:`UsageError` in its place with ``on_hardware``."""
    wanted = {canonical(device) for device in devices}
    present = _physical_devices() | _remote_devices()
    absent = sorted(
        device
        for device in wanted - present
        if parse(device).type != "CPU" or not is_local(parse(device))
    )
    if not absent:
        return own_mapping(wanted)
    here = tuple(sorted(present))
    mapping = replace(rehearsal_mapping(wanted), absent=tuple(absent), present=here)
    if on_hardware:
        raise UsageError(
            f"{mapping.absence}: run on a machine that has them, or leave out --on-hardware "
            f"to run on CPU devices"
        )
    return mapping


def running_mapping(devices: Iterable[str], missing: str = "warn") -> DeviceMapping:
    """As :func:`process_mapping`, for what the caller is about to run: has the logical CPU devices
    of a rehearsal and warns of it.  Raises :class:`UsageError` if it is too late to have them, and
    for absent devices where ``missing`` is ``"error"``."""
    mapping = process_mapping(devices, on_hardware=forbids_absence(missing))
    configure_logical_cpus(mapping.cpu_count, f"{mapping.absence}: " if mapping.absent else "")
    if mapping.absent:
        _LOG.warning(
            "%s: %s; missing='error' raises an error instead", mapping.absence, mapping.replacement
        )
    return mapping


def warn_of_absence(devices: Iterable[str], missing: str = "warn") -> None:
    """Warns, or raises :class:`UsageError` where ``missing`` is ``"error"``, if this machine lacks
    some of ``devices``, for a program that runs as it is: TensorFlow chooses its devices."""
    mapping = process_mapping(devices, on_hardware=forbids_absence(missing))
    if mapping.absent:
        used = [name for name in mapping.present if parse(name).type == "GPU"] or [HOST]
        _LOG.warning("%s: the program runs on %s", mapping.absence, used[0])


def forbids_absence(missing: str) -> bool:
    """Whether absent devices are an error; :class:`UsageError` if ``missing`` is no such word."""
    if missing not in ("warn", "error"):
        raise UsageError(f"missing={missing!r} is neither 'warn' nor 'error'")
    return missing == "error"


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _physical_devices() -> set[str]:
    import tensorflow as tf

    return {
        canonical(device.name.replace("/physical_device:", "/device:"))
        for device in tf.config.list_physical_devices()
    }


def _remote_devices() -> set[str]:
    """The devices of other tasks that this process has joined; none before TensorFlow started."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    if not context.context()._initialized:
        return set()
    names = {canonical(device.name) for device in tf.config.list_logical_devices()}
    return {name for name in names if not is_local(parse(name))}


def has_accelerators() -> bool:
    """Whether TensorFlow sees a device besides CPUs."""
    return any(parse(device).type != "CPU" for device in _physical_devices())


def cpu_devices(count: int) -> tuple[str, ...]:
    """The names of the host and ``count`` logical CPU devices that stand in for accelerators.

    Configures them: ``GPU:i`` of a plan is then rehearsed on ``CPU:i+1``.  Raises
    :class:`UsageError` for what is no count, and if TensorFlow already started with fewer.
    """
    require_count("count", count)
    configure_logical_cpus(count + 1)
    return tuple(f"CPU:{index}" for index in range(count + 1))


def configure_logical_cpus(count: int, reason: str = "") -> None:
    """Has at least ``count`` logical CPU devices; raises :class:`UsageError`, which begins with
    the ``reason``, if it is too late."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    if context.context()._initialized:
        present = len(tf.config.list_logical_devices("CPU"))
        if present < count:
            raise UsageError(
                f"{reason}to run on CPU devices, call placer.cpu_devices({count - 1}) right after "
                f"import tensorflow; TensorFlow has already started with {present}"
            )
        return
    host = tf.config.list_physical_devices("CPU")[0]
    configured = tf.config.get_logical_device_configuration(host) or []
    if len(configured) < count:
        tf.config.set_logical_device_configuration(
            host, [tf.config.LogicalDeviceConfiguration()] * count
        )
