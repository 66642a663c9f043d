"""From when to when every buffer lives, along one execution order.

Reference counting as TensorFlow's executor does it: every input slot of an op that has yet to run
holds its buffer; an op that overwrites an input needs to be the only holder; a tensor that is sent
has a receive buffer as soon as its producer runs, and a GPU holds it until it is there.

    x ---> conv ---> relu ---> add ---> y           conv  |--|
                       |        ^                   relu     |-----|     (relu overwrites conv)
                       '-> pool-'                   pool        |--|
                                                    add            |---  (add overwrites relu)

Where several ops run at once, an op holds what it reads, what it writes and what its kernel takes
for itself until it is done, while others start.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from placer.prediction.memory.buffers import Lifetime, Read
from placer.prediction.memory.run import (
    BYTES,
    FEED,
    FIRST,
    FIRST_READ,
    HELD,
    ITEM,
    ITEMS,
    ITEMS_END,
    KIND,
    KINDS,
    LAST_READ,
    RECORDS,
    RESIDENT,
    Wanted,
    begin_run,
)
from placer.prediction.step.step_arrays import Ints
from placer.prediction.step.step_layout import StepLayout


def find_lifetimes(
    layout: StepLayout, order: Sequence[int], *, with_reads: bool = False
) -> list[Lifetime]:
    """The lifetimes of all buffers but the resident ones, if the ops run in ``order`` (numbers,
    each once).  ``with_reads`` also says who keeps each buffer."""
    wanted = Wanted(records=True, reads=with_reads)
    return Simulation(layout, order, wanted=wanted).lifetimes()


class Simulation:
    """The buffers of one step that has run along ``order``.

    ``lasts`` has, by position in ``order``, that of the last op that starts while that one runs:
    its own where ops run one after another, as all do without ``lasts``.
    """

    def __init__(
        self,
        layout: StepLayout,
        order: Sequence[int],
        *,
        lasts: Sequence[int] | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        from placer.prediction.memory.simulation import run_step

        known = layout.arrays()
        self.op_names = layout.names
        self.device_names, self.variable_names = known.device_names, known.variable_names
        at = np.array(order, np.int64)
        until = np.arange(len(at)) if lasts is None else np.array(lasts, np.int64)
        # compiled code writes where it is told to
        assert np.bincount(at, minlength=1).max() <= 1, "an op is in the order twice"
        assert len(until) == len(at) > until.max(initial=-1), "an op has no last position"
        room = 1
        wanted = wanted or Wanted()
        self.run = begin_run(known, wanted, room)
        while not run_step(known.arrays, self.run, at, until):
            room *= 4
            self.run = begin_run(known, wanted, room)

    def changes(self) -> Mapping[str, Ints]:
        """By how much what every device holds changes with each op of the order, and in the end."""
        return dict(zip(self.device_names, self.run.changes[:, :-1], strict=True))

    def records(self) -> Ints:
        """The rows of ``records`` of a :class:`~placer.prediction.memory.run.Run`."""
        return self.run.records[: self.run.counts[RECORDS]]

    def lifetimes(self) -> list[Lifetime]:
        """Returns what was found."""
        return [*self._lifetimes(self.records().tolist())]

    def resident_lifetimes(self, last: int) -> list[Lifetime]:
        """The lifetimes of resident buffers that are read, until ``last``."""
        held = [b for b in dict.fromkeys(self.run.values[:, HELD].tolist()) if b >= 0]
        rows = self.run.buffers[held]
        rows = rows[(rows[:, RESIDENT] > 0) & (rows[:, FIRST_READ] >= 0)]
        read = [[*r[: FIRST + 1], last, r[FIRST_READ], r[LAST_READ], 0] for r in rows.tolist()]
        return [*self._lifetimes(read)]

    def _lifetimes(self, rows: Iterable[Sequence[int]]) -> Iterator[Lifetime]:
        names, devices = self.op_names, self.device_names
        reads = self.run.reads.tolist()
        for owner, device, size, kind, first, last, read, last_read, _ in rows:
            kept = []
            while read >= 0:
                *found, following = reads[read]
                kept.append(Read(*found))
                read = following if read != last_read else -1
            yield Lifetime(
                names[owner], devices[device], size, KINDS[kind], first, last, tuple(kept)
            )

    def held_bytes(self, values: Sequence[int]) -> list[int]:
        """Returns what each of the values holds in the end, elements of lists included; what
        several of them hold counts for the first, what is fed or resident for none."""
        seen: set[int] = set()

        def bytes_of(buffer: int) -> int:
            if buffer < 0 or buffer in seen:
                return 0
            seen.add(buffer)
            row = self.run.buffers[buffer]
            own = 0 if row[RESIDENT] or row[KIND] == FEED else int(row[BYTES])
            items = self.run.pool[row[ITEMS] : row[ITEMS_END], ITEM]
            return own + sum(map(bytes_of, items.tolist()))

        return [bytes_of(int(self.run.values[value, HELD])) for value in values]
