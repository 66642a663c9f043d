"""Verification of functions and Keras models that live in this process.

They run here if this process has the devices, else rebuilt in a fresh one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placer.application.device_mapping import (
    DeviceMapping,
    configure_logical_cpus,
    has_accelerators,
    process_mapping,
)
from placer.application.function_graphs import build_function, find_ends
from placer.application.function_runs import (
    PortableFunction,
    capture_values,
    restored,
)
from placer.application.generated_inputs import input_values
from placer.application.graph_placement import check_fingerprint, map_graph_devices, place_graph_def
from placer.application.judgement import Subject, judge, loop_outputs, requested_devices
from placer.application.partition_graphs import RuntimeNames
from placer.application.placed_function import (
    PlacedFunction,
    original_function,
    place_function,
    refuse_compilation,
)
from placer.application.program_runs import (
    Run,
    hardware_like_constants,
    run_flat,
    soft_placement,
)
from placer.application.run_options import RunOptions
from placer.application.verification_process import RunRequest, RunResult, run_in_child
from placer.application.verification_result import Verification
from placer.errors import PlacerError, UsageError
from placer.extraction.loading import load_program
from placer.extraction.program import FlatProgram

if TYPE_CHECKING:
    from placer.plan import Plan


def verify_live(
    source: Any,
    plan: Plan | None,
    inputs: Mapping[str, Any] | Sequence[Any] | None,
    options: RunOptions,
    outputs: tuple[str, ...] | None,
) -> Verification:
    """The verification of a PlacedFunction, function or Keras model; see :func:`placer.verify`."""
    given = source if isinstance(source, PlacedFunction) else None
    if given is None:
        program = load_program(source, outputs=outputs)
        refuse_compilation(source, program)
    else:
        program, plan = given.program, plan or given.plan
    if plan is not None:
        check_fingerprint(program, plan)
    subject = _subject(program, plan, applied=given is None and plan is not None)
    bindings = {} if plan is None else plan.bindings
    values = list(input_values(program, inputs, bindings, options.seed).values())
    wanted = set(subject.requested.values()) - {""}
    mapping = process_mapping(wanted, on_hardware=options.on_hardware)
    original = original_function(source) if given is None else given.original
    if given is not None or _has_devices(mapping):
        if given is None and plan is not None:
            given = place_function(source, program, plan)
        result = _run_here(subject, mapping, given, original, values, options)
    else:
        result = _run_elsewhere(subject, mapping, original, values, options)
    return judge(subject, mapping, result, optimised=options.optimised)


def _subject(program: FlatProgram, plan: Plan | None, *, applied: bool) -> Subject:
    nodes = program.graph_def.node
    captured = [f"{name}:0" for name in program.captures]
    names = RuntimeNames(
        ops=frozenset(node.name for node in nodes),
        arguments=(*find_ends(program).inputs, *captured),
        loop_outputs=loop_outputs(nodes),
    )
    return Subject(
        program=program,
        plan=plan,
        requested=requested_devices(program, plan),
        names=names,
        applied=applied,
    )


def _has_devices(mapping: DeviceMapping) -> bool:
    """Whether this process has, or can still get, the CPU devices that a rehearsal needs.

    A rehearsal beside accelerators needs a process that does not see them.
    """
    if mapping.rehearsed and has_accelerators():
        return False
    try:
        configure_logical_cpus(mapping.cpu_count)
    except PlacerError:
        return False
    return True


def _graph_defs(program: FlatProgram, plan: Any, mapping: DeviceMapping) -> tuple[Any, Any]:
    """The flat graph without devices, and placed on the devices of the run."""
    source = program.graph_def if plan is None else place_graph_def(program, plan.placement)
    unplaced, placed = type(source)(), type(source)()
    unplaced.CopyFrom(program.graph_def)
    placed.CopyFrom(source)
    map_graph_devices(unplaced, lambda _: "")
    map_graph_devices(placed, mapping.stand_in)
    return unplaced, placed


def _run_here(
    subject: Subject,
    mapping: DeviceMapping,
    given: PlacedFunction | None,
    original: Any,
    values: list[Any],
    options: RunOptions,
) -> RunResult:
    """Both runs in this process, from the same values of the variables, which are put back."""
    program = subject.program
    unplaced_graph, placed_graph = _graph_defs(
        program, subject.plan if given is None else given.plan, mapping
    )
    captures = program.captures if given is None else given.captures
    moved = () if given is None else given.moved
    ends, keys = find_ends(program), [key for key, _ in program.outputs]
    fresh = build_function(placed_graph, ends, captures)
    if program.chosen_outputs:
        original = build_function(unplaced_graph, ends, program.captures)
    originals = list(
        {id(v): v for v in (*original.variables, *(m.original for m in moved))}.values()
    )
    with restored(originals), restored([variable.copy for variable in moved]):
        for variable in moved:
            variable.original.assign(variable.copy)
        unplaced = run_flat(original, values, keys, optimised=options.optimised)
        strict = options.strict or (given is not None and given.strict)
        constants = hardware_like_constants() if mapping.rehearsed else nullcontext()
        with constants, soft_placement(not strict):
            placed = run_flat(fresh, values, keys, optimised=options.optimised)
    return _result(unplaced, placed)


def _result(unplaced: Run, placed: Run) -> RunResult:
    return RunResult(
        unplaced_outputs=unplaced.outputs,
        placed_outputs=placed.outputs,
        partition_graphs=tuple(graph.SerializeToString() for graph in placed.partition_graphs),
        variable_devices=placed.variable_devices,
        notes=placed.notes,
    )


def _run_elsewhere(
    subject: Subject,
    mapping: DeviceMapping,
    original: Any,
    values: list[Any],
    options: RunOptions,
) -> RunResult:
    """Both runs in a fresh process, the function rebuilt from its flat graph and its values.

    Raises :class:`UsageError` if it uses resources that cannot leave this process.
    """
    program = subject.program
    devices = {name: mapping.stand_in(subject.requested[name]) for name in program.captures}
    captures, stuck = capture_values(program.captures, original.graph.variables, devices)
    if stuck:
        raise UsageError(
            f"the function uses {len(stuck)} resources besides variables ({', '.join(stuck[:3])}), "
            f"which cannot be rebuilt in another process, and this one has too few devices to "
            f"rehearse on; call placer.rehearsal_devices({mapping.cpu_count - 1}) right after "
            f"importing tensorflow"
        )
    nowhere = {name: replace(value, device="") for name, value in captures.items()}
    functions = [
        PortableFunction(
            graph_def=graph_def.SerializeToString(),
            ends=find_ends(program),
            captures=held,
            inputs=values,
            keys=tuple(key for key, _ in program.outputs),
        )
        for graph_def, held in zip(
            _graph_defs(program, subject.plan, mapping), (nowhere, captures), strict=True
        )
    ]
    request = RunRequest(
        kind="function",
        unplaced=functions[0],
        placed=functions[1],
        cpu_count=mapping.cpu_count,
        hide_accelerators=mapping.rehearsed,
        strict=options.strict,
        optimised=options.optimised,
    )
    return run_in_child(request, time_limit_seconds=options.time_limit_seconds)
