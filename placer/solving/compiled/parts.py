"""The problem of some units and two sets of devices."""

import numpy as np

from placer.machine_code.jit import compiled
from placer.solving.compiled.arrays import Arrays, Devices, Ints, Nets, Units, incidence


def part_of(arrays: Arrays, members: Ints, halves: tuple[Ints, Ints], fullness: float) -> Arrays:
    """The units ``members`` on two devices that stand for the sets ``halves``, each with
    ``fullness`` times their capacity.

    A net is cut if it has pins on both sides, whoever produces it: one that is sent to the other
    half anyway costs nothing more.
    """
    units, nets, devices = arrays
    allowed = np.stack([units.allowed[members][:, half].any(axis=1) for half in halves], axis=1)
    seconds = np.stack([units.cost[members][:, half].min(axis=1) for half in halves], axis=1)
    capacity = np.stack([devices.capacity[:, half].sum(axis=1) for half in halves], axis=1)
    new_of = np.full(len(units.allowed), -1, np.int64)
    new_of[members] = np.arange(len(members))
    numbers, start, pins = _inside(nets.producer, nets.pin_start, nets.pins, new_of)
    inner = Nets(
        pins[start[:-1]], *_without_first(start, pins), nets.bytes[numbers], nets.messages[numbers]
    )
    alike = 1.0 - np.eye(2)
    return Arrays(
        Units(
            seconds,
            np.ascontiguousarray(units.weights[:, members]),
            allowed,
            *incidence(len(members), inner),
        ),
        inner,
        Devices(fullness * capacity, 0.0 * alike, alike, np.ones(2, np.bool_), False),
    )


def _without_first(start: Ints, pins: Ints) -> tuple[Ints, Ints]:
    """The lists without their first items."""
    kept = np.ones(len(pins), np.bool_)
    kept[start[:-1]] = False
    return start - np.arange(len(start)), pins[kept]


@compiled
def _inside(producer: Ints, pin_start: Ints, pins: Ints, new_of: Ints) -> tuple[Ints, Ints, Ints]:
    """The nets with two pins or more that have a new number: their own numbers, and their pins."""
    numbers = np.zeros(producer.shape[0], np.int64)
    start = np.zeros(producer.shape[0] + 1, np.int64)
    kept = np.zeros(pins.shape[0] + producer.shape[0], np.int64)
    count = length = 0
    for net in range(producer.shape[0]):
        begin = length
        for place in range(pin_start[net] - 1, pin_start[net + 1]):
            unit = new_of[producer[net] if place < pin_start[net] else pins[place]]
            if unit >= 0:
                kept[length] = unit
                length += 1
        if length - begin < 2:
            length = begin
            continue
        numbers[count] = net
        count += 1
        start[count] = length
    return numbers[:count], start[: count + 1], kept[:length]
