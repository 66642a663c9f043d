"""Clusters out of text: ``2xA100-40GB,CPU:64GiB``, ``GPU:0,GPU:1``, or a ``cluster.toml``."""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from cost_models import device_names
from cost_models.byte_sizes import (
    AMPLE_BYTES,
    bytes_with_unit,
    format_bytes,
    parse_bytes,
    parse_reserve,
    positive_bytes,
)
from cost_models.cluster_files import DeviceDraft, named_once, read_cluster_file
from cost_models.devices import (
    Cluster,
    DevicePreset,
    DeviceProperties,
    Link,
    accelerator_count,
    host_memory_bytes,
    preset,
)
from cost_models.local_gpus import local_items

HOST = "CPU:0"
"""The device that always exists, and where inputs arrive."""

Devices = str | Path | Sequence[str]
"""A list of devices, also as one comma-separated string, or the path of a ``cluster.toml``."""

_COUNT = re.compile(r"(?:(-?\d+)[xX])?(.+)", re.DOTALL)
_LARGEST_INDEX = 4095

MOST_DEVICES = 1024
"""Devices at most in a list: tables of links and of moves grow with its square."""


def parse_cluster(
    spec: Devices,
    max_memory: str | Mapping[int | str, int | str] | None = None,
    reserve: str | int | None = None,
) -> Cluster:
    """The devices that ``spec`` names, the host always among them.

    ``spec`` is a list, also as one comma-separated string, or the path of a ``cluster.toml`` (see
    ``cluster_files``). An item is ``local`` (the GPUs of this machine), a machine of
    ``data/machines.toml`` (``DGX-A100-40GB``: its cards and their NVLinks), or
    ``[COUNTx]MODEL[:MEMORY]`` with a preset of ``data/devices.toml`` (``2xA100-40GB``), or
    ``[COUNTx]TYPE[:INDEX][:MEMORY]`` with ``GPU`` or ``CPU`` (``GPU:0``, ``2xGPU:8GiB``,
    ``CPU:64GiB``), or a full device name. Devices without a number get the next free one, so a CPU
    without a number is ``CPU:0``. A generic GPU has no memory of its own: it must be given here or
    in ``max_memory``. A CPU whose memory is not given (``CPU:0`` where the spec leaves it out, too)
    has that of the machine this runs on if the devices are this machine's: none is of a job, and
    there are no more accelerators than this machine has. Else it is as large as needed
    (:data:`~cost_models.byte_sizes.AMPLE_BYTES`).

    ``max_memory`` sets caps in bytes: ``"GPU:0=8GiB,CPU:0=30GiB"`` or a mapping; every spelling
    of a device name is read, ``0`` is ``GPU:0``, ``"cpu"`` is ``CPU:0``, ``GPU`` and ``GPU:*`` are
    every GPU.

    ``reserve`` is kept free on every accelerator (every device but ``CPU:0``): ``"1GiB+10%"``,
    percentages being of the cap.  The default, ``None``, keeps nothing free: the caps are used to
    the byte.

    ``ValueError`` says what cannot be read and what is known instead.

    >>> [device.name for device in parse_cluster("2xA100-40GB,CPU:64GiB").devices]
    ['GPU:0', 'GPU:1', 'CPU:0']
    """
    text = spec_text(spec)
    if text.endswith(".toml"):
        drafts, cluster = read_cluster_file(Path(text))
    else:
        drafts, cluster = _parse_spec(text)
    if all(draft.name != HOST for draft in drafts):
        drafts.append(DeviceDraft(name=HOST, preset=preset("CPU")))
    caps = _parse_caps(max_memory, [draft.name for draft in drafts])
    here, file = _are_here(drafts), text if text.endswith(".toml") else ""
    _require_memory([draft for draft in drafts if draft.name not in caps], file)
    devices = tuple(_device(draft, caps.get(draft.name), reserve, here) for draft in drafts)
    return replace(cluster, devices=devices)


def spec_text(spec: Devices) -> str:
    """Returns a list of devices as one string, with the GPUs of this machine by their models.

    >>> spec_text(["GPU:0:8GiB", "GPU:1:8GiB"])
    'GPU:0:8GiB,GPU:1:8GiB'
    """
    if isinstance(spec, str | Path):
        text = str(spec).strip()
    elif isinstance(spec, Sequence) and all(isinstance(item, str) for item in spec):
        text = ",".join(spec)
    else:
        raise ValueError(f"devices must be a text such as '2xT4' or a list of names; got {spec!r}")
    if device_names.LOCAL not in text:
        return text
    items = (item.strip() for item in text.split(","))
    return ",".join(
        own for item in items for own in (local_items() if item == device_names.LOCAL else [item])
    )


def _are_here(drafts: Sequence[DeviceDraft]) -> bool:
    """Whether the devices may be this machine's: of no job, and no more than there are here."""
    accelerators = sum(draft.preset.type != "CPU" for draft in drafts)
    in_jobs = any(device_names.parse(draft.name).job for draft in drafts)
    return not in_jobs and (not accelerators or accelerators <= accelerator_count())


def _require_memory(drafts: Sequence[DeviceDraft], file: str) -> None:
    """Raises ``ValueError`` if devices without a limit (of a cluster ``file``, if any) have no
    memory of their own."""
    lacking = [d for d in drafts if not (d.memory_bytes or d.preset.card or d.preset.type == "CPU")]
    if not lacking:
        return
    first, count = lacking[0], len(lacking)
    names, verb = first.name, "has"
    if count > 1:
        names, verb = f"{first.name} and {count - 1:,} more", "have"
    known = f"{count}x{first.preset.type}" if count > 1 else first.preset.type
    write = 'add memory = "8GiB"' if file else f"write {known}:8GiB"
    raise ValueError(
        f"{file and f'{file}: '}{names} {verb} no memory size; {write}, name a model such as "
        f"{f'{count}x' * (count > 1 and not file)}A100-40GB, or add --max-memory "
        f"{first.preset.type}=8GiB"
    )


def _device(
    draft: DeviceDraft, cap: int | None, reserve: str | int | None, here: bool
) -> DeviceProperties:
    """The device with its memory: the cap, else what was given, else what TensorFlow hands out of
    the preset's card, else that of this machine if it is ``here``."""
    card = draft.preset.card
    memory = cap or draft.memory_bytes or (card.usable_bytes if card else None)
    if memory is None:
        memory = host_memory_bytes() if here else AMPLE_BYTES
    known = draft.preset
    device = DeviceProperties(
        name=draft.name,
        type=known.type,
        model="" if known.model == known.type else known.model,
        memory_limit_bytes=memory,
        reserve_bytes=0 if draft.name == HOST else parse_reserve(reserve, memory),
        card=card,
        peak_flops=known.peak_flops,
        memory_bandwidth=known.memory_bandwidth,
        compute_capability=known.compute_capability,
        launch_seconds=known.launch_seconds,
    )
    return replace(device, **dict(draft.rates))


def _parse_spec(spec: str) -> tuple[list[DeviceDraft], Cluster]:
    """Devices in the order of the spec, those without a number taking the next free one, and a
    cluster with the links of the machines among them."""
    known_machines = [machine(item.strip()) for item in spec.split(",")]
    items = [
        ("", preset(found.model), None, found.count) if found else _parse_item(item.strip())
        for item, found in zip(spec.split(","), known_machines, strict=True)
    ]
    if (asked := sum(count for _, _, _, count in items)) > MOST_DEVICES:
        raise ValueError(f"{asked:,} devices are asked for; name {MOST_DEVICES:,} at most")
    taken = named_once(name for name, _, _, _ in items if name)
    for name, known, memory_bytes, _ in items:
        most = max(
            7 * bool(known.card), sum(n for _, each, _, n in items if each.type == known.type)
        )
        number = name.removeprefix(f"{known.type}:")  # of no job
        is_sized = memory_bytes or not (known.card or known.type == "CPU")
        if not is_sized and number.isdecimal() and int(number) > most:
            raise ValueError(
                f"{known.model}:{number}: {number} is too large for a device number in a list of "
                f"so few; a memory size requires a unit, such as {known.model}:{number}GiB"
            )
    drafts = list[DeviceDraft]()
    links = dict[tuple[str, str], Link]()
    for (name, known, memory_bytes, count), found in zip(items, known_machines, strict=True):
        numbered = (f"{known.type}:{index}" for index in itertools.count())
        for _ in range(count):
            free = name or next(other for other in numbered if other not in taken)
            taken.add(free)
            drafts.append(DeviceDraft(name=free, preset=known, memory_bytes=memory_bytes))
        if found:
            links |= found.links([draft.name for draft in drafts[-count:]])
    return drafts, Cluster(devices=(), links=links)


def _parse_item(item: str) -> tuple[str, DevicePreset, int | None, int]:
    """Name (``""`` if not given), preset, memory (``None`` if not given) and count of one item."""
    match = _COUNT.fullmatch(item)
    if match is None:
        raise ValueError("a device is missing; write devices such as 2xA100-40GB,CPU:64GiB")
    count, rest = int(match.group(1) or 1), match.group(2)
    if machine(rest.partition(":")[0]):
        raise ValueError(
            f"{item!r}: {rest.partition(':')[0]} names a whole machine and takes no count or "
            "memory. For several machines write a cluster.toml; --max-memory sets limits"
        )
    if count < 1:
        raise ValueError(f"{item!r} asks for no device; write a count of 1 or more")
    named, _, given = rest.partition("=")
    if named.startswith("/"):
        name, memory = device_names.canonical(named), given
        known = preset(device_names.parse(named).type or "")
    else:
        model, *rest_parts = named.split(":")
        parts = [part.strip() for part in [*rest_parts, *([given] if given else [])]]
        known, name, memory = _split_parts(item, model, parts)
    if name and match.group(1):
        raise ValueError(
            f"{item!r} has a count and an index: write {count}x{model} or {rest}. A memory size "
            f"has a unit: {count}x{model}:8GiB"
        )
    memory_bytes = positive_bytes(memory, repr(item)) if memory else None
    return name, known, memory_bytes, count


def _split_parts(item: str, model: str, parts: list[str]) -> tuple[DevicePreset, str, str]:
    """Preset, name and memory out of ``MODEL:INDEX:MEMORY``, each part after the first optional."""
    known = preset(model)
    name = memory = ""
    if parts and parts[0].isdecimal():
        if int(parts[0]) > _LARGEST_INDEX:
            raise ValueError(
                f"{item!r}: {parts[0]} is too large for a device number; a memory size requires "
                f"a unit, such as {format_bytes(int(parts[0])).replace(' ', '')}"
            )
        name = f"{known.type}:{int(parts.pop(0))}"
    if parts:
        memory = parts.pop(0)
    if parts:
        raise ValueError(f"{item!r} has too many parts; write GPU:0, GPU:8GiB or A100-40GB")
    return known, name, memory


def _parse_caps(
    max_memory: str | Mapping[int | str, int | str] | None, names: list[str]
) -> dict[str, int]:
    """Caps in bytes by device name; ``ValueError`` if one is for a device that is not there or that
    has one already."""
    found: dict[str, int] = {}
    for key, size in _cap_rows(max_memory):
        cap = positive_bytes(size, f"memory limit of {key}", bytes_with_unit)
        for name in _capped(key, names):
            if name in found:
                raise ValueError(f"{name} has two memory limits; give one")
            found[name] = cap
    return found


def _cap_rows(
    max_memory: str | Mapping[int | str, int | str] | None,
) -> Iterator[tuple[int | str, int | str]]:
    if max_memory is None:
        return
    if isinstance(max_memory, Mapping):
        yield from max_memory.items()
        return
    for row in max_memory.split(","):
        name, equals, size = row.partition("=")
        if not equals:
            raise ValueError(
                f"memory limit {row!r} {_lacks(row)}; write GPU=8GiB (every GPU) or GPU:0=8GiB"
            )
        yield name.strip(), size


def _lacks(row: str) -> str:
    """Returns the part of ``DEVICE=SIZE`` that is missing."""
    try:
        parse_bytes(row)
    except ValueError:
        return "has no size"
    return "names no device"


def _capped(key: int | str, names: list[str]) -> list[str]:
    """The devices that ``key`` means: one, or with ``GPU`` and ``GPU:*`` all of a type."""
    if isinstance(key, str) and key.strip().lower() == "gpu":
        key = "GPU:*"
    wildcard = isinstance(key, str) and key.strip().endswith("*")
    if wildcard:
        found = [name for name in names if device_names.matches(key, name)]
    else:
        found = [name for name in names if name == device_names.canonical(key)]
    if not found:
        raise ValueError(
            f"a memory limit is given for {key}, which is not among the devices "
            f"{', '.join(names)}; limit one of those"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A whole machine by name (``data/machines.toml``).

    ``count`` cards of the preset ``model``.  NVLink joins all of them (``all``, bytes/s each
    way) or ``pairs``, (card, card, links), with ``bandwidth`` of each link; others PCIe."""

    model: str
    count: int
    all: float = 0.0
    bandwidth: float = 0.0
    pairs: tuple[tuple[int, int, int], ...] = ()
    source: str = ""

    def links(self, names: Sequence[str]) -> dict[tuple[str, str], Link]:
        """The NVLinks between the cards, called ``names``, both ways."""
        every = itertools.combinations(range(self.count), 2)
        rates = {(a, b): self.all for a, b in every} if self.all else {}
        rates |= {(a, b): count * self.bandwidth for a, b, count in self.pairs}
        latency = Cluster(devices=()).default_link.latency
        return {
            (names[source], names[target]): Link(bandwidth=rate, latency=latency)
            for (a, b), rate in rates.items()
            for source, target in ((a, b), (b, a))
        }


@cache
def machines() -> Mapping[str, Machine]:
    """All known machines by name, read at the first call."""
    text = (Path(__file__).parent / "data" / "machines.toml").read_text(encoding="utf-8")
    found = {}
    for name, row in tomllib.loads(text).items():
        pairs = tuple((a, b, count) for a, b, count in row.pop("pairs", ()))
        found[name] = Machine(pairs=pairs, **row)
    return MappingProxyType(found)


def machine(name: str) -> Machine | None:
    """The machine called ``name``, whatever its case.

    >>> machine("dgx-a100-40gb").model
    'A100-40GB'
    """
    return next((m for key, m in machines().items() if key.casefold() == name.casefold()), None)
