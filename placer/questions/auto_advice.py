"""Advice of ``placer.auto``: settings and devices that would bring a better way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cost_models.byte_sizes import format_seconds
from cost_models.devices import Cluster, DeviceProperties, Link
from placer.errors import PlacerError
from placer.plan.request import AUTO, NEVER
from placer.problem.limits import limits_for, limits_option
from placer.questions.auto_bounds import work_elsewhere
from placer.questions.auto_result import AutoRow, seconds_of
from placer.questions.auto_ways import AS_IT_IS, ONE_PLACEMENT
from placer.strategies.requests import group_alone

if TYPE_CHECKING:
    from placer.questions.auto import Choice

_LINKS = 4.0
"""Links of so many times the bandwidth are what advice is about: NVLink instead of PCIe."""

_DEVICES = 2.0
"""Accelerators of so many times the rates are what advice is about: the next generation, as a
rule."""


_GUESSES = 5
"""Smaller batches that are looked at for one that fits."""


class Advice:
    """Finds settings and devices that would be better than what a ``choice`` came to."""

    def __init__(self, choice: Choice) -> None:
        self.choice, self.program, self.ways = choice, choice.program, choice.ways

    def lines(self, chosen: AutoRow | None) -> tuple[str, ...]:
        """Returns settings that would bring a better way; if there are none, devices that would.
        The way of least memory is not asked to be faster, nor is what takes no time.  Where no way
        fits, each line begins with what makes the way that it names fit: all of them were built."""
        found = [*self._changes(chosen)]
        if chosen is None:
            return (*self._offloaded(), *found, *self._smaller_batch())
        step = seconds_of(chosen)
        if step and self.choice.aim != "memory":
            found += [*self._on_host(step), *self._faster_links(step)]
            found = found or [self._faster_devices(step)]
            found += self._a_process_each(step)
        return tuple(found)

    def _on_host(self, step: float) -> Iterator[str]:
        """About the host alone, where it is quicker: a few small ops take less than their launches
        and copies."""
        host, ways = self.ways.cluster.host, self.ways
        if host.name in ways.cluster.workers or self.program.wanted.offload == NEVER:
            return
        if work_elsewhere(ways.on_fastest, ways.fastest, host) >= step:
            return
        alone = self.program.on_one_device(host.name)
        if alone.fits and not self.choice.is_as_good_as(step, alone.step_seconds):
            yield (
                f"no accelerator: everything on {host.name} takes "
                f"{format_seconds(alone.step_seconds)} instead of {format_seconds(step)}; to get "
                "that, hide the GPUs (CUDA_VISIBLE_DEVICES=-1)"
            )

    def _a_process_each(self, step: float) -> Iterator[str]:
        """About a process for every accelerator, each with the whole program and requests of its
        own: it answers none sooner, and all of them more often."""
        count, whole = len(self.ways.cluster.workers), self.choice.built.get(AS_IT_IS)
        if count < 2 or whole is None or not whole.fits:
            return
        if self.program.trains or len(self.ways.alone) > 1:
            return
        alone = whole.seconds_on(group_alone(self.ways.cluster, [self.ways.fastest]))
        size, unit = self.program.size or 1, "samples" if self.program.size else "batches"
        less = "replicas do not help a batch of 1; " if self.program.size == 1 else ""
        yield (
            f"{less}one process per accelerator: {count * size / alone:,.0f} {unit}/s in total "
            f"({count * self.choice.ratio(step, alone):.2f} times as many), "
            f"{format_seconds(alone)} per batch, "
            f"{count} copies of the model in host memory"
        )

    def _changes(self, chosen: AutoRow | None) -> Iterator[str]:
        """Memory, leave to change statistics, or a smaller batch."""
        step, least = seconds_of(chosen), math.inf
        better = [
            row
            for row in self.choice.rows
            if row is not chosen
            and row.step_seconds
            and not self.choice.is_as_good_as(step, seconds_of(row))
        ]
        for row in better:
            gain = f" ({self.choice.ratio(step, seconds_of(row)):.2f} times as fast)"
            gain = gain if chosen else ""
            if row.over_bytes and sum(row.over_bytes.values()) >= least:
                continue  # a simpler way needs no more
            cards = [(name, self.ways.cluster.device(name).card) for name in row.over_bytes]
            if any(card and row.required_bytes[name] > card.usable_bytes for name, card in cards):
                continue  # no limit makes a card larger
            if row.over_bytes:
                least = sum(row.over_bytes.values())
                least_of = {name: row.required_bytes[name] for name in row.over_bytes}
                wanted, devices = self.program.wanted, self.ways.cluster.devices
                limits = limits_for(devices, least_of, wanted.max_memory, wanted.reserve)
                yield f"{limits_option(limits)}: {row.name}{gain}"
            elif not row.is_exact and self.choice.exact:
                yield f"--inexact: {row.name}{gain}"

    def _offloaded(self) -> Iterator[str]:
        """About the host's memory, if it was ruled out."""
        if self.program.wanted.offload != NEVER:
            return
        with suppress(PlacerError):
            built = self.program.place(self.ways.cluster, offload=AUTO)
            if built.fits:
                took = format_seconds(built.step_seconds)
                yield f"--offload auto: {ONE_PLACEMENT}, {took} a step"

    def _smaller_batch(self) -> Iterator[str]:
        """About the largest batch that fits the first accelerator as it is."""
        size, first = self.program.size or 0, self.ways.cluster.workers[0]
        rows = [r for r in self.choice.rows if r.name == AS_IT_IS and r.over_bytes]
        if size < 2 or not rows:
            return
        cap = self.ways.cluster.device(first).usable_bytes
        low, high, guess, needs = 0, size, size // 2, {size: rows[0].required_bytes[first]}
        with suppress(PlacerError):  # a batch of fixed size has no smaller one
            while low < guess < high and len(needs) <= _GUESSES:
                alone = self.program.on_one_device(first, guess)
                built = self.program.as_it_is(alone, first)
                low, high = (guess, high) if built.fits else (low, guess)
                needs[guess] = built.plan.required_bytes[first]
                nearest = sorted(needs.items(), key=lambda item: abs(item[1] - cap))
                (one, found), (other, beyond) = nearest[:2]
                slope = (beyond - found) / (other - one)
                guess = int(one + (cap - found) / slope) if slope > 0 else 0
        if low:
            yield f"--batch-size {low}: {AS_IT_IS}"

    def _faster_links(self, step: float) -> Iterator[str]:
        """The way that would be the fastest of those that fit if links were faster."""
        cluster = _with_links(self.ways.cluster)
        name, seconds = self._fastest_on(cluster)
        if not self.choice.is_as_good_as(step, seconds):
            links = f"links {_LINKS:g} times as fast"
            if not cluster.links:
                links = f"links of {cluster.default_link.bandwidth / 1e9:g} GB/s"
            yield self._with(links, name, step, seconds)

    def _faster_devices(self, step: float) -> str:
        """The same of accelerators, where links are not what it takes."""
        name, seconds = self._fastest_on(_with_rates(self.ways.cluster))
        if not self.choice.is_as_good_as(step, seconds):
            return self._with(f"accelerators {_DEVICES:g} times as fast", name, step, seconds)
        return (
            "a larger batch, for more samples per second: launches and latencies take most of this "
            "step, so faster links or accelerators would not shorten it"
        )

    def _with(self, other: str, name: str, step: float, seconds: float) -> str:
        """Returns the gain of a way on other links or accelerators."""
        ratio = self.choice.ratio(step, seconds)
        return f"{other}: {name} would then be {ratio:.2f} times as fast"

    def _fastest_on(self, cluster: Cluster) -> tuple[str, float]:
        """The fastest way of those that fit if the devices were these, and its step."""
        names = {device.name for device in cluster.devices}
        found = {
            row.name: self.choice.built[row.name].seconds_on(cluster)
            for row in self.choice.choosable()
            if row.required_bytes.keys() <= names
        }
        name = min(found, key=found.__getitem__, default="")
        return name, found.get(name, math.inf)


def _with_links(cluster: Cluster) -> Cluster:
    """The cluster with faster links."""

    def faster(link: Link) -> Link:
        return replace(link, bandwidth=_LINKS * link.bandwidth)

    links = {pair: faster(link) for pair, link in cluster.links.items()}
    return replace(cluster, default_link=faster(cluster.default_link), links=links)


def _with_rates(cluster: Cluster) -> Cluster:
    """The cluster with accelerators of higher rates."""

    def faster(device: DeviceProperties) -> DeviceProperties:
        fp16 = device.peak_flops_fp16
        return replace(
            device,
            peak_flops=_DEVICES * device.peak_flops,
            peak_flops_fp16=None if fp16 is None else _DEVICES * fp16,
            memory_bandwidth=_DEVICES * device.memory_bandwidth,
        )

    devices = (faster(d) if d.name in cluster.workers else d for d in cluster.devices)
    return replace(cluster, devices=tuple(devices))
