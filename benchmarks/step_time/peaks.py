"""Why Grappler's peak of a device is not ours: ours again, under one more of its rules at a time.

    python benchmarks/step_time/peaks.py FOLDER [NAME ...] --data DIR

for the placements that ``run.py`` left in ``FOLDER``.  A column is the share of Grappler's figure
that our timeline comes to under its rule and all rules before it:

- ``ours``: the highest peak over the executor's orders, loops laid out;
- ``order``: along Grappler's own order, a loop being one op;
- ``state``: variables and constants count nothing;
- ``workspace``: what an op needs while it runs counts nothing;
- ``copies``: every output is a buffer of its own: nothing is passed on, overwritten or resident,
  a read of a variable is a copy, so is a constant;
- ``sent``: what is sent stays with the sender until it is read elsewhere; the receiver holds it for
  the nanosecond that its receive op runs;
- ``clock``: buffers live from the microsecond that their op begins in to the one that the last
  reader ends in, however many ops run within it (``InferFromTrace`` of ``graph_memory.cc``);
- ``shapes``: a tensor whose shape Grappler does not find has no bytes.

After the last one it should be one: then nothing else differs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from cases import CASES, MACHINE, find_model
from referee import trace

from cost_models.device_names import canonical
from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.graph.order import predecessors, sort_topologically
from placer.pipeline.preparation import prepare
from placer.pipeline.workload import Workload
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step.step_layout import Effect

RULES = ("ours", "order", "state", "workspace", "copies", "sent", "clock", "shapes")
WITHIN = 0.1
_MICROSECOND = 1_000
"""In nanoseconds."""

_RECEIVE = "Recv_"
"""And the tensor, port and device of it: the names of the ops that Grappler's scheduler adds."""

Peaks = Mapping[str, int]
Span = tuple[int, int]
"""When an op begins and ends, in nanoseconds."""


def explain(row: Mapping[str, Any], path: Path, work: Workload) -> dict[str, Peaks]:
    """The peak bytes by device under each of ``RULES``, and by ``grappler``."""
    graph, host = work.graph, work.cluster.host.name
    placement = {**row["placements"]["placer"], **dict.fromkeys(graph.feeds, host)}
    found = trace(path, work.extraction, work.cluster, placement)
    spans: dict[str, Span] = {}
    received: dict[tuple[str, str], Span] = {}
    known: dict[str, int] = {}
    for name, device, start, end, _, sizes in found["trace"]:
        span = round(start * 1e9), round(end * 1e9)
        if name in graph.ops:
            spans[name] = span
            known.update({f"{name}:{index}": size for index, size in enumerate(sizes)})
        elif name.startswith(_RECEIVE):
            tensor = name.removeprefix(_RECEIVE).rpartition("_on_/")[0]
            received[":".join(tensor.rsplit("_", 1)), canonical(device)] = span
    own = {
        name: work.costs[tensor.producer].output_bytes[tensor.index] or 0
        for name, tensor in graph.tensors.items()
    }
    timing = spans, received
    rounded = tuple(
        {k: (a // _MICROSECOND, b // _MICROSECOND) for k, (a, b) in t.items()} for t in timing
    )
    return {
        "ours": row["strategies"]["placer"]["peak_bytes"],
        **dict(zip(RULES[1:5], _by_buffers(graph, work, placement, spans), strict=True)),
        "sent": by_spans(graph, placement, *timing, own),
        "clock": by_spans(graph, placement, *rounded, own),
        "shapes": by_spans(graph, placement, *rounded, known),
        "grappler": found["peak_bytes"],
    }


def _by_buffers(
    graph: OpGraph, work: Workload, placement: Mapping[str, str], spans: Mapping[str, Span]
) -> Iterator[Peaks]:
    """Our simulation of buffers in Grappler's order, then without state, workspace, sharing."""
    names = [device.name for device in work.cluster.devices]
    begun = sorted(graph.ops, key=lambda name: spans[name])
    order = sort_topologically({name: predecessors(graph.ops[name], graph.ops) for name in begun})
    idle = {name: _without_workspace(cost) for name, cost in work.costs.items()}
    host = work.cluster.host.name
    step = StepMemory(graph, work.costs, placement, names, host)
    yield step.peaks(order)
    yield {name: peak - step.resident_bytes(name) for name, peak in step.peaks(order).items()}
    step = StepMemory(graph, idle, placement, names, host)
    yield {name: peak - step.resident_bytes(name) for name, peak in step.peaks(order).items()}
    plain = copy(step)
    effects = [e if e == Effect.FED else Effect.PLAIN for e in step.layout.effects]
    nothing_lasts = [False] * len(effects)
    plain.layout = replace(
        step.layout, effects=effects, shared={}, overwritten={}, idle=nothing_lasts
    )
    plain.resident = {}
    yield plain.peaks(order)


def _without_workspace(cost: OpCost) -> OpCost:
    return replace(cost, temporary_bytes=0, temporary_samples=(), held_bytes=())


def by_spans(
    graph: OpGraph,
    placement: Mapping[str, str],
    spans: Mapping[str, Span],
    received: Mapping[tuple[str, str], Span],
    bytes_of: Mapping[str, int],
) -> Peaks:
    """The peaks if every output of an op is a buffer where the op is, from when the op begins until
    all its readers have ended, wherever they are; and, while that takes, where it is ``received``.
    """
    last = {name: spans[tensor.producer][1] for name, tensor in graph.tensors.items()}
    for op in graph.ops.values():
        for tensor in op.inputs:
            last[tensor] = max(last[tensor], spans[op.name][1])
    held = [
        (placement[tensor.producer], spans[tensor.producer][0], last[name], name)
        for name, tensor in graph.tensors.items()
    ]
    held += [(device, *span, tensor) for (tensor, device), span in received.items()]
    changes: dict[str, Counter[int]] = {device: Counter() for device in placement.values()}
    for device, begin, end, tensor in held:
        changes[device][begin] += bytes_of.get(tensor, 0)
        changes[device][end + 1] -= bytes_of.get(tensor, 0)
    return {
        device: max(accumulate(size for _, size in sorted(change.items())))
        for device, change in changes.items()
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every accelerator of every plan, and how many are within a tenth under which rules."""
    yield "| graph | caps | device | cap, MB | Grappler's, MB | " + " | ".join(RULES) + " |"
    yield "|" + "---|" * (len(RULES) + 5)
    within = dict.fromkeys(RULES, 0)
    count = 0
    for row in sorted(rows, key=lambda row: (row["percent"], row["ops"])):
        caps = f"{row['percent']}%" if row["percent"] else "own"
        theirs = row["peaks"]["grappler"]
        for device in sorted(name for name in theirs if name.startswith("GPU") and theirs[name]):
            shares = [row["peaks"][rule].get(device, 0) / theirs[device] for rule in RULES]
            count += 1
            for rule, share in zip(RULES, shares, strict=True):
                within[rule] += abs(share - 1) <= WITHIN
            cells = [row["graph"], caps, device]
            cells += [f"{size / 1e6:,.2f}" for size in (row["caps"][device], theirs[device])]
            yield "| " + " | ".join([*cells, *(f"{share:.2f}" for share in shares)]) + " |"
    yield ""
    yield f"Within {WITHIN:.0%} of Grappler's, of {count} devices: " + ", ".join(
        f"{rule} {number}" for rule, number in within.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path, help="folder of the graph files")
    parser.add_argument("--costs", default="placer", help="which rows of run.py")
    arguments = parser.parse_intermixed_args()
    rows = []
    for case in CASES:
        if arguments.names and case.name not in arguments.names:
            continue
        for path in sorted(
            arguments.folder.glob(f"step-time/{arguments.costs}/{case.name}-*.json")
        ):
            row = json.loads(path.read_text())
            model = find_model(case, arguments.folder, arguments.data)
            if model is None or row["solver"]["status"] == "UNKNOWN":
                continue
            kept = path.with_suffix(".peaks")
            if not kept.exists():
                work = prepare(model[0], MACHINE, model[1])
                kept.write_text(json.dumps(explain(row, model[0], work), indent=1))
            rows.append({**row, "peaks": json.loads(kept.read_text())})
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
