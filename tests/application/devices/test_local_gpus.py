"""The GPUs of this machine as devices to place on."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from cost_models import local_gpus
from cost_models.byte_sizes import MEBIBYTE
from cost_models.card_memory import card_memory
from cost_models.clusters import parse_cluster, spec_text
from cost_models.local_gpus import GpuMemory, read_gpus, seen_by_cuda


def gpu(number, model="T4", total=8):
    return GpuMemory(
        uuid=f"GPU-{number}",
        model=model,
        total_bytes=total,
        free_bytes=6,
        used_bytes=2,
        compute_capability="7.5",
    )


def test_driver_and_cuda_number_gpus_in_their_own_ways(monkeypatch):
    """Hidden GPUs, UUIDs, unequal models: a memory is shown only where it is surely the GPU's."""
    gpus = [gpu(0), gpu(1)]
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    for listed, expected in (("1", [gpus[1]]), ("GPU-1,GPU-0", gpus[::-1]), ("0,7,1", gpus[:1])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
        assert list(seen_by_cuda(gpus)) == expected
    unequal = [gpu(0), gpu(1, "A100")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert seen_by_cuda(unequal) == (None,)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert seen_by_cuda(unequal) == (unequal[1],)


def test_the_driver_is_asked_where_it_can_be(monkeypatch):
    """What NVML tells, and nothing where it has no driver."""
    error = type("NVMLError", (Exception,), {})
    nvml = SimpleNamespace(
        NVMLError=error,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=8, free=6, used=2),
        nvmlDeviceGetUUID=lambda _: "GPU-0",
        nvmlDeviceGetName=lambda _: "T4",
        nvmlDeviceGetCudaComputeCapability=lambda _: (7, 5),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert read_gpus() == (gpu(0),)

    def fail():
        raise error("no driver")

    nvml.nvmlInit = fail
    assert read_gpus() == ()


CARDS = (
    ("Tesla T4", 15360, "T4"),
    ("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"),
    ("NVIDIA A100 80GB PCIe", 81920, "A100-80GB"),
    ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB"),
    ("NVIDIA GeForce RTX 4060 Ti", 16380, "RTX-4060Ti-16GB"),
    ("NVIDIA GeForce RTX 4060", 8188, "RTX-4060"),
    ("NVIDIA RTX A6000", 49140, "RTX-A6000"),
    ("NVIDIA L40S", 46068, "L40S"),
    ("NVIDIA L4", 23034, "L4"),
)
"""What drivers call cards, their memory in MiB, and the presets that they are."""


@pytest.mark.parametrize(("name", "total_mib", "model"), CARDS)
def test_cards_are_known_by_name_and_memory(monkeypatch, name, total_mib, model):
    """A card is the preset that its name contains, of its memory."""
    monkeypatch.setattr(local_gpus, "read_gpus", lambda: (gpu(0, name, total_mib * MEBIBYTE),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert spec_text("local,CPU:64GiB") == f"{model},CPU:64GiB"
    (first, host) = parse_cluster("local,CPU:64GiB").devices
    assert (first.name, first.model, host.name) == ("GPU:0", model, "CPU:0")


def test_other_cards_are_plain_gpus_of_their_memory(monkeypatch):
    """What TensorFlow would hand out of them is what is placed on, card by card."""
    total = 7000 * MEBIBYTE
    cards = tuple(gpu(number, "NVIDIA Something 9", total) for number in range(2))
    monkeypatch.setattr(local_gpus, "read_gpus", lambda: cards)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices = parse_cluster(["local"]).devices
    assert [device.name for device in devices] == ["GPU:0", "GPU:1", "CPU:0"]
    usable = card_memory(total, "7.5").usable_bytes
    assert devices[1].usable_bytes == usable // MEBIBYTE * MEBIBYTE


def test_without_gpus_the_ways_out_are_named(monkeypatch):
    """Devices to name, and the simulator; where the driver is not asked, what lets it be."""
    monkeypatch.setattr(local_gpus, "read_gpus", tuple)
    monkeypatch.setattr(local_gpus, "accelerator_count", lambda: 0)
    with pytest.raises(ValueError, match=r"no GPU was found here.*2xT4.*placer simulate"):
        parse_cluster("local")
    monkeypatch.setattr(local_gpus, "accelerator_count", lambda: 1)
    with pytest.raises(ValueError, match="driver of these GPUs does not answer"):
        parse_cluster("local")
    cards = gpu(0), gpu(1, "A100")
    monkeypatch.setattr(local_gpus, "read_gpus", lambda: cards)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    with pytest.raises(ValueError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        parse_cluster("local")
