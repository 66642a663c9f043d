"""The facts of a report, against graphs whose answer can be counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from cost_models.op_info import TensorProperties
from placer.extraction import Extraction
from placer.extraction.graph_defs.program import ProgramInput
from placer.graph.op_graph import Variable
from placer.pipeline import model_report
from placer.pipeline.predicted_placement import PredictedPlacement
from placer.pipeline.workload import Workload
from placer.plan.request import Options
from placer.prediction.metrics import LiveBuffer, MemoryTimeline, Metrics, PeakRange, Schedule


def _extraction(graph, **changes):
    facts = {
        "graph": graph,
        "model": {"format": "graph_def", "path": "model.pb", "signature": "", "tags": []},
        "bindings": {"batch_size": None, "shapes": {}},
        "inputs": (ProgramInput(key="x", tensor="x:0", dtype="float32", shape=(None, 4)),),
        "outputs": (("y", "b:0"),),
        "ops_in_file": 40,
        "functions_in_file": 0,
    }
    return Extraction(**(facts | changes))


def analyse(extraction, costs, metrics, calibration_error=0.0):
    """The report on a program whose step on a GPU is predicted to take this."""
    cluster = parse_cluster("GPU:1GiB")
    devices = [replace(device, relative_error=calibration_error) for device in cluster.devices]
    workload = Workload(
        source="model.pb",
        wanted=Options(),
        extraction=extraction,
        costs=costs,
        cluster=replace(cluster, devices=tuple(devices)),
    )
    together = PredictedPlacement(placement={}, control_edges=(), metrics=metrics, step=None)
    return model_report.analyse(workload, together)


def _metrics(graph, seconds, timelines=()):
    start = {name: 0.0 for name in graph.ops}
    return Metrics(
        transfers=(),
        timelines={timeline.device: timeline for timeline in timelines}
        or {"GPU:0": _timeline("GPU:0", 64)},
        peaks={
            name: PeakRange(low_bytes=60, expected_bytes=64, high_bytes=200)
            for name in ("CPU:0", "GPU:0")
        },
        schedule=Schedule(
            step_seconds=sum(seconds.values()),
            critical_path_seconds=0.0,
            busy_seconds={},
            bottleneck_seconds=0.0,
            start_seconds=start,
            finish_seconds={name: seconds.get(name, 0.0) for name in graph.ops},
        ),
    )


def _timeline(device, peak_bytes, live=()):
    return MemoryTimeline(
        device=device,
        resident_bytes=0,
        peak_bytes=peak_bytes,
        peak_op="b",
        live_at_peak=tuple(live),
        order=("b",),
        bytes=(peak_bytes,),
    )


def _chain(**changes):
    """x -> deep/one/a -> deep/two/b, reading the variable w."""
    return draw(
        "x=Placeholder, w=VarHandleOp -> deep/one/a -> deep/two/b",
        feeds=["x"],
        fetches=["deep/two/b:0"],
        dtypes={"w": "resource"},
        variables=[Variable(name="weight", handle="w", dtype="float32", shape=(3, 5))],
        **changes,
    )


def test_the_model_is_counted_from_the_graph():
    """Ops, op types, variables, elements and bytes by dtype are those of the flat graph."""
    graph = _chain()
    costs = draw_costs(graph, persistent_bytes={"w": 60})
    model = analyse(_extraction(graph), costs, _metrics(graph, {})).model
    assert (model.op_count, model.file_op_count, model.op_type_count) == (4, 40, 3)
    assert (model.variable_count, model.parameter_count) == (1, 3 * 5)
    assert model.parameter_bytes == {"float32": 60}
    assert model.inputs[0].declared_shape == (None, 4)
    assert model.inputs[0].bound_shape == graph.tensors["x:0"].properties.shape


def test_a_variable_of_unknown_shape_is_counted_apart():
    """Its elements are not taken for zero without saying so."""
    graph = draw("w=VarHandleOp -> b", dtypes={"w": "resource"})
    unknown = Variable(name="v", handle="w", dtype="float32", shape=(None, 2))
    graph = replace(graph, variables=(unknown,))
    model = analyse(_extraction(graph), draw_costs(graph), _metrics(graph, {})).model
    assert (model.variable_count, model.unsized_variable_count, model.parameter_count) == (1, 1, 0)


def test_memory_is_that_of_the_accelerator_though_the_host_peaks_higher():
    """The peak is split by kind, its largest buffers come first, and constants are not weights."""
    graph = _chain()
    live = [
        LiveBuffer(op="w", bytes=60, kind="weights"),
        LiveBuffer(op="deep/one/a", bytes=70, kind="activation"),
        LiveBuffer(op="x", bytes=10, kind="activation"),
    ]
    costs = draw_costs(graph, persistent_bytes={"w": 60, "x": 8})
    metrics = _metrics(graph, {}, [_timeline("CPU:0", 300), _timeline("GPU:0", 140, live)])
    memory = analyse(_extraction(graph), costs, metrics).memory
    assert (memory.peak_bytes, memory.peak_op) == (140, "b")
    assert (memory.weight_bytes, memory.constant_bytes) == (60, 8)
    assert (memory.low_bytes, memory.high_bytes, memory.validated) == (60, 200, False)
    assert memory.bytes_at_peak == {"activation": 80, "weights": 60}
    assert memory.scopes_at_peak == {"": 70, "deep": 70}
    assert [buffer.op for buffer in memory.largest_at_peak] == ["deep/one/a", "w", "x"]


def test_memory_is_that_of_the_host_if_nothing_is_on_the_accelerator():
    """Such as the lookup of texts in a table."""
    graph = _chain()
    metrics = _metrics(graph, {}, [_timeline("CPU:0", 300), _timeline("GPU:0", 0)])
    memory = analyse(_extraction(graph), draw_costs(graph), metrics).memory
    assert (memory.peak_bytes, memory.validated) == (300, True)


def test_a_folded_constant_is_resident():
    """What the device keeps of it is a constant of the report, as in a plan's resident bytes."""
    graph = _chain()
    live = [
        LiveBuffer(op="deep/one/a", bytes=70, kind="constant"),
        LiveBuffer(op="x", bytes=8, kind="constant"),
        LiveBuffer(op="b", bytes=5, kind="constant", until="b"),
    ]
    metrics = _metrics(graph, {}, [_timeline("GPU:0", 140, live)])
    memory = analyse(_extraction(graph), draw_costs(graph, persistent_bytes={"x": 8}), metrics)
    assert memory.memory.constant_bytes == 78


def test_the_kept_first_value_of_a_slot_is_a_constant():
    """It is no parameter, and no state."""
    graph = draw("w=VarHandleOp -> b", dtypes={"w": "resource"})
    variable = Variable(name="v", handle="w", dtype="float32", shape=(5,))
    graph = replace(graph, variables=(variable,))
    costs = draw_costs(graph, persistent_bytes={"w": 40})
    costs["w"] = replace(costs["w"], constant_bytes=20)
    found = analyse(_extraction(graph), costs, _metrics(graph, {}, [_timeline("GPU:0", 40)]))
    assert found.model.parameter_bytes == {"float32": 20}
    assert (found.memory.weight_bytes, found.memory.constant_bytes) == (20, 20)


def test_hotspots_add_up_to_the_whole():
    """Op types and scopes are sums over their ops, the most busy time first."""
    graph = _chain()
    seconds = {"deep/one/a": 3.0, "deep/two/b": 2.0, "x": 1.0}
    costs = draw_costs(graph, flops={"deep/one/a": 30, "deep/two/b": 20}, bytes_accessed=10)
    compute = analyse(_extraction(graph), costs, _metrics(graph, seconds)).compute
    assert [(s.name, s.op_count, s.seconds) for s in compute.by_op_type] == [
        ("MatMul", 2, 5.0),
        ("Placeholder", 1, 1.0),
        ("VarHandleOp", 1, 0.0),
    ]
    assert (compute.flops, compute.bytes_accessed, compute.busy_seconds) == (50, 40, 6.0)
    assert compute.arithmetic_intensity == 50 / 40
    for spots in (compute.by_op_type, compute.by_scope):
        assert sum(spot.flops for spot in spots) == 50
        assert sum(spot.op_count for spot in spots) == len(graph.ops)


def test_scopes_are_as_deep_as_it_takes_to_tell_something():
    """One outer scope that holds everything is opened; so is an inner one that holds over a
    quarter, down to what cannot be opened."""
    graph = _chain()
    seconds = {"deep/one/a": 3.0, "deep/two/b": 2.0}
    compute = analyse(_extraction(graph), draw_costs(graph), _metrics(graph, seconds)).compute
    assert [spot.name for spot in compute.by_scope] == ["deep/one", "deep/two", ""]


def test_what_lies_directly_in_an_opened_scope_does_not_bear_its_name():
    """A row called as a scope has all that is in it."""
    graph = draw("x -> deep/one/a, deep/b")
    seconds = {"deep/one/a": 3.0, "deep/b": 1.0}
    compute = analyse(_extraction(graph), draw_costs(graph), _metrics(graph, seconds)).compute
    assert [spot.name for spot in compute.by_scope] == [
        "deep/one",
        "deep/ (not in a sub-scope)",
        "",
    ]


def test_a_scope_of_many_small_parts_stays_closed():
    """A hundred and twenty layers of equal time in one scope are one row, not ten of them."""
    layers = [f"gradients/layer_{number}/MatMul" for number in range(120)]
    graph = draw(f"x -> {', '.join(layers)}")
    seconds = dict.fromkeys(layers, 1.0)
    compute = analyse(_extraction(graph), draw_costs(graph), _metrics(graph, seconds)).compute
    assert [(spot.name, spot.op_count) for spot in compute.by_scope] == [
        ("gradients", 120),
        ("", 1),
    ]


def test_the_largest_group_is_the_one_that_needs_most():
    """A group needs its weights and the outputs of its largest op; a loop is a group of one."""
    body = draw("i=Placeholder -> o")
    graph = draw(
        "w=VarHandleOp -> a -> loop=While -> b",
        bytes={"a": 400, "b": 8, "loop": 100},
        bodies={"loop": {"body": ("body",)}},
        functions={"body": body},
        groups=[("w", "a")],
    )
    costs = draw_costs(graph, persistent_bytes={"w": 100}, temporary_bytes={"loop": 300})
    group = analyse(_extraction(graph), costs, _metrics(graph, {})).largest_group
    assert (group.op_count, group.resident_bytes, group.needed_bytes) == (2, 100, 500)
    assert (group.example, group.reasons) == ("a", ("drawn",))
    costs = draw_costs(graph, persistent_bytes={"w": 1}, temporary_bytes={"loop": 350})
    loop = analyse(_extraction(graph), costs, _metrics(graph, {})).largest_group
    assert (loop.op_count, loop.needed_bytes, loop.reasons) == (1, 450, ("While",))


def test_a_group_does_not_count_one_buffer_twice():
    """A variable that is read, and handed on, is in memory once."""
    graph = draw(
        "w=VarHandleOp -> read=ReadVariableOp -> same=Identity -> b",
        dtypes={"w": "resource"},
        bytes=400,
        groups=[("w", "read", "same")],
    )
    costs = draw_costs(graph, persistent_bytes={"w": 400})
    group = analyse(_extraction(graph), costs, _metrics(graph, {})).largest_group
    assert group.needed_bytes == 400


def test_a_group_is_the_one_that_a_placement_keeps_together():
    """With the small constant of an op of the loop, as in an explanation; such a constant alone
    makes no group."""
    drawn = ("w=VarHandleOp -> a -> b", "c=Const -> a", "d=Const -> b")
    for groups, count in (([("w", "a")], 3), ([], None)):
        graph = draw(*drawn, bytes=4, groups=groups)
        extraction, costs = _extraction(graph), draw_costs(graph, persistent_bytes={"c": 4})
        group = analyse(extraction, costs, _metrics(graph, {})).largest_group
        assert (group and group.op_count) == count


def test_what_has_no_gpu_kernel_is_found_in_bodies_too():
    """Kernels are asked for in the graph and in the bodies of its loops."""
    body = draw("i=Placeholder -> s=StringJoin", dtypes={"i": "string", "s": "string"})
    graph = draw("x=Placeholder -> a", functions={"body": body})
    report = analyse(_extraction(graph), draw_costs(graph), _metrics(graph, {}))
    assert report.no_gpu_kernel == {"StringJoin": 1}


def test_unmodelled_and_unknown_are_listed_with_their_op_types():
    """Neither is folded into the totals: both are lists of their own."""
    graph = _chain(functions={"body": draw("i=Placeholder -> o")})
    costs = draw_costs(graph)
    costs["deep/one/a"] = replace(costs["deep/one/a"], unmodelled=True)
    extraction = _extraction(
        graph,
        unknown=("deep/one/a:0", "deep/two/b:0", "body/i:0"),
        unknown_roots=("deep/one/a",),
    )
    metrics = _metrics(graph, {"deep/one/a": 3.0, "deep/two/b": 1.0})
    report = analyse(extraction, costs, metrics)
    assert report.unmodelled == {"MatMul": 1}
    assert report.compute.unmodelled_share == pytest.approx(3 / 4)
    assert [(u.tensor, u.op_type, u.is_origin) for u in report.unknown_shapes] == [
        ("deep/one/a:0", "MatMul", True),
        ("deep/two/b:0", "MatMul", False),
        ("body/i:0", "Placeholder", False),
    ]


def test_ops_of_unknown_work_widen_the_band_of_the_step():
    """The error of a calibrated device, and the share of the time that is not fully known."""
    graph = _chain()
    costs = draw_costs(graph)
    costs["deep/one/a"] = replace(costs["deep/one/a"], inaccurate=True)
    metrics = _metrics(graph, {"deep/one/a": 1.0, "deep/two/b": 3.0})
    compute = analyse(_extraction(graph), costs, metrics, calibration_error=0.1).compute
    assert compute.inaccurate_share == pytest.approx(1 / 4)
    assert compute.relative_error == pytest.approx(0.1 + 1 / 4)
    assert analyse(_extraction(graph), costs, metrics).compute.relative_error is None


@pytest.mark.parametrize("shape", [None, (None,)])
def test_unbound_inputs_keep_their_open_shape(shape):
    """The bound shape is what the analysed graph has, unknown dimensions included."""
    graph = draw("x=Placeholder -> b")
    info = graph.ops["x"].info
    opened = replace(info, outputs=(TensorProperties(dtype="float32", shape=shape),))
    ops = dict(graph.ops) | {"x": replace(graph.ops["x"], info=opened)}
    graph = replace(graph, ops=ops)
    model = analyse(_extraction(graph), draw_costs(graph), _metrics(graph, {})).model
    assert model.inputs[0].bound_shape == shape
