"""Small random placement problems, and their best placements found by trying all of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem, ProblemTensor
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.solution import Solution, Status


def problem_of(
    *,
    resident: list[int],
    tensors: list[tuple[int, list[int], int]],
    capacity: list[int],
    group: list[int] | None = None,
    allowed: list[list[int]] | None = None,
    spillable: list[bool] | None = None,
    moments: list[dict[int, int]] | None = None,
    transient: list[int] | None = None,
    host: int | None = None,
    spill: str = "never",
    control_edges: list[tuple[int, int]] | None = None,
) -> PlacementProblem:
    """A problem from the parts that matter; the host is the last device."""
    ops, devices = len(resident), len(capacity)
    host = devices - 1 if host is None else host
    return PlacementProblem(
        op_names=tuple(f"op{op}" for op in range(ops)),
        device_names=tuple("CPU:0" if d == host else f"GPU:{d}" for d in range(devices)),
        host=host,
        resident_bytes=tuple(resident),
        temporary_bytes=(0,) * ops,
        seconds=((0.0,) * devices,) * ops,
        group=tuple(group or range(ops)),
        allowed=tuple(map(tuple, allowed or [list(range(devices))] * ops)),
        spillable=tuple(spillable or [False] * ops),
        tensors=tuple(
            ProblemTensor(producer=p, consumers=tuple(c), bytes=b) for p, c, b in tensors
        ),
        control_edges=tuple(control_edges or ()),
        capacity_bytes=tuple(capacity),
        transient_bytes=tuple(transient or [0] * devices),
        live_bytes=tuple(moments or ()),
        bandwidth=((1e9,) * devices,) * devices,
        latency=((0.0,) * devices,) * devices,
        spill=spill,
    )


def random_problem(seed: int, *, most_ops: int = 7, spill: str = "never") -> PlacementProblem:
    """Two or three devices, tight caps, some groups, pins and moments."""
    rng = random.Random(seed)
    ops = rng.randint(2, most_ops)
    devices = rng.choice([2, 2, 3]) + (spill == "auto")
    host = devices - 1
    resident = [rng.choice([0, 0, 1, 2, 3, 5]) for _ in range(ops)]
    accelerators = list(range(devices - 1)) if spill == "auto" else list(range(devices))
    allowed = [list(accelerators) for _ in range(ops)]
    for op in range(ops):
        if rng.random() < 0.15:
            allowed[op] = sorted(rng.sample(range(devices), rng.randint(1, devices)))
    tensors = []
    for producer in range(ops):
        for _ in range(rng.choice([0, 1, 1, 2])):
            consumers = rng.sample(range(ops), rng.randint(1, min(3, ops)))
            tensors.append((producer, consumers, rng.choice([0, 1, 2, 3, 4, 8])))
    moments = [
        {op: rng.randint(0, 3) for op in range(ops) if rng.random() < 0.4}
        for _ in range(rng.choice([0, 0, 1, 2]))
    ]
    total = sum(resident) + max((sum(m.values()) for m in moments), default=0)
    slack = rng.choice([0.35, 0.5, 0.6, 0.8, 1.0])
    same = rng.random() < 0.5
    capacity = [max(1, round(total * slack * (1 if same else rng.uniform(0.6, 1.4))))] * devices
    if not same:
        capacity = [max(1, round(total * slack * rng.uniform(0.6, 1.4))) for _ in range(devices)]
    if spill == "auto":
        capacity = [max(1, round(cap * rng.choice([0.4, 0.7, 1.0]))) for cap in capacity]
        capacity[host] = max(0, total + rng.choice([-1, 0, 5]))
    names = [rng.choice([op, max(0, op - 1)]) for op in range(ops)]
    return problem_of(
        resident=resident,
        tensors=tensors,
        capacity=capacity,
        group=names,
        allowed=allowed,
        spillable=[rng.random() < 0.8 for _ in range(ops)],
        moments=moments,
        transient=[rng.choice([0, 0, 0, 1]) for _ in range(devices)],
        host=host,
        spill=spill,
        control_edges=[(0, ops - 1)],
    )


def with_costs(problem: PlacementProblem, seed: int) -> PlacementProblem:
    """The problem with slower work, a price of messages, and results that the host reads."""
    rng = random.Random(seed)
    devices = range(len(problem.device_names))
    slower = [
        [rng.choice([0, 0, 1, 4]) if rng.random() < 0.6 else 0 for _ in devices]
        for _ in problem.op_names
    ]
    tensors = range(len(problem.tensors))
    return replace(
        problem,
        slower_bytes=tuple(map(tuple, slower)),
        message_bytes=rng.choice([0, 1, 3]),
        fetched=tuple(number for number in tensors if rng.random() < 0.3),
    )


def feasible_placements(problem: UnitProblem) -> list[tuple[int, ...]]:
    """Every placement of the units that keeps all limits."""
    return [p for p in itertools.product(*problem.allowed) if problem.is_feasible(p)]


def best_by_enumeration(problem: PlacementProblem) -> int | None:
    """The least cost, or ``None`` if nothing fits."""
    found = (score(problem, device_of) for device_of in placements_of(problem))
    return min((one.cost for one in found if not one.violations), default=None)


def placements_of(problem: PlacementProblem) -> Iterator[list[int]]:
    """Every placement of groups on devices that they are allowed, or may spill to."""
    may_spill = problem.spill == "auto"
    first = {group: problem.group.index(group) for group in problem.group}
    members: dict[int, list[int]] = {group: [] for group in first}
    for op, group in enumerate(problem.group):
        members[group].append(op)
    choices = [
        set.intersection(
            *(
                {
                    *problem.allowed[op],
                    *([problem.host] if may_spill and problem.spillable[op] else []),
                }
                for op in ops
            )
        )
        for ops in members.values()
    ]
    for devices in itertools.product(*map(sorted, choices)):
        at = dict(zip(members, devices, strict=True))
        yield [at[group] for group in problem.group]


def tangle(seed: int, units: int = 400) -> PlacementProblem:
    """Ops that read a few of those shortly before them, on three devices with little to spare:
    nothing proves its optimum in seconds."""
    rng = random.Random(seed)
    readers: dict[int, list[int]] = {}
    for op in range(1, units):
        for producer in {max(0, op - rng.randint(1, 30)) for _ in range(3)}:
            readers.setdefault(producer, []).append(op)
    resident = [rng.randint(1, 9) for _ in range(units)]
    tensors = [(producer, ops, rng.randint(1, 99)) for producer, ops in readers.items()]
    return problem_of(resident=resident, tensors=tensors, capacity=[sum(resident) * 35 // 100] * 3)


def search_exhaustively(
    search: str,
    problem: UnitProblem,
    hints: Sequence[Sequence[int]],
    parameters: object,
    limit: float,
) -> Solution:
    """What a perfect solver process would answer: it tries every placement."""
    placements = [p for p in itertools.product(*problem.allowed) if problem.is_feasible(p)]
    if not placements:
        return Solution(status=Status.INFEASIBLE)
    best = min(placements, key=problem.value)
    return Solution(status=Status.OPTIMAL, device_of=best, lower_bound=problem.value(best))
