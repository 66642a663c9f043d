"""The devices of this machine, and the models that ``--devices`` knows, as text."""

from collections.abc import Mapping

from rich.console import RenderableType

from cost_models.byte_sizes import format_bytes
from cost_models.card_memory import CardMemory
from cost_models.clusters import Machine
from cost_models.devices import DevicePreset
from placer.application.devices.local_devices import LocalDevices
from placer.rendering.quantities import format_rate, known
from placer.rendering.text.layout import Facts, Rows, Title, to_text


def render_devices(
    local: LocalDevices,
    presets: Mapping[str, DevicePreset],
    machines: Mapping[str, Machine],
    *,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Devices, models and machines as text of ``width`` columns, in terminal colours if
    ``colour``."""
    blocks: list[RenderableType] = [
        Title("Devices of this machine", f"TensorFlow {local.tensorflow_version}"),
        _local_table(local, width),
        Facts("Host", [("memory", format_bytes(local.host_memory_bytes))]),
        Title(
            "Models for --devices",
            "Usable: without the CUDA context and what TensorFlow keeps back. Compute: without "
            "sparsity. A plain GPU needs a memory size: GPU:8GiB",
        ),
        _preset_table(presets, width),
        Facts(
            "Machines for --devices", [(n, f"{m.count}x {m.model}") for n, m in machines.items()]
        ),
    ]
    return to_text(blocks, width=width, colour=colour)


def _local_table(local: LocalDevices, width: int) -> RenderableType:
    headers = ("Physical", "Visible", "Logical", "Model", "Memory>", "Usable>", "Free>", "Used>")
    rows = [
        (
            device.name,
            "yes" if device.visible else "no",
            ", ".join(device.logical) or "-",
            device.model or device.type,
            known(getattr(device.memory, "total_bytes", None), format_bytes),
            known(getattr(device.card, "usable_bytes", None), format_bytes),
            known(getattr(device.memory, "free_bytes", None), format_bytes),
            known(getattr(device.memory, "used_bytes", None), format_bytes),
        )
        for device in local.physical
    ]
    return Rows(headers, rows, width=width)


def _preset_table(presets: Mapping[str, DevicePreset], width: int) -> RenderableType:
    headers = ("Model", "Memory>", "Context>", "Kept>", "Usable>", "Compute>", "Bandwidth>")
    rows = [
        (
            preset.model,
            *(_parts(preset.card) if preset.card else ("as given", "-", "-", "as given")),
            f"{format_rate(preset.peak_flops, 'FLOP/s')} {preset.precision}",
            format_rate(preset.memory_bandwidth, "B/s"),
        )
        for preset in presets.values()
    ]
    return Rows(headers, rows, width=width)


def _parts(card: CardMemory) -> tuple[str, str, str, str]:
    return (
        format_bytes(card.total_bytes),
        format_bytes(card.context_bytes),
        format_bytes(card.kept_back_bytes),
        format_bytes(card.usable_bytes),
    )
