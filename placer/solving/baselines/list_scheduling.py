"""Placements by list scheduling: ops one after the other, each where it starts or ends first."""

import bisect
import heapq
from collections.abc import Sequence

from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines.tasks import Placement, Room, Tasks, accelerators, mean_seconds


class _Clock:
    """When devices are free and messages have arrived, while ops are scheduled."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.problem = tasks.problem
        count = len(self.problem.device_names)
        parallel = self.problem.parallel_ops or (1,) * count
        self.free = [[0.0] * slots for slots in parallel]
        self.finish = [0.0] * len(tasks.order)

    def ready(self, op: int, device: int, room: Room) -> float:
        """When everything that ``op`` waits for can be on ``device``."""
        latest = 0.0
        for number in self.tasks.inputs[op]:
            producer = self.tasks.messages[number].producer
            source = room.of(producer)
            assert source is not None
            sending = self.tasks.send_seconds(number, source, device)
            latest = max(latest, self.finish[producer] + sending)
        return latest

    def start(self, op: int, device: int, room: Room) -> float:
        """When ``op`` could begin on ``device``."""
        return max(self.free[device][0], self.ready(op, device, room))

    def run(self, op: int, device: int, room: Room) -> None:
        """Schedule ``op`` now."""
        self.finish[op] = self.start(op, device, room) + self.problem.seconds[op][device]
        heapq.heapreplace(self.free[device], self.finish[op])


def m_etf(problem: PlacementProblem) -> Placement:
    """Places the pair that starts earliest, of all ready ops and devices with room (Baechi, SoCC
    2020, section 3.2, after J.-J. Hwang et al., SIAM J. Comput. 18, 1989, doi:10.1137/0218016)."""
    return EarliestFirst(Tasks(problem)).run()


class EarliestFirst:
    """A heap of (earliest start, op, device), whose entries are looked at again when their turn
    comes: a start only ever gets later.

    Ops that only wait for a device to be free begin as soon as it is, the first op first: they wait
    in ``queues[device]``, and the heap has the first of them alone (``turn[device]``).
    """

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.room = Room(tasks.problem)
        self.clock = _Clock(tasks)
        self.waiting = [len(inputs) for inputs in tasks.inputs]
        self.done = [False] * len(self.waiting)
        self.heap: list[tuple[float, int, int]] = []
        self.queues: list[list[int]] = [[] for _ in self.clock.free]
        self.turn: list[int | None] = [None] * len(self.queues)

    def run(self) -> Placement:
        """The whole placement."""
        for op in self.tasks.order:
            if not self.waiting[op]:
                self.push(op)
        while self.heap:
            begin, op, device = heapq.heappop(self.heap)
            if self.turn[device] == op:
                self.turn[device] = None
            self.look_at(begin, op, device)
            self.call(device)
        return self.room.placement()

    def look_at(self, begin: float, op: int, device: int) -> None:
        """Places ``op``, or has it wait for when it can begin."""
        if self.done[op]:
            return
        if not self.room.fits(op, device):
            self.push(op)
            return
        ready, free = self.clock.ready(op, device, self.room), self.clock.free[device][0]
        if max(ready, free) <= begin:
            self.place(op, device, begin)
        elif ready > free:
            heapq.heappush(self.heap, (ready, op, device))
        else:
            heapq.heappush(self.queues[device], op)

    def call(self, device: int) -> None:
        """The first op in the queue of ``device`` has its turn when the device is free."""
        queue, turn = self.queues[device], self.turn[device]
        while queue and self.done[queue[0]]:
            heapq.heappop(queue)
        if queue and (turn is None or queue[0] < turn):
            if turn is not None:
                heapq.heappush(queue, turn)
            op = heapq.heappop(queue)
            self.turn[device] = op
            heapq.heappush(self.heap, (self.clock.free[device][0], op, device))

    def push(self, op: int) -> None:
        """``op`` may begin on any device that has room."""
        for device in self.room.choices(op):
            begin = self.clock.start(op, device, self.room)
            heapq.heappush(self.heap, (begin, op, device))

    def place(self, op: int, device: int, begin: float) -> None:  # noqa: ARG002 see m-SCT
        """Run ``op``, whose turn came at ``begin``; ops that waited for it alone are ready."""
        self.done[op] = True
        self.room.put(op, device)
        self.clock.run(op, device, self.room)
        for number in self.tasks.outputs[op]:
            for consumer in self.tasks.messages[number].consumers:
                self.waiting[consumer] -= 1
                if not self.waiting[consumer]:
                    self.push(consumer)


def heft(problem: PlacementProblem) -> Placement:
    """The placement of :func:`heft_schedule`."""
    return heft_schedule(problem)[0]


def heft_schedule(problem: PlacementProblem) -> tuple[Placement, float]:
    """By falling upward rank, each op where it ends earliest, in the first gap that it fits into;
    and the length of that schedule in seconds.

    H. Topcuoglu, S. Hariri, M. Wu, Performance-Effective and Low-Complexity Task Scheduling for
    Heterogeneous Computing, IEEE TPDS 13, 2002, doi:10.1109/71.993206.
    """
    tasks = Tasks(problem)
    room, clock = Room(problem), _Clock(tasks)
    gaps = [_Gaps(len(slots)) for slots in clock.free]
    rank = upward_ranks(tasks)
    position = {op: place for place, op in enumerate(tasks.order)}
    for op in sorted(tasks.order, key=lambda op: (-rank[op], position[op])):
        ends = {
            device: gaps[device].end(clock.ready(op, device, room), problem.seconds[op][device])
            for device in room.choices(op)
        }
        device = min(ends, key=lambda device: ends[device])
        gaps[device].fill(clock.ready(op, device, room), problem.seconds[op][device])
        clock.finish[op] = ends[device]
        room.put(op, device)
    return room.placement(), max(clock.finish, default=0.0)


class _Gaps:
    """When each slot of a device is busy: sorted starts and ends."""

    def __init__(self, slots: int) -> None:
        self.slots: list[tuple[list[float], list[float]]] = [([], []) for _ in range(slots)]

    def end(self, ready: float, seconds: float) -> float:
        """When an op that is ready then would end."""
        return min(_first_gap(*slot, ready, seconds) for slot in self.slots) + seconds

    def fill(self, ready: float, seconds: float) -> None:
        """Occupy the gap that :meth:`end` found."""
        begins = [_first_gap(*slot, ready, seconds) for slot in self.slots]
        starts, ends = self.slots[begins.index(min(begins))]
        place = bisect.bisect_right(starts, min(begins))
        starts.insert(place, min(begins))
        ends.insert(place, min(begins) + seconds)


def _first_gap(
    starts: Sequence[float], ends: Sequence[float], ready: float, seconds: float
) -> float:
    place = bisect.bisect_right(ends, ready)
    begin = ready
    while place < len(starts) and starts[place] - begin < seconds:
        begin = max(begin, ends[place])
        place += 1
    return begin


def upward_ranks(tasks: Tasks) -> list[float]:
    """Per op, the mean seconds from its start to the end of the step along the longest path."""
    problem = tasks.problem
    devices = accelerators(problem)
    pairs = [(a, b) for a in devices for b in devices if a != b] or [(devices[0], devices[0])]
    latency = sum(problem.latency[a][b] for a, b in pairs) / len(pairs)
    per_byte = sum(1.0 / problem.bandwidth[a][b] for a, b in pairs) / len(pairs)
    rank = [0.0] * len(tasks.order)
    for op in reversed(tasks.order):
        after = 0.0
        for number in tasks.outputs[op]:
            sending = latency + tasks.messages[number].bytes * per_byte
            for consumer in tasks.messages[number].consumers:
                after = max(after, sending + rank[consumer])
        rank[op] = mean_seconds(problem, op) + after
    return rank
