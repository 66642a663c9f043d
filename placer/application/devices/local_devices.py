"""The devices that TensorFlow finds on this machine: physical -> visible -> logical."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cost_models.card_memory import CardMemory, card_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalDevice:
    """One device of the machine.

    ``visible`` devices may be used by this process; ``logical`` are the names (``GPU:0``) that
    graphs know it by, several when it is divided, none when it is not visible.  ``model`` is
    what the driver calls it (``""`` for a CPU).  ``memory`` is what the driver says of a GPU's
    (``None`` where it is unknown: nvidia-ml-py is not installed, or the GPU cannot be identified),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """One GPU of the driver's list: ``used_bytes`` is what all processes hold."""

    uuid: str
    model: str
    total_bytes: int
    free_bytes: int
    used_bytes: int


def read_gpus() -> tuple[GpuMemory, ...]:
    """The GPUs of this machine in the driver's order; none without NVML or a driver."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_read(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read(pynvml: Any, index: int) -> GpuMemory:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuMemory(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        model=pynvml.nvmlDeviceGetName(handle),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        used_bytes=int(memory.used),
    )


def seen_by_cuda(gpus: Sequence[GpuMemory]) -> tuple[GpuMemory | None, ...]:
    """The GPUs that CUDA shows this process, in its order (``CUDA_VISIBLE_DEVICES``).

    CUDA numbers by speed, the driver by bus: numbers mean the same only with
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` or where all GPUs are of one model.  ``None`` stands for a GPU
    that cannot be identified.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    same_order = (
        os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({g.model for g in gpus}) <= 1
    )
    if listed is None:
        return tuple(gpus) if same_order else (None,) * len(gpus)
    found: list[GpuMemory | None] = []
    for entry in (part.strip() for part in listed.split(",") if part.strip()):
        if entry.lstrip("-").isdecimal():
            if not 0 <= int(entry) < len(gpus):
                break  # CUDA stops at the first that is not there
            found.append(gpus[int(entry)] if same_order else None)
        else:
            matching = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
            found.append(matching[0] if len(matching) == 1 else None)
    return tuple(found)
