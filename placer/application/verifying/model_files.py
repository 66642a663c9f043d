"""Model files to verify: what is in them, and copies that run on the devices of this process."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from placer.application.devices.device_mapping import DeviceMapping
from placer.application.placing.graph_placement import (
    map_graph_devices,
    place_graph_def,
    rewrite_program,
    rewritten_as_planned,
    with_control_edges,
    without_device_groups,
    without_groups,
)
from placer.application.placing.kept_state import with_ops
from placer.application.placing.replicas import handle_copies, write_replicas
from placer.application.placing.saved_model import (
    complete_program,
    map_devices,
    place_meta_graph,
    soft_link,
    write_saved_model,
)
from placer.application.running.generated_inputs import Array, default_feeds
from placer.application.running.graph_starts import GraphStart, find_start
from placer.application.running.program_runs import RunRequest
from placer.application.verifying.judgement import Subject
from placer.application.verifying.partition_graphs import RuntimeNames, runtime_names
from placer.extraction.division.dividing import divided, divided_as_planned
from placer.extraction.extraction import ProgramChoice
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.protobufs import all_nodes, copied
from placer.extraction.graph_defs.rewritten_nodes import is_rewritten
from placer.extraction.reading.checkpoint_index import require_whole_checkpoint
from placer.extraction.reading.loading import flatten, read_program
from placer.extraction.reading.signatures import choose_meta_graph
from placer.graph.op_types import PLACEHOLDERS
from placer.graph.tensor_names import data_inputs, full_tensor, op_of

_SEEDS = ("seed", "seed2")


class ModelFile:
    """A SavedModel or GraphDef and the plan to hold it against (``None``: its own devices).

    ``seeded`` random ops had no seed and run with one here.  With a plan, ``raw`` and ``message``
    are the model before a plan rewrote it, ``written`` is its message as it is.  ``flat`` runs the
    flat graph in a session, with made-up weights, in place of what TensorFlow loads.
    Raises :class:`UsageError` if the plan was made for another model, :class:`ModelError` for a
    damaged checkpoint.
    """

    def __init__(self, path: Path, plan: Any, choice: ProgramChoice, *, flat: bool = False) -> None:
        self.path = path
        self.flat = flat
        self.plan = plan
        self.raw = read_program(path, choice, as_written=plan is None)
        self.program = divided_as_planned(flatten(self.raw), plan)
        require_whole_checkpoint(self.program)
        placed, self.groups = self.program, frozenset[str]()
        if plan is not None:
            placed = without_device_groups(placed, plan.placement)
            self.groups = frozenset(self.program.origins.keys() - placed.origins.keys())
            self.program = rewritten_as_planned(self.program, plan)
        joins = plan.rewriting.released if plan is not None else ()  # they are in no file
        is_placed = all(node.device or node.name in joins for node in placed.graph_def.node)
        self.applied = plan is not None and not is_placed
        self.message = read_source(path, as_written=plan is None)
        written = read_source(path, as_written=True)
        self.written = written if is_rewritten(self._graph_def(written)) else self.message
        self.seeded = self._seed_random_ops()

    def _seed_random_ops(self) -> int:
        """Makes the random ops of what will run repeatable; how many had no seed."""
        count = seed_random_ops(self.raw.graph_def)
        if count:
            seeded = divided(flatten(self.raw), self.program.division)
            if self.plan is not None:
                seeded = without_device_groups(seeded, self.plan.placement)
                seeded = rewrite_program(seeded, self.plan.rewriting)
                seeded = with_control_edges(seeded, self.plan.control_edges)
            self.program = replace(seeded, fingerprint=self.program.fingerprint)
            for message in (self.message, self.written):
                seed_random_ops(self._graph_def(message))
        return count

    def _graph_def(self, message: Any) -> Any:
        """The graph in a message of the model file, which is a part of it."""
        if self.is_saved_model:
            return self._meta_graph(message).graph_def
        return message if message.DESCRIPTOR.name == "GraphDef" else message.graph_def

    @property
    def subject(self) -> Subject:
        """The subject that a run of the model is compared with."""
        return Subject(
            program=self.program,
            plan=self.plan,
            names=self._runtime_names(),
            session=not self.is_eager,
            applied=self.applied,
        )

    @property
    def is_saved_model(self) -> bool:
        """Whether it is a SavedModel, of any age."""
        return self.program.source_format == "saved_model"

    @cached_property
    def start(self) -> GraphStart:
        """Returns what a graph needs beside its step."""
        if self.is_saved_model:
            return GraphStart()
        return find_start(self.raw.graph_def.node, (n.name for n in self.program.graph_def.node))

    @cached_property
    def unread(self) -> frozenset[str]:
        """The placeholders of a graph that its program does not read, such as labels."""
        if self.is_saved_model:
            return frozenset()
        named = {node.name for node in self.raw.graph_def.node if node.op in PLACEHOLDERS}
        known = {name for item in self.program.inputs for name in (item.key, item.op)}
        return frozenset(named - known)

    def _meta_graph(self, saved_model: Any) -> Any:
        return choose_meta_graph(saved_model, self.path, ",".join(self.program.tags))

    @property
    def is_eager(self) -> bool:
        """Whether it is a TensorFlow 2 SavedModel, which is called and not run in a session."""
        objects = self.loads and self._meta_graph(self.message).object_graph_def.nodes
        return bool(objects)

    @property
    def loads(self) -> bool:
        """Whether TensorFlow loads it as a SavedModel, of any age."""
        return self.is_saved_model and not self.flat

    @property
    def _kind(self) -> str:
        if not self.loads:
            return "graph"
        return "saved_model" if self.is_eager else "saved_model_session"

    def write_unplaced(self, target: Path, device: str) -> None:
        """A copy in which every op asks for ``device``; ``""`` leaves all to TensorFlow."""
        self._write(target, self.message, lambda _: device, place=False)

    def write_placed(self, target: Path, mapping: DeviceMapping) -> None:
        """A copy that is placed on the devices of this process."""
        written = self.message if self.applied else self.written
        self._write(target, written, mapping.stand_in, place=self.applied)

    def _write(
        self, target: Path, written: Any, translate: Callable[[str], str], *, place: bool
    ) -> None:
        if self.loads:
            message = copied(written)
            meta_graph = self._meta_graph(message)
            if place:
                place_meta_graph(meta_graph, *complete_program(self.program, self.plan.placement))
            map_devices(meta_graph, translate)
            write_saved_model(self.path, message, target, bring=soft_link)
            write_replicas(message, target, soft_link)
            return
        if place:
            ops = self.start.ops
            whole = with_ops(ops, self.raw, self.program, self.plan.placement)
            graph_def = place_graph_def(*whole)
        elif self.flat:
            is_unplaced = written is self.message
            program = (self.program.original if is_unplaced else None) or self.program
            graph_def = copied(program.graph_def)
        else:
            is_raw = written is self.message
            graph_def = copied(self.raw.graph_def if is_raw else self._graph_def(written))
            graph_def = without_groups(graph_def, self.groups) if self.groups else graph_def
        map_graph_devices(graph_def, translate)
        target.write_bytes(graph_def.SerializeToString())

    def request(self, copies: Path, inputs: Mapping[str, Array]) -> RunRequest:
        """The request to run the two programs in the folder ``copies``."""
        eager = self.is_eager
        tensors = {item.key: item.tensor for item in self.program.inputs}
        keeps_fetches = self.loads or not self.applied
        # sinks that are left over run in both copies, and are fetched from neither
        fetched = {key for key, _ in self.program.outputs}
        fetches = tuple((key, t) for key, t in self.raw.outputs if key in fetched)
        left_over = (op_of(t) for key, t in self.raw.outputs if key not in fetched)
        targets = (*self.raw.targets, *dict.fromkeys(left_over))
        if self.flat:
            whole = self.program.original or self.program
            fetches, targets = whole.outputs, whole.targets
        fed = {tensors[key]: value for key, value in inputs.items()}
        fed |= default_feeds(self.program, inputs, self.plan.bindings if self.plan else None)
        return RunRequest(
            kind=self._kind,
            programs=(str(copies / "unplaced"), str(copies / "placed")),
            inputs=inputs if eager else fed,
            tags=self.program.tags,
            signature=self.program.signature,
            fetches=(fetches, fetches if keeps_fetches else self.program.outputs),
            targets=(targets, targets if keeps_fetches else self.program.targets),
            start=self.start,
        )

    def _runtime_names(self) -> RuntimeNames:
        """How names in the partition graphs become flat names."""
        names = runtime_names(self.program.graph_def.node)
        if not self.is_eager:
            return names
        ends = [tensor for _, tensor in self.raw.outputs] or list(self.raw.targets)
        call_name = op_of(ends[0])
        call = next(node for node in self.raw.graph_def.node if node.name == call_name)
        copies = [copy for each in handle_copies(self.program).values() for copy in each]
        arguments = tuple(map(full_tensor, [*data_inputs(call.input), *copies]))
        return replace(names, prefix=f"{call_name}/", arguments=arguments)


def seed_random_ops(graph_def: Any) -> int:
    """Gives every random op of a GraphDef and its library that has no seed one, in place; how many.

    A random op with ``seed`` and ``seed2`` of 0 starts from the clock
    (``core/util/guarded_philox_random.cc``).  Each gets a seed that follows from its name in the
    function it is written in, the same placed and unplaced, so that two runs can be compared.
    """
    definitions, count = OpDefinitions(), 0
    for node in all_nodes(graph_def):
        if _is_unseeded(node, definitions):
            node.attr["seed"].i, node.attr["seed2"].i = 1, 1 + zlib.crc32(node.name.encode())
            count += 1
    return count


def _is_unseeded(node: Any, definitions: OpDefinitions) -> bool:
    definition = definitions.find(node.op)
    if definition is None or not definition.is_stateful:
        return False
    known = {attribute.name for attribute in definition.attr}
    return known.issuperset(_SEEDS) and not any(
        node.attr[name].i for name in _SEEDS if name in node.attr
    )
