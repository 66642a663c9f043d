"""Devices and links: what the hardware can do, in bytes, FLOP/s and seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """One device that ops can be placed on.

    ``name`` is TensorFlow's short name (``GPU:0``) or carries job and task.  ``type`` is ``GPU``
    or ``CPU``, ``model`` the preset it came from.  ``memory_limit_bytes`` is the cap,
    ``reserve_bytes`` the part of it that is kept free.  ``peak_flops`` is FLOP/s,
    ``memory_bandwidth`` bytes/s, ``launch_seconds`` the overhead of one op, ``parallel_ops`` how
    many ops run at once.
    """

    name: str
    type: str
    model: str = ""
    memory_limit_bytes: int
    reserve_bytes: int = 0
    peak_flops: float
    memory_bandwidth: float
    launch_seconds: float = 5e-6
    parallel_ops: int = 1

    @property
    def usable_bytes(self) -> int:
        """The cap less the reserve, never below zero."""
        return max(0, self.memory_limit_bytes - self.reserve_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed connection: ``bandwidth`` in bytes/s, ``latency`` in seconds."""

    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All devices of one placement, the host (``CPU:0``) always among them, and their links."""

    devices: tuple[DeviceProperties, ...]
    default_link: Link = Link(bandwidth=12e9, latency=10e-6)
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)

    @property
    def host(self) -> DeviceProperties:
        """``CPU:0``, where fed values arrive and fetched ones go."""
        return self.device("CPU:0")

    def link(self, source: str, target: str) -> Link:
        """The link from device ``source`` to device ``target``."""
        return self.links.get((source, target), self.default_link)

    def device(self, name: str) -> DeviceProperties:
        """The device called ``name``; ``KeyError`` if there is none."""
        return next(device for device in self.devices if device.name == name)
