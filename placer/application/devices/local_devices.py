"""The devices that TensorFlow finds on this machine: physical -> visible -> logical."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cost_models.card_memory import CardMemory, card_memory
from cost_models.local_gpus import GpuMemory, read_gpus, seen_by_cuda


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalDevice:
    """One device of the machine.

    ``visible`` devices may be used by this process; ``logical`` are the names (``GPU:0``) that
    graphs know it by, several when it is divided, none when it is not visible.  ``model`` is
    what the driver calls it (``""`` for a CPU).  ``memory`` is what the driver says of a GPU's
    (``None`` where it is unknown: the driver does not answer, or the GPU cannot be identified),
    ``card`` what TensorFlow would hand out of it with nothing else running there.
    """

    name: str
    type: str
    model: str
    visible: bool
    logical: tuple[str, ...] = ()
    memory: GpuMemory | None = None
    card: CardMemory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDevices:
    """The devices that TensorFlow sees; ``host_memory_bytes`` is ``None`` where the system does not
    say."""

    tensorflow_version: str
    physical: tuple[PhysicalDevice, ...] = field(default_factory=tuple)
    host_memory_bytes: int | None = None


def find_local_devices() -> LocalDevices:
    """The devices of this machine.

    TensorFlow only lists them, and the driver is asked for their memory: no GPU is initialised, so
    full and taken ones are shown too.
    """
    import tensorflow as tf

    from cost_models.devices import host_memory_bytes

    visible = {device.name for device in tf.config.get_visible_devices()}
    for device in tf.config.get_visible_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    try:
        memory_bytes: int | None = host_memory_bytes()
    except ValueError:
        memory_bytes = None
    gpus = iter(seen_by_cuda(read_gpus()))
    return LocalDevices(
        tensorflow_version=tf.__version__,
        physical=tuple(
            _describe(device, visible, next(gpus, None) if device.device_type == "GPU" else None)
            for device in tf.config.list_physical_devices()
        ),
        host_memory_bytes=memory_bytes,
    )


def _describe(device: Any, visible: set[str], memory: GpuMemory | None) -> PhysicalDevice:
    import tensorflow as tf

    model, card = memory.model if memory else "", None
    if device.device_type != "CPU":
        details = tf.config.experimental.get_device_details(device)
        model = model or details.get("device_name", "")
        if memory and "compute_capability" in details:
            major, minor = details["compute_capability"]
            card = card_memory(memory.total_bytes, f"{major}.{minor}")
    return PhysicalDevice(
        name=device.name.removeprefix("/physical_device:"),
        type=device.device_type,
        model=model,
        visible=device.name in visible,
        logical=_logical_names(device) if device.name in visible else (),
        memory=memory,
        card=card,
    )


def _logical_names(device: Any) -> tuple[str, ...]:
    """Names of the logical devices that a visible physical device is divided into.

    TensorFlow numbers them type by type, over the visible devices in order.
    """
    import tensorflow as tf

    number = 0
    for other in tf.config.get_visible_devices(device.device_type):
        parts = len(tf.config.get_logical_device_configuration(other) or [None])
        if other == device:
            kind = other.device_type
            return tuple(f"{kind}:{index}" for index in range(number, number + parts))
        number += parts
    return ()
