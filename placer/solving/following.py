"""Light ops beside host ops: which of them follow their neighbours to the host.

Data: the units (groups of ops that share a device), each with ``extra`` seconds, what it takes on
the host beyond what it takes on the accelerator that suits it best; and the messages between units
(tensors and control signals), each with its bytes and with the least seconds that it takes between
the host and an accelerator.  Some units are on the host in any case (*hosts*), some may follow them
(``may_follow`` of the problem), and all others are on accelerators, which count as one device here.

A set F of units that may follow does so if (numbers as in ``docs/formulation.md``)

4. every part S of it, brought back to the accelerators, sends more bytes between them and the host,
   or as many in more tensors (what has no size counts as no bytes);
5. no part S is faster there: its extra seconds are no more than those of the messages it saves;
6. tensors between its units join each of them to a unit on the host that works there: one that
   reads something or keeps something.  What is fed does neither: a model without host ops stays on
   the accelerators, however light it is;
7. none of them reads a weight that an accelerator keeps.

The union of two such sets is one again (what is sent across is a submodular function of the set on
the host), so there is a largest one.  Found in two steps:

- a unit that breaks (4) or (5) even if all its neighbours that may be on the host were there is in
  no such set: such units go one after the other, in time linear in the messages;
- of what is left, the least set with the fewest bytes sent across and the largest with the fewest
  seconds are minimum cuts, and hold every such set; they are taken in turns until both are all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise

from placer.prediction.times.messages import list_messages
from placer.problem.placement_problem import PlacementProblem
from placer.solving.host_ops import bound_to_host, without_accelerator
from placer.solving.reduction.unit_problem import numbered

_TICKS = 10**15
"""Seconds are counted in femtoseconds: cuts of whole numbers are exact."""

_HOST, _ACCELERATORS = -1, -2
"""The two ends of a cut, beside units."""


def let_follow(problem: PlacementProblem) -> PlacementProblem:
    """The problem with the host among the devices of the ops that follow what must be there: what
    may run nowhere else, and what the accelerators are too small for.

    What follows only ops that were asked to the host, or are there because a request joins them to
    others, counts as spilled, like these: else a request more would let more on the host within the
    same allowance.
    """
    there = bound_to_host(problem)
    followers = find_followers(problem, there)
    if not followers:
        return problem
    takes = problem.spill_bytes()
    unasked = replace(
        problem,
        group=problem.colocation or problem.group,
        allowed=tuple(
            problem.unconfined.get(op, devices) for op, devices in enumerate(problem.allowed)
        ),
    )
    free = find_followers(unasked, there & without_accelerator(unasked))
    everywhere = {
        devices: tuple(sorted({*devices, problem.host}))
        for devices in {*problem.allowed, *problem.unconfined.values()}
    }
    allowed = tuple(
        everywhere[devices] if op in followers else devices
        for op, devices in enumerate(problem.allowed)
    )
    unconfined = {
        op: everywhere[devices] if op in followers else devices
        for op, devices in problem.unconfined.items()
    }
    return replace(
        problem,
        allowed=allowed,
        counted=tuple(size > 0 and op not in free for op, size in enumerate(takes)),
        followers=tuple(sorted(followers)),
        unconfined={op: devices for op, devices in unconfined.items() if devices != allowed[op]},
        may_follow=tuple(op for op in problem.may_follow if op not in followers),
    )


def hold_followers(problem: PlacementProblem, *, spills: bool = False) -> PlacementProblem:
    """The problem with its followers on the host and nowhere else, if it has room for all that may
    be there (where it ``spills``: all that may spill, too).

    That loses nothing, by rule 4 (the proof is in ``docs/formulation.md``), which is checked: a
    problem out of a file may call anything a follower.  Those that count as spilled are searched.
    """
    takes = problem.spill_bytes()
    followers = {
        op for op in problem.followers if problem.host in problem.allowed[op] and not takes[op]
    }
    parted = {problem.group[op] for op in range(len(takes)) if op not in followers}
    followers = {op for op in followers if problem.group[op] not in parted}
    if not followers or not _has_room(problem, spills):
        return problem
    unit_of = numbered(problem.group)
    free = {unit_of[op] for op in followers}
    on_host = {unit_of[op] for op in bound_to_host(problem)} - free
    if _host_side(_nets(problem, unit_of, on_host, on_host, free), {}, free, largest=True) != free:
        return problem
    allowed = [
        (problem.host,) if op in followers else devices
        for op, devices in enumerate(problem.allowed)
    ]
    return replace(problem, allowed=tuple(allowed))


def _has_room(problem: PlacementProblem, spills: bool) -> bool:
    """Whether the host can hold all that may be there at every moment."""
    there = [
        problem.host in devices or (spills and may_spill)
        for devices, may_spill in zip(problem.allowed, problem.spillable, strict=True)
    ]
    resident = sum(compress(problem.resident_bytes, there))
    live = (sum(size for op, size in m.items() if there[op]) for m in problem.live_bytes)
    usable = problem.capacity_bytes[problem.host] - problem.transient_bytes[problem.host]
    return resident + max(live, default=0) <= usable


def followers_of(problem: PlacementProblem, device_of: Sequence[int]) -> frozenset[int]:
    """The ops that a placement has on the host beside what is there anyway, or is spilled."""
    there = {op for op, device in enumerate(device_of) if device == problem.host}
    free = there.intersection(problem.may_follow)
    among = replace(problem, may_follow=tuple(sorted(free)))
    beside = find_followers(among, there - free) if free else frozenset()
    return frozenset(there & (beside | {*problem.followers}))


def find_followers(problem: PlacementProblem, hosts: Collection[int]) -> frozenset[int]:
    """The ops of the largest set that follows the ops ``hosts``, which are on the host."""
    if not hosts or not problem.may_follow:
        return frozenset()
    unit_of = numbered(problem.group)
    on_host = {unit_of[op] for op in hosts}
    free = {unit_of[op] for op in problem.may_follow} - on_host
    keeping = {unit for unit, size in zip(unit_of, problem.resident_bytes, strict=True) if size}
    free -= _readers(problem, unit_of, keeping - free - on_host)
    working = on_host & (keeping | _readers(problem, unit_of, set(unit_of)))
    if not working or not free:
        return frozenset()
    nets = _nets(problem, unit_of, on_host, working, free)
    extra = _extra_ticks(problem, unit_of, free)
    kept = _reached(_peeled(nets, extra, free), nets)
    while kept:
        smaller = _host_side(nets, {}, kept, largest=False)
        smaller = _host_side(nets, extra, smaller, largest=True)
        smaller = _reached(smaller, nets)
        if smaller == kept:
            break
        kept = smaller
    return frozenset(op for op in problem.may_follow if unit_of[op] in kept)


@dataclass(frozen=True, slots=True)
class _Net:
    """A message between units: ``pins`` that may follow, whether others of its units are on the
    host (and work there) or on accelerators, and what it costs across: bytes and a tensor more
    (``sent``, 0 for a signal), and time."""

    pins: tuple[int, ...]
    on_host: bool
    at_work: bool
    elsewhere: bool
    sent: int
    ticks: int


def _readers(problem: PlacementProblem, unit_of: Sequence[int], producers: set[int]) -> set[int]:
    """The units that read a tensor of another unit among ``producers``."""
    return {
        unit
        for tensor in problem.tensors
        if (home := unit_of[tensor.producer]) in producers
        for op in tensor.consumers
        if (unit := unit_of[op]) != home
    }


def _nets(
    problem: PlacementProblem,
    unit_of: Sequence[int],
    on_host: set[int],
    working: set[int],
    free: set[int],
) -> list[_Net]:
    """The messages that some unit which may follow sends or receives."""
    host, devices = problem.host, problem.beside_host
    latency = min(
        (min(problem.latency[host][d], problem.latency[d][host]) for d in devices), default=0.0
    )
    speed = max(
        (max(problem.bandwidth[host][d], problem.bandwidth[d][host]) for d in devices), default=0.0
    )
    messages = list_messages(problem)
    tensors = sum(bool(tensor.consumers) for tensor in problem.tensors)  # the signals come last
    byte, found = len(messages) + 1, []
    for number, message in enumerate(messages):
        units = {unit_of[message.producer], *(unit_of[op] for op in message.consumers)}
        pins = tuple(sorted(units & free))
        if pins and len(units) > 1:
            seconds = latency + (message.bytes / speed if speed else 0.0)
            found.append(
                _Net(
                    pins=pins,
                    on_host=not on_host.isdisjoint(units),
                    at_work=not working.isdisjoint(units),
                    elsewhere=len(units) > len(pins) + len(units & on_host),
                    sent=message.bytes * byte + 1 if number < tensors else 0,
                    ticks=round(seconds * _TICKS),
                )
            )
    return found


def _extra_ticks(
    problem: PlacementProblem, unit_of: Sequence[int], free: set[int]
) -> dict[int, int]:
    """What each unit takes on the host beyond what it takes elsewhere; below zero where the host is
    faster."""
    extra = dict.fromkeys(free, 0.0)
    for op in problem.may_follow:
        if unit_of[op] in free:
            times = problem.seconds[op]
            extra[unit_of[op]] += times[problem.host] - min(
                (times[d] for d in problem.allowed[op]), default=times[problem.host]
            )
    return {unit: round(seconds * _TICKS) for unit, seconds in extra.items()}


def _peeled(nets: Sequence[_Net], extra: dict[int, int], free: set[int]) -> set[int]:
    """The units of ``free`` that could follow if all their neighbours did that still may.

    A net saves its bytes only if all its other units are on the host, and is lost if none is.
    """
    nets_of: dict[int, list[int]] = {unit: [] for unit in free}
    for number, net in enumerate(nets):
        for unit in net.pins:
            nets_of[unit].append(number)
    elsewhere = [net.elsewhere for net in nets]
    able = [len(net.pins) + net.on_host for net in nets]
    kept, waiting = set(free), deque(sorted(free))
    while waiting:
        unit = waiting.popleft()
        if unit not in kept:
            continue
        size, ticks = 0, -extra[unit]
        for number in nets_of[unit]:
            net, alone = nets[number], able[number] == 1
            if alone or not elsewhere[number]:
                sign = -1 if alone else 1
                size += sign * net.sent
                ticks += sign * net.ticks
        if size > 0 and ticks >= 0:
            continue
        kept.discard(unit)
        for number in nets_of[unit]:
            was_whole = not elsewhere[number]
            elsewhere[number] = True
            able[number] -= 1
            if was_whole or able[number] == 1:
                waiting.extend(other for other in nets[number].pins if other in kept)
    return kept


def _reached(kept: set[int], nets: Sequence[_Net]) -> set[int]:
    """The units of ``kept`` that tensors between such units join to one that works on the host."""
    joined: dict[int, list[int]] = {}
    for net in nets:
        ends = [unit for unit in net.pins if unit in kept]
        ends += [_HOST] if net.at_work else []
        for unit, other in pairwise(ends):
            if net.sent:
                joined.setdefault(unit, []).append(other)
                joined.setdefault(other, []).append(unit)
    found, waiting = {_HOST}, [_HOST]
    while waiting:
        for other in joined.get(waiting.pop(), ()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found - {_HOST}


def _host_side(
    nets: Sequence[_Net], extra: dict[int, int], free: set[int], *, largest: bool
) -> set[int]:
    """The units of ``free`` on the host in a minimum cut between the host and the accelerators: in
    the ``largest`` such set or in the least.

    Nets cost their ticks, units their ``extra`` on the host; without ``extra`` nets cost what is
    sent.
    """
    from networkx import DiGraph, minimum_cut

    arcs: dict[tuple[int, int], int] = {}

    def join(tail: int, head: int, size: int) -> None:
        arcs[tail, head] = arcs.get((tail, head), 0) + size

    graph: DiGraph[int] = DiGraph()
    graph.add_nodes_from((_HOST, _ACCELERATORS))
    inner = _ACCELERATORS
    for net in nets:
        size = net.ticks if extra else net.sent
        ends = _ends(net, free)
        if not size or len(ends) < 2 or {_HOST, _ACCELERATORS} <= ends:
            continue
        if len(ends) == 2:
            one, other = ends
            join(one, other, size)
            join(other, one, size)
            continue
        inner -= 2
        join(inner, inner - 1, size)
        graph.add_edges_from((end, inner) for end in ends)
        graph.add_edges_from((inner - 1, end) for end in ends)
    for unit in free if extra else ():
        join(_HOST, unit, max(0, -extra[unit]))
        join(unit, _ACCELERATORS, max(0, extra[unit]))
    graph.add_edges_from((*ends, {"capacity": size}) for ends, size in arcs.items() if size)
    # networkx gives the largest side of the source
    source, sink = (_HOST, _ACCELERATORS) if largest else (_ACCELERATORS, _HOST)
    _, (near, far) = minimum_cut(graph, source, sink)
    return free & (near if largest else far)


def _ends(net: _Net, free: set[int]) -> set[int]:
    ends = {unit if unit in free else _ACCELERATORS for unit in net.pins}
    return (
        ends | ({_HOST} if net.on_host else set()) | ({_ACCELERATORS} if net.elsewhere else set())
    )
