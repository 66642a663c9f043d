"""The orders in which processes, one for each device, start the ops of a step."""

from __future__ import annotations

import random
from collections.abc import Mapping

from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.step.executor import prepare, successors_in
from placer.prediction.step.separate_executors import Durations, SeparateOrder, run_separately

_OPS_IN_ALL = 60_000
_FEWEST_ORDERS = 4
_MOST_ORDERS = 64
"""So many ops are run over all orders, which bounds the time that takes."""

_FLOPS_PER_BYTE = 4
_LAUNCH = 20_000
_SENT_BYTE = 8
_MESSAGE = 15 * _LAUNCH
_HELD = 0.5
_BUSY = (0, 0, 1, 8)
"""What a core computes while it moves a byte; what it could move while an op is launched, while a
byte is sent from process to process, and while a message is; how many are held until they arrive;
how long who sends may be busy, of the time until it is there.
Only what is done first depends on it, and how long each op, each message and all of a process take
is drawn."""


def separate_orders(
    graph: OpGraph, costs: Mapping[str, OpCost], device_of: Mapping[str, str]
) -> list[SeparateOrder]:
    """How processes of the devices in ``device_of`` may run ``graph``; the same at every call."""
    prepared = prepare(graph)
    found = [costs[name] for name in prepared.names]
    process_of = [device_of[name] for name in prepared.names]
    moved = [max(cost.flops / _FLOPS_PER_BYTE, cost.bytes_accessed) + _LAUNCH for cost in found]
    sent = [_SENT_BYTE * sum(size or 0 for size in cost.output_bytes) + _MESSAGE for cost in found]
    affordable = _OPS_IN_ALL // max(len(process_of), 1)
    orders = []
    for seed in range(min(max(affordable, _FEWEST_ORDERS), _MOST_ORDERS)):
        rng = random.Random(seed)
        slower = {name: 2 ** rng.uniform(-1, 1) for name in dict.fromkeys(process_of)}
        seconds = [
            slower[name] * second * 2 ** rng.uniform(-1, 1)
            for name, second in zip(process_of, moved, strict=True)
        ]
        link = 2 ** rng.uniform(-2, 2)
        sending = [link * second * 2 ** rng.uniform(-2, 2) for second in sent]
        held = [rng.random() < _HELD for _ in sent]
        successors = successors_in(prepared, seed)
        busy = [rng.choice(_BUSY) * second for second in sending]
        durations = Durations(seconds, sending, busy, held)
        orders.append(run_separately(prepared, successors, process_of, durations))
    return orders
