"""The devices of a machine as text."""

from __future__ import annotations

from cost_models.card_memory import card_memory
from cost_models.clusters import machines
from cost_models.devices import preset
from placer.application.devices.local_devices import GpuMemory, LocalDevices, PhysicalDevice
from placer.rendering.text.devices_text import render_devices

MACHINE = """\
Devices of this machine
TensorFlow 2.21.0

Physical  Visible  Logical       Model        Memory    Usable      Free
────────────────────────────────────────────────────────────────────────
CPU:0     yes      CPU:0         CPU               -         -         -
GPU:0     yes      GPU:0, GPU:1  NVIDIA T4  15.0 GiB  13.6 GiB  12.0 GiB
GPU:1     no       -             NVIDIA T4         -         -         -
(hidden: Used; a wider terminal shows all)

Host
  memory  64.0 GiB

Models for --devices
Usable: without the CUDA context and what TensorFlow keeps back. Compute:
without sparsity. A plain GPU needs a memory size: GPU:8GiB

Model    Memory  Context      Kept    Usable            Compute  Bandwidth
──────────────────────────────────────────────────────────────────────────
T4     15.0 GiB  364 MiB  1.03 GiB  13.6 GiB  8.10 TFLOP/s FP32   320 GB/s
CPU    as given        -         -  as given  1.00 TFLOP/s FP32  50.0 GB/s

Machines for --devices
  p3.8xlarge  4x V100-16GB
"""


def test_a_machine_reads_like_this():
    """A GPU divided in two, one that is hidden, and a device whose memory is not known."""
    local = LocalDevices(
        tensorflow_version="2.21.0",
        physical=(
            PhysicalDevice(name="CPU:0", type="CPU", model="", visible=True, logical=("CPU:0",)),
            PhysicalDevice(
                name="GPU:0",
                type="GPU",
                model="NVIDIA T4",
                visible=True,
                logical=("GPU:0", "GPU:1"),
                memory=GpuMemory(
                    uuid="GPU-1",
                    model="NVIDIA T4",
                    total_bytes=15 << 30,
                    free_bytes=12 << 30,
                    used_bytes=3 << 30,
                ),
                card=card_memory(15 << 30, "7.5"),
            ),
            PhysicalDevice(name="GPU:1", type="GPU", model="NVIDIA T4", visible=False),
        ),
        host_memory_bytes=64 << 30,
    )
    presets = {name: preset(name) for name in ("T4", "CPU")}
    several = {"p3.8xlarge": machines()["p3.8xlarge"]}
    assert render_devices(local, presets, several) == MACHINE


def test_what_tensorflow_says_is_what_is_listed():
    """Physical and logical devices are those of ``tf.config``, in its numbering."""
    import tensorflow as tf

    from placer.application.devices.local_devices import find_local_devices

    found = find_local_devices()
    assert [f"/physical_device:{device.name}" for device in found.physical] == [
        device.name for device in tf.config.list_physical_devices()
    ]
    logical = [f"/device:{name}" for device in found.physical for name in device.logical]
    assert logical == [device.name for device in tf.config.list_logical_devices()]
