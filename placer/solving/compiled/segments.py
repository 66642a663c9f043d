"""Contiguous segments of an order of units, one per device, with the least maximum load."""

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Arrays, Flags, Floats, Ints, Nets, Units


@compiled
def split_by_load(arrays: Arrays, order: Ints, sequence: Ints) -> tuple[float, Ints]:
    """The largest load, and the device of each unit of ``order`` (by position).

    Device ``sequence[k]`` takes the k-th segment, which may be empty; the load is infinite if
    nothing fits.  Dynamic programming over (devices used, units placed).  What a segment sends and
    receives is charged at the mean cost between devices, other units being elsewhere; needs
    O(units squared) seconds and bytes, per distinct kind of device.
    """
    count = order.shape[0]
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    choices = np.zeros((sequence.shape[0], count + 1), np.int64)
    known = -1
    cost = np.zeros((0, 0))
    for stage in range(sequence.shape[0]):
        device = sequence[stage]
        if known < 0 or not _alike(arrays, order, known, device):
            cost = segment_loads(arrays, order, device)
            known = device
        extended = best.copy()
        choices[stage] = np.arange(count + 1)
        for end in range(count + 1):
            for begin in range(end):
                value = max(best[begin], cost[begin, end])
                if value < extended[end]:
                    extended[end] = value
                    choices[stage, end] = begin
        best = extended
    device_at = np.zeros(count, np.int64)
    end = count
    for stage in range(sequence.shape[0] - 1, -1, -1):
        begin = choices[stage, end]
        device_at[begin:end] = sequence[stage]
        end = begin
    return float(best[count]), device_at


@compiled_part
def _alike(arrays: Arrays, order: Ints, one: int, other: int) -> bool:
    """Whether a segment costs the same on both devices."""
    if one == other:
        return True
    units, devices = arrays.units, arrays.devices
    if devices.occupied[one] != devices.occupied[other]:
        return False
    for row in range(devices.capacity.shape[0]):
        if devices.capacity[row, one] != devices.capacity[row, other]:
            return False
    return bool((units.cost[order, one] == units.cost[order, other]).all())


@compiled_part
def segment_loads(arrays: Arrays, order: Ints, device: int) -> Floats:
    """``load[begin, end]`` of a device that holds ``order[begin:end]``; infinite over a cap."""
    units, nets, devices = arrays.units, arrays.nets, arrays.devices
    device_count = devices.capacity.shape[1]
    latency = devices.latency.sum() / max(1, device_count * (device_count - 1))
    per_byte = devices.seconds_per_byte.sum() / max(1, device_count * (device_count - 1))
    seconds = nets.messages * latency + nets.bytes * per_byte
    if not devices.occupied[device]:
        seconds[:] = 0.0
    count = order.shape[0]
    loads = np.full((count + 1, count + 1), np.inf)
    inside = np.zeros(nets.producer.shape[0], np.int64)
    produced = np.zeros(nets.producer.shape[0], np.bool_)
    for begin in range(count):
        inside[:] = 0
        produced[:] = False
        load = 0.0
        used = np.zeros(devices.capacity.shape[0])
        for end in range(begin, count):
            unit = order[end]
            load += units.cost[unit, device]
            load += _joined(units, nets, seconds, unit, inside, produced)
            fits = units.allowed[unit, device]
            for row in range(used.shape[0]):
                used[row] += units.weights[row, unit]
                fits = fits and used[row] <= devices.capacity[row, device]
            if not fits:
                break
            loads[begin, end + 1] = load
    return loads


@compiled_part
def _joined(
    units: Units, nets: Nets, seconds: Floats, unit: int, inside: Ints, produced: Flags
) -> float:
    """Returns what a segment sends and receives more once ``unit`` is in it.

    ``inside[net]`` counts the consumers in the segment, ``produced[net]`` is whether the producer
    is: a net is received if only consumers are inside, sent if the producer is without all of them.
    """
    more = 0.0
    for net in units.ins[units.in_start[unit] : units.in_start[unit + 1]]:
        inside[net] += 1
        if produced[net]:
            if inside[net] == nets.pin_start[net + 1] - nets.pin_start[net]:
                more -= seconds[net]
        elif inside[net] == 1:
            more += seconds[net]
    for net in units.outs[units.out_start[unit] : units.out_start[unit + 1]]:
        produced[net] = True
        if inside[net] > 0:
            more -= seconds[net]
        if inside[net] < nets.pin_start[net + 1] - nets.pin_start[net]:
            more += seconds[net]
    return more
