"""The devices that TensorFlow finds on this machine: physical -> visible -> logical."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalDevice:
    """One device of the machine.

    ``visible`` devices may be used by this process; ``logical`` are the names (``GPU:0``) that
    graphs know it by, several when it is divided, none when it is not visible.  ``model`` is
    what the driver calls it (``""`` for a CPU).
    """

    name: str
    type: str
    model: str
    visible: bool
    logical: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDevices:
    """What TensorFlow sees; ``host_memory_bytes`` is ``None`` where the system does not tell."""

    tensorflow_version: str
    physical: tuple[PhysicalDevice, ...] = field(default_factory=tuple)
    host_memory_bytes: int | None = None


def find_local_devices() -> LocalDevices:
    """The devices of this machine.  Starts TensorFlow's runtime, but takes no GPU memory ahead."""
    import tensorflow as tf

    from cost_models.devices import host_memory_bytes

    visible = {device.name for device in tf.config.get_visible_devices()}
    for device in tf.config.get_visible_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    try:
        memory_bytes: int | None = host_memory_bytes()
    except ValueError:
        memory_bytes = None
    return LocalDevices(
        tensorflow_version=tf.__version__,
        physical=tuple(
            PhysicalDevice(
                name=device.name.removeprefix("/physical_device:"),
                type=device.device_type,
                model=tf.config.experimental.get_device_details(device).get("device_name", ""),
                visible=device.name in visible,
                logical=_logical_names(device) if device.name in visible else (),
            )
            for device in tf.config.list_physical_devices()
        ),
        host_memory_bytes=memory_bytes,
    )


def _logical_names(device: object) -> tuple[str, ...]:
    """Names of the logical devices that a visible physical device is divided into.

    TensorFlow numbers them type by type, over the visible devices in order.
    """
    import tensorflow as tf

    number = 0
    for other in tf.config.get_visible_devices(device.device_type):  # type: ignore[attr-defined]
        parts = len(tf.config.get_logical_device_configuration(other) or [None])
        if other == device:
            kind = other.device_type
            return tuple(f"{kind}:{index}" for index in range(number, number + parts))
        number += parts
    return ()
