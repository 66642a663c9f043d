"""Steps drawn op by op, and the bare placement problems that they are on given machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from placer.problem.placement_problem import PlacementProblem, ProblemTensor

MIB = 1 << 20
FLOPS = (4.0e12, 0.5e12)
"""Floating-point operations per second of an accelerator and of the host."""

MEMORY = (250e9, 40e9)
"""Bytes per second from the memory of each."""

LINK = 12e9
LATENCY = 10e-6
LAUNCH = 5e-6
HOST_BYTES = 256 << 30
_MOMENTS = 24
"""Parts of a step; the fullest moment of each is a row of the problem."""


@dataclass(slots=True)
class Op:
    """One op: what it reads (op numbers), computes, keeps between steps and gives out."""

    name: str
    reads: tuple[int, ...]
    flops: float
    resident: int
    output: int
    group: int
    on_host: bool


@dataclass(slots=True)
class Step:
    """A step as it is drawn; ``parts`` are what a person would put on the host as a whole (a table
    with what reads it, a layer), ``fetched`` the ops whose outputs are read from outside."""

    ops: list[Op] = field(default_factory=list)
    parts: list[list[int]] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)

    def add(
        self,
        name: str,
        *reads: int,
        output: float,
        flops: float = 0.0,
        resident: float = 0.0,
        beside: int | None = None,
        on_host: bool = False,
    ) -> int:
        """Adds an op, in the group of another one where it is ``beside`` that; its number."""
        number = len(self.ops)
        group = number if beside is None else self.ops[beside].group
        sizes = (int(resident), int(output))
        self.ops.append(Op(f"{name}_{number}", reads, flops, *sizes, group, on_host))
        return number

    def feed(self, name: str, output: float) -> int:
        """Adds an input, which arrives on the host."""
        return self.add(name, output=output, on_host=True)

    def part(self, *ops: int) -> None:
        """Notes ops that a person would move together."""
        self.parts.append(list(ops))

    def peak(self) -> int:
        """The bytes that one accelerator would hold at its fullest moment, of all that need not be
        on the host."""
        free = [0 if op.on_host else 1 for op in self.ops]
        kept = sum(op.resident * here for op, here in zip(self.ops, free, strict=True))
        most = max(sum(size * free[op] for op, size in m.items()) for m in self.moments())
        return kept + most

    def moments(self) -> tuple[dict[int, int], ...]:
        """What is live at the fullest moment of each of some parts of the step: every output from
        when it is written to when it is last read; what is kept anyway is no output beside."""
        count = len(self.ops)
        sizes = [0 if op.resident else op.output for op in self.ops]
        last = list(range(count))
        for number, op in enumerate(self.ops):
            for read in op.reads:
                last[read] = number
        change = np.zeros(count + 1)
        for number, size in enumerate(sizes):
            change[number] += size
            change[last[number] + 1] -= size
        live = np.cumsum(change)[:count]
        parts = np.array_split(np.arange(count), min(_MOMENTS, count))
        times = [int(part[0] + live[part].argmax()) for part in parts]
        return tuple(
            {op: sizes[op] for op in range(time + 1) if last[op] >= time and sizes[op]}
            for time in times
        )

    def problem(self, accelerators: int, cap_bytes: float) -> PlacementProblem:
        """The problem of this step on so many accelerators of ``cap_bytes`` each, and the host."""
        host, devices = accelerators, accelerators + 1
        readers: dict[int, list[int]] = {}
        for number, op in enumerate(self.ops):
            for read in dict.fromkeys(op.reads):
                readers.setdefault(read, []).append(number)
        sent = dict.fromkeys((*readers, *self.fetched))
        tensors = tuple(
            ProblemTensor(
                producer=op, consumers=tuple(readers.get(op, ())), bytes=self.ops[op].output
            )
            for op in sent
        )
        place = {op: number for number, op in enumerate(sent)}
        seconds = [self._seconds(op) for op in self.ops]
        slower = [math.ceil(max(0.0, host_ - fast) * LINK) for fast, host_ in seconds]
        bandwidth = [[LINK] * devices for _ in range(devices)]
        latency = [[LATENCY * (a != b) for b in range(devices)] for a in range(devices)]
        everywhere = tuple(range(devices))
        return PlacementProblem(
            op_names=tuple(op.name for op in self.ops),
            device_names=(*(f"GPU:{number}" for number in range(accelerators)), "CPU:0"),
            host=host,
            resident_bytes=tuple(op.resident for op in self.ops),
            temporary_bytes=(0,) * len(self.ops),
            seconds=tuple(
                (fast + LAUNCH,) * accelerators + (slow + LAUNCH,) for fast, slow in seconds
            ),
            group=tuple(op.group for op in self.ops),
            allowed=tuple((host,) if op.on_host else everywhere for op in self.ops),
            spillable=(True,) * len(self.ops),
            tensors=tensors,
            control_edges=(),
            capacity_bytes=(int(cap_bytes),) * accelerators + (HOST_BYTES,),
            transient_bytes=(0,) * devices,
            live_bytes=self.moments(),
            bandwidth=tuple(map(tuple, bandwidth)),
            latency=tuple(map(tuple, latency)),
            slower_bytes=tuple(
                (0,) * devices if op.on_host else (0,) * accelerators + (more,)
                for op, more in zip(self.ops, slower, strict=True)
            ),
            message_bytes=math.ceil(LATENCY * LINK),
            fetched=tuple(place[op] for op in self.fetched),
        )

    def _seconds(self, op: Op) -> tuple[float, float]:
        """How long an op works on an accelerator and on the host: the roofline of both."""
        moved = op.output + sum(
            min(self.ops[read].output, 4 * op.output + op.flops) for read in op.reads
        )
        return tuple(max(op.flops / f, moved / m) for f, m in zip(FLOPS, MEMORY, strict=True))


def backward(step: Step, layers: Sequence[tuple[int, int, float]], loss: int, slots: int) -> None:
    """Adds a backward pass: of every layer (op, its variable or -1, flops) the gradient with its
    inputs, and an update beside the variable, whose ``slots`` are kept beside it too."""
    gradient = loss
    for op, variable, flops in reversed(layers):
        saved = [read for read in step.ops[op].reads if not step.ops[read].on_host]
        size = max((step.ops[read].output for read in saved if read != variable), default=8)
        gradient = step.add("grad", gradient, *saved, output=size, flops=flops)
        if variable >= 0:
            weights = step.ops[variable].output
            update = step.add("grad_w", gradient, *saved, output=weights, flops=flops)
            kept = weights * slots
            step.add("apply", update, output=4, flops=6 * weights, resident=kept, beside=variable)
