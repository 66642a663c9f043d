"""New buffers of a step that runs, and what is written down of them, compiled."""

from placer.machine_code.jit import compiled_part
from placer.prediction.memory import run as at
from placer.prediction.memory.run import Run
from placer.prediction.step import step_arrays as step_at
from placer.prediction.step.step_arrays import StepArrays


@compiled_part
def new_buffer(run: Run, op: int, device: int, size: int, kind: int) -> int:
    """Returns a buffer that ``op`` writes from now on; weights are resident."""
    buffers, counts = run.buffers, run.counts
    new = counts[at.BUFFERS]
    if new + 1 >= len(buffers):
        counts[at.FULL] = 1
        return int(new)
    counts[at.BUFFERS] += 1
    buffers[new, at.OWNER] = op
    buffers[new, at.DEVICE] = device
    buffers[new, at.BYTES] = size
    buffers[new, at.KIND] = kind
    buffers[new, at.FIRST] = counts[at.NOW]
    buffers[new, at.RESIDENT] = kind == at.WEIGHTS
    buffers[new, at.CHUNK] = -1
    buffers[new, at.FIRST_READ] = -1
    buffers[new, at.LAST_READ] = -1
    buffers[new, at.CAPACITY] = -1
    if counts[at.LOGS_REQUESTS] and kind != at.WEIGHTS and (size or kind == at.TEMPORARY):
        buffers[new, at.CHUNK] = ask(run, device, size)
        if kind == at.TEMPORARY:
            run.chunks[buffers[new, at.CHUNK], 1] = 1
    return int(new)


@compiled_part
def new_for(step: StepArrays, run: Run, op: int, value: int, kind: int) -> int:
    """Returns a new buffer for a value."""
    device, size = step.values[value, step_at.VALUE_MEMORY], step.values[value, step_at.VALUE_BYTES]
    return new_buffer(run, op, device, size, kind)


@compiled_part
def shared_buffer(step: StepArrays, run: Run, value: int) -> int:
    """Returns the first of the buffers that the value may be, -1 if there is none."""
    for place in range(
        step.values[value, step_at.VALUE_SHARED], step.values[value, step_at.VALUE_SHARED_END]
    ):
        buffer = run.values[step.flat[place], at.HELD]
        if buffer >= 0:
            return int(buffer)
    return -1


@compiled_part
def ask(run: Run, device: int, size: int) -> int:
    """Returns the chunk that the device's allocator is asked for."""
    counts = run.counts
    chunk = counts[at.CHUNKS]
    if chunk + 1 >= len(run.chunks):
        counts[at.FULL] = 1
        return int(chunk)
    counts[at.CHUNKS] += 1
    run.chunks[chunk, 0] = size
    add_event(run, device, chunk, counts[at.OP])
    return int(chunk)


@compiled_part
def add_event(run: Run, device: int, event: int, op: int) -> None:
    """Writes down that a chunk is asked for, or freed."""
    counts, events = run.counts, run.events
    number = counts[at.EVENTS]
    if number + 1 >= len(events):
        counts[at.FULL] = 1
        return
    events[number, 0] = device
    events[number, 1] = event
    events[number, 2] = op
    run.devices[device, at.ASKED] += 1
    counts[at.EVENTS] += 1


@compiled_part
def add_note(run: Run, kind: int, device: int, size: int, op: int, chunk: int) -> None:
    """Writes down what may be asked for between two events."""
    number, notes = run.counts[at.NOTES], run.notes
    notes[number, 0] = kind
    notes[number, 1] = device
    notes[number, 2] = run.devices[device, at.ASKED]
    notes[number, 3] = size
    notes[number, 4] = op
    notes[number, 5] = chunk
    run.counts[at.NOTES] += 1


@compiled_part
def add_read(run: Run, buffer: int, written: int, last: int, size: int) -> None:
    """Writes down who keeps the buffer: what was written then is read until ``last``."""
    counts, reads, buffers = run.counts, run.reads, run.buffers
    new = counts[at.READS]
    if new + 1 >= len(reads):
        counts[at.FULL] = 1
        return
    counts[at.READS] += 1
    reads[new, 0] = written
    reads[new, 1] = last
    reads[new, 2] = counts[at.NOW]
    reads[new, 3] = size
    reads[new, 4] = -1
    if buffers[buffer, at.LAST_READ] < 0:
        buffers[buffer, at.FIRST_READ] = new
    else:
        reads[buffers[buffer, at.LAST_READ], 4] = new
    buffers[buffer, at.LAST_READ] = new


@compiled_part
def record(run: Run, buffer: int, last: int) -> None:
    """Writes down that the buffer is there until the op at ``last``, and frees its chunk."""
    buffers, counts, records, changes = run.buffers, run.counts, run.records, run.changes
    device, size, first = (
        buffers[buffer, at.DEVICE],
        buffers[buffer, at.BYTES],
        buffers[buffer, at.FIRST],
    )
    if first <= last:
        changes[device, first] += size
        changes[device, last + 1] -= size
        if counts[at.LOGS_RECORDS] and size:
            number = counts[at.RECORDS]
            if number + 1 >= len(records):
                counts[at.FULL] = 1
                return
            counts[at.RECORDS] += 1
            for column in range(at.FIRST + 1):
                records[number, column] = buffers[buffer, column]
            records[number, 5] = last
            records[number, 6] = buffers[buffer, at.FIRST_READ]
            records[number, 7] = buffers[buffer, at.LAST_READ]
    if buffers[buffer, at.CHUNK] >= 0:
        add_event(run, device, ~buffers[buffer, at.CHUNK], at.NONE)
        buffers[buffer, at.CHUNK] = -1


@compiled_part
def let_go(run: Run, buffer: int, last: int) -> None:
    """Frees the buffer that nobody holds after the op at ``last``, and then what it holds."""
    buffers, pool, found = run.buffers, run.pool, 0
    record(run, buffer, last)
    while True:
        buffers[buffer, at.HOLDERS] = -1
        first, end = buffers[buffer, at.ITEMS], buffers[buffer, at.ITEMS_END]
        if found + end - first >= len(pool):
            run.counts[at.FULL] = 1
            return
        for place in range(end - 1, first - 1, -1):  # the first of them is next
            pool[found, at.STACKED] = pool[place, at.ITEM]
            found += 1
        while True:
            if not found:
                return
            found -= 1
            buffer = pool[found, at.STACKED]
            buffers[buffer, at.HOLDERS] -= 1
            if not buffers[buffer, at.HOLDERS] and not buffers[buffer, at.RESIDENT]:
                break
        record(run, buffer, run.counts[at.NOW])
