"""The verification of a program against its plan, from a run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cost_models.device_names import canonical
from placer.application.devices.device_mapping import DeviceMapping
from placer.application.verifying.difference_codes import (
    SUMS_TOLERANCE,
    TOLERANCE,
    PlannedRun,
    compare_ops,
    compare_outputs,
    compare_transfers,
)
from placer.application.verifying.partition_graphs import Execution, RuntimeNames, read_execution
from placer.application.verifying.verification_process import Runs
from placer.application.verifying.verification_result import VariableRow, Verification
from placer.errors import PlacerError
from placer.extraction.graph_defs.program import FlatProgram
from placer.graph.tensor_names import data_inputs, op_of
from placer.simulation.environment import is_simulating


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A program that ran, and what it is compared with.

    ``names`` explains names at run time.  ``session``: it runs in a session;
    ``applied``: the plan was applied for this run only.
    """

    program: FlatProgram
    plan: Any
    names: RuntimeNames
    session: bool = False
    applied: bool = False

    @cached_property
    def requested(self) -> Mapping[str, str]:
        """The device each op is asked to run on: the plan's, else the one in the graph; ``""``
        where the graph names none, or not a single one."""
        if self.plan is not None:
            return {name: canonical(device) for name, device in self.plan.placement.items()}
        found = {}
        for node in self.program.graph_def.node:
            try:
                found[node.name] = canonical(node.device) if node.device else ""
            except ValueError:
                found[node.name] = ""
        return found


def judge(subject: Subject, mapping: DeviceMapping, runs: Runs, *, optimised: bool) -> Verification:
    """The verification that the two runs amount to.

    Outputs are to be equal bit for bit on CPUs, as long as nothing there may add in another order;
    on simulated GPUs nothing computes them, and they are not compared.
    """
    program, plan, names, placed = subject.program, subject.plan, subject.names, runs.placed
    if not placed.partition_graphs and not subject.session:
        raise PlacerError(
            "TensorFlow did not report what ran: it does so only at the first call of a function; "
            "verify in a fresh process"
        )
    tolerance = 0.0 if sums_in_one_order(program.graph_def) else SUMS_TOLERANCE
    if mapping.uses_accelerators or optimised or program.division:
        tolerance = TOLERANCE
    simulated = mapping.uses_accelerators and is_simulating()
    execution = read_execution(placed.partition_graphs, names, mapping.planned)
    held = {
        op_of(names.arguments[number]): mapping.planned(device)
        for number, device in placed.variable_devices.items()
        if number < len(names.arguments)
    }
    execution = replace(execution, devices={**execution.devices, **held})
    run = PlannedRun(
        program=program,
        requested=subject.requested,
        execution=execution,
        session=subject.session,
        optimised=optimised,
    )
    return Verification(
        ops=compare_ops(run),
        transfers=compare_transfers(run, None if plan is None else plan.transfers),
        variables=_variable_rows(program, subject.requested, execution),
        outputs=()
        if simulated
        else compare_outputs(placed.outputs, runs.unplaced_outputs, tolerance),
        rehearsed=mapping.rehearsed,
        simulated=simulated,
        applied=subject.applied,
        planned=plan is not None,
        optimised=optimised,
        stand_ins=mapping.stand_ins,
        notes=(*placed.notes, *_read_through(plan)),
    )


def _read_through(plan: Any) -> Iterator[str]:
    """Says how many ops of the plan do not run."""
    if plan is not None and (count := len(plan.rewriting.released)):
        what = (
            "op does not run: its readers read its"
            if count == 1
            else "ops do not run: their readers read their"
        )
        yield f"of the plan, {count:,} {what} inputs (--fit release)"


def sums_in_one_order(graph_def: Any) -> bool:
    """Whether no op adds in an order that depends on where its inputs are.

    ``AddN`` begins with the input whose buffer it may write to, the first that nobody else reads
    (``forward_input_or_allocate_output``): one that is sent elsewhere is not.
    """
    functions = (function.node_def for function in graph_def.library.function)
    return not any(
        node.op == "AddN" and len(data_inputs(node.input)) > 2
        for nodes in (graph_def.node, *functions)
        for node in nodes
    )


def _variable_rows(
    program: FlatProgram, requested: Mapping[str, str], execution: Execution
) -> tuple[VariableRow, ...]:
    return tuple(
        VariableRow(
            variable=variable.name,
            requested=requested.get(variable.handle, ""),
            actual=execution.devices.get(variable.handle, ""),
        )
        for variable in program.variables
        if variable.dtype != "resource"  # a table, whose op is compared
    )
