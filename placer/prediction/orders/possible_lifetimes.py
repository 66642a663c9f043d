"""Lifetimes of the buffers of each device, for placements that are not known yet.

Along one order of the ops, the buffers that a device holds depend on nothing but which ops are
there: a tensor is held where it is produced until its last reader there is done, and on every other
device that reads it from the moment it is produced until its last reader there is done.

    order      a  b  c  d             a writes 8 bytes, b and d read them

    a, b | d   8  8  .  .             on the device of a and b
               8  8  8  8             on the device of d: received when a runs, read by d

So one simulation per order, of all ops together, shows the buffers and who keeps them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cost_models.gpu_convolutions import RED_ZONES_BYTES
from placer.prediction.memory.buffers import Lifetime
from placer.prediction.memory.lifetimes import Simulation
from placer.prediction.memory.run import Wanted
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.prediction.step.routes import is_cpu

NOBODY = -1


@dataclass(slots=True, kw_only=True)
class PossibleLifetimes:
    """The buffers of one step along several orders, one order after the other: op number *i* of
    order *k* runs at time ``k * length + i``.  Ops are those that are placed, by number.

    Buffer *b* was written by ``owner[b]`` (:data:`NOBODY`: it arrives from elsewhere) at
    ``first[b]`` and takes ``bytes[b]`` there (0: it is resident); its reads are those from
    ``read_start[b]`` to ``read_start[b + 1]``: ``reader`` needs ``read_bytes`` of it, which are
    sent to it at ``read_first``, until ``read_last``.
    """

    orders: int
    length: int
    owner: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    read_start: list[int] = field(default_factory=lambda: [0])
    reader: list[int] = field(default_factory=list)
    read_first: list[int] = field(default_factory=list)
    read_last: list[int] = field(default_factory=list)
    read_bytes: list[int] = field(default_factory=list)

    def add_buffer(self, owner: int, first: int, size: int) -> None:
        """A buffer whose reads follow."""
        self.owner.append(owner)
        self.first.append(first)
        self.bytes.append(size)
        self.read_start.append(len(self.reader))

    def add_read(self, reader: int, first: int, last: int, size: int) -> None:
        """A read of the last buffer."""
        self.reader.append(reader)
        self.read_first.append(first)
        self.read_last.append(last)
        self.read_bytes.append(size)
        self.read_start[-1] = len(self.reader)


def find_possible_lifetimes(
    steps: PossibleSteps, allowed: Mapping[str, Sequence[str]], host: str
) -> PossibleLifetimes:
    """The buffers along the orders of ``steps``; ``allowed`` has the devices that each op may use,
    in the order in which ops are numbered.

    All accelerators are one here, apart from the host: what GPU kernels keep in host memory stays
    out, as do copies of fetched values.  Both are there whatever the placement, and are for a
    prediction to count.  What a convolution takes when it is tuned is a buffer of the first of each
    shape: twice a copy of its result with red zones, as a chunk of less is given whole for the copy
    and nothing is left for the workspace and its red zones.  It can do without the copy, but few
    limits are so low that there is no room for it and high enough for the rest.
    """
    alike = next((d for devices in allowed.values() for d in devices if not is_cpu(d)), host)
    together = {
        name: (devices or (host,))[0] if all(map(is_cpu, devices)) else alike
        for name, devices in allowed.items()
    }
    step = steps.memory(together, tuple(dict.fromkeys((host, *together.values()))), host)
    number = {name: index for index, name in enumerate(allowed)}
    found = PossibleLifetimes(orders=len(steps.orders), length=len(steps.graph.ops))
    placed = [number[steps.owner.get(name, name)] for name in steps.graph.ops]
    for index, order in enumerate(steps.orders):
        _follow(step, order, index, placed, found)
    return found


def _follow(
    step: StepMemory,
    order: Sequence[str],
    sample: int,
    placed: Sequence[int],
    found: PossibleLifetimes,
) -> None:
    """Adds the buffers along one order."""
    layout = step.layout.sampled(sample)
    numbers = step.numbers(order)
    simulation = Simulation(layout, numbers, wanted=Wanted(records=True, reads=True))
    begin, end = sample * found.length, found.length - 1
    memory_of = dict(zip(layout.names, layout.devices, strict=True))

    def add(lifetime: Lifetime, *, is_resident: bool = False) -> None:
        owner, device, size, kind, first, last, reads = lifetime
        arrives = kind == "transfer" or memory_of[owner] != device
        writer = NOBODY if arrives else placed[step.number[owner]]
        found.add_buffer(writer, begin + first, 0 if is_resident else size)
        until = first
        for read in reads:
            holder = numbers[read.holder]
            if layout.devices[holder] == device:
                done, read_bytes = min(read.last, last), min(read.bytes, size)
                found.add_read(placed[holder], begin + read.first, begin + done, read_bytes)
                until = max(until, done)
        if until < last and not arrives and not is_resident:
            found.add_read(writer, begin + first, begin + last, size)

    for lifetime in simulation.lifetimes():
        add(lifetime)
    tuned = set()
    for now, op in enumerate(numbers):
        if op in layout.tuned and layout.tuned[op][0] not in tuned:
            tuned.add(layout.tuned[op][0])
            size = 2 * (layout.tuned[op][1] + RED_ZONES_BYTES)
            found.add_buffer(placed[op], begin + now, size)
            found.add_read(placed[op], begin + now, begin + now, size)
    for lifetime in simulation.resident_lifetimes(end):
        add(lifetime, is_resident=True)
