"""The published recipe for recommenders: small tables on accelerators, large ones on the host."""

from collections.abc import Sequence

from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines.tasks import DoesNotFitError, Placement, Room, accelerators


class _HostIsFullError(DoesNotFitError):
    """The tables that are left are too many for the host: more have to be on accelerators."""


def smallest_tables(problem: PlacementProblem) -> Placement:
    """Tables in the order of their size: accelerators get the smallest, each table the one whose
    tables take least so far; the rest are on the host.

    NVIDIA's ``distributed_embeddings`` does so (Merlin, ``dist_model_parallel.py``:
    ``_maybe_offload`` with ``gpu_embedding_size``, and the strategy ``memory_optimized``).  That
    threshold is the user's; here it is the largest, found by halving, with which all that is no
    table fits too (the first accelerator that has room).

    Raises :class:`DoesNotFitError` without tables, and if no threshold fits.
    """
    if not problem.tables:
        raise DoesNotFitError("the program reads no rows of a table")
    units = Room(problem).units
    op_of, sizes = dict[int, int](), dict[int, int]()
    for op in problem.tables:
        unit = units.unit_of[op]
        op_of.setdefault(unit, op)
        sizes[unit] = sizes.get(unit, 0) + problem.resident_bytes[op]
    ordered = [(op_of[unit], sizes[unit]) for unit in sorted(sizes, key=sizes.__getitem__)]
    best, fewest, kept, most = None, 0, len(ordered), len(ordered)
    errors: list[DoesNotFitError] = []
    while fewest <= most:
        try:
            best, fewest = _placed(problem, ordered, kept), kept + 1
        except _HostIsFullError as error:
            errors.append(error)
            fewest = kept + 1
        except DoesNotFitError as error:
            errors.append(error)
            most = kept - 1
        kept = (fewest + most) // 2
    if best is None:
        raise errors[-1]
    return best


def _placed(problem: PlacementProblem, ordered: Sequence[tuple[int, int]], kept: int) -> Placement:
    """The placement with so many of the tables, (op, bytes) by size, on accelerators."""
    devices, room = accelerators(problem), Room(problem)
    taken = dict.fromkeys(devices, 0)
    # The recipe deals out the largest first, so that the devices end up even.
    for op, size in reversed(ordered[:kept]):
        device = next((d for d in sorted(devices, key=taken.__getitem__) if room.fits(op, d)), None)
        if device is None:
            raise DoesNotFitError(f"{problem.op_names[op]} fits on no accelerator that is left")
        room.put(op, device)
        taken[device] += size
    for op, _ in ordered[kept:]:
        if not room.fits(op, problem.host):
            may = problem.host in room.units.allowed[room.units.unit_of[op]]
            why = "does not fit" if may else "may not be"
            raise _HostIsFullError(f"{problem.op_names[op]} {why} on the host")
        room.put(op, problem.host)
    for op in range(len(problem.op_names)):
        choices = room.choices(op)
        room.put(op, next((device for device in devices if device in choices), choices[0]))
    return room.placement()
