"""Irreducible conflicts of infeasible problems, against enumeration."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from small_problems import best_by_enumeration, problem_of, random_problem

from placer.problem.placement_problem import DEVICE_STRING, PIN, TOGETHER, PlacementProblem, Request
from placer.solving.conflicts.conflict import find_conflict
from placer.solving.conflicts.elements import CAP, GROUP, SPILL, Elements
from placer.solving.conflicts.packing import Packing, fits
from placer.solving.process import clock

Names = frozenset[tuple[str, int]]


def with_requests(problem: PlacementProblem, seed: int) -> PlacementProblem:
    """The problem with pins, device strings, groups asked for and working sets drawn at random, and
    with ``allowed``, ``group`` and ``spillable`` as they follow from them."""
    rng = random.Random(seed)
    ops, devices = range(len(problem.op_names)), range(len(problem.device_names))
    free = [set(allowed) for allowed in problem.allowed]
    allowed = [set(devices) for _ in ops]
    group, requests, pinned = list(problem.group), [], set()
    for number in range(rng.choice([0, 1, 2, 3])):
        kind = rng.choice([PIN, PIN, DEVICE_STRING, TOGETHER])
        some = tuple(sorted(rng.sample(ops, rng.randint(1, min(3, len(ops))))))
        if kind == TOGETHER:
            requests.append(Request(name=f"r{number}", kind=kind, groups=(some,)))
            names = {group[op] for op in some}
            group = [min(names) if name in names else name for name in group]
            continue
        where = tuple(sorted(rng.sample(devices, 1 if kind == PIN else 2)))
        requests.append(Request(name=f"r{number}", kind=kind, ops=some, devices=where))
        pinned |= set(some)
        for op in some:
            free[op] |= set(where)
            allowed[op] &= set(where)
    held = {group[op] for op in pinned}
    for request in requests:  # kernels let a group follow what is held in it
        for mate in ops:
            if group[mate] in {group[op] for op in request.ops}:
                free[mate] |= set(request.devices)
    return replace(
        problem,
        requests=tuple(requests),
        unconfined={op: tuple(sorted(free[op])) for op in ops},
        colocation=problem.group,
        group=tuple(group),
        allowed=tuple(tuple(sorted(allowed[op] & free[op])) for op in ops),
        spillable=tuple(problem.spillable[op] and group[op] not in held for op in ops),
        working_set_bytes=tuple(rng.choice([0, 0, 0, 2, 4, 6]) for _ in ops),
    )


def placements(problem: PlacementProblem) -> Iterator[tuple[tuple[int, ...], set[int]]]:
    """Every placement that kernels permit, with the ops that are on the host by spilling."""
    held = {problem.group[op] for r in problem.requests for op in r.ops}
    spillable = [
        may or group in held for may, group in zip(problem.spillable, problem.group, strict=True)
    ]
    free = [set(problem.unconfined.get(op, a)) for op, a in enumerate(problem.allowed)]
    choices = [
        sorted({*devices, *([problem.host] if may else [])})
        for devices, may in zip(free, spillable, strict=True)
    ]
    for device_of in itertools.product(*choices):
        yield (
            device_of,
            {
                op
                for op, device in enumerate(device_of)
                if spillable[op]
                and device == problem.host
                and (problem.spill == "auto" or device not in free[op])
            },
        )


def broken_sets(problem: PlacementProblem) -> set[Names]:
    """What each placement breaks, from the definition, as (kind, number)."""
    return {
        frozenset(_broken(problem, device_of, spilled))
        for device_of, spilled in placements(problem)
    }


def _broken(
    problem: PlacementProblem, at: tuple[int, ...], spilled: set[int]
) -> Iterator[tuple[str, int]]:
    ops = range(len(at))
    for device, capacity in enumerate(problem.capacity_bytes):
        here = [op for op in ops if at[op] == device]
        held = sum(problem.resident_bytes[op] for op in here) + problem.transient_bytes[device]
        peak = held + max((sum(m.get(op, 0) for op in here) for m in problem.live_bytes), default=0)
        widths = problem.working_set_bytes or (0,) * len(at)
        if peak > capacity or any(widths[op] > capacity for op in here):
            yield CAP, device
    for number, request in enumerate(problem.requests):
        astray = any(at[op] not in request.devices for op in request.ops)
        if astray or any(len({at[op] for op in group}) > 1 for group in request.groups):
            yield "request", number
    own = problem.colocation or problem.group
    for number, name in enumerate(sorted(set(own))):
        if len({at[op] for op in ops if own[op] == name}) > 1:
            yield GROUP, number
    free = [set(problem.unconfined.get(op, a)) for op, a in enumerate(problem.allowed)]
    if problem.spill == "never" and any(problem.host not in free[op] for op in spilled):
        yield SPILL, 0


def test_the_conflicts_of_a_thousand_problems_are_irreducible() -> None:
    """No placement keeps the conflict, some placement keeps it but for any one element; and there
    is one exactly where nothing fits."""
    infeasible, kinds = 0, set()
    for seed in range(1000):
        plain = random_problem(seed, most_ops=5, spill="auto" if seed % 3 == 0 else "never")
        problem = with_requests(plain, seed)
        elements = Elements(problem)
        found = find_conflict(elements, clock.monotonic() + 30.0)
        if found is None:
            assert best_by_enumeration(problem) is not None, seed
            continue
        infeasible += 1
        numbers, is_irreducible = found
        assert is_irreducible, seed
        sets = broken_sets(problem)
        names = {name_of(elements, number) for number in numbers}
        kinds |= {kind for kind, _ in names}
        assert all(one & names for one in sets), seed
        for name in names:
            assert any(one & names == {name} for one in sets), (seed, name)
    assert infeasible > 300
    assert kinds == {"cap", "request", "group", "spill"}


def name_of(elements: Elements, number: int) -> tuple[str, int]:
    """The (kind, number) of an element, as :func:`broken_sets` gives it."""
    element, problem = elements.all[number], elements.problem
    if element.kind == CAP:
        return CAP, element.devices[0]
    if element.kind == SPILL:
        return SPILL, 0
    if element.kind != GROUP:
        return "request", problem.requests.index(element)
    own = problem.colocation or problem.group
    return GROUP, sorted(set(own)).index(own[element.groups[0][0]])


def test_what_is_not_decided_in_time_counts_as_needed() -> None:
    """With no time at all nobody knows of a conflict; with some, both caps are one."""
    elements = Elements(problem_of(resident=[3, 3, 3], tensors=[], capacity=[4, 4]))
    assert find_conflict(elements, clock.monotonic() - 1.0) is None
    numbers, is_irreducible = find_conflict(elements, clock.monotonic() + 30.0) or ([], False)
    assert [elements.all[number].kind for number in numbers] == [CAP, CAP]
    assert is_irreducible


@pytest.mark.parametrize(("units", "decided"), [(8, 1.0), (14, 0.9)])
def test_tight_packings_are_decided_as_enumeration_does(units: int, decided: float) -> None:
    """Two devices that hold a little more than half of everything at four moments: what the
    search answers is true, and it seldom gives up."""
    answers = []
    for seed in range(40):
        rng = random.Random(seed)
        weights = np.asarray([[rng.randint(1, 60) for _ in range(units)] for _ in range(4)])
        capacity = -(-weights.sum(axis=1).max() * rng.choice([50, 51, 53]) // 100)
        packing = Packing(
            unit_of=np.arange(units),
            allowed=np.ones((units, 2), dtype=bool),
            weights=weights,
            capacity=np.asarray([capacity, capacity]),
            capped=np.ones(2, dtype=bool),
        )
        sides = np.asarray(list(itertools.product([0, 1], repeat=units)))
        loads = np.stack([sides @ weights.T, (1 - sides) @ weights.T])
        expected = bool((loads <= capacity).all(axis=(0, 2)).any())
        answers.append(fits(packing))
        assert answers[-1] in (expected, None), seed
    assert {True, False} <= set(answers)
    assert answers.count(None) <= (1 - decided) * len(answers)
