"""Why ops are confined, in the numbers of a placement problem: what somebody asked for, apart from
what kernels and colocation demand."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placer.problem.constraints import Constraints
from placer.problem.grouping import CPU_CODES
from placer.problem.placement_problem import DEVICE_STRING, PIN, TOGETHER, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """``requests``, ``unconfined`` and ``colocation`` of a
    :class:`~placer.problem.placement_problem.PlacementProblem`; ``unconfined`` with every op."""

    requests: tuple[Request, ...]
    unconfined: tuple[tuple[int, ...], ...]
    colocation: tuple[int, ...]


def confine(
    constraints: Constraints, op_number: Mapping[str, int], device_number: Mapping[str, int]
) -> Confinement:
    """The confinement of every op.

    An op that nobody holds may use the devices that it would rather be on, and in a group also
    those that other members, by what kernels or requests say, send it to.
    """
    unconfined: list[tuple[int, ...]] = [()] * len(op_number)
    confined: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
    # per group: who sends it where, then where each of its ops may follow
    for members, allowed in zip(constraints.groups, constraints.group_devices, strict=True):
        restrictions = [constraints.restrictions[name] for name in members.ops]
        elsewhere: list[tuple[str, ...]] = []
        for name, own in zip(members.ops, restrictions, strict=True):
            if own.request and (own.code == "pinned" or _holds(own.devices, allowed)):
                kind = PIN if own.code == "pinned" else DEVICE_STRING
                confined.setdefault((kind, own.request, own.devices), []).append(op_number[name])
                elsewhere.append(own.devices)
            elif own.code in CPU_CODES:
                elsewhere.append(own.devices)
        for name, own in zip(members.ops, restrictions, strict=True):
            free = own.unasked or own.devices
            more = [] if own.code in CPU_CODES else [d for d in elsewhere if not set(d) & set(free)]
            devices = dict.fromkeys((*free, *(name for d in more for name in d)))
            unconfined[op_number[name]] = tuple(sorted(device_number[name] for name in devices))
    # requests in numbers: one per pin or device string, one per --keep-together
    pins = [
        Request(name=name, kind=kind, ops=tuple(ops), devices=_numbers(devices, device_number))
        for (kind, name, devices), ops in confined.items()
    ]
    together = [
        Request(name=name, kind=TOGETHER, groups=tuple(_numbers(g.ops, op_number) for g in groups))
        for name, groups in constraints.asked_groups.items()
    ]
    group_of = {name: n for n, group in enumerate(constraints.own_groups) for name in group.ops}
    return Confinement(
        requests=(*pins, *together),
        unconfined=tuple(unconfined),
        colocation=tuple(group_of[name] for name in op_number) if together else (),
    )


def _numbers(names: Iterable[str], number_of: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(number_of[name] for name in names)


def _holds(devices: Sequence[str], allowed: Sequence[str]) -> bool:
    """Whether the group kept to a device string, which gives way to whatever contradicts it."""
    return bool(allowed) and set(devices).issuperset(allowed)
