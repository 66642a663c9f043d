"""Devices and links: what the hardware can do, in bytes, FLOP/s and seconds."""

import difflib
import os
import tomllib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from cost_models import device_names
from cost_models.byte_sizes import AMPLE_BYTES, parse_bytes
from cost_models.card_memory import CardMemory, card_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Rates of one kind of op: fractions of ``peak_flops`` and ``memory_bandwidth`` (above 1 where
    caches help), and ``launch_seconds`` of their own where they differ from the device's."""

    compute: float = 1.0
    memory: float = 1.0
    launch_seconds: float | None = None


KERAS_SECONDS = 500e-6
_LAUNCH_SECONDS = 5e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """One device that ops can be placed on.

    ``name`` is TensorFlow's short name (``GPU:0``) or carries job and task.  ``type`` is ``GPU``
    or ``CPU``, ``model`` the preset it came from.  ``memory_limit_bytes`` is the cap: what
    TensorFlow may hand out there.  ``reserve_bytes`` is the part of it that is kept free, ``card``
    the memory of the whole card where that is known.  ``peak_flops`` is FLOP/s in float32,
    ``memory_bandwidth`` bytes/s, ``launch_seconds`` the overhead of one op, ``dispatch_seconds``
    what an op without a kernel takes, ``parallel_ops`` how many ops run at once.  Of a GPU,
    ``compute_capability`` (``"7.5"``, empty if not known) and ``peak_flops_fp16`` (FLOP/s, ``None``
    if not given) say how fast other precisions are (``gpu_rates``).  ``efficiency`` has what is
    reached of the peaks, by op type or by family of op types (a module of ``cost_models.rules``).
    ``relative_error`` is how far predicted steps were off when the device was calibrated (the
    median), 0 where it was not.  ``keras_seconds`` is what a host takes for a step of ``fit`` or
    ``predict`` of Keras beside its ops (by default as measured with Keras 3.15 on two cores).
    ``any_ops`` opens the client of a cluster with tasks, ``CPU:0``,
    to ops that the tasks can run.
    """

    name: str
    type: str
    model: str = ""
    memory_limit_bytes: int
    reserve_bytes: int = 0
    card: CardMemory | None = None
    peak_flops: float
    memory_bandwidth: float
    compute_capability: str = ""
    peak_flops_fp16: float | None = None
    launch_seconds: float = _LAUNCH_SECONDS
    dispatch_seconds: float = 0.0
    parallel_ops: int = 1
    efficiency: Mapping[str, Efficiency] = field(default_factory=dict)
    relative_error: float = 0.0
    keras_seconds: float = KERAS_SECONDS
    any_ops: bool = False

    @property
    def is_ample(self) -> bool:
        """Whether nobody gave its memory, so that it has as much as is needed."""
        return self.memory_limit_bytes == AMPLE_BYTES

    @property
    def usable_bytes(self) -> int:
        """The cap less the reserve, never below zero."""
        return max(0, self.memory_limit_bytes - self.reserve_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed connection: ``bandwidth`` in bytes/s, ``latency`` in seconds."""

    bandwidth: float
    latency: float


ASSUMED_NETWORK_LINK = Link(bandwidth=1e9, latency=150e-6)
"""Between machines where nobody says more.  Ethernet of 10 Gbit/s is 1.25 GB/s, of which
TensorFlow's gRPC was seen to reach 0.8 (github.com/tensorflow/tensorflow/issues/6116); between two
processes of one machine, without a network, it reached 0.7 to 1.3 GB/s and 110 to 130 us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All devices of one placement, the host (``CPU:0``) always among them, and their links.

    ``links`` are those given one by one.  Of others, ``default_link`` joins devices of one task
    (one machine), ``network_link`` those of different tasks; ``None`` if nobody said what network
    it is, and :data:`ASSUMED_NETWORK_LINK` is assumed.  ``unnamed`` is the default device of the
    cluster that this is a part of.
    """

    devices: tuple[DeviceProperties, ...]
    default_link: Link = Link(bandwidth=12e9, latency=10e-6)
    network_link: Link | None = None
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    unnamed: DeviceProperties | None = None

    @property
    def default_device(self) -> DeviceProperties:
        """Where TensorFlow makes what names no device: the first accelerator, else the host."""
        accelerators = (device for device in self.devices if device.type != "CPU")
        return self.unnamed or next(accelerators, self.host)

    @property
    def host(self) -> DeviceProperties:
        """``CPU:0``, where fed values arrive and fetched ones go."""
        return self.device("CPU:0")

    @property
    def caps(self) -> dict[str, int]:
        """The bytes that may be in use, by device."""
        return {device.name: device.usable_bytes for device in self.devices}

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the accelerators, or of all devices if there is none."""
        found = tuple(device.name for device in self.devices if device.type != "CPU")
        return found or tuple(device.name for device in self.devices)

    def pool_of(self, device: DeviceProperties) -> Hashable:
        """Returns whose turn its ops wait for: a GPU's own, or that of the threads that the CPU
        devices of a task share (``ComputePool`` of
        ``tensorflow/core/common_runtime/process_util.cc``)."""
        return task_of(device.name) if device.type == "CPU" else device.name

    def link(self, source: str, target: str) -> Link:
        """The link from device ``source`` to device ``target``."""
        given = self.links.get((source, target))
        if given is not None:
            return given
        if task_of(source) == task_of(target):
            return self.default_link
        return self.network_link or ASSUMED_NETWORK_LINK

    @property
    def assumed_links(self) -> tuple[tuple[str, str], ...]:
        """The pairs of devices between which a network is assumed."""
        names = [device.name for device in self.devices if self.network_link is None]
        pairs = ((a, b) for a in names for b in names if task_of(a) != task_of(b))
        return tuple(pair for pair in pairs if pair not in self.links)

    def device(self, name: str) -> DeviceProperties:
        """The device called ``name``; ``KeyError`` if there is none."""
        for device in self.devices:
            if device.name == name:
                return device
        names = ", ".join(device.name for device in self.devices)
        raise KeyError(f"there is no device {name!r} among {names}")


@cache
def task_of(name: str) -> tuple[str | None, int | None, int | None]:
    """Job, replica and task of a device; all ``None`` for one of the process that feeds."""
    parsed = device_names.parse(name)
    return parsed.job, parsed.replica, parsed.task


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePreset:
    """A known device model (``data/devices.toml``).

    ``memory_bytes`` is what the driver reports as the card's total, ``None`` where it differs from
    machine to machine; ``compute_capability`` is as ``"7.5"``, empty for a CPU.  ``precision`` says
    what ``peak_flops`` (FLOP/s, dense) was measured in, ``source`` where the rates come from and
    ``checked`` where they were found again.
    """

    model: str
    type: str
    memory_bytes: int | None
    peak_flops: float
    memory_bandwidth: float
    launch_seconds: float = _LAUNCH_SECONDS
    compute_capability: str = ""
    precision: str = "FP32"
    source: str = ""
    checked: str = ""
    IN_JSON: ClassVar = ("card",)

    @property
    def card(self) -> CardMemory | None:
        """The parts of the card's memory, ``None`` where the total is not known."""
        if self.memory_bytes is None or not self.compute_capability:
            return None
        return card_memory(self.memory_bytes, self.compute_capability)


@cache
def presets() -> Mapping[str, DevicePreset]:
    """All known device models by name, read from ``data/devices.toml`` at the first call."""
    text = (Path(__file__).parent / "data" / "devices.toml").read_text(encoding="utf-8")
    found = {}
    for name, row in tomllib.loads(text).items():
        memory = parse_bytes(row.pop("memory")) if "memory" in row else None
        found[name] = DevicePreset(model=name, memory_bytes=memory, **row)
    return MappingProxyType(found)


def preset(name: str) -> DevicePreset:
    """The preset called ``name``, whatever its case.

    ``ValueError`` names the closest presets.

    >>> preset("a100-40gb").model
    'A100-40GB'
    """
    by_folded_name = {known.casefold(): found for known, found in presets().items()}
    if name.casefold() in by_folded_name:
        return by_folded_name[name.casefold()]
    folded = name.casefold()
    begun = [known for known in by_folded_name if known.startswith(f"{folded}-")]
    close = begun or difflib.get_close_matches(folded, by_folded_name, n=2, cutoff=0.5)
    model, _, count = folded.rpartition("x")
    near = [by_folded_name[n].model for n in close]
    if (model in by_folded_name or not model) and count.isdecimal():
        near = [f"{count}x{by_folded_name[model or 't4'].model}"]
    meant = f"; did you mean {' or '.join(near)}?" if near else "."
    raise ValueError(f"unknown device {name!r}{meant} 'placer devices' lists all models")


def host_memory_bytes() -> int:
    """The physical memory of this machine in bytes, as the operating system states it.

    ``ValueError`` where it does not; then the memory of ``CPU:0`` must be given.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError) as error:
        raise ValueError(
            "the memory of this machine cannot be found out; give it, such as CPU:64GiB"
        ) from error


def accelerator_count() -> int:
    """How many accelerators this machine shows, by its device files (``/dev/nvidia0``; ``/dev/dxg``
    of the Windows subsystem for Linux and ``/dev/kfd`` of AMD count one at least)."""
    devices = Path("/dev")
    nvidia = sum(file.name[len("nvidia") :].isdecimal() for file in devices.glob("nvidia[0-9]*"))
    amd = len(list((devices / "dri").glob("renderD*"))) if (devices / "kfd").exists() else 0
    return nvidia or amd or int((devices / "dxg").exists())
