"""A gate at which the first ops of a step wait until every process has asked for what it receives.

A process hands a tensor that another one reads over when that one has asked for it, and holds it
until then.  It answers from the thread that also runs its ops, once there is nothing to run: where
that is one thread (:mod:`placer.application.running.limited_devices`) what is asked for in the
midst of a step waits for most of the step, and every tensor that is sent lives as long.  A card
copies at once.  What was asked for before the op runs is handed over as it is made::

    receivers        ask -------------------.         .-> receive
    all              arrived -> (a while) -> open     |
    first ops                                 gate -> op -> ... -> send
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from tensorflow.core.framework.types_pb2 import DT_BOOL

from placer.graph.op_types import VARIABLES

_SECONDS = 0.5
"""How long the processes have to ask, from when all have begun the step."""

_NAME = "placer_gate"
_ARRIVED, _OPEN = f"{_NAME}/arrived", f"{_NAME}/open"
_GATE = f"{_OPEN}/take"


def add_gate(graph_def: Any, *, devices: Sequence[str], fed: Collection[str]) -> None:
    """Makes the first ops of a step wait for the gate, which is on the first of ``devices``: those
    that need nothing but what is there before (variables, what is ``fed``)."""
    device = devices[0]
    there = {*fed, *(node.name for node in graph_def.node if _is_there(node))}
    for node in graph_def.node:
        needs = {name.lstrip("^").partition(":")[0] for name in node.input}
        if node.name not in there and needs <= there:
            node.input.append(f"^{_GATE}")
    value = graph_def.node.add(name=f"{_NAME}/value", op="Const", device=device)
    value.attr["dtype"].type = DT_BOOL
    value.attr["value"].tensor.dtype = DT_BOOL
    value.attr["value"].tensor.tensor_shape.SetInParent()
    value.attr["value"].tensor.bool_val.append(True)
    for queue in (_ARRIVED, _OPEN):
        made = graph_def.node.add(name=queue, op="FIFOQueueV2", device=device)
        made.attr["component_types"].list.type.append(DT_BOOL)
        made.attr["shared_name"].s = queue.encode()
        put = graph_def.node.add(name=f"{queue}/put", op="QueueEnqueueV2", device=device)
        put.input.extend((queue, value.name))
        put.attr["Tcomponents"].list.type.append(DT_BOOL)
        take = graph_def.node.add(name=f"{queue}/take", op="QueueDequeueV2", device=device)
        take.input.append(queue)
        take.attr["component_types"].list.type.append(DT_BOOL)
    take.input.append(f"^{_ARRIVED}/put")
    arrived = next(node for node in graph_def.node if node.name == f"{_ARRIVED}/put")
    for number, other in enumerate(devices):
        name = f"{_NAME}/device_{number}"
        graph_def.node.add(name=name, op="NoOp", device=other)
        arrived.input.append(f"^{name}")


def run_gated(session: Any, step: Callable[[], object]) -> None:
    """Runs the step, and opens the gate for it."""
    threading.Thread(target=_open, args=(session,), daemon=True).start()
    step()


def _open(session: Any) -> None:
    """Once the step has begun everywhere.  Should it fail, it says why."""
    graph = session.graph
    with suppress(Exception):
        session.run(graph.get_operation_by_name(f"{_ARRIVED}/take"))
        time.sleep(_SECONDS)
        session.run(graph.get_operation_by_name(f"{_OPEN}/put"))


def _is_there(node: Any) -> bool:
    """Whether the op gives out a resource that is there before the step."""
    return node.op in VARIABLES or (node.op.endswith(("Table", "TableV2")) and not node.input)
