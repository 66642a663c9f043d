"""Ops that start, save and restore a graph's state, kept beside what its outputs need.

A GraphDef of TensorFlow 1 is trained by more than its step: ``session.run("init")`` comes first,
and a saver's ops read and write the variables.  Nothing that is fetched needs them.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.application.devices.device_mapping import HOST
from placer.application.placing.graph_placement import rewritten_alike
from placer.extraction.division.dividing import divided
from placer.extraction.extraction import ProgramChoice
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.call_scopes import name_nodes
from placer.extraction.graph_defs.flat_nodes import hinted_ops
from placer.extraction.graph_defs.program import FlatProgram, RawProgram
from placer.extraction.reading.companions import touched_handles
from placer.extraction.reading.loading import flatten, read_program
from placer.extraction.reading.sinks import Dependencies, saving_functions, state_ops
from placer.graph.op_types import SAVERS
from placer.graph.tensor_names import op_of

_STARTING = (
    *("init_op", "local_init_op", "ready_op", "ready_for_local_init_op"),
    *("table_initializer", "saved_model_main_op", "legacy_init_op"),
)
"""The collections of a MetaGraphDef that name what starts its state."""


def with_state(
    source: Any, choice: ProgramChoice, program: FlatProgram, placement: Mapping[str, str]
) -> tuple[FlatProgram, Mapping[str, str]]:
    """``program``, read from the graph ``source``, with its initialisers and savers, and a
    placement for all of it.

    What touches a variable or table, or names one in ``_class``, goes where that is; the rest, and
    what reads or writes checkpoints, to the host.
    """
    raw = read_program(source, choice)
    graph = Dependencies(name_nodes(raw.graph_def.node), saving_functions(raw.graph_def.library))
    return with_ops((*state_ops(graph), *_named_ops(source, graph)), raw, program, placement)


def with_ops(
    ops: Iterable[str], raw: RawProgram, program: FlatProgram, placement: Mapping[str, str]
) -> tuple[FlatProgram, Mapping[str, str]]:
    """``program``, flattened out of ``raw``, with other ``ops`` of its graph and all that these
    need, and a placement for all of it as in :func:`with_state`."""
    kept = dict.fromkeys(ops)
    if not kept:
        return program, placement
    whole = flatten(replace(raw, targets=(*raw.targets, *kept)))
    whole = divided(whole, program.division)
    complete = dict(placement)
    nodes = {node.name: node for node in whole.graph_def.node}
    for op, handles in touched_handles(whole.graph_def.node):
        for handle in handles:
            complete.setdefault(handle, HOST)
        complete.setdefault(op, HOST if nodes[op].op in SAVERS else complete[handles[0]])
    for name, node in nodes.items():
        devices = [complete[owner] for owner in hinted_ops(node) if owner in complete]
        complete.setdefault(name, devices[0] if devices else HOST)
    return rewritten_alike(whole, program), complete


def _named_ops(source: Any, graph: Dependencies) -> list[str]:
    """The ops that the collections of a MetaGraphDef in a file name for starting its state."""
    if not isinstance(source, str | os.PathLike):
        return []
    message = read_source(Path(source))
    if message.DESCRIPTOR.name != "MetaGraphDef":
        return []
    named = (message.collection_def[key] for key in _STARTING if key in message.collection_def)
    found = (op_of(name) for collection in named for name in collection.node_list.value)
    return [name for name in found if name in graph.nodes]
