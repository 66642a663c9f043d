"""Does a placed program run where its plan says, and compute the same?"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cost_models.device_names import canonical
from placer.application.comparison import (
    Comparison,
    canonical_requests,
    compare_ops,
    compare_outputs,
    compare_transfers,
)
from placer.application.device_mapping import DeviceMapping, process_mapping
from placer.application.generated_inputs import input_values
from placer.application.graph_placement import check_fingerprint, map_graph_devices, place_graph_def
from placer.application.partition_graphs import (
    ActualTransfer,
    Execution,
    RuntimeNames,
    read_execution,
)
from placer.application.placed_programs import planned_choice
from placer.application.saved_model import map_devices, place_meta_graph, write_saved_model
from placer.application.verification_process import RunRequest, RunResult, run_in_child
from placer.application.verification_result import VariableRow, Verification
from placer.extraction.loading import flatten, read_program
from placer.extraction.program import FlatProgram
from placer.extraction.signatures import choose_meta_graph
from placer.extraction.sources import read_source

if TYPE_CHECKING:
    from placer.plan import Plan

TIME_LIMIT_SECONDS = 600.0


class _Model:
    """A model file to verify: its program, and how to write runnable copies of it."""

    def __init__(self, path: Path, plan: Any, options: Mapping[str, Any]) -> None:
        self.path = path
        self.plan = plan
        self.raw = read_program(path, **options)
        self.program = flatten(self.raw)
        if plan is not None:
            check_fingerprint(self.program, plan)
        self.message = read_source(path)
        self.is_placed = all(node.device for node in self.program.graph_def.node)
        self.applied = plan is not None and not self.is_placed
        self.requested = (
            {name: canonical(device) for name, device in plan.placement.items()}
            if plan is not None
            else canonical_requests(self.program.graph_def.node)
        )

    @property
    def is_saved_model(self) -> bool:
        return self.program.source_format == "saved_model"

    def meta_graph(self, saved_model: Any) -> Any:
        return choose_meta_graph(saved_model, self.path, ",".join(self.program.tags))

    @property
    def is_eager(self) -> bool:
        """Whether it is a TensorFlow 2 SavedModel, which is called and not run in a session."""
        return self.is_saved_model and bool(self.meta_graph(self.message).object_graph_def.nodes)

    def write(self, target: Path, mapping: DeviceMapping | None) -> None:
        """A copy for this process's devices; without a mapping, a copy without any devices."""

        def translate(device: str) -> str:
            return "" if mapping is None else mapping.stand_in(device)

        place = mapping is not None and self.applied
        if self.is_saved_model:
            message = type(self.message)()
            message.CopyFrom(self.message)
            meta_graph = self.meta_graph(message)
            if place:
                place_meta_graph(meta_graph, self.program, self.plan.placement)
            map_devices(meta_graph, translate)
            write_saved_model(
                self.path, message, target, bring=lambda old, new: new.symlink_to(old)
            )
        else:
            graph_def = place_graph_def(self.program, self.plan.placement) if place else None
            if graph_def is None:
                graph_def = type(self.raw.graph_def)()
                graph_def.CopyFrom(self.raw.graph_def)
            map_graph_devices(graph_def, translate)
            target.write_bytes(graph_def.SerializeToString())

    def request(self, folder: Path, inputs: Mapping[str, Any]) -> RunRequest:
        """The request to run the two copies in ``folder``."""
        eager = self.is_eager
        tensors = {item.key: item.tensor for item in self.program.inputs}
        flat = self.is_saved_model or not self.applied
        return RunRequest(
            kind="saved_model"
            if eager
            else "saved_model_session"
            if self.is_saved_model
            else "graph",
            unplaced=str(folder / "unplaced"),
            placed=str(folder / "placed"),
            inputs=inputs if eager else {tensors[key]: value for key, value in inputs.items()},
            tags=self.program.tags,
            signature=self.program.signature,
            fetches=(self.raw.outputs, self.raw.outputs if flat else self.program.outputs),
            targets=(self.raw.targets, self.raw.targets if flat else self.program.targets),
        )

    def runtime_names(self) -> RuntimeNames:
        """How names in the partition graphs become flat names."""
        nodes = self.program.graph_def.node
        names = RuntimeNames(
            ops=frozenset(node.name for node in nodes), loop_outputs=loop_outputs(nodes)
        )
        if not self.is_eager:
            return names
        meta_graph = self.meta_graph(self.message)
        output = next(iter(meta_graph.signature_def[self.program.signature].outputs.values()))
        call_name = output.name.partition(":")[0]
        call = next(node for node in meta_graph.graph_def.node if node.name == call_name)
        arguments = tuple(
            name if ":" in name else f"{name}:0" for name in call.input if not name.startswith("^")
        )
        return replace(names, prefix=f"{call_name}/", arguments=arguments)


def _soft_link(source: Path, target: Path) -> None:
    target.symlink_to(source)


def verify(
    source: Any,
    plan: Plan | None = None,
    inputs: Mapping[str, Any] | None = None,
    *,
    on_hardware: bool = False,
    strict: bool = False,
    optimised: bool = False,
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
    seed: int = 0,
    **choice: Any,
) -> Verification:
    """One run of ``source``, held against ``plan`` and against the unplaced program.

    ``source`` is a SavedModel folder or GraphDef file.  If it carries no placement the plan is
    applied to a temporary copy; without a plan, what ran is held against the device strings in
    the file.  ``inputs`` are arrays by input name, made up where missing (``seed``), of the
    plan's batch size.  Where the devices are absent the run is a rehearsal on logical CPU
    devices, unless ``on_hardware``.  ``strict`` switches TensorFlow's soft placement off;
    ``optimised`` leaves its graph optimisation on.  ``choice`` are ``tag_set``, ``signature`` and
    ``outputs``.

    Raises :class:`UsageError` for a plan of another model and, with ``on_hardware``, for absent
    devices; :class:`ModelError` if the model does not even run unplaced;
    :class:`VerificationError` if it runs unplaced but not placed.
    """
    model = _Model(Path(source), plan, planned_choice(plan, choice))
    mapping = process_mapping(set(model.requested.values()) - {""}, on_hardware=on_hardware)
    bindings = plan.bindings if plan is not None else {}
    values = input_values(model.program, inputs, bindings, seed)
    with tempfile.TemporaryDirectory(prefix="placer-models-") as name:
        folder = Path(name)
        model.write(folder / "unplaced", None)
        model.write(folder / "placed", mapping)
        request = replace(
            model.request(folder, values),
            cpu_count=mapping.cpu_count,
            hide_accelerators=mapping.rehearsed,
            strict=strict,
            optimised=optimised,
        )
        result = run_in_child(request, time_limit_seconds=time_limit_seconds)
    return judge(model.program, plan, model, mapping, result, optimised)


def judge(
    program: FlatProgram,
    plan: Any,
    model: Any,
    mapping: DeviceMapping,
    result: RunResult,
    optimised: bool,
) -> Verification:
    """The verification that a run's result amounts to."""
    from tensorflow.core.framework import graph_pb2

    graphs = [graph_pb2.GraphDef.FromString(content) for content in result.partition_graphs]
    names = model.runtime_names()
    execution = in_plan_devices(read_execution(graphs, names), mapping)
    held = {
        names.arguments[number].rpartition(":")[0]: mapping.planned(device)
        for number, device in result.variable_devices.items()
        if number < len(names.arguments)
    }
    execution = replace(execution, devices={**execution.devices, **held})
    comparison = Comparison(
        program=program,
        requested=model.requested,
        execution=execution,
        session=not model.is_eager,
        optimised=optimised,
    )
    return Verification(
        ops=compare_ops(comparison),
        transfers=compare_transfers(comparison, None if plan is None else plan.transfers),
        variables=_variable_rows(program, model.requested, execution),
        outputs=compare_outputs(result.placed_outputs, result.unplaced_outputs),
        rehearsed=mapping.rehearsed,
        applied=model.applied,
        planned=plan is not None,
        optimised=optimised,
        stand_ins=mapping.stand_ins,
        notes=result.notes,
    )


def in_plan_devices(execution: Execution, mapping: DeviceMapping) -> Execution:
    """The execution with every stand-in replaced by the device it stands for."""
    return Execution(
        devices={name: mapping.planned(device) for name, device in execution.devices.items()},
        inner_devices={
            name: frozenset(mapping.planned(device) for device in devices)
            for name, devices in execution.inner_devices.items()
        },
        transfers=frozenset(
            ActualTransfer(
                tensor=item.tensor,
                source=mapping.planned(item.source),
                target=mapping.planned(item.target),
                inside=item.inside,
                fetch=item.fetch,
            )
            for item in execution.transfers
        ),
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
    )


def loop_outputs(nodes: Any) -> dict[str, tuple[int, ...]]:
    """For every ``While``, the numbers of its outputs that are no resources."""
    from tensorflow.core.framework import types_pb2

    return {
        node.name: tuple(
            number
            for number, dtype in enumerate(node.attr["T"].list.type)
            if dtype != types_pb2.DT_RESOURCE
        )
        for node in nodes
        if node.op in ("While", "StatelessWhile")
    }
