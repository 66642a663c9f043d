"""The smallest conflict of infeasible problems, against enumeration."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace

from small_problems import best_by_enumeration, problem_of, random_problem

from placer.problem.placement_problem import DEVICE_STRING, PIN, TOGETHER, PlacementProblem, Request
from placer.solving.conflicts.conflict import checker
from placer.solving.conflicts.elements import CAP, GROUP, SPILL, Elements
from placer.solving.conflicts.smallest_conflict import Conflict, hitting_set, smallest_conflict

Names = frozenset[tuple[str, int]]


def find(problem: PlacementProblem) -> Conflict | None:
    elements = Elements(problem)
    return smallest_conflict(len(elements.all), checker(elements), time.monotonic() + 30.0)


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
        pinned |= set(some) if kind == PIN else set()
        for op in some:
            free[op] |= set(where)
            allowed[op] &= set(where)
    held = {group[op] for op in pinned}
    for request in requests:  # kernels let a group follow what is pinned in it
        for mate in ops if request.kind == PIN else ():
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
    held = {problem.group[op] for r in problem.requests if r.kind == PIN for op in r.ops}
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
    pinned = {op for r in problem.requests if r.kind == PIN for op in r.ops}
    for number, request in enumerate(problem.requests):
        exempt = set() if request.kind == PIN else spilled - pinned
        astray = any(at[op] not in request.devices and op not in exempt for op in request.ops)
        if astray or any(len({at[op] for op in group}) > 1 for group in request.groups):
            yield "request", number
    own = problem.colocation or problem.group
    for number, name in enumerate(sorted(set(own))):
        if len({at[op] for op in ops if own[op] == name}) > 1:
            yield GROUP, number
    free = [set(problem.unconfined.get(op, a)) for op, a in enumerate(problem.allowed)]
    if problem.spill == "never" and any(problem.host not in free[op] for op in spilled):
        yield SPILL, 0


def least_hitting_size(sets: set[Names]) -> int:
    """The size of a smallest set of elements that meets all ``sets``, by trying all."""
    smallest = [one for one in sets if not any(other < one for other in sets)]
    names = sorted(frozenset().union(*smallest))
    for size in range(len(names) + 1):
        if any(
            all(one & set(chosen) for one in smallest)
            for chosen in itertools.combinations(names, size)
        ):
            return size
    raise AssertionError("the empty set cannot be met")


def test_the_conflict_is_the_smallest_of_a_thousand_problems() -> None:
    """No placement keeps the conflict, some placement keeps it but for any one element, no smaller
    set has that property; and there is one exactly where nothing fits."""
    infeasible, kinds = 0, set()
    for seed in range(1000):
        plain = random_problem(seed, most_ops=5, spill="auto" if seed % 3 == 0 else "never")
        problem = with_requests(plain, seed)
        elements, conflict = Elements(problem), find(problem)
        if conflict is None:
            assert best_by_enumeration(problem) is not None, seed
            continue
        infeasible += 1
        sets = broken_sets(problem)
        names = {(elements.all[n].kind, elements.all[n].number) for n in conflict.elements}
        kinds |= {kind for kind, _ in names}
        assert all(one & names for one in sets), seed
        for name in names:
            assert any(one & names == {name} for one in sets), (seed, name)
        assert conflict.is_smallest, seed
        assert len(names) == least_hitting_size(sets), seed
        for number in conflict.sufficient:
            element = elements.all[number]
            assert frozenset({(element.kind, element.number)}) in sets, seed
    assert infeasible > 300
    assert kinds == {"cap", "request", "group", "spill"}


def test_a_smallest_hitting_set_is_found_or_shown_not_to_exist() -> None:
    """Three sets, two of them met by 1; and none with one element fewer."""
    sets = [frozenset({1, 2}), frozenset({1, 3}), frozenset({4})]
    assert hitting_set(sets, 2) == {1, 4}
    assert hitting_set(sets, 1) is None
    assert hitting_set([frozenset()], 3) is None


def test_what_is_not_decided_in_time_counts_as_needed() -> None:
    """With no time at all everything is in the conflict, and it is not called the smallest."""
    problem = problem_of(resident=[3, 3, 3], tensors=[], capacity=[4, 4])
    elements = Elements(problem)
    search = smallest_conflict(len(elements.all), checker(elements), time.monotonic() - 1.0)
    assert search is None
    found = find(problem)
    assert found is not None
    assert [elements.all[n].kind for n in found.elements] == [CAP, CAP]
    assert found.is_smallest
