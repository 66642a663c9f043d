"""What is taken off the caps of searches, and given back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_problems import problem_of

from placer.solving.peaks.search_caps import SearchCaps

CAP = 10_000
HOST_CAP = 50_000
MOST = int(0.998 * CAP)


def caps_of() -> SearchCaps:
    """Two devices beside a host."""
    return SearchCaps(
        problem_of(
            resident=[1], tensors=[], capacity=[CAP, CAP, HOST_CAP], allowed=[[0, 1]], host=2
        ),
    )


def above(counted: Sequence[int], needs: Sequence[int]) -> tuple[list[int], list[int]]:
    """What is counted on the two devices, and by how much their needs are above the caps."""
    return [*counted, 0], [*(need - CAP for need in needs), -HOST_CAP]


def test_at_first_hardly_anything_is_off() -> None:
    assert caps_of().now == (MOST, MOST, int(0.998 * HOST_CAP))


def test_each_search_that_comes_out_above_a_cap_leaves_more() -> None:
    """Of the cap of the device that is above, by the same gap: 15% of it more, then as much again;
    another keeps what it holds, as if the gap came to it, too."""
    found = []
    caps = caps_of()
    for _ in range(2):
        caps.now = caps.most  # all of it was found to be kept
        caps.lower(*above([8_000, 1_000], [CAP + 1, 1_100]))
        found.append(caps.now[0])
    gap = CAP + 1 - 8_000
    assert CAP - found[0] == pytest.approx(1.15 * gap, rel=0.01)
    assert found[0] - found[1] == pytest.approx(0.15 * gap, rel=0.01)
    assert caps.now[1] == pytest.approx(CAP - gap, rel=0.01)


def searched(caps: SearchCaps, counted: Sequence[int], needs: Sequence[int]) -> None:
    """A search under the caps came out so."""
    counts, over = above(counted, needs)
    caps.tried.note(caps.now, counts, over)
    (caps.lower if max(over) > 0 else caps.widen)(counts, over)


def test_a_cap_is_halved_where_a_gap_leaves_nothing_of_it() -> None:
    """Gaps are not in proportion: tuning with large buffers needs less once they are gone."""
    caps = caps_of()
    searched(caps, [1_000, 1_000], [CAP + 1, 1_100])
    assert caps.now[0] == MOST // 2


def test_caps_between_what_was_kept_and_what_was_missed_are_halved() -> None:
    """9,980 are missed, 4,990 kept, where the gap is hardly anything: next is what lies halfway."""
    caps = caps_of()
    searched(caps, [1_000, 1_000], [CAP + 1, 1_100])
    searched(caps, [4_000, 1_000], [4_001, 1_100])
    assert caps.now[0] == (MOST + MOST // 2) // 2
    searched(caps, [7_000, 1_000], [CAP + 1, 1_100])
    assert MOST // 2 < caps.now[0] < 7_000


def test_a_device_within_its_cap_keeps_what_it_has_while_another_is_above() -> None:
    """8,790 were missed on the first, 8,180 were kept while the second was above: no less."""
    caps = caps_of()
    caps.tried.note([8_790, 9_000, HOST_CAP], *above([8_000, 5_000], [CAP + 1, 5_100]))
    caps.now = (8_180, 9_000, HOST_CAP)
    searched(caps, [8_000, 8_000], [8_100, CAP + 200])
    assert 8_180 <= caps.now[0] < 8_790


def test_a_search_that_missed_its_own_caps_says_nothing_of_them() -> None:
    caps = caps_of()
    caps.now = (5_000, 5_000, HOST_CAP)
    searched(caps, [6_000, 4_000], [CAP + 1, 4_100])
    assert caps.tried.missed[0] == float("inf")
    assert caps.tried.kept[1] == 5_000


def test_gaps_are_reserved_before_the_first_search() -> None:
    """The largest, 8% of a cap, of all devices but the host, whichever has it."""
    caps = caps_of()
    caps.reserve(*above([5_000, 6_000], [5_200, 6_800]))
    assert caps.now == (9_200, 9_200, int(0.998 * HOST_CAP))


def test_no_more_is_reserved_than_half_of_what_is_left() -> None:
    """Nine tenths of all caps are held: 5% of each are taken for a gap of 8%."""
    caps = caps_of()
    caps.reserve(*above([9_000, 9_000], [9_800, 9_100]))
    assert caps.now[:2] == (9_500, 9_500)


def test_what_a_placement_within_the_caps_leaves_is_given_back() -> None:
    """Its gaps stay off: 200 and 700 of the 800 that were reserved; never more than at first."""
    caps = caps_of()
    caps.reserve(*above([5_000, 6_000], [5_200, 6_800]))
    caps.widen(*above([7_000, 7_000], [7_200, 7_700]))
    assert caps.now == (9_798, 9_298, int(0.998 * HOST_CAP))
    caps.widen(*above([7_000, 7_000], [7_000, 7_000]))
    assert caps.now[:2] == (MOST, MOST)


def test_nothing_is_taken_by_giving_back() -> None:
    """A gap that is larger than what was reserved is of a placement that fits all the same."""
    caps = caps_of()
    caps.reserve(*above([5_000, 6_000], [5_200, 6_800]))
    caps.widen(*above([7_000, 7_000], [8_500, 8_500]))
    assert caps.now[:2] == (9_200, 9_200)


_SIZES = st.lists(st.integers(0, CAP), min_size=2, max_size=2)


@given(st.lists(st.tuples(st.sampled_from(["reserve", "lower", "widen"]), _SIZES, _SIZES)))
@example([("lower", [0, 9_986], [0, 15])])
def test_caps_are_never_above_those_of_the_devices(steps) -> None:
    """Nor above the most, but for a gap that was just told; what is reserved raises none of them,
    and giving back lowers none."""
    caps = caps_of()
    for name, counted, gaps in steps:
        needs = [count + gap for count, gap in zip(counted, gaps, strict=True)]
        if name == "lower" and max(needs) <= CAP:
            continue
        before = caps.now
        getattr(caps, name)(*above(counted, needs))
        assert max(caps.now[:2]) <= CAP
        if name != "lower":
            mosts = zip(caps.now, before, caps.most, strict=True)
            assert all(now <= max(was, most) for now, was, most in mosts)
        if name == "reserve":
            assert all(now <= was for now, was in zip(caps.now, before, strict=True))
        if name == "widen":
            assert all(now >= was for now, was in zip(caps.now, before, strict=True))
