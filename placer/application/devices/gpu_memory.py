"""GPU memory as the driver reports it (nvidia-ml-py, where installed); no GPU is initialised."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


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
