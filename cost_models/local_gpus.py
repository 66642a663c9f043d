"""The GPUs of this machine, as NVIDIA's driver lists them (NVML), and the presets that they are."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cost_models.byte_sizes import MEBIBYTE
from cost_models.card_memory import card_memory
from cost_models.devices import DevicePreset, accelerator_count, presets


def local_items() -> list[str]:
    """Returns an item of a list of devices for each GPU that CUDA shows this process: its preset,
    or a plain GPU with what TensorFlow would hand out of its memory.

    Raises ``ValueError`` where there is none, or where it cannot be known which it is.
    """
    gpus = seen_by_cuda(read_gpus())
    if not gpus:
        there = "the driver of these GPUs does not answer (NVML)"
        why = there if accelerator_count() else "no GPU was found here"
        raise ValueError(
            f"{why}: name devices, such as 2xT4 (placer devices lists the models); to run a script "
            "on GPUs that are not here, use placer simulate"
        )
    if any(gpu is None for gpu in gpus):
        raise ValueError(
            "CUDA numbers these GPUs by speed and their driver by bus: set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the devices"
        )
    return [_item(gpu) for gpu in gpus if gpu is not None]


def _item(gpu: "GpuMemory") -> str:
    known = _preset_of(gpu)
    if known is not None:
        return known.model
    usable = card_memory(gpu.total_bytes, gpu.compute_capability or "7.5").usable_bytes
    return f"GPU:{usable // MEBIBYTE}MiB"


def _preset_of(gpu: "GpuMemory") -> DevicePreset | None:
    """Returns the preset whose name, but for the size of its memory, is in the card's, and whose
    memory is that of the card; of several the longest name."""
    name = _folded(gpu.model)
    found = [
        preset
        for preset in presets().values()
        if preset.card is not None
        and _folded(_without_size(preset.model)) in name
        # drivers differ
        and abs(preset.card.total_bytes - gpu.total_bytes) <= 0.03 * gpu.total_bytes
    ]
    return max(found, key=lambda preset: len(_without_size(preset.model)), default=None)


def _folded(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())


def _without_size(model: str) -> str:
    """Returns the name without the size of the memory.

    >>> _without_size("RTX-4060Ti-16GB")
    'RTX-4060Ti'
    """
    stem, _, size = model.rpartition("-")
    return stem if size.endswith("GB") else model


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """One GPU of the driver's list: ``used_bytes`` is what all processes hold."""

    uuid: str
    model: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    compute_capability: str = ""


def read_gpus() -> tuple[GpuMemory, ...]:
    """The GPUs of this machine in the driver's order; none without a driver."""
    import pynvml

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
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return GpuMemory(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        model=pynvml.nvmlDeviceGetName(handle),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        used_bytes=int(memory.used),
        compute_capability=f"{major}.{minor}",
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
