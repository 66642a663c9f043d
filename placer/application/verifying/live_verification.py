"""Verification of functions and Keras models that live in this process.

They run here on real devices.  A rehearsal runs the same graph, with the values of the variables,
in a fresh process: only there it is sure that oneDNN does not merge ops, and that there are enough
devices.  It runs here too if this process is as good (``TF_ENABLE_ONEDNN_OPTS=0``), or if the
function uses resources that cannot leave it.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from tensorflow.python.util import _pywrap_util_port

from placer.application.devices.device_mapping import (
    DeviceMapping,
    configure_logical_cpus,
    has_accelerators,
    own_mapping,
    process_mapping,
)
from placer.application.devices.graph_optimisers import hardware_like_constants
from placer.application.devices.runtime_settings import soft_placement
from placer.application.placing.function_graphs import build_function, find_ends
from placer.application.placing.graph_placement import (
    map_graph_devices,
    place_graph_def,
    rewritten_as_planned,
)
from placer.application.placing.placed_function import (
    PlacedFunction,
    captured_variables,
    original_function,
    place_function,
    refuse_compilation,
)
from placer.application.running.function_runs import (
    PortableFunction,
    capture_values,
    restored,
    stuck_captures,
)
from placer.application.running.generated_inputs import Given, input_values
from placer.application.running.program_runs import RunOptions, RunRequest, run_flat
from placer.application.verifying.judgement import Subject, judge
from placer.application.verifying.memory_trial import rehearse_live
from placer.application.verifying.model_files import seed_random_ops
from placer.application.verifying.partition_graphs import runtime_names
from placer.application.verifying.verification_process import (
    Runs,
    run_in_child,
    with_seed_note,
)
from placer.application.verifying.verification_result import Verification
from placer.errors import PlacerError, UsageError, some
from placer.extraction.division.dividing import divided_as_planned
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import copied
from placer.extraction.reading.loading import load_program
from placer.plan.plan import Plan


def verify_live(
    source: Any,
    plan: Plan | None,
    inputs: Given,
    options: RunOptions,
    outputs: Sequence[str] | None,
) -> Verification:
    """The verification of a PlacedFunction, function or Keras model; see :func:`placer.verify`."""
    given = source if isinstance(source, PlacedFunction) else None
    if given is None:
        program = divided_as_planned(load_program(source, outputs=outputs), plan)
        refuse_compilation(source, program)
    else:
        program, plan = given.program, plan or given.plan
    if plan is not None:
        program = rewritten_as_planned(program, plan)
    captured = [f"{name}:0" for name in program.captures]
    subject = Subject(
        program=program,
        plan=plan,
        names=runtime_names(program.graph_def.node, [*find_ends(program).inputs, *captured]),
        applied=given is None and plan is not None,
    )
    bindings = {} if plan is None else plan.bindings
    values = list(input_values(program, inputs, bindings, options.seed).values())
    wanted = set(subject.requested.values()) - {""}
    if options.cluster is not None:
        mapping = own_mapping(wanted)
    else:
        mapping = process_mapping(wanted, on_hardware=options.on_hardware)
    original = original_function(source) if given is None else given.original
    stuck = stuck_captures(program.captures, captured_variables(program, original))
    if options.cluster is None and _runs_here(mapping, stuck, options):
        if given is None and plan is not None:
            own = process_mapping(plan.placement.values())
            configure_logical_cpus(own.cpu_count)
            given = place_function(source, program, plan, mapping=own)
        runs = _run_here(subject, mapping, given, original, values, options)
    else:
        runs = _run_elsewhere(subject, mapping, given, original, values, options)
    found = judge(subject, mapping, runs, optimised=options.optimised)
    if options.memory and plan is not None:
        named = {item.key: value for item, value in zip(program.inputs, values, strict=True)}
        return replace(found, memory=rehearse_live(program, plan, named, options))
    return found


def merges_ops() -> bool:
    """Whether oneDNN merges ops of this process's graphs; decided when TensorFlow was imported."""
    return bool(_pywrap_util_port.IsMklEnabled())


def _runs_here(mapping: DeviceMapping, stuck: Sequence[str], options: RunOptions) -> bool:
    """Whether the run is one for this process.

    Raises :class:`UsageError` if it must be, and the devices for it are missing.
    """
    if not mapping.rehearsed:
        return True
    exact = options.optimised or not (merges_ops() or has_accelerators())
    if not exact and not stuck:
        return False
    try:
        configure_logical_cpus(mapping.cpu_count)
    except PlacerError as error:
        if stuck:
            raise UsageError(
                f"the function uses {len(stuck)} resources besides variables "
                f"({some(stuck)}), which cannot be rebuilt in another process; and here: "
                f"{error}"
            ) from error
        return False
    return True


def _graph_defs(program: FlatProgram, plan: Any, mapping: DeviceMapping) -> tuple[Any, Any, int]:
    """The flat graph without devices, and placed on the devices of the run; how many random ops
    got a seed in both, so that two runs can be compared."""
    source = program.graph_def if plan is None else place_graph_def(program, plan.placement)
    unplaced, placed = copied(_whole(program).graph_def), copied(source)
    seeded = [seed_random_ops(graph_def) for graph_def in (unplaced, placed)]
    map_graph_devices(unplaced, lambda _: "")
    map_graph_devices(placed, mapping.stand_in)
    return unplaced, placed, seeded[1]


def _whole(program: FlatProgram) -> FlatProgram:
    """The program as it is given, its batch undivided."""
    return program.original or program


def _run_here(
    subject: Subject,
    mapping: DeviceMapping,
    given: PlacedFunction | None,
    original: Any,
    values: list[Any],
    options: RunOptions,
) -> Runs:
    """Both runs in this process, from the same values of the variables, which are put back."""
    program = subject.program
    unplaced_graph, placed_graph, seeded = _graph_defs(
        program, subject.plan if given is None else given.plan, mapping
    )
    captures = program.captures if given is None else given.captures
    moved = () if given is None else given.moved
    ends, keys = find_ends(program), [key for key, _ in program.outputs]
    fresh = build_function(placed_graph, ends, captures)
    if program.chosen_outputs or seeded:
        whole = _whole(program)
        original = build_function(unplaced_graph, find_ends(whole), whole.captures)
    originals = list(
        {id(v.handle): v for v in (*original.variables, *(m.original for m in moved))}.values()
    )
    with restored(originals):
        for variable in moved:
            if not variable.replica:
                variable.original.assign(variable.copy)
        unplaced = run_flat(original, values, keys, optimised=options.optimised)
    with restored([variable.copy for variable in moved]):
        strict = options.strict or (given is not None and given.strict)
        constants = hardware_like_constants() if mapping.rehearsed else nullcontext()
        with constants, soft_placement(not strict):
            placed = run_flat(fresh, values, keys, optimised=options.optimised)
    return with_seed_note(Runs(unplaced.outputs, placed), seeded)


def _run_elsewhere(
    subject: Subject,
    mapping: DeviceMapping,
    given: PlacedFunction | None,
    original: Any,
    values: list[Any],
    options: RunOptions,
) -> Runs:
    """Both runs in a fresh process, the function rebuilt from its flat graph and its values."""
    # the values of what is captured, on the devices of the plan and on none
    program = subject.program
    plan = subject.plan if given is None else given.plan
    placement = subject.requested if plan is None else plan.placement
    devices = {name: mapping.stand_in(placement[name]) for name in program.captures}
    if given is None:
        captures = capture_values(program.captures, captured_variables(program, original), devices)
    else:
        captures = capture_values(given.captures, given.variables, devices)
    whole = _whole(program)
    nowhere = {name: replace(captures[name], device="") for name in whole.captures}
    # the function, unplaced and placed
    *graph_defs, seeded = _graph_defs(program, plan, mapping)
    unplaced, placed = (
        PortableFunction(
            graph_def=graph_def,
            ends=find_ends(which),
            captures=held,
            inputs=values,
            keys=tuple(key for key, _ in program.outputs),
        )
        for which, graph_def, held in zip(
            (whole, program),
            graph_defs,
            (nowhere, captures),
            strict=True,
        )
    )
    request = RunRequest(
        kind="function",
        programs=(unplaced, placed),
        mapping=mapping,
        options=options,
    )
    return with_seed_note(run_in_child(request), seeded)
