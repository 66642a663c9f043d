"""One step, simulated: what TensorFlow's executor would do, as in
``placer.prediction.times.schedule``.

An op is ready when all its messages are there; a device runs ready ops first come, first served, as
many at once as it can; a message is sent once per receiving device, and a link carries one at a
time.
"""

from typing import NamedTuple

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Flags, Floats, Ints


class Program(NamedTuple):
    """``seconds[op, device]``; ``unit_of[op]``; message m goes from ``producer[m]`` to the ops
    ``pins[pin_start[m]:pin_start[m + 1]]``; ``outs[out_start[op]:out_start[op + 1]]`` are the
    messages of an op and ``waiting[op]`` is how many it waits for.

    ``latency`` and ``seconds_per_byte`` go from device by to device, ``parallel[device]`` is how
    many ops a device runs at once.
    """

    seconds: Floats
    unit_of: Ints
    producer: Ints
    pin_start: Ints
    pins: Ints
    bytes: Floats
    out_start: Ints
    outs: Ints
    waiting: Ints
    latency: Floats
    seconds_per_byte: Floats
    parallel: Ints


class Timing(NamedTuple):
    """``finish[op]`` in seconds, and ``cause[op]``: the op whose end, or whose message, let it
    begin (-1: nothing did)."""

    finish: Floats
    cause: Ints


class _Run(NamedTuple):
    """A simulation under way.

    Tasks are ops, then the pairs (message, receiving device); resources are devices, then the pairs
    (from, to) of a link.  Each resource has a queue, linked through ``following``; the first
    ``running`` of ``tasks`` run, until ``times``.
    """

    first: Ints
    last: Ints
    following: Ints
    free: Ints
    times: Floats
    tasks: Ints
    running: Ints
    sent: Flags
    waiting: Ints


@compiled
def step_seconds(program: Program, device_of: Ints, timing: Timing) -> float:
    """The seconds of one step when unit u is on ``device_of[u]``; fills ``timing``."""
    ops = program.unit_of.shape[0]
    devices = program.latency.shape[0]
    run = _new_run(program)
    for op in range(ops):
        if run.waiting[op] == 0:
            timing.cause[op] = -1
            timing.finish[op] = 0.0
            _append(run, device_of[program.unit_of[op]], op)
    for device in range(devices):
        _begin(program, run, timing, device_of, device, 0.0, -1)
    now = 0.0
    while run.running[0]:
        now, task = _next(run)
        if task < ops:
            resource = device_of[program.unit_of[task]]
            timing.finish[task] = now
            _send(program, run, timing, device_of, task, now)
        else:
            message, target = (task - ops) // devices, (task - ops) % devices
            producer = program.producer[message]
            resource = devices + device_of[program.unit_of[producer]] * devices + target
            for pin in program.pins[program.pin_start[message] : program.pin_start[message + 1]]:
                if device_of[program.unit_of[pin]] == target:
                    _arrive(run, timing, target, pin, producer, now)
        run.free[resource] += 1
        _begin(program, run, timing, device_of, resource, now, task)
        for device in range(devices):
            if run.first[device] >= 0 and run.free[device] > 0:
                _begin(program, run, timing, device_of, device, now, task)
    return now


@compiled_part
def _new_run(program: Program) -> _Run:
    devices = program.latency.shape[0]
    resources = devices + devices * devices
    slots = program.bytes.shape[0] * devices
    free = np.ones(resources, np.int64)
    free[:devices] = program.parallel
    room = free.sum()
    return _Run(
        np.full(resources, -1, np.int64),
        np.full(resources, -1, np.int64),
        np.full(program.unit_of.shape[0] + slots, -1, np.int64),
        free,
        np.zeros(room),
        np.zeros(room, np.int64),
        np.zeros(1, np.int64),
        np.zeros(slots, np.bool_),
        program.waiting.copy(),
    )


@compiled_part
def _send(
    program: Program, run: _Run, timing: Timing, device_of: Ints, op: int, now: float
) -> None:
    """Notes that what an op has produced is there for its own device, and queued for the links."""
    ops = program.unit_of.shape[0]
    devices = program.latency.shape[0]
    source = device_of[program.unit_of[op]]
    for message in program.outs[program.out_start[op] : program.out_start[op + 1]]:
        for pin in program.pins[program.pin_start[message] : program.pin_start[message + 1]]:
            target = device_of[program.unit_of[pin]]
            if target == source:
                _arrive(run, timing, target, pin, op, now)
            elif not run.sent[message * devices + target]:
                run.sent[message * devices + target] = True
                link = devices + source * devices + target
                _append(run, link, ops + message * devices + target)
                _begin(program, run, timing, device_of, link, now, op)


@compiled_part
def _arrive(run: _Run, timing: Timing, device: int, op: int, cause: int, now: float) -> None:
    """One message less that ``op`` waits for; until it ends, ``finish`` is when it was ready."""
    run.waiting[op] -= 1
    if run.waiting[op] == 0:
        timing.cause[op] = cause
        timing.finish[op] = now
        _append(run, device, op)


@compiled_part
def _begin(
    program: Program,
    run: _Run,
    timing: Timing,
    device_of: Ints,
    resource: int,
    now: float,
    ended: int,
) -> None:
    """Start what waits for ``resource`` while it has room; ``ended`` is the task that made room."""
    ops = program.unit_of.shape[0]
    devices = program.latency.shape[0]
    while run.free[resource] > 0 and run.first[resource] >= 0:
        task = run.first[resource]
        run.first[resource] = run.following[task]
        run.free[resource] -= 1
        if task < ops:
            if timing.finish[task] < now and ended < ops:
                timing.cause[task] = ended
            seconds = program.seconds[task, resource]
        else:
            message, target = (task - ops) // devices, (task - ops) % devices
            source = device_of[program.unit_of[program.producer[message]]]
            seconds = (
                program.latency[source, target]
                + program.bytes[message] * program.seconds_per_byte[source, target]
            )
        place = run.running[0]
        run.times[place], run.tasks[place] = now + seconds, task
        run.running[0] += 1


@compiled_part
def _append(run: _Run, resource: int, task: int) -> None:
    run.following[task] = -1
    if run.first[resource] < 0:
        run.first[resource] = task
    else:
        run.following[run.last[resource]] = task
    run.last[resource] = task


@compiled_part
def _next(run: _Run) -> tuple[float, int]:
    """The end of the task that ends first, of several that of the lowest number, and the task; few
    run at once, so that a heap is no faster."""
    first, last = 0, run.running[0] - 1
    for place in range(1, last + 1):
        if run.times[place] < run.times[first] or (
            run.times[place] == run.times[first] and run.tasks[place] < run.tasks[first]
        ):
            first = place
    now, task = run.times[first], run.tasks[first]
    run.times[first], run.tasks[first] = run.times[last], run.tasks[last]
    run.running[0] = last
    return now, task
