"""No debris: what could sit elsewhere for nothing does, and ties are broken as the docs say."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from small_problems import problem_of, random_problem

from placer.prediction.scoring import score
from placer.prediction.times.step_time import list_messages
from placer.problem.placement_problem import PlacementProblem
from placer.solving.tidying import tidy, tidy_within


def feasible_placements(problem: PlacementProblem) -> list[tuple[int, ...]]:
    devices = range(len(problem.device_names))
    every = itertools.product(devices, repeat=len(problem.op_names))
    return [each for each in every if not score(problem, each).violations]


def accelerators_in_use(problem: PlacementProblem, device_of: tuple[int, ...]) -> int:
    return len(set(device_of) - {problem.host})


def messages_sent(problem: PlacementProblem, device_of: tuple[int, ...]) -> int:
    return sum(
        len({device_of[op] for op in message.consumers} - {device_of[message.producer]})
        for message in list_messages(problem)
    )


@pytest.mark.parametrize("seed", range(12))
def test_tidying_loses_nothing_and_leaves_nothing_to_move(seed: int) -> None:
    """From every placement that keeps all limits: no more is sent, no more devices are used, all
    limits hold, and tidying what is tidy changes nothing."""
    problem = random_problem(seed, most_ops=5)
    for device_of in feasible_placements(problem):
        tidied = tidy(problem, device_of)
        before, after = score(problem, device_of), score(problem, tidied)
        assert not after.violations
        assert after.transfer_bytes <= before.transfer_bytes
        assert accelerators_in_use(problem, tidied) <= accelerators_in_use(problem, device_of)
        assert tidy(problem, tidied) == tidied


@pytest.mark.parametrize("seed", range(30))
def test_no_device_is_left_whose_ops_all_could_go_elsewhere_for_nothing(seed: int) -> None:
    """Ops in pairs that send to each other, on any devices: by enumeration, no way of giving the
    pairs of one device to the others keeps the caps."""
    sizes = [1 + (seed * pair * 7) % 5 for pair in range(1, 5)]
    problem = problem_of(
        resident=[size for size in sizes for _ in range(2)],
        tensors=[(2 * pair, [2 * pair + 1], 3) for pair in range(4)],
        capacity=[8 + seed % 7, 8 + seed % 5, 12, 0],
        allowed=[[0, 1, 2]] * 8,
    )
    for devices in itertools.product(range(3), repeat=4):
        device_of = tuple(device for device in devices for _ in range(2))
        if score(problem, device_of).violations:
            continue
        tidied = tidy(problem, device_of)
        used = set(tidied)
        for emptied in used if len(used) > 1 else ():
            pairs = [pair for pair in range(4) if tidied[2 * pair] == emptied]
            for others in itertools.product(used - {emptied}, repeat=len(pairs)):
                moved = list(tidied)
                for pair, device in zip(pairs, others, strict=True):
                    moved[2 * pair] = moved[2 * pair + 1] = device
                assert score(problem, moved).violations


def test_a_handful_of_weightless_ops_goes_to_what_waits_for_it() -> None:
    """Two ops without bytes on a third device: one signals to the second device and goes there."""
    problem = problem_of(
        resident=[9, 9, 0, 0],
        tensors=[(0, [1], 5)],
        capacity=[9, 9, 9, 0],
        allowed=[[0, 1, 2]] * 4,
        control_edges=[(2, 1)],
    )
    tidied = tidy(problem, (0, 1, 2, 2))
    assert tidied[:3] == (0, 1, 1)
    assert tidied[3] in (0, 1)


def test_fewer_messages_come_before_lower_shares() -> None:
    """A light op that sends nothing but a signal joins its reader, although that device is
    fuller."""
    problem = problem_of(
        resident=[2, 6, 1],
        tensors=[(0, [1], 5)],
        capacity=[10, 10, 0],
        allowed=[[0, 1]] * 3,
        control_edges=[(2, 1)],
    )
    assert tidy(replace(problem, resident_bytes=(9, 6, 1)), (0, 1, 0)) == (0, 1, 1)


def test_of_equal_placements_the_fullest_device_is_the_less_full() -> None:
    """Four ops that share nothing, three of them on one of two devices that both are needed."""
    problem = problem_of(
        resident=[4, 2, 2, 3],
        tensors=[],
        capacity=[10, 10, 0],
        allowed=[[0, 1]] * 4,
    )
    tidied = tidy(problem, (0, 0, 0, 1))
    assert max(score(problem, tidied).peak_bytes) <= 6


def test_pins_and_the_host_stay() -> None:
    """A pinned op keeps its device in use; what is on the host is not moved."""
    problem = problem_of(
        resident=[1, 1, 1], tensors=[], capacity=[9, 9, 9], allowed=[[0], [1], [2]]
    )
    assert tidy(problem, (0, 1, 2)) == (0, 1, 2)


def test_a_piece_moves_although_another_has_no_room_by_the_prediction() -> None:
    """Of two light ops on a third device each reads from another one.  No row weighs the one that
    reads from GPU:0, but with it that device is predicted to be above its cap."""
    problem = problem_of(
        resident=[6, 6, 0, 1, 4],
        tensors=[(0, [2], 5), (1, [3], 5)],
        capacity=[10, 10, 10, 0],
        allowed=[[0], [1], [0, 1, 2], [0, 1, 2], [2]],
    )

    def overruns(device_of: tuple[int, ...]) -> list[int]:
        """GPU:0 is above its cap as soon as anything joins op 0, by more than the op takes."""
        joined = device_of.count(0) > 1
        return [5 if joined else 0, -2, -2, 0]

    device_of, over = tidy_within(problem, (0, 1, 2, 2, 2), overruns)
    assert max(over) <= 0
    assert device_of == (0, 1, 2, 1, 2)


def test_where_there_is_time_for_one_prediction_what_surely_has_room_moves() -> None:
    """The same, and time for one prediction after the first: the light op goes to GPU:1, which is
    predicted to have room for it and what it reads, and the other one stays, as GPU:0 has none."""
    problem = problem_of(
        resident=[6, 6, 0, 1, 4],
        tensors=[(0, [2], 5), (1, [3], 5)],
        capacity=[10, 10, 10, 0],
        allowed=[[0], [1], [0, 1, 2], [0, 1, 2], [2]],
    )
    judged: list[tuple[int, ...]] = []

    def overruns(device_of: tuple[int, ...]) -> list[int]:
        judged.append(device_of)
        return [5 if device_of.count(0) > 1 else 0, -6, -6, 0]

    device_of, over = tidy_within(problem, (0, 1, 2, 2, 2), overruns, lambda count: count > 1)
    assert device_of == (0, 1, 2, 1, 2)
    assert max(over) <= 0
    assert len(judged) == 2
    assert tidy_within(problem, (0, 1, 2, 2, 2), overruns, lambda _: True)[0] == (0, 1, 2, 2, 2)


def test_late_two_devices_that_one_has_room_for_become_one() -> None:
    """Peaks of 3 and 4 of caps of 10, and time for one prediction: what is on the lighter device
    goes to the other; with peaks of 6 and 5 it stays."""
    problem = problem_of(
        resident=[2, 3, 8], tensors=[], capacity=[10, 10, 10, 0], allowed=[[0, 1, 2]] * 3
    )

    def tidied(*peaks: int) -> tuple[int, ...]:
        over = [*(peak - 10 for peak in peaks), 0]
        return tidy_within(problem, (0, 1, 2), lambda _: over, lambda count: count > 1)[0]

    assert tidied(3, 4, 9) == (1, 1, 2)
    assert tidied(6, 5, 9) == (0, 1, 2)


def test_late_what_leaves_a_device_makes_room_for_more() -> None:
    """Op 3 goes from GPU:1 to GPU:0, whose op it reads from; only then GPU:1 has room for op 4,
    which reads from there.  What an op writes is not counted twice."""
    problem = problem_of(
        resident=[5, 5, 8, 2, 2, 0],
        tensors=[(0, [3], 1), (1, [4], 1), (4, [5], 1)],
        capacity=[10, 10, 13, 0],
        allowed=[[0], [1], [2], [0, 1, 2], [1, 2], [1, 2]],
    )
    keeps = problem.resident_bytes

    def overruns(device_of: tuple[int, ...]) -> list[int]:
        """All that is kept, and a byte for what moves."""
        held = [
            sum(keeps[op] for op, on in enumerate(device_of) if on == device) + 1
            for device in range(3)
        ]
        return [size - cap for size, cap in zip([*held, 0], problem.capacity_bytes, strict=True)]

    begun = (0, 1, 2, 1, 2, 2)
    assert overruns(begun)[1] == -2
    assert tidy_within(problem, begun, overruns, lambda count: count > 1)[0] == (0, 1, 2, 0, 1, 1)
