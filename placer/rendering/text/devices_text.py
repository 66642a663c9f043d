"""The devices of this machine, and the models that ``--devices`` knows, as text."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType

from cost_models.devices import DevicePreset
from placer.application.devices.local_devices import LocalDevices
from placer.rendering.quantities import format_bytes, format_rate, known
from placer.rendering.text.layout import Facts, Rows, Title, to_text

_MEMORY = ("total_bytes", "used_bytes", "free_bytes")
"""Shown where the driver tells them."""


def render_devices(
    local: LocalDevices,
    presets: Mapping[str, DevicePreset],
    *,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Both tables as text of ``width`` columns, with terminal colours if ``colour``."""
    blocks: list[RenderableType] = [
        Title("Devices of this machine", f"TensorFlow {local.tensorflow_version}"),
        _local_table(local, width),
        Facts("Host", [("memory", format_bytes(local.host_memory_bytes))]),
        Title("Models for --devices", "dense rates; a plain GPU needs a memory size: GPU:8GiB"),
        _preset_table(presets, width),
    ]
    return to_text(blocks, width=width, colour=colour)


def _local_table(local: LocalDevices, width: int) -> RenderableType:
    headers = ("Physical", "Visible", "Logical", "Model", "Memory>", "Used>", "Free>")
    rows = [
        (
            device.name,
            "yes" if device.visible else "no",
            ", ".join(device.logical) or "-",
            device.model or device.type,
            *(known(getattr(device.memory, key, None), format_bytes) for key in _MEMORY),
        )
        for device in local.physical
    ]
    return Rows(headers, rows, width=width)


def _preset_table(presets: Mapping[str, DevicePreset], width: int) -> RenderableType:
    headers = ("Model", "Memory>", "Compute>", "Bandwidth>", "Precision")
    rows = [
        (
            preset.model,
            "as given" if preset.memory_bytes is None else format_bytes(preset.memory_bytes),
            format_rate(preset.peak_flops, "FLOP/s"),
            format_rate(preset.memory_bandwidth, "B/s"),
            preset.precision,
        )
        for preset in presets.values()
    ]
    return Rows(headers, rows, width=width)
