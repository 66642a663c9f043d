"""What is said about problems without a placement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_problems import best_by_enumeration, problem_of, random_problem

from placer.problem.conflict import CapInConflict, Conflict, Fix, OpsInConflict
from placer.problem.placement_problem import PIN, TOGETHER, PlacementProblem, Request
from placer.rendering.text.conflict_text import (
    conflict_reason,
    conflict_sentences,
    conflict_text,
)
from placer.solving.conflicts import conflict as conflict_module
from placer.solving.conflicts.conflict import conflict_seconds, explain_conflict
from placer.solving.conflicts.elements import may_fit
from placer.solving.process import clock
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve

QUICK = SolverParameters(time_limit_seconds=10.0, workers=1)


def with_caps(problem: PlacementProblem, caps: dict[str, int]) -> PlacementProblem:
    """The problem under the caps that a fix asks for."""
    pairs = zip(problem.device_names, problem.capacity_bytes, strict=True)
    return replace(problem, capacity_bytes=tuple(caps.get(name, cap) for name, cap in pairs))


def pinned(problem: PlacementProblem, *pins: tuple[str, tuple[int, ...], int]) -> PlacementProblem:
    """The problem with (name, ops, device) pins, all of whose devices kernels permit."""
    everywhere = tuple(range(len(problem.device_names)))
    allowed = dict(enumerate(problem.allowed))
    for _, ops, device in pins:
        allowed |= {op: tuple(d for d in allowed[op] if d == device) for op in ops}
    return replace(
        problem,
        allowed=tuple(allowed.values()),
        unconfined=dict.fromkeys(range(len(problem.op_names)), everywhere),
        requests=tuple(
            Request(name=name, kind=PIN, ops=ops, devices=(device,)) for name, ops, device in pins
        ),
    )


def test_every_fix_works() -> None:
    """Each change that a conflict proposes leads to a problem that has a placement, and the cap of
    one device is the least: one byte less is not enough."""
    fixes = least = 0
    for seed in range(300):
        problem = random_problem(seed, most_ops=6, spill="auto" if seed % 2 else "never")
        if best_by_enumeration(problem) is not None:
            continue
        for fix in explain_conflict(problem).fixes:
            fixes += 1
            if fix.kind == "spill":
                assert best_by_enumeration(replace(problem, spill="auto")) is not None
                continue
            caps = fix.caps
            assert best_by_enumeration(with_caps(problem, caps)) is not None, (seed, fix)
            if len(caps) == 1:
                least += 1
                ((name, size),) = caps.items()
                smaller = with_caps(problem, {name: size - 1})
                assert best_by_enumeration(smaller) is None, (seed, fix)
    assert fixes > 50
    assert least > 30


def test_an_overfull_device_is_shown_with_what_fills_it() -> None:
    """Two pins and an op of which there is a kernel for the GPU only, on a device that holds two of
    the three; the third op, and the larger device, have nothing to do with it."""
    free = problem_of(
        resident=[6, 3, 2, 1], tensors=[], capacity=[10, 100], allowed=[[0, 1], [0, 1], [0], [0, 1]]
    )
    problem = pinned(free, ("--pin a=GPU:0", (0,), 0), ("--pin b=GPU:0", (1,), 0))
    problem = replace(problem, unconfined={0: (0, 1), 1: (0, 1)})
    solution = solve(problem, QUICK)
    assert solution.status is Status.INFEASIBLE
    assert solution.unsolvable == problem
    conflict = explain_conflict(problem)
    assert conflict.caps == (CapInConflict(device="GPU:0", usable_bytes=10),)
    assert [(row.request, row.bytes) for row in conflict.pins] == [
        ("--pin a=GPU:0", 6),
        ("--pin b=GPU:0", 3),
    ]
    assert (conflict.needed_bytes, conflict.other_bytes) == (11, 2)
    assert not conflict.groups
    assert [fix.change for fix in conflict.fixes] == [
        "without --pin a=GPU:0",
        "without --pin b=GPU:0",
        "--max-memory GPU:0=11B",
    ]
    assert conflict_sentences(conflict) == [
        "GPU:0 (limit 10 B) must hold at least 11 B: --pin a=GPU:0 (1 op, 6 B), "
        "--pin b=GPU:0 (1 op, 3 B) "
        "and other ops that may run nowhere else (2 B)."
    ]


def test_a_pin_that_is_not_needed_is_not_blamed() -> None:
    """The smaller of two pins does not matter: one element less is in conflict."""
    free = problem_of(resident=[11, 1, 1], tensors=[], capacity=[10, 100])
    conflict = explain_conflict(pinned(free, ("p", (1,), 0), ("q", (0,), 0)))
    assert [row.request for row in conflict.pins] == ["q"]
    assert conflict.is_smallest


def test_a_group_that_fits_nowhere_is_named() -> None:
    """The heaviest ops of the group come first, then how many there are."""
    problem = problem_of(resident=[1, 7, 3, 1], tensors=[], capacity=[8, 8], group=[0, 0, 0, 1])
    conflict = explain_conflict(problem)
    assert conflict.groups == (OpsInConflict(ops=("op1", "op2", "op0"), op_count=3, bytes=11),)
    assert conflict.reason == "too_large"
    assert conflict_sentences(conflict) == [
        "op1 with 2 ops that must share its device requires 11 B on one device because of the "
        "colocation group of op1, and GPU:0 and CPU:0 (limit 8 B each) can hold 8 B each at most."
    ]


def test_groups_that_were_asked_for_can_be_dropped() -> None:
    """Two ops that fit one device each, kept together by the user, and not by colocation."""
    problem = problem_of(resident=[5, 5], tensors=[], capacity=[8, 8], group=[0, 0])
    together = Request(name="--keep-together 'op*'", kind=TOGETHER, groups=((0, 1),))
    conflict = explain_conflict(replace(problem, colocation=(0, 1), requests=(together,)))
    (row,) = conflict.groups
    assert (row.request, row.op_count, row.bytes) == ("--keep-together 'op*'", 2, 10)
    assert conflict.fixes[0] == Fix(
        kind="group",
        change="without --keep-together 'op*'",
        requests=("--keep-together 'op*'",),
    )


def test_pins_that_contradict_each_other_are_named() -> None:
    """A group pinned to two devices has no fix by memory: either pin is enough to drop."""
    problem = problem_of(resident=[1, 1], tensors=[], capacity=[8, 8], group=[0, 0])
    conflict = explain_conflict(pinned(problem, ("p", (0,), 0), ("q", (1,), 1)))
    assert conflict.reason == "contradiction"
    assert not conflict.caps
    assert [row.request for row in conflict.pins] == ["p", "q"]
    assert [row.op_count for row in conflict.groups] == [2]
    assert [fix.change for fix in conflict.fixes] == ["without p", "without q"]
    assert conflict_sentences(conflict) == [
        "No device may run op0 with 1 op that must share its device: p (1 op, 1 B) asks for GPU:0, "
        "q (1 op, 1 B) asks for CPU:0 and the colocation group of op0 (2 ops, 0 B) asks for one "
        "device."
    ]


def test_a_device_that_is_full_before_any_op_says_of_what() -> None:
    """Variables that no op uses take all of the only device that an op may use."""
    problem = problem_of(resident=[1], tensors=[], capacity=[8])
    conflict = explain_conflict(replace(problem, transient_bytes=(9,)))
    (sentence,) = conflict_sentences(conflict)
    assert "hold nothing more: loading puts 9 B there that nothing uses" in sentence
    assert "has no room left for" in conflict_reason(conflict)
    conflict = explain_conflict(replace(problem, resident_bytes=(7,), transient_bytes=(4,)))
    (sentence,) = conflict_sentences(conflict)
    assert (
        "can hold 4 B at most: what loading puts there and nothing uses takes the rest" in sentence
    )
    assert "none that it may use has more than 4 B left" in conflict_reason(conflict)


def test_what_fits_in_sum_but_in_no_division_says_so() -> None:
    """Three ops of 6 on two devices of 10; nothing but the caps is in conflict."""
    conflict = explain_conflict(problem_of(resident=[6, 6, 6], tensors=[], capacity=[10, 10]))
    assert (conflict.reason, conflict.needed_bytes) == ("undividable", 18)
    assert conflict_sentences(conflict)[0].startswith(
        "GPU:0 and CPU:0 (limit 10 B each) have room for 18 B, but no division of the ops fits"
    )


def test_spilling_is_proposed_where_it_helps() -> None:
    """With ``--offload never`` and a host that has room, that is part of the conflict."""
    problem = problem_of(
        resident=[4, 4],
        tensors=[(0, [1], 1)],
        capacity=[5, 50],
        allowed=[[0], [0]],
        spillable=[True, True],
    )
    conflict = explain_conflict(problem)
    assert [row.request for row in conflict.pins] == ["--offload never"]
    assert conflict.fixes[0].kind == "spill"
    found = solve(replace(problem, spill="auto"), QUICK)
    assert found.device_of is not None
    assert problem.host in found.device_of


@pytest.mark.parametrize(("left", "seconds"), [(100.0, 10.0), (4.0, 4.0), (-5.0, 1.0)])
@pytest.mark.usefixtures("virtual_time")
def test_a_conflict_is_searched_in_what_is_left_of_the_time(left: float, seconds: float) -> None:
    """Ten seconds at most, one at least."""
    assert conflict_seconds(clock.monotonic() + left) == pytest.approx(seconds)


def test_names_are_shown_and_not_obeyed() -> None:
    """Control characters and text that turns the line around come out escaped."""
    problem = problem_of(resident=[9], tensors=[], capacity=[8, 8])
    conflict = explain_conflict(replace(problem, op_names=("a\x1b[31m\u202e\nb",)))
    assert r"a\x1b[31m\u202e\nb" in conflict_text(conflict)


HARD = problem_of(resident=[7, 7, 6, 6, 6, 5, 5], tensors=[], capacity=[21, 21])


def test_sums_of_bytes_know_no_bounds() -> None:
    """Sizes that no 64-bit integer holds are summed all the same."""
    huge = 1 << 62
    problem = problem_of(resident=[huge, huge, huge], tensors=[], capacity=[huge, huge])
    conflict = explain_conflict(problem)
    assert (conflict.reason, conflict.needed_bytes) == ("overfull", 3 * huge)
    roomy = replace(problem, capacity_bytes=(huge, 7 * huge // 4))
    assert explain_conflict(roomy).reason == "overfull"
    undividable = replace(problem, capacity_bytes=(7 * huge // 4, 7 * huge // 4))
    assert explain_conflict(undividable).reason == "undividable"


def test_a_device_with_less_than_nothing_left_is_overfull_without_any_op() -> None:
    """What is reserved beside the ops is above the cap, and there is no op at all."""
    problem = problem_of(resident=[], tensors=[], capacity=[10, 10])
    conflict = explain_conflict(replace(problem, transient_bytes=(11, 0)))
    assert (conflict.reason, conflict.devices) == ("overfull", ("GPU:0",))
    assert conflict.caps == (CapInConflict(device="GPU:0", usable_bytes=10),)
    assert conflict.usable_bytes == 0  # as the schema of plans wants it: not below zero


def test_a_placement_of_another_spill_may_be_ruled_out_at_once() -> None:
    """Advice to use the accelerators alone is not given where one op is larger than each."""
    caps = {"tensors": [], "capacity": [10, 10, 99], "host": 2, "allowed": [[0, 1], [0, 1]]}
    assert may_fit(problem_of(resident=[10, 10], **caps))
    assert not may_fit(problem_of(resident=[11, 2], **caps))


def test_what_nobody_decides_is_not_called_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a search everything is named, and the text says so."""
    assert explain_conflict(HARD).is_smallest
    monkeypatch.setattr(conflict_module, "fits", lambda _packing: None)
    conflict = explain_conflict(HARD)
    assert not conflict.is_smallest
    assert len(conflict.caps) == 2
    assert "A part of this may be enough" in conflict_text(conflict)


def test_sizes_that_read_alike_are_told_to_the_byte() -> None:
    """A conflict of a few bytes does not say that 10.0 MiB are more than 10.0 MiB."""
    both = {"needed_bytes": 10_486_000, "usable_bytes": 10_485_760}
    found = Conflict(reason="overfull", devices=("GPU:0",), **both)
    told = "GPU:0 must hold at least 10,486,000 B and can hold 10,485,760 B"
    assert conflict_reason(found) == told


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("overfull", "GPU:0 must hold at least 9 B of ops that may run nowhere else with a pin."),
        ("undividable", "the ops that may run nowhere else with a pin fits."),
    ],
)
def test_ops_that_no_request_counts_are_told_in_the_sentence(reason: str, told: str) -> None:
    found = Conflict(
        reason=reason,
        devices=("GPU:0",),
        needed_bytes=9,
        usable_bytes=8,
        other_bytes=9,
        is_smallest=True,
        pins=(OpsInConflict(ops=("a",), request="a pin"),),
    )
    (sentence,) = conflict_sentences(found)
    assert sentence.endswith(told)
