"""Where ops may run: feeds, pins, kernels, device strings and groups, alone and together."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs_by_hand import draw

from cost_models.clusters import parse_cluster
from placer.errors import UsageError
from placer.graph.op_graph import OpGraph, Variable
from placer.problem.constraints import ConstraintOptions, Constraints, find_constraints

TWO_GPUS = "2xGPU:1GiB"


def constrain(graph: OpGraph, devices: str = TWO_GPUS, **options: object) -> Constraints:
    return find_constraints(graph, parse_cluster(devices), ConstraintOptions(**options))


def devices_of(constraints: Constraints, op: str) -> tuple[str, ...]:
    groups = zip(constraints.groups, constraints.group_devices, strict=True)
    return next(devices for group, devices in groups if op in group.ops)


def test_an_op_with_a_gpu_kernel_stays_off_the_cpu():
    """MatMul may use every GPU and not the host, which is there all the same."""
    assert devices_of(constrain(draw("a -> b")), "b") == ("GPU:0", "GPU:1")


def test_without_accelerators_the_cpus_take_everything():
    """On two CPUs the same op may use both."""
    assert devices_of(constrain(draw("a -> b"), "2xCPU:1GiB"), "b") == ("CPU:0", "CPU:1")


def test_a_fed_op_sits_on_the_host():
    """A fed value arrives on CPU:0 whatever is pinned."""
    constraints = constrain(draw("x=Placeholder -> a", feeds=["x"]), pins={"x": "GPU:1"})
    assert devices_of(constraints, "x") == ("CPU:0",)
    assert constraints.restrictions["x"].code == "fed"
    assert [(code, ops) for code, _, ops in constraints.warnings] == [("pin_of_fed", ("x",))]
    graph = draw("x=Placeholder -> a", feeds=["x"])
    assert constrain(graph, pins={"x": "CPU:0"}).warnings == ()


def test_ops_kept_together_with_a_fed_one_are_said_to_be_on_the_host():
    """The glob takes the input in; one that leaves it out, or a host without GPUs, says nothing."""
    graph = draw("x=Placeholder -> a -> b", feeds=["x"])
    constraints = constrain(graph, keep_together=("*",))
    assert devices_of(constraints, "b") == ("CPU:0",)
    ((code, message, ops),) = constraints.warnings
    assert (code, ops) == ("together_on_host", ("x",))
    assert "--keep-together '*' keeps 3 ops off the accelerators, since x is one of" in message
    assert constrain(graph, keep_together=("[ab]",)).warnings == ()
    assert constrain(graph, "2xCPU:1GiB", keep_together=("*",)).warnings == ()


def test_an_op_without_a_gpu_kernel_goes_to_the_cpu_with_its_group():
    """A hash table has only a CPU kernel; the op colocated with it follows."""
    graph = draw("t=HashTableV2 -> a -> b", groups=[["t", "a"]], dtypes={"t": "resource"})
    constraints = constrain(graph)
    assert devices_of(constraints, "a") == ("CPU:0",)
    assert devices_of(constraints, "b") == ("GPU:0", "GPU:1")
    assert "HashTableV2" in constraints.restrictions["t"].reason


def test_what_no_cpu_can_run_is_told_where_there_are_only_cpus():
    """TensorFlow has no CPU kernel of cuDNN's recurrent layers."""
    graph = draw("a -> r=CudnnRNN -> b")
    told = constrain(graph, "2xCPU:1GiB").warnings
    assert [(code, ops) for code, _, ops in told] == [("no_cpu_kernel", ("r",))]
    assert constrain(graph).warnings == ()


def test_iterators_stay_on_the_host():
    """TensorFlow takes their CPU kernels; a device string of the graph is followed all the same."""
    text = "i=IteratorV2 -> n=IteratorGetNext -> a"
    groups, dtypes = [["i", "n"]], {"i": "resource"}
    constraints = constrain(draw(text, groups=groups, dtypes=dtypes))
    assert devices_of(constraints, "n") == ("CPU:0",)
    assert devices_of(constraints, "a") == ("GPU:0", "GPU:1")
    assert "prefers the CPU kernel" in constraints.restrictions["n"].reason
    asked = {"i": "/gpu:1", "n": "/gpu:1"}
    constraints = constrain(draw(text, groups=groups, dtypes=dtypes, devices=asked))
    assert devices_of(constraints, "n") == ("GPU:1",)


def test_the_kernel_depends_on_the_dtype():
    """MatMul on strings does not exist on a GPU; on floats it does."""
    constraints = constrain(draw("a -> b", dtypes={"b": "string"}))
    assert devices_of(constraints, "a") == ("GPU:0", "GPU:1")


def test_pins_by_name_win_over_pins_by_type():
    """--pin-type sends every MatMul to GPU:0, --pin takes one back to GPU:1."""
    graph = draw("tower/a -> tower/b")
    constraints = constrain(graph, pin_types={"MatMul": "/gpu:0"}, pins={"tower/b": "GPU:1"})
    assert devices_of(constraints, "tower/a") == ("GPU:0",)
    assert devices_of(constraints, "tower/b") == ("GPU:1",)


@pytest.mark.parametrize("later", [0, 1])
def test_of_two_pins_by_name_the_later_one_counts(later):
    """As the help of --pin says."""
    pins = {"tower/*": f"GPU:{1 - later}", "*/b": f"GPU:{later}"}
    constraints = constrain(draw("tower/a -> tower/b"), pins=pins)
    assert devices_of(constraints, "tower/b") == (f"GPU:{later}",)
    help_text = " ".join((Path(__file__).parents[2] / "docs" / "reference.md").read_text().split())
    assert "if two globs match an op, the later one counts" in help_text


def test_device_strings_are_pins_unless_they_are_cleared():
    """A partial, legacy device string binds; --clear-devices ignores it."""
    graph = draw("a -> b", devices={"b": "/gpu:1"})
    assert devices_of(constrain(graph), "b") == ("GPU:1",)
    assert devices_of(constrain(graph, clear_devices=True), "b") == ("GPU:0", "GPU:1")


def test_a_device_string_without_a_kernel_gives_way_with_a_warning():
    """TensorFlow's soft placement would move the op; we say so.  One that asks for the host is
    where it asks to be."""
    graph = draw("t=HashTableV2 -> a", devices={"t": "/cpu:0"}, dtypes={"t": "resource"})
    assert constrain(graph).warnings == ()
    graph = draw("t=HashTableV2 -> a", devices={"t": "/gpu:1"}, dtypes={"t": "resource"})
    constraints = constrain(graph)
    assert devices_of(constraints, "t") == ("CPU:0",)
    assert [(code, ops) for code, _, ops in constraints.warnings] == [
        ("device_string_ignored", ("t",))
    ]


def test_two_pins_in_one_group_leave_no_device():
    """The contradiction is data for the solver's conflict, not a crash."""
    graph = draw("a -> b", groups=[["a", "b"]])
    assert devices_of(constrain(graph, pins={"a": "GPU:0", "b": "GPU:1"}), "a") == ()


def test_pins_take_the_names_of_variables_and_slots_go_along():
    """A plan calls variables by their paths, not by the ops that stand for them."""
    names = {
        "h1": "users/table",
        "h2": "adam/users_table_momentum",
        "h3": "adam/users_table_velocity",
        "h4": "adam/iteration",
        "h5": "items/table",
    }
    variables = [Variable(name=n, handle=h, dtype="float32", shape=(4,)) for h, n in names.items()]
    graph = draw("h1, h2, h3, h4, h5 -> a", variables=variables)
    pins = {"users/*": "GPU:0", "adam/*_velocity": "GPU:1"}
    found = constrain(graph, pins=pins)
    assert devices_of(found, "h1") == devices_of(found, "h2") == ("GPU:0",)
    assert devices_of(found, "h3") == ("GPU:1",)
    assert devices_of(found, "h4") == devices_of(found, "h5") == ("GPU:0", "GPU:1")


def test_keep_together_merges_groups_transitively():
    """A glob that touches two groups makes one of them."""
    graph = draw("s/a -> s/b -> c -> d", groups=[["s/b", "c"]])
    constraints = constrain(graph, keep_together=("s/*",))
    assert [group.ops for group in constraints.groups] == [("s/a", "s/b", "c"), ("d",)]


def test_every_op_is_in_exactly_one_group():
    """Groups partition the ops, in graph order."""
    graph = draw("a, b -> c -> d, e", groups=[["a", "d"]])
    ops = [op for group in constrain(graph).groups for op in group.ops]
    assert sorted(ops) == sorted(graph.ops)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pins": {"nothing*": "GPU:0"}}, "no op or variable name in the graph of 2 ops matches"),
        ({"pins": {"a": "GPU:7"}}, "no device GPU:7 among"),
        ({"pins": {"a": "gpu zero"}}, "gpu zero"),
        ({"pins": {"aa": "GPU:0"}}, "matches 'aa'; did you mean a"),
        ({"keep_together": ("zzz*",)}, "there are a, b"),
        ({"keep_together": ("tower*",)}, "keep_together=\\('tower"),
    ],
)
def test_a_wrong_request_says_what_was_found(options, message):
    """Pins that match nothing and devices that are not there are usage errors."""
    with pytest.raises(UsageError, match=message.replace("*", r"\*")):
        constrain(draw("a -> b"), **options)


def test_a_device_string_that_matches_no_device_is_a_usage_error():
    """The next step is named."""
    with pytest.raises(UsageError, match="clear_devices=True"):
        constrain(draw("a -> b", devices={"b": "/job:worker/task:3/gpu:0"}))


def test_a_small_constant_stays_with_its_only_reader():
    """An axis is not worth a message; a constant with two readers, or a large one, is free."""
    graph = draw(
        "axis=Const -> a", "shared=Const -> a, b", "large=Const -> b", bytes={"large": 4096}
    )
    groups = {group.ops for group in constrain(graph).groups}
    assert groups == {("axis", "a"), ("shared",), ("b",), ("large",)}


def test_a_constant_of_strings_does_not_take_its_reader_to_the_host():
    """String constants live on the CPU; the op that reads one may use a GPU."""
    graph = draw("message=Const, x -> check=Assert", dtypes={"message": "string", "x": "bool"})
    constraints = constrain(graph)
    assert devices_of(constraints, "message") == ("CPU:0",)
    assert devices_of(constraints, "check") == ("GPU:0", "GPU:1")


def test_a_pin_needs_a_kernel():
    """A pin that no matching op can follow is refused; of several, those without one are told."""
    graph = draw("t=HashTableV2", "a", "c=CudnnRNN", dtypes={"t": "resource"})
    with pytest.raises(UsageError, match="no GPU kernel for HashTableV2"):
        constrain(graph, pins={"t": "GPU:1"})
    with pytest.raises(UsageError, match="no CPU kernel for CudnnRNN"):
        constrain(graph, pins={"c": "CPU:0"})
    constraints = constrain(graph, pins={"*": "GPU:1"})
    assert devices_of(constraints, "a") == ("GPU:1",)
    assert devices_of(constraints, "t") == ("CPU:0",)
    assert ("pin_without_kernel", ("t",)) in [(code, ops) for code, _, ops in constraints.warnings]


def test_what_hands_a_result_on_stays_with_the_op_that_gives_it():
    """x is made on the host for lack of a kernel, and fetched through an Identity: that stays
    there, while one that somebody reads may go anywhere.

        s=StringLength -> out=Identity (fetched)
        a -> kept=Identity -> b
    """
    graph = draw(
        "t=Placeholder -> s=StringLength -> out=Identity",
        "a -> kept=Identity -> b",
        dtypes={"t": "string", "s": "int32", "out": "int32"},
        fetches=["out:0"],
        feeds=["t"],
    )
    found = find_constraints(graph, parse_cluster("2xGPU:1GiB"), ConstraintOptions())
    devices = {
        op: d for g, d in zip(found.groups, found.group_devices, strict=True) for op in g.ops
    }
    assert devices["out"] == ("CPU:0",)
    assert devices["kept"] == ("GPU:0", "GPU:1")
    (group,) = [group for group in found.groups if "out" in group.ops]
    assert (group.ops, group.reasons) == (("s", "out"), ("returned",))


def test_what_only_runs_on_accelerators_is_not_spilled():
    """CudnnRNN has no CPU kernel: neither it nor what is colocated with it may go to the host."""
    graph = draw("a -> r=CudnnRNN -> b -> c", groups=[["r", "b"]])
    constraints = constrain(graph)
    may_spill = {
        op: spills
        for group, spills in zip(constraints.groups, constraints.spillable, strict=True)
        for op in group.ops
    }
    assert may_spill == {"a": True, "r": False, "b": False, "c": True}


@pytest.mark.parametrize(
    ("op_type", "told"),
    [
        ("If", "auto_scale_loss=False"),
        ("While", "which must share one device with all ops on them"),
    ],
)
def test_bodies_that_use_many_variables_are_named(op_type, told):
    """A conditional update of four variables ties them, and there is a way out; with one
    accelerator, or fewer variables, there is nothing to warn of."""

    def step(count):
        names = [f"v{number}" for number in range(count)]
        lines = [f"{name}=VarHandleOp -> update={op_type}" for name in names]
        return draw(
            *lines,
            dtypes=dict.fromkeys(names, "resource"),
            bodies={"update": {"then_branch": ("body",)}},
            functions={"body": draw("a -> b")},
            groups=[[*names, "update"]],
        )

    ((code, message, ops),) = constrain(step(4)).warnings
    assert (code, ops) == ("tied_by_control_flow", ("update",))
    assert f"update ({op_type}) uses 4 resources" in message
    assert told in message
    assert constrain(step(3)).warnings == ()
    assert constrain(step(4), "1xGPU:1GiB").warnings == ()
