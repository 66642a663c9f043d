"""What an allocator needs for the requests of steps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from placer.prediction.memory.allocations import Allocations
from placer.prediction.memory.allocator import rounded_bytes
from placer.prediction.memory.need import find_need, least_bytes, serves

MIB = 1 << 20


def allocations_of(kept, events, moved=None, temporaries=()):
    """The requests of a step from sizes by letter: ``"+a -a"``."""
    names = {}
    found = Allocations()
    for name, size in kept.items():
        names[name] = number = len(names)
        found.kept.append(number)
        found.sizes[number] = size
    for event in events:
        sign, name = event[0], event[1]
        if sign == "+":
            names[name] = number = len(names)
            found.sizes[number] = int(event.partition(":")[2])
            found.events.append(number)
        else:
            found.events.append(~names[name])
    found.moved.update({names[old]: names[new] for old, new in (moved or {}).items()})
    found.temporaries.update(names[name] for name in temporaries)
    return found


def test_one_tensor_after_the_other_needs_no_more_than_they_are():
    allocations = allocations_of({"w": MIB}, [f"+a:{3 * MIB}", "-a", f"+b:{3 * MIB}", "-b"])
    need = find_need(allocations)
    assert (need.need_bytes, need.in_use_bytes) == (4 * MIB, 4 * MIB)
    assert (need.tensor_bytes, need.padding_bytes, need.fragmentation_bytes) == (4 * MIB, 0, 0)


def test_a_tensor_between_two_free_chunks_fragments():
    """Where a and c were, 2 MiB are free, but d needs them in one piece.

    | a | b | c |      | . | b | . | d    |
    """
    events = f"+a:{MIB} +b:{MIB} +c:{MIB} -a +e:{MIB} -c -e +f:{3 * MIB} -f -b".split()
    allocations = allocations_of({}, events)
    need = find_need(allocations)
    assert least_bytes(allocations) == 4 * MIB
    assert need.need_bytes == 5 * MIB
    assert (need.tensor_bytes, need.fragmentation_bytes) == (4 * MIB, MIB)


def test_small_tensors_take_256_bytes_each():
    kept = dict.fromkeys("abcd", 4)
    need = find_need(allocations_of(kept, []))
    assert (need.need_bytes, need.tensor_bytes, need.padding_bytes) == (1024, 16, 1008)


def test_a_chunk_that_is_not_split_is_padding():
    """b takes all of the 2 MiB in which a was, since what is behind c is too small.

    | a  | c |  |        | b. | c |  |
    """
    events = [f"+a:{2 * MIB}", f"+c:{MIB}", "-a", f"+b:{MIB + 256}", "-b", "-c"]
    need = find_need(allocations_of({}, events))
    assert (need.in_use_bytes, need.need_bytes) == (3 * MIB, 4 * MIB)


def test_an_allocator_that_splits_every_chunk_needs_less():
    """b takes the 2 MiB in which a was; d finds no MiB, unless what b leaves is split off."""
    events = [f"+a:{2 * MIB}", f"+c:{MIB}", "-a", f"+b:{MIB + 256}", f"+d:{MIB - 256}"]
    found = allocations_of({}, [*events, "-b", "-c", "-d"])
    assert not serves(found, 3 * MIB)
    assert serves(found, 3 * MIB, splits_all=True)


def test_what_is_left_of_a_region_may_be_padding():
    """n fits behind t only if t's chunk is split, for which it must be twice as large."""
    allocations = allocations_of({"w": MIB}, [f"+t:{3 * MIB}", f"+n:{MIB}", "-n", "-t"])
    assert find_need(allocations).need_bytes == 7 * MIB
    assert not serves(allocations, 7 * MIB - 256)


def test_what_kernels_take_is_workspace():
    events = [f"+a:{MIB}", f"+t:{2 * MIB}", "-t", "-a"]
    need = find_need(allocations_of({}, events, temporaries="t"))
    assert (need.tensor_bytes, need.workspace_bytes) == (MIB, 2 * MIB)


def test_a_variable_that_moves_leaves_a_hole_for_the_next_step():
    """The new value of w lies behind t; in the next step t takes all that is before it, and in
    the third yet more.

    | w | t     | n |        | t .       | w | n |        | t . .         | w | n |
    """
    events = [f"+t:{3 * MIB}", f"+n:{MIB}"]
    stays = allocations_of({"w": MIB}, [*events, "-n", "-t"])
    moves = allocations_of({"w": MIB}, [*events, "-w", "-t"], moved={"w": "n"})
    assert find_need(stays).in_use_bytes == 5 * MIB
    assert find_need(moves).in_use_bytes == 7 * MIB


@st.composite
def drawn_allocations(draw):
    sizes = st.one_of(st.integers(1, 2000), st.integers(1, 5 * MIB), st.sampled_from([256, MIB]))
    found = Allocations()
    for number in range(draw(st.integers(0, 6))):
        found.kept.append(number)
        found.sizes[number] = draw(sizes)
    alive: list[int] = []
    for request in draw(st.lists(st.one_of(sizes, st.integers(-9, -1)), max_size=60)):
        if request > 0:
            chunk = len(found.sizes)
            found.sizes[chunk] = request
            found.events.append(chunk)
            alive.append(chunk)
            if draw(st.integers(0, 4)) == 0:
                found.temporaries.add(chunk)
        elif alive:
            found.events.append(~alive.pop(request % len(alive)))
    for old in found.kept[: draw(st.integers(0, 3))]:
        if alive:
            found.moved[old] = alive.pop()
            found.events.append(~old)
    found.events.extend(~chunk for chunk in alive)
    return found


@settings(max_examples=150, deadline=None)
@given(drawn_allocations())
def test_the_need_is_the_limit_from_which_on_steps_are_served(allocations):
    """All that was skipped on the way there makes no difference: each answer is that of a run from
    the first request on.  The need is made up of its parts, and of no more than there is."""
    need = find_need(allocations)
    assert serves(allocations, need.need_bytes) or not need.need_bytes
    assert need.need_bytes >= least_bytes(allocations)
    if need.need_bytes > least_bytes(allocations):
        step = max(int(0.002 * need.need_bytes), 4096) + 512
        assert not serves(allocations, least_bytes(allocations))
        assert any(
            not serves(allocations, limit)
            for limit in range(need.need_bytes - step, need.need_bytes, 256)
        )
    assert need.in_use_bytes >= least_bytes(allocations)
    assert min(need.tensor_bytes, need.workspace_bytes, need.padding_bytes) >= 0
    assert need.fragmentation_bytes >= 0
    asked = sum(rounded_bytes(size) for size in allocations.sizes.values())
    assert need.tensor_bytes + need.workspace_bytes <= asked
