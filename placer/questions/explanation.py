"""Why an op sits where it sits, and what moving it would cost; what holds all the others."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cost_models.byte_sizes import format_bytes, format_seconds
from placer.argument_types import require_range
from placer.errors import UsageError, near_names, some
from placer.graph.op_graph import OpGraph
from placer.graph.passes.roles import UNUSED
from placer.graph.tensor_names import op_of
from placer.pipeline.followed_hints import hints_apart
from placer.pipeline.formulation import constraints_of
from placer.pipeline.predicted_placement import predict_placement
from placer.pipeline.solved_plan import is_host_constant
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan
from placer.plan.results import Summarised
from placer.prediction.metrics import SENT, Metrics, Transfer
from placer.prediction.orders.execution_orders import uses_accelerator
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.problem.constraints import Constraints, open_cpus
from placer.problem.limits import overruns
from placer.questions.saved_plans import reopen_as_made

CHOSEN = "chosen"
SPILLED = "spilled"
SWAPPED = "swapped"

_ON_CPU = "there it saves transfers, and costs least of all placements that were found"
_SWAPPED_TO = "--fit swaps the tensor to the host"
_NO_BETTER = "as the search counts, that is no better (proven)"
_GPU_KERNEL = (
    "it has a GPU kernel: it runs on a CPU only if it is pinned there, or with --offload auto if "
    "it has a CPU kernel"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The whole group of an op on another device.

    ``refused`` says why it may not be there; otherwise the differences are to the plan, positive
    where the move costs, and ``over_bytes`` by which required memory would exceed the caps, which
    ``over`` says in words.
    ``spills``: the device is a CPU that is open to the op beside those that it would rather use.
    """

    device: str
    refused: str = ""
    transfer_bytes: int | None = None
    sent_bytes: int | None = None
    step_seconds: float | None = None
    busiest_seconds: float | None = None
    over_bytes: Mapping[str, int] = field(default_factory=dict)
    over: tuple[str, ...] = field(default=(), metadata={"in_file": False})
    spills: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OpExplanation(Summarised):
    """Why one op sits on ``device``.

    ``code`` is ``fed``, ``pinned``, ``host_only_kernel`` or ``device_string`` (the op itself is
    bound, ``reason`` says how), ``colocated`` (a member of its group is: ``binding_op``),
    ``spilled`` (on a CPU although an accelerator could run it), ``swapped`` (it keeps on the host
    what ``fit`` swaps), or ``chosen`` by the solver.  ``rewritten`` says what else ``fit`` does.
    ``allowed`` are the devices of its group, CPUs that are open to all aside; ``group_ops`` its
    members, largest resident bytes first, and ``group_reasons`` what holds them together.
    ``initial_value_bytes`` are the part of ``resident_bytes`` that is constants: the values that
    variables start as, which a session keeps beside them.
    ``received`` and ``sent`` are its rows among the plan's transfers; ``hints_left_out`` the ops on
    other devices that a colocation hint (``_class``) ties it to.
    """

    op: str
    op_type: str
    device: str
    code: str
    reason: str
    allowed: tuple[str, ...]
    group_ops: tuple[str, ...]
    group_reasons: tuple[str, ...]
    resident_bytes: int
    initial_value_bytes: int = 0
    binding_op: str = ""
    rewritten: tuple[str, ...] = ()
    hints_left_out: tuple[str, ...] = ()
    received: tuple[Transfer, ...] = ()
    sent: tuple[Transfer, ...] = ()
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlanExplanation(Summarised):
    """The reasons for a placement: by device, how many ops are there for which reason (the codes of
    :class:`OpExplanation`), and the bytes that are resident for it (``unused``: loaded all the
    same; ``host_constant``: in host memory wherever the op is; ``swapped``: kept on the host by
    ``fit``); for the largest transfers why their two ends are apart, as
    (row, producer's code, codes of the ops that read it there)."""

    plan: Plan = field(metadata={"in_file": False}, repr=False)
    ops: Mapping[str, Mapping[str, int]]
    resident_bytes: Mapping[str, Mapping[str, int]]
    transfers: tuple[tuple[Transfer, str, tuple[str, ...]], ...]


def explain(
    plan: Plan, op: str | None = None, source: Any = None, **changes: Any
) -> OpExplanation | PlanExplanation:
    """Why ``op`` sits where it sits, or without one what holds all ops of ``plan``; see
    :func:`explain_op` and :func:`explain_plan`."""
    if not isinstance(op, str | None):
        raise UsageError(f"op is {op!r}; give the name of an op or variable, or leave it out")
    if op is None:
        return explain_plan(plan, source, **changes)
    return explain_op(plan, op, source, **changes)


def explain_op(plan: Plan, name: str, source: Any = None, **changes: Any) -> OpExplanation:
    """Why op (or variable) ``name`` of ``plan`` sits on its device.

    ``source`` is the model, by default the path in the plan; ``changes`` are options in which this
    analysis differs from the request that the plan remembers
    (:class:`~placer.plan.request.Options`).

    Raises :class:`UsageError` if the plan places no such op (with the closest names), or is of
    another model.
    """
    op = _known_op(plan, name)
    workload = reopen_as_made(plan, source, **changes)
    constraints = constraints_of(workload)
    groups = enumerate(constraints.groups)
    group = next((i for i, members in groups if op in members.ops), None)
    if group is None:
        raise UsageError(f"{op} does not run under this plan: its readers read its inputs (--fit)")
    members = constraints.groups[group]
    graph, costs = workload.graph, workload.costs
    device, rewritten = plan.placement[op], plan.rewriting.changes_of(op)
    allowed = constraints.group_devices[group]
    if op in plan.rewriting.on_host:
        code, reason, binding, allowed = SWAPPED, rewritten[0], "", (device,)
        others = (row.name for row in workload.cluster.devices if row.name != device)
        moves = tuple(Move(device=name, refused=_SWAPPED_TO) for name in others)
    else:
        moves = tuple(_moves(plan, members.ops, group, constraints, workload))
        code, reason, binding = _reason(op, device, group, constraints)
    if code in (CHOSEN, SPILLED):
        reason = _instead(moves, plan) or reason
    readers = set(graph.ops[op].inputs)
    outputs = set(graph.output_names[op])
    apart = (pair for pair in hints_apart(graph, plan.placement) if op in pair)
    return OpExplanation(
        op=op,
        op_type=graph.ops[op].op_type,
        device=device,
        code=code,
        reason=reason,
        binding_op=binding,
        allowed=allowed,
        group_ops=tuple(sorted(members.ops, key=lambda o: -costs[o].persistent_bytes)),
        group_reasons=members.reasons,
        resident_bytes=sum(costs[member].persistent_bytes for member in members.ops),
        initial_value_bytes=sum(costs[member].constant_bytes for member in members.ops),
        rewritten=() if code == SWAPPED else rewritten,
        hints_left_out=tuple(second if first == op else first for first, second in apart),
        received=tuple(t for t in plan.transfers if t.tensor in readers and t.target == device),
        sent=tuple(t for t in plan.transfers if t.tensor in outputs),
        moves=moves,
    )


def explain_plan(
    plan: Plan, source: Any = None, *, transfer_count: int = 10, **changes: Any
) -> PlanExplanation:
    """Returns the reasons why the ops of ``plan`` are where they are; arguments and errors as for
    :func:`explain_op`."""
    _require_placement(plan)
    require_range("transfer_count", transfer_count)
    workload = reopen_as_made(plan, source, **changes)
    constraints = constraints_of(workload)
    codes = {
        op: _reason(op, plan.placement[op], number, constraints)[0]
        for number, members in enumerate(constraints.groups)
        for op in members.ops
    }
    codes |= dict.fromkeys(codes.keys() & plan.rewriting.on_host, SWAPPED)
    counts: dict[str, Counter[str]] = {row.name: Counter() for row in plan.devices}
    for op, device in plan.placement.items():
        counts[device].update([codes[op]] if op in codes else [])  # a join may be read through
    host, names = workload.cluster.host.name, [row.name for row in plan.devices]
    steps = PossibleSteps(workload.graph, workload.costs, accelerated=uses_accelerator(names))
    step = steps.memory(plan.placement, names, host)
    resident = {name: Counter({UNUSED: sum(step.idle.get(name, ()))}) for name in names}
    for device in step.resident:
        for (op, _), size in step.kept(device).items():
            is_apart = plan.placement[op] != device  # as constants within a loop may be
            at_home = is_apart or is_host_constant(workload.graph.ops[op].info)
            resident[device]["host_constant" if at_home else codes[op]] += size
    return PlanExplanation(
        plan=plan,
        ops={device: dict(found.most_common()) for device, found in counts.items()},
        resident_bytes={device: dict((+found).most_common()) for device, found in resident.items()},
        transfers=tuple(_crossings(plan, workload.graph, codes, transfer_count)),
    )


def _require_placement(plan: Plan) -> None:
    if not plan.placement:
        raise UsageError(
            "the plan has no placement to explain: plan.summary() says why nothing fits, and "
            "placer.find_fixes(plan) finds changes that make it fit"
        )


def _known_op(plan: Plan, name: str) -> str:
    """The op called ``name``: an op, one of its outputs, or a variable's handle."""
    for candidate in (name, op_of(name)):
        if candidate in plan.placement:
            return candidate
    _require_placement(plan)
    ends = [op for op in plan.placement if op.endswith(f"/{name}")]
    if len(ends) == 1:
        return ends[0]
    hint = near_names(name, plan.placement, cutoff=0.3) or f": they are {some(plan.placement)}"
    raise UsageError(f"the plan places {len(plan.placement):,} ops, none of them {name!r}{hint}")


def _reason(op: str, device: str, group: int, constraints: Constraints) -> tuple[str, str, str]:
    """Code, sentence, and the other member of the group that binds the op, if one does."""
    own = constraints.restrictions[op]
    allowed = constraints.group_devices[group]
    if own.code:
        return own.code, own.reason, ""
    if device not in allowed and constraints.spillable[group]:
        return SPILLED, _ON_CPU, ""
    for member in constraints.groups[group].ops:
        other = constraints.restrictions[member]
        if other.code and set(other.devices) != set(own.devices):
            return "colocated", other.reason, member
    if len(allowed) == 1:
        return CHOSEN, f"{allowed[0]} is the only device for it", ""
    return CHOSEN, f"of {', '.join(allowed)} it costs least there", ""


def _moves(
    plan: Plan,
    members: Sequence[str],
    group: int,
    constraints: Constraints,
    workload: Workload,
) -> Iterator[Move]:
    """The group on each other device, with what that would cost."""
    now = plan.placement[members[0]]
    opened = open_cpus(workload.cluster) if workload.wanted.offload == "auto" else ()
    before: Metrics | None = None
    for device in workload.cluster.devices:
        if device.name == now:
            continue
        may_spill = constraints.spillable[group] and device.name in opened
        is_free = device.name in constraints.group_devices[group]
        if not is_free and not may_spill:
            refused, code = _refusal(members, device.name, constraints)
            is_client = opened and device.type == "CPU" and device.name not in opened
            if is_client and code in ("", "host_only_kernel"):
                refused = (
                    "only fed, fetched and pinned ops may be on the client (unless any_ops is set)"
                )
            yield Move(device=device.name, refused=refused or _GPU_KERNEL)
            continue
        before = before or predict_placement(workload, plan.placement, with_needs=False).metrics
        moved = {**plan.placement, **dict.fromkeys(members, device.name)}
        after = predict_placement(workload, moved).metrics
        yield Move(
            device=device.name,
            transfer_bytes=_more(before, after, "data", "feed"),
            sent_bytes=_more(before, after, *SENT),
            step_seconds=after.schedule.step_seconds - before.schedule.step_seconds,
            busiest_seconds=after.schedule.bottleneck_seconds - before.schedule.bottleneck_seconds,
            over_bytes=(over := after.over_caps(workload.cluster.caps)),
            over=tuple(overruns(workload.cluster.devices, over)),
            spills=not is_free,
        )


def _more(before: Metrics, after: Metrics, *kinds: str) -> int:
    return after.bytes_of(*kinds) - before.bytes_of(*kinds)


def _grows(move: Move, plan: Plan) -> int:
    """The bytes by which the device would exceed its limit, if it exceeds it by less now."""
    over = move.over_bytes.get(move.device, 0)
    return over if over > plan.over_bytes.get(move.device, 0) else 0


def _instead(moves: Sequence[Move], plan: Plan) -> str:
    """Returns what its group would cost on each device open to it, the objective's figure first."""
    told, objective = [], plan.solver.objective
    known = _NO_BETTER if plan.solver.status == "OPTIMAL" else "the search did not find that"
    for move in moves:
        if move.refused:
            continue
        if over := _grows(move, plan):
            saved = f" (with room, a step would {_saved(move)})" if _saved(move) else ""
            told.append(f"{move.device} would exceed its limit by {format_bytes(over)}{saved}")
        elif objective == "throughput" and (longer := move.busiest_seconds or 0.0) > 0:
            told.append(
                f"with it on {move.device} the busiest device would be busy for "
                f"{format_seconds(longer)} more"
            )
        elif objective != "step-time" and (more := move.sent_bytes or 0) > 0:
            told.append(f"on {move.device} a step would send {format_bytes(more)} more")
        elif (longer := move.step_seconds or 0.0) > 0:
            told.append(f"on {move.device} a step would take {format_seconds(longer)} longer")
        elif saved := _saved(move):
            told.append(f"with it alone moved to {move.device}, a step would {saved}; {known}")
        else:
            told.append(f"moving it alone to {move.device} would cost no more")
    return "; ".join(told)


def _saved(move: Move) -> str:
    """Returns what a step saves with the group there; ``""`` if nothing."""
    sent, longer = -(move.sent_bytes or 0), -(move.step_seconds or 0.0)
    saved = [f"send {format_bytes(sent)} less"] if sent > 0 else []
    saved += [f"take {format_seconds(longer)} less"] if longer > 0 else []
    return " and ".join(saved)


def _refusal(members: Sequence[str], device: str, constraints: Constraints) -> tuple[str, str]:
    """Why one of the members may not be on ``device``, and the code of that; ``""`` if all may."""
    for member in members:
        restriction = constraints.restrictions[member]
        if restriction.code and device not in restriction.devices:
            whose = f"{member}: " if len(members) > 1 else ""
            return f"{whose}{restriction.reason}", restriction.code
    return "", ""


def _crossings(
    plan: Plan, graph: OpGraph, codes: Mapping[str, str], count: int
) -> Iterator[tuple[Transfer, str, tuple[str, ...]]]:
    for row in plan.sent[:count]:
        tensor = graph.tensors.get(row.tensor)
        if tensor is None:
            continue
        there = [op for op in tensor.consumers if plan.placement[op] == row.target]
        yield row, codes[tensor.producer], tuple(dict.fromkeys(codes[op] for op in there))
