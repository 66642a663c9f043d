"""What a step asks allocators for, one request after the other."""

from dataclasses import replace

from graphs_by_hand import draw, draw_costs, random_graphs
from hypothesis import given

from cost_models.gpu_convolutions import RED_ZONES_BYTES
from placer.prediction.memory.allocations import find_allocations
from placer.prediction.memory.need import find_need, serves
from placer.prediction.memory.timelines import StepMemory

DEVICES = ("CPU:0", "GPU:0", "GPU:1")


def _found(graph, placement="GPU:0", **costs):
    """The requests by device: ``+size`` and ``-size``, in order."""
    if isinstance(placement, str):
        placement = dict.fromkeys(graph.ops, placement)
    step = StepMemory(graph, draw_costs(graph, **costs), placement, DEVICES)
    return find_allocations(step, tuple(graph.ops))


def _events(allocations):
    return [
        allocations.sizes[chunk] if chunk >= 0 else -allocations.sizes[~chunk]
        for chunk in allocations.events
    ]


def test_outputs_are_asked_for_before_inputs_are_freed():
    graph = draw("x -> a -> b", bytes={"x": 100, "a": 20, "b": 4})
    assert _events(_found(graph)["GPU:0"]) == [100, 20, -100, 4, -20, -4]


def test_a_workspace_is_asked_for_after_the_output_and_freed_at_once():
    graph = draw("x -> conv -> y", bytes={"x": 100, "conv": 20, "y": 4})
    found = _found(graph, temporary_bytes={"conv": 700})["GPU:0"]
    assert _events(found) == [100, 20, 700, -700, -100, 4, -20, -4]
    assert [found.sizes[chunk] for chunk in found.temporaries] == [700]


def test_chunks_of_a_kernel_that_come_first_lie_before_its_output():
    graph = draw("x -> einsum -> y", bytes={"x": 100, "einsum": 20, "y": 4})
    costs = draw_costs(graph, temporary_bytes={"einsum": 700})
    costs["einsum"] = replace(costs["einsum"], temporary_chunks=(300, 400))
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), DEVICES)
    found = find_allocations(step, tuple(graph.ops))["GPU:0"]
    assert _events(found) == [100, 300, 400, 20, -300, -400, -100, 4, -20, -4]
    assert [found.sizes[chunk] for chunk in sorted(found.temporaries)] == [300, 400]
    assert found.peak_bytes == 820


def test_an_op_that_writes_over_its_input_asks_for_nothing():
    graph = draw("x -> r=Relu -> i=Identity -> y", bytes=100)
    assert _events(_found(graph)["GPU:0"]) == [100, 100, -100, -100]


def test_a_tensor_that_is_sent_is_asked_for_where_it_arrives():
    """On GPU:1 its receive buffer is freed by the last reader there."""
    graph = draw("x -> a, b", bytes={"x": 100, "a": 20, "b": 4})
    found = _found(graph, {"x": "GPU:0", "a": "GPU:1", "b": "GPU:1"})
    assert _events(found["GPU:0"]) == [100, -100]
    assert _events(found["GPU:1"]) == [100, 20, -20, 4, -100, -4]


def test_fed_values_are_the_callers_and_their_copies_are_not():
    graph = draw("x=Placeholder -> a", bytes={"x": 100, "a": 20}, feeds=["x"])
    found = _found(graph)
    assert _events(found["CPU:0"]) == []
    assert _events(found["GPU:0"]) == [100, 20, -100, -20]


def test_what_is_kept_is_asked_for_before_the_first_step():
    graph = draw("c=Const -> a", bytes={"c": 100, "a": 20})
    found = _found(graph, persistent_bytes={"c": 100})["GPU:0"]
    assert [found.sizes[chunk] for chunk in found.kept] == [100]
    assert _events(found) == [20, -20]


def test_an_assigned_value_becomes_the_variable():
    """The old chunk is freed, and the next step finds the variable in that of the value."""
    graph = draw(
        "v=VarHandleOp -> u=AssignVariableOp",
        "value -> u",
        dtypes={"v": "resource"},
        bytes={"value": 400, "u": 8},
    )
    found = _found(graph, persistent_bytes={"v": 400})["GPU:0"]
    (kept,) = found.kept
    value = next(chunk for chunk in found.events if found.sizes[max(chunk, ~chunk)] == 400)
    assert found.moved == {kept: value}
    assert found.events.count(~kept) == 1
    assert ~value not in found.events


def test_a_value_that_is_still_read_keeps_its_chunk():
    """The old value is freed by its last reader, after the variable has another chunk."""
    graph = draw(
        "v=VarHandleOp -> r=ReadVariableOp -> late",
        "v, value -> u=AssignVariableOp",
        "u ..> late",
        dtypes={"v": "resource"},
        bytes={"value": 400, "r": 400, "u": 8, "late": 20},
    )
    found = _found(graph, persistent_bytes={"v": 400})["GPU:0"]
    (kept,) = found.kept
    late = next(chunk for chunk, size in found.sizes.items() if size == 20)
    assert found.events.index(late) < found.events.index(~kept)
    assert list(found.moved) == [kept]


def test_updating_a_variable_that_is_still_read_asks_for_another_chunk():
    lines = "v=VarHandleOp -> r=ReadVariableOp -> a", "v, d -> u=AssignAddVariableOp"
    drawn = {"dtypes": {"v": "resource", "u": "int32"}, "bytes": {"r": 400, "d": 400}}
    resident = {"persistent_bytes": {"v": 400}}
    late_reader = _found(draw(*lines, "u ..> late", "r -> late", **drawn), **resident)["GPU:0"]
    assert _events(late_reader).count(400) == 2
    assert list(late_reader.moved) == late_reader.kept
    no_reader = _found(draw(*lines, "a ..> u", **drawn), **resident)["GPU:0"]
    assert _events(no_reader).count(400) == 1
    assert not no_reader.moved


@given(random_graphs())
def test_all_that_is_asked_for_is_freed_but_what_is_kept(graph):
    """Nothing is freed twice; at most as much is asked for at once as the peak of the timeline."""
    costs = draw_costs(graph, temporary_bytes=dict.fromkeys(graph.ops, 8))
    placement = {name: DEVICES[1 + number % 2] for number, name in enumerate(graph.ops)}
    step = StepMemory(graph, costs, placement, DEVICES)
    peaks = step.peaks(tuple(graph.ops))
    for name, found in find_allocations(step, tuple(graph.ops)).items():
        alive = set(found.kept)
        most = now = sum(found.sizes[chunk] for chunk in alive)
        for event in found.events:
            if event >= 0:
                assert event not in alive
                alive.add(event)
                now += found.sizes[event]
                most = max(most, now)
            else:
                alive.remove(~event)
                now -= found.sizes[~event]
        assert len(alive) == len(found.kept)
        assert most <= peaks[name]


def _two_variables_and_a_constant():
    """``m`` and ``n``, 4 MiB each, get new values; what is free then is asked for as one piece."""
    graph = draw(
        *("m=VarHandleOp -> um=AssignVariableOp", "c=Const -> x"),
        *("n=VarHandleOp -> un=AssignVariableOp", "new_m -> um", "new_n -> un"),
        *("new_m, new_n ..> um, un", "um, un ..> x"),
        dtypes={"m": "resource", "n": "resource"},
        bytes={"new_m": 4 << 20, "new_n": 4 << 20, "um": 0, "un": 0, "c": 4, "x": 8 << 20},
    )
    costs = draw_costs(graph, persistent_bytes={"m": 4 << 20, "c": 4, "n": 4 << 20})
    order = ("m", "c", "n", "new_m", "new_n", "um", "un", "x")
    return StepMemory(graph, costs, dict.fromkeys(graph.ops, "CPU:0"), ("CPU:0",)), order


def test_variables_have_chunks_before_constants_do():
    """The old values lie side by side, and leave one hole of 8 MiB, which with the new ones is all
    there is; with the constant between them the hole would be two."""
    step, order = _two_variables_and_a_constant()
    found = find_allocations(step, order)["CPU:0"]
    assert [found.sizes[chunk] for chunk in found.kept] == [4 << 20, 4 << 20, 4]
    assert serves(found, (16 << 20) + (1 << 10))
    assert not serves(replace(found, kept=sorted(found.kept)), 19 << 20)


def _tuned(graph, copies, **costs):
    """The requests of a graph on GPU:0 whose convolutions are tuned."""
    found = draw_costs(graph, **costs)
    for name, size in copies.items():
        found[name] = replace(found[name], tuned_bytes=size)
    step = StepMemory(graph, found, dict.fromkeys(graph.ops, "GPU:0"), DEVICES)
    return find_allocations(step, tuple(graph.ops))["GPU:0"]


def test_a_convolution_is_tuned_once_with_red_zones_about_a_copy_and_a_workspace():
    """Both are asked for after its output and its filter, and given back before it goes on; they
    are no tensors of the program."""
    graph = draw("x -> conv -> y", bytes={"x": 100, "conv": 20, "y": 4})
    first = _tuned(graph, {"conv": 20}, temporary_bytes={"conv": 7})
    zones = RED_ZONES_BYTES
    tuning = [20 + zones, zones, -zones, -20 - zones]
    assert _events(first) == [100, 20, 7, *tuning, -7, -100, 4, -20, -4]
    assert {first.sizes[chunk] for chunk in first.temporaries} == {7, 20 + zones, zones}
    (later,) = first.later
    assert _events(later) == [100, 20, 7, -7, -100, 4, -20, -4]


def test_of_convolutions_of_one_shape_the_first_is_tuned():
    graph = draw("x -> a -> b", bytes=256)
    ops = graph.ops
    ops["b"] = replace(ops["b"], info=ops["a"].info)
    first = _tuned(graph, {"a": 256, "b": 256})
    assert sum(size == RED_ZONES_BYTES for size in _events(first)) == 1


def test_a_limit_between_the_copy_and_the_workspace_is_none():
    """With room for the copy and not for both TensorFlow finds no algorithm: both are needed."""
    graph = draw("x -> conv -> y", bytes={"x": 1 << 20, "conv": 1 << 20, "y": 256})
    first = _tuned(graph, {"conv": 1 << 20})
    enough = 2 * RED_ZONES_BYTES + (4 << 20)  # so much that the copy's chunk is split
    assert serves(first, enough)
    assert not serves(first, enough - 256)


def test_what_is_built_holds_three_times_a_variable_for_a_moment():
    """A random first value is made of two tensors of its size; then one is left."""
    graph = draw("w=VarHandleOp -> r=ReadVariableOp -> y", bytes=256, dtypes={"w": "resource"})
    costs = draw_costs(graph, persistent_bytes={"w": 1 << 20})
    costs["w"] = replace(costs["w"], initial_bytes=1 << 20)
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), DEVICES)
    found = find_allocations(step, tuple(graph.ops))["GPU:0"]
    assert find_need(found.loading()).need_bytes == 3 << 20
    assert find_need(found.loaded().loading()).need_bytes == 1 << 20


def test_restored_variables_fit_in_any_order():
    """The large one may come last but one, and takes what is left whole if that is not twice as
    large as it."""
    graph = draw("w=VarHandleOp, v=VarHandleOp -> y", bytes=256)
    costs = draw_costs(graph, persistent_bytes={"w": 3 << 20, "v": 1 << 20})
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), DEVICES)
    found = find_allocations(step, tuple(graph.ops))["GPU:0"]
    need = find_need(found).need_bytes
    assert need == 7 << 20
    for kept in (found.kept, found.kept[::-1]):
        assert serves(replace(found, kept=kept), need)


def test_a_constant_that_a_variable_starts_as_stays_when_the_first_update_copies_it():
    """From the second step on there are both, and nothing more is asked for."""
    graph = draw(
        "w=VarHandleOp, m=VarHandleOp, g -> u=ResourceApplyMomentum",
        dtypes=dict.fromkeys(("w", "m"), "resource"),
        bytes={"g": 1 << 20},
    )
    costs = draw_costs(graph, persistent_bytes={"w": 1 << 20, "m": 2 << 20})
    costs["m"] = replace(costs["m"], constant_bytes=1 << 20)
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), DEVICES)
    first = find_allocations(step, tuple(graph.ops))["GPU:0"]
    assert [first.sizes[chunk] for chunk in first.kept] == [1 << 20, 1 << 20]
    assert _events(first).count(1 << 20) == 2
    assert _events(first.in_step(1)).count(1 << 20) == 1
    assert 4 << 20 <= find_need(first).in_use_bytes <= (4 << 20) + 512


def test_a_gradient_of_images_is_where_its_last_chunk_was():
    """With channels first, the kernel gives back what it first asked for as its output."""
    graph = draw("x -> gradient=Conv2DBackpropInput -> y", bytes=1 << 20)
    chunks = {"gpu_temporary_bytes": 3 << 20, "gpu_temporary_chunks": (2 << 20, 1 << 20)}
    costs = draw_costs(graph)
    for first, kept in ((False, 0), (True, 2)):
        costs["gradient"] = replace(costs["gradient"], channels_first=first, **chunks)
        step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), DEVICES)
        found = find_allocations(step, tuple(graph.ops))["GPU:0"]
        number = {name: index for index, name in enumerate(graph.ops)}
        asked = [e for e in found.events if e >= 0]
        own = [c for c, op in zip(asked, found.askers, strict=True) if op == number["gradient"]]
        assert [found.sizes[chunk] for chunk in own] == [1 << 20, 2 << 20, 1 << 20]
        freed = [~event for event in found.events if event < 0]
        assert max(own, key=freed.index) == own[kept]
        assert found.temporaries == {*own} - {own[kept]}
