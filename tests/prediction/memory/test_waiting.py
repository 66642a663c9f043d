"""Limits under which ops wait for memory."""

from types import MappingProxyType

from graphs_by_hand import draw, draw_costs
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.prediction.memory.allocations import find_allocations
from placer.prediction.memory.need import find_need
from placer.prediction.memory.waiting import least_limit, serves_waiting
from placer.prediction.orders.possible_steps import PossibleSteps

CPU = "CPU:0"
MIB = 2**20
_BRANCHES = ("x", "a1", "a2", "a3", "b1", "b2", "b3", "y")


def _steps(graph, costs):
    steps = PossibleSteps(graph, costs, accelerated=False)
    return steps.memory(dict.fromkeys(graph.ops, CPU), (CPU,)), steps.threaded_steps


def _serves(step, threaded, limit):
    return serves_waiting(step, {0: threaded}, CPU, limit, growth=False)


def _plain_need(step, threaded, sample=0):
    names, lasts = threaded.order
    return find_need(find_allocations(step, names, sample, lasts)[CPU], growth=False).need_bytes


def test_a_kernel_waits_until_another_has_given_its_workspace_back():
    """Two of 40 MiB at once need 83 MiB, and are served, one after the other, in 43.

    x ---> a ---> y
      '--> b ---'
    """
    graph = draw("x -> a -> y", "x -> b -> y", bytes=MIB)
    step, ways = _steps(graph, draw_costs(graph, temporary_bytes={"a": 40 * MIB, "b": 40 * MIB}))
    assert _plain_need(step, ways[0]) >= 83 * MIB
    assert _serves(step, ways[0], 44 * MIB)
    assert not _serves(step, ways[0], 42 * MIB)


def test_two_that_both_wait_have_run_out_of_memory():
    """20 MiB each: one branch after the other is served in 40, but where a1 and b1 are there, both
    a2 and b2 wait, and nobody gives back.

    x ---> a1 ---> a2 ---> a3 ---> y
      '--> b1 ---> b2 ---> b3 ---'
    """
    sizes = {name: 20 * MIB if name[1:] in ("1", "2") else 0 for name in _BRANCHES if name != "y"}
    graph = draw("x -> a1 -> a2 -> a3 -> y", "x -> b1 -> b2 -> b3 -> y", bytes=sizes)
    step, ways = _steps(graph, draw_costs(graph))
    one_by_one = find_allocations(step, _BRANCHES)[CPU]
    assert find_need(one_by_one, growth=False).need_bytes < 41 * MIB
    assert not _serves(step, ways[0], 56 * MIB)
    assert _serves(step, ways[0], 61 * MIB)
    assert _plain_need(step, ways[0]) > 79 * MIB


def test_a_tensor_that_others_keep_is_not_waited_for():
    """What a computes is kept until y: b never gets as much, at 70 MiB as without threads."""
    graph = draw("x -> a -> y", "x -> b -> y", bytes={"a": 40 * MIB, "b": 40 * MIB})
    step, ways = _steps(graph, draw_costs(graph))
    assert not _serves(step, ways[0], 70 * MIB)
    assert _serves(step, ways[0], 96 * MIB)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=24),
    st.lists(st.integers(0, 24), min_size=10, max_size=10),
    st.lists(st.integers(0, 24), min_size=10, max_size=10),
    st.booleans(),
)
def test_who_waits_needs_no_more_and_no_less_than_one_op_after_another(pairs, sizes, took, growth):
    """Under the need without waiting every op is served at once; less than the least that is held
    along any order of single ops serves no step."""
    edges = sorted({(min(a, b), max(a, b)) for a, b in pairs if a != b}) or [(0, 1)]
    names = sorted({f"n{n}" for edge in edges for n in edge})
    graph = draw(
        *(f"n{a} -> n{b}" for a, b in edges),
        bytes={name: sizes[int(name[1:])] * MIB for name in names},
    )
    costs = draw_costs(graph, temporary_bytes={name: took[int(name[1:])] * MIB for name in names})
    step, ways = _steps(graph, costs)
    for sample, threaded in enumerate(ways[:4]):
        order = threaded.order
        asked = find_allocations(step, order.names, sample, order.lasts)[CPU]
        enough = find_need(asked, growth=growth).need_bytes

        def serves(limit, one=MappingProxyType({sample: threaded})):
            return serves_waiting(step, one, CPU, limit, growth=growth)

        assert serves(enough)
        largest = max(sizes[int(name[1:])] + took[int(name[1:])] for name in names) * MIB
        limit = least_limit(serves, min(largest, enough), enough)
        assert largest <= limit <= enough
        assert not largest or not serves(largest - MIB)
