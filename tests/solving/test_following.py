"""Light ops beside host ops: who follows, held against all sets of ops and all placements."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Collection
from dataclasses import replace

import pytest
from small_problems import (
    best_by_enumeration,
    least_within,
    problem_of,
    random_problem,
    scores,
    search_exhaustively,
)

from placer.errors import UsageError
from placer.prediction.scoring import score
from placer.prediction.times.messages import list_messages
from placer.problem.placement_problem import PlacementProblem, check, from_json, to_json
from placer.solving.following import (
    find_followers,
    followers_of,
    hold_followers,
    let_follow,
)
from placer.solving.host_ops import bound_to_host
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve
from placer.solving.transfer import stage

QUICK = SolverParameters(time_limit_seconds=10.0, workers=1)
HOST = 2


def line(*sizes: int, ends: str = "hh", seconds: float = 1.0) -> PlacementProblem:
    """A chain of ops that may follow, with a fed op before it and what ``ends`` says around it.

    ``sizes`` are the bytes between them, from the first op on; ``h`` is an op that only the host
    runs, ``a`` one that only accelerators do.  Every op takes ``seconds`` longer on the host; a
    message takes a second, and a second per byte.
    """
    ops = len(sizes) + 1
    allowed = [[HOST]] + [[0, 1]] * (ops - 2) + [[HOST] if ends[1] == "h" else [0, 1]]
    problem = problem_of(
        resident=[0] * ops,
        tensors=[(op, [op + 1], size) for op, size in enumerate(sizes)],
        capacity=[100, 100, 100],
        allowed=allowed,
        host=HOST,
    )
    return replace(
        problem,
        seconds=((0.0, 0.0, seconds),) * ops,
        latency=((1.0,) * 3,) * 3,
        bandwidth=((1.0,) * 3,) * 3,
        may_follow=tuple(range(1, ops - 1)),
    )


def test_a_chain_between_host_ops_follows_though_one_op_alone_would_save_nothing():
    """fed -> slice -> reshape -> lookup on the host, all of one size: either op alone crosses as
    often as none of them; together they need not cross at all."""
    problem = let_follow(line(4, 4, 4))
    assert problem.followers == (1, 2)
    assert problem.allowed == ((2,), (0, 1, 2), (0, 1, 2), (2,))
    assert problem.may_follow == ()


def test_nothing_follows_what_is_fed_alone():
    """fed -> cast -> cast -> matmul: the casts would send 1 byte instead of 8, but no op works on
    the host, and a model of light ops is not to leave its accelerators."""
    problem = line(8, 4, 1, ends="ha")
    assert let_follow(problem) is problem


def test_ops_that_take_longer_than_the_transfers_that_they_save_do_not_follow():
    """Two ops save a message of 4 bytes to the accelerator and one back: 10 seconds.  At 5 more
    seconds each on the host they follow, at 6 they do not."""
    assert find_followers(line(4, 4, 4, seconds=5.0), {0, 3}) == {1, 2}
    assert find_followers(line(4, 4, 4, seconds=6.0), {0, 3}) == frozenset()


def test_a_chain_follows_as_far_as_it_shrinks():
    """lookup on the host -> 64 bytes -> sum -> 8 bytes -> tanh -> 8 bytes -> matmul: the sum goes
    along, the tanh gains nothing there."""
    problem = line(1, 64, 8, 8, ends="ha")
    problem = replace(problem, allowed=((2,), (2,), (0, 1), (0, 1), (0, 1)), may_follow=(2, 3))
    assert let_follow(problem).followers == (2,)


def test_tensors_without_a_size_are_not_taken_for_nothing():
    """What StringSplit finds has no size before it runs; its slice follows all the same."""
    problem = line(0, 0, ends="hh")
    assert let_follow(problem).followers == (1,)


def test_a_reader_of_a_weight_stays_where_the_weight_is():
    """The op in the middle also reads a byte that an accelerator keeps."""
    problem = line(64, 64)
    weight = replace(problem.tensors[0], producer=3, consumers=(1,), bytes=1)
    with_weight = replace(
        problem,
        op_names=(*problem.op_names, "weight"),
        resident_bytes=(0, 0, 0, 1),
        temporary_bytes=(0,) * 4,
        seconds=(*problem.seconds, (0.0, 0.0, 0.0)),
        group=(0, 1, 2, 3),
        allowed=(*problem.allowed, (0, 1)),
        spillable=(False,) * 4,
        tensors=(*problem.tensors, weight),
    )
    assert let_follow(problem).followers == (1,)
    assert let_follow(with_weight).followers == ()


def test_what_the_accelerators_are_too_small_for_is_followed():
    """A table of 9 bytes can only spill where accelerators have 5, and its slice goes along."""
    problem = line(2, 2, 8, ends="ha")
    table = replace(
        problem,
        resident_bytes=(0, 0, 9, 0),
        allowed=((2,), (0, 1), (0, 1), (0, 1)),
        spillable=(False, True, True, True),
        capacity_bytes=(5, 5, 100),
        may_follow=(1,),
        spill="auto",
    )
    assert bound_to_host(table) == {0, 2}
    assert let_follow(table).followers == (1,)
    assert let_follow(replace(table, spill="never")).followers == ()


def random_followers(seed: int, *, spill: str = "never") -> PlacementProblem:
    """A random problem in which some groups are on the host, and some others may follow."""
    rng = random.Random(seed)
    problem = random_problem(seed, most_ops=7, spill="auto")
    host, count = problem.host, len(problem.op_names)
    kind = {group: rng.choice("hhfffa") for group in sorted({*problem.group})}
    accelerators = tuple(device for device in range(len(problem.device_names)) if device != host)
    allowed = tuple((host,) if kind[g] == "h" else accelerators for g in problem.group)
    state = {g for g in kind if kind[g] == "a" and rng.random() < 0.5}
    in_state = [group in state for group in problem.group]
    return replace(
        problem,
        resident_bytes=tuple(
            size * keeps for size, keeps in zip(problem.resident_bytes, in_state, strict=True)
        ),
        allowed=allowed,
        spill=spill,
        spillable=tuple(kind[g] != "h" for g in problem.group),
        seconds=tuple((*(0.0,) * len(accelerators), rng.uniform(-1, 4)) for _ in range(count)),
        latency=((0.5,) * (len(accelerators) + 1),) * (len(accelerators) + 1),
        bandwidth=((2.0,) * (len(accelerators) + 1),) * (len(accelerators) + 1),
        capacity_bytes=tuple(max(3, cap) for cap in problem.capacity_bytes),
        transient_bytes=(0,) * len(problem.device_names),
        may_follow=tuple(op for op, g in enumerate(problem.group) if kind[g] == "f"),
    )


def largest_by_enumeration(problem: PlacementProblem, hosts: Collection[int]) -> frozenset[int]:
    """The union of all sets of groups that keep the four rules, by their definitions."""
    groups = sorted({problem.group[op] for op in problem.may_follow})
    fitting = [
        set(chosen)
        for size in range(len(groups) + 1)
        for chosen in itertools.combinations(groups, size)
        if _keeps_rules(problem, set(chosen), {problem.group[op] for op in hosts})
    ]
    everything: set[int] = set().union(*fitting)
    return frozenset(op for op in problem.may_follow if problem.group[op] in everything)


def _keeps_rules(problem: PlacementProblem, chosen: set[int], hosts: set[int]) -> bool:
    def crossing(there: set[int]) -> tuple[int, int, float]:
        """Bytes, tensors, and seconds of messages and ops, with ``there`` on the host too."""
        size = count = 0
        seconds = sum(
            times[-1] for op, times in enumerate(problem.seconds) if problem.group[op] in there
        )
        for number, message in enumerate(list_messages(problem)):
            on_host = [
                problem.group[op] in there | hosts for op in (message.producer, *message.consumers)
            ]
            if any(on_host) and not all(on_host):
                is_tensor = number < len([t for t in problem.tensors if t.consumers])
                size, count = size + message.bytes, count + is_tensor
                seconds += 0.5 + message.bytes / 2.0
        return size, count, seconds

    keeping = {g for g, size in zip(problem.group, problem.resident_bytes, strict=True) if size}
    links = [
        ({problem.group[t.producer]}, {problem.group[op] for op in t.consumers})
        for t in problem.tensors
    ]
    if any(p <= keeping - hosts and (c - p) & chosen for p, c in links):
        return False
    working = hosts & (keeping | {g for p, c in links for g in c - p})
    joined = set(working)
    for _ in problem.group:
        for p, c in links:
            if (p | c) & joined:
                joined |= (p | c) & chosen
    whole = crossing(chosen)
    return chosen <= joined and all(
        crossing(chosen - set(part))[:2] > whole[:2]
        and crossing(chosen - set(part))[2] >= whole[2] - 1e-9
        for size in range(1, len(chosen) + 1)
        for part in itertools.combinations(sorted(chosen), size)
    )


def test_the_largest_set_that_keeps_the_rules_is_found():
    """400 random problems: the set found is the union of all that keep the rules."""
    sizes = []
    for seed in range(400):
        problem = random_followers(seed)
        hosts = {op for op, devices in enumerate(problem.allowed) if devices == (problem.host,)}
        found = find_followers(problem, hosts)
        assert found == largest_by_enumeration(problem, hosts), seed
        sizes.append(len(found))
    assert sum(size > 0 for size in sizes) > 60
    assert sum(size > 1 for size in sizes) > 15


@pytest.mark.parametrize("spill", ["never", "auto"])
def test_to_hold_followers_on_the_host_costs_nothing(spill: str):
    """The best placement with followers on the host and nowhere else is as good as the best that
    may have them anywhere, spilled bytes included; one with them on accelerators only is not."""
    held, worse = 0, 0
    for seed in range(400):
        given = random_followers(seed, spill=spill)
        problem = let_follow(given)
        if problem is given:
            continue
        fixed = hold_followers(problem, spills=spill == "auto")
        held += fixed is not problem
        best = best_by_enumeration(problem)
        assert best_by_enumeration(fixed) == best, seed
        worse += best_by_enumeration(given) != best
    assert held > 50
    assert worse > 30


@pytest.mark.parametrize("spill", ["never", "auto"])
def test_solutions_with_followers_are_those_of_enumeration(
    spill: str, monkeypatch: pytest.MonkeyPatch
):
    """What is called optimal has the value of the best of all placements, followers anywhere."""
    monkeypatch.setattr(stage, "search_in_child", search_exhaustively)
    proven = 0
    for seed in range(200):
        problem = let_follow(random_followers(seed, spill=spill))
        if not problem.followers:
            continue
        best, solution = best_by_enumeration(problem), solve(problem, QUICK)
        if best is None or solution.device_of is None:
            assert solution.status is Status.INFEASIBLE, seed
            assert best is None, seed
            continue
        assert not score(problem, solution.device_of).violations
        if solution.status is Status.OPTIMAL and not best[0]:
            assert solution.value == best[1] == solution.lower_bound, seed
            proven += 1
    assert proven > 20


def ask_more(problem: PlacementProblem, rng: random.Random) -> PlacementProblem:
    """A group pinned to a device that it may use, or to the host, or two groups joined, as the
    pipeline writes it: ``unconfined`` and ``colocation`` say how it was before."""
    first, second = rng.choice(problem.group), rng.choice(problem.group)
    joins = rng.random() < 0.4
    ops = {op for op, g in enumerate(problem.group) if g == first or (joins and g == second)}
    may_spill = all(problem.spillable[op] for op in ops)
    own = set.intersection(*({*problem.allowed[op]} for op in ops))
    anywhere = own | ({problem.host} if may_spill else set())
    if not joins and anywhere:
        own, may_spill = {rng.choice(sorted(anywhere))}, False
    elif not own:  # one of the two is a host op
        own, may_spill = {problem.host}, False
    before = {op: problem.unconfined.get(op, problem.allowed[op]) for op in ops}
    if joins and own == {problem.host}:
        before = {op: tuple(sorted({*devices, problem.host})) for op, devices in before.items()}
    stays_free = joins and ops.issubset(problem.may_follow)
    return replace(
        problem,
        group=tuple(first if op in ops else g for op, g in enumerate(problem.group)),
        colocation=problem.colocation or problem.group,
        allowed=tuple(
            tuple(sorted(own)) if op in ops else devices
            for op, devices in enumerate(problem.allowed)
        ),
        spillable=tuple(may_spill if op in ops else s for op, s in enumerate(problem.spillable)),
        unconfined={**problem.unconfined, **before},
        may_follow=tuple(op for op in problem.may_follow if stays_free or op not in ops),
    )


def test_a_request_more_never_lowers_the_least_of_problems_with_followers():
    """1,000 problems with up to two requests, all with one allowance: what follows an op that was
    asked to the host, or that joining made too large for any accelerator, takes of it."""
    asked = joined = 0
    for seed in range(1_000):
        rng = random.Random(seed)
        problem = random_followers(seed, spill="auto")
        counted = tuple(problem.host not in devices for devices in problem.allowed)
        problem = replace(problem, counted=counted)
        allowance = rng.randint(0, sum(let_follow(problem).spill_bytes()))
        least = None
        for _ in range(3):
            feasible = [row for row in scores(let_follow(problem)) if row[0] <= allowance]
            if not feasible:
                break
            found = least_within(feasible, allowance)
            assert least is None or found >= least, seed
            least = found
            problem = ask_more(problem, rng)
            asked += 1
            joined += problem.group != problem.colocation
    assert asked > 1_000
    assert joined > 400


def test_followers_are_not_counted_as_spilled():
    """The table spills, its slice follows: of a placement with both on the host, the spilled bytes
    are the table's, and the follower is named."""
    problem = let_follow(line(4, 4, 4))
    assert score(problem, (2, 2, 2, 2)).spilled_bytes == 0
    assert followers_of(problem, (2, 2, 2, 2)) == {1, 2}
    assert followers_of(problem, (2, 0, 0, 2)) == frozenset()


def test_followers_stay_on_an_accelerator_if_the_host_has_no_room():
    """The host is full: nothing is held there, and there is a placement all the same."""
    problem = let_follow(line(4, 4, 4))
    full = replace(problem, resident_bytes=(3, 2, 2, 3), capacity_bytes=(9, 9, 6))
    assert hold_followers(full) is full
    solution = solve(full, QUICK)
    assert solution.device_of in {(2, 0, 0, 2), (2, 1, 1, 2)}


def test_followers_that_are_none_are_not_held():
    """A problem out of a file may call anything a follower: what does not save bytes stays free."""
    problem = line(1, 8, 1)
    wrong = replace(problem, allowed=((2,), (0, 1, 2), (0, 1), (2,)), followers=(1,))
    assert hold_followers(wrong) is wrong


def test_followers_that_are_part_of_a_group_are_not_held_alone():
    """A file may list some ops of a group: held alone, the group would have no device."""
    problem = line(4, 4, 4)
    wrong = replace(
        problem,
        group=(0, 1, 1, 3),
        allowed=((2,), (0, 1, 2), (0, 1), (2,)),
        followers=(1,),
    )
    assert hold_followers(wrong) is wrong


def test_followers_are_kept_in_files_and_checked():
    """The fields are written and read; numbers of no op are refused."""
    problem = let_follow(line(4, 4, 4))
    assert from_json(to_json(problem)) == problem
    with pytest.raises(UsageError, match="followers name op 9"):
        check(replace(problem, followers=(9,)))


def test_a_large_graph_is_left_after_one_pass():
    """20,000 ops after a host op, the last of which hands on to an accelerator: each gains nothing
    once the one after it stays, and none is left for a cut."""
    count = 20_000
    problem = problem_of(
        resident=[0] * count,
        tensors=[(op, [op + 1], 4) for op in range(count - 1)],
        capacity=[1, 1],
        allowed=[[1], [1], *([[0]] * (count - 2))],
        host=1,
    )
    problem = replace(problem, may_follow=tuple(range(2, count - 1)))
    began = time.process_time()
    assert find_followers(problem, {0, 1}) == frozenset()
    assert time.process_time() - began < 5.0
