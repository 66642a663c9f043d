"""TensorFlow's runtime, set up for a plan before it starts."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from cost_models.byte_sizes import MEBIBYTE
from cost_models.clusters import parse_cluster
from cost_models.device_names import parse
from placer.application.devices.device_mapping import (
    DeviceMapping,
    configure_logical_cpus,
    own_mapping,
    placed_on,
    process_mapping,
    rehearsal_mapping,
)
from placer.application.devices.graph_optimisers import (
    switch_functions_memory_optimiser_off,
    switch_memory_optimiser_off,
)
from placer.application.devices.session_devices import session_mapping
from placer.errors import UsageError
from placer.plan.plan import Plan


def configure_runtime(
    plan: Plan | str | Path,
    *,
    memory: str = "growth",
    split_gpu: bool = False,
    on_hardware: bool = False,
    soft_placement: bool = True,
) -> DeviceMapping:
    """Which device stands for each of the plan's, after TensorFlow was set up for them.

    ``plan`` may be devices, such as ``"2xT4"``, where there is no plan yet.  Only its GPUs are
    visible, and Grappler's memory optimiser, which may add transfers, is off.  ``memory`` is
    ``"growth"`` (taken as needed), ``"limit"`` (the plan's caps) or ``"all"`` (TensorFlow's
    default).  Where GPUs are absent the plan is rehearsed: with ``split_gpu`` on one GPU divided by
    the plan's caps, else on logical CPU devices; ``on_hardware`` forbids both.

    Raises :class:`UsageError` if TensorFlow has run an op already, for absent devices with
    ``on_hardware``, for a plan without a placement, and for unknown caps where they are needed.
    """
    if context.context()._initialized:
        raise UsageError(
            "TensorFlow has already started: call placer.configure_runtime(plan) right after "
            "import tensorflow (without a plan: placer.configure_runtime('2xT4'))"
        )
    if memory not in ("growth", "limit", "all"):
        raise UsageError(f"memory must be 'growth', 'limit' or 'all', got {memory!r}")
    names, caps = _devices_of(plan)
    tf.config.set_soft_device_placement(soft_placement)
    # devices: one GPU divided, else those that are there, else a rehearsal
    gpus = tf.config.list_physical_devices("GPU")
    count = gpu_count(names)
    if split_gpu and gpus and 0 < len(gpus) < count and not on_hardware:
        tf.config.set_visible_devices(gpus[:1], "GPU")
        parts = [_part(caps, index) for index in range(count)]
        tf.config.set_logical_device_configuration(gpus[0], parts)
        mapping = own_mapping(names)
    else:
        mapping = process_mapping(names, on_hardware=on_hardware)
        used = [] if mapping.rehearsed else gpus[:count]
        tf.config.set_visible_devices(used, "GPU")
        for index, gpu in enumerate(used):
            if memory == "growth":
                tf.config.experimental.set_memory_growth(gpu, True)
            elif memory == "limit":
                tf.config.set_logical_device_configuration(gpu, [_part(caps, index)])
    configure_logical_cpus(mapping.cpu_count)
    switch_functions_memory_optimiser_off()
    return mapping


def session_config(
    plan: Plan,
    *,
    memory: str = "growth",
    soft_placement: bool = True,
    rehearse: bool | None = None,
) -> Any:
    """The ``tf.compat.v1.ConfigProto`` of a session that runs a graph placed by ``plan``.

    With ``rehearse`` it has logical CPU devices in place of the plan's GPUs, for a graph that was
    built under ``plan.device_function`` or applied with ``rehearse=True``; by default it rehearses,
    with a warning, where those GPUs are absent.  Other arguments and errors as for
    :func:`configure_runtime`.
    """
    if memory not in ("growth", "limit", "all"):
        raise UsageError(f"memory must be 'growth', 'limit' or 'all', got {memory!r}")
    names, caps = _devices_of(plan)
    count = gpu_count(names)
    if rehearse is None:
        rehearse = session_mapping(names).rehearsed
    mapping = rehearsal_mapping(names) if rehearse else own_mapping(names)
    config = tf.compat.v1.ConfigProto(
        device_count={"CPU": mapping.cpu_count, "GPU": 0 if rehearse else count},
        allow_soft_placement=soft_placement,
    )
    switch_memory_optimiser_off(config)
    if count and not rehearse:
        config.gpu_options.visible_device_list = ",".join(map(str, range(count)))
        config.gpu_options.allow_growth = memory == "growth"
        for index in range(count) if memory == "limit" else ():
            device = config.gpu_options.experimental.virtual_devices.add()
            device.memory_limit_mb.append(_cap(caps, index) / MEBIBYTE)
    return config


def _devices_of(plan: Plan | str | Path) -> tuple[set[str], dict[str, int]]:
    """The names of the devices in use, and the caps of all."""
    if isinstance(plan, str | Path):
        try:
            devices = parse_cluster(str(plan)).devices
        except (ValueError, OSError) as error:
            raise UsageError(str(error)) from error
        return {d.name for d in devices}, {d.name: d.memory_limit_bytes for d in devices}
    return placed_on(plan), {d.name: d.memory_limit_bytes for d in plan.devices}


def gpu_count(names: Iterable[str]) -> int:
    """How many GPUs of this process the ``names`` need."""
    parsed = map(parse, names)
    indices = [name.index or 0 for name in parsed if name.type == "GPU" and name.job is None]
    return 1 + max(indices, default=-1)


def _cap(caps: Mapping[str, int], index: int) -> int:
    if f"GPU:{index}" not in caps:
        raise UsageError(f"the plan has no memory limit for GPU:{index}: use memory='growth'")
    return caps[f"GPU:{index}"]


def _part(caps: Mapping[str, int], index: int) -> Any:
    """A logical device of as much memory as the plan's cap."""
    return tf.config.LogicalDeviceConfiguration(memory_limit=_cap(caps, index) / MEBIBYTE)


@contextmanager
def soft_placement(allowed: bool) -> Iterator[None]:
    """Lets TensorFlow move ops off the device they ask for in the block, or not: a setting of the
    whole process, read when a function is first called on a device."""
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(allowed)
    try:
        yield
    finally:
        tf.config.set_soft_device_placement(before)
