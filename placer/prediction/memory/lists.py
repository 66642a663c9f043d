"""Tensor lists while a step runs, compiled: which buffers they hold (``list_kernels.h``)."""

from placer.machine_code.jit import compiled_part
from placer.prediction.memory import run as at
from placer.prediction.memory.run import Run
from placer.prediction.memory.run_log import let_go, new_buffer, new_for, shared_buffer
from placer.prediction.step import step_arrays as step_at
from placer.prediction.step.step_arrays import StepArrays
from placer.prediction.step.step_layout import Effect

_READ_ITEM, _TAKE_ITEM = int(Effect.READ_ITEM), int(Effect.TAKE_ITEM)
_CUT, _JOIN = int(Effect.CUT_INTO_LIST), int(Effect.JOIN_LISTS)


@compiled_part
def list_output(step: StepArrays, run: Run, op: int, effect: int, value: int) -> int:
    """Returns the buffer of a list, or of an element that is taken out of it."""
    if effect == _JOIN:
        return _joined_lists(step, run, op, value)
    if effect >= _CUT:
        return _new_list(step, run, op, value, effect == _CUT)
    old = shared_buffer(step, run, value)
    if old < 0:
        return new_for(step, run, op, value, at.ACTIVATION)
    if effect == _READ_ITEM:
        return _read_item(run, old)
    return _changed_list(step, run, op, value, old, effect == _TAKE_ITEM)


@compiled_part
def _read_item(run: Run, old: int) -> int:
    """The element that is read: one after the other, as loops do."""
    first, end = run.buffers[old, at.ITEMS], run.buffers[old, at.ITEMS_END]
    if first == end:
        return old
    run.buffers[old, at.ITEMS_READ] += 1
    place = first + (run.buffers[old, at.ITEMS_READ] - 1) % (end - first)
    return int(run.pool[place, at.ITEM])


@compiled_part
def _changed_list(step: StepArrays, run: Run, op: int, value: int, old: int, takes: bool) -> int:
    """The list that the op puts an element into, or takes the last one out of, if it has
    any; or that element."""
    buffers = run.buffers
    first, end = buffers[old, at.ITEMS], buffers[old, at.ITEMS_END]
    takes = takes and end > first
    if takes and value != step.ops[op, step_at.OP_OUTPUTS]:
        return int(run.pool[end - 1, at.ITEM])
    if buffers[old, at.HOLDERS] == 1 or not (end > first or buffers[old, at.RESIDENT]):
        return old
    return _list_of(step, run, op, value, first, end - takes, buffers[old, at.CAPACITY])


@compiled_part
def _new_list(step: StepArrays, run: Run, op: int, value: int, is_cut: bool) -> int:
    """A list of elements that are cut out of a tensor, or of zeros, as many as there are in
    another list."""
    buffers, pool, device = run.buffers, run.pool, step.values[value, step_at.VALUE_MEMORY]
    source, begin, own = -1, 0, 0
    if is_cut:
        count = step.ops[op, step_at.OP_ITEM_COUNT]
        size = step.values[value, step_at.VALUE_BYTES] // count
    else:
        for place in range(
            step.ops[op, step_at.OP_INPUTS_END] - 1, step.ops[op, step_at.OP_INPUTS] - 1, -1
        ):
            if run.values[step.flat[place], at.HELD] >= 0:
                source = run.values[step.flat[place], at.HELD]
        if source < 0:  # all of branches that do not run
            return new_for(step, run, op, value, at.ACTIVATION)
        begin, own = buffers[source, at.ITEMS], buffers[source, at.BYTES]
        size, count = own, buffers[source, at.ITEMS_END] - begin + (own > 0)
    first = _room(run, count)
    if first < 0:
        return 0
    for index in range(count):
        if not is_cut and begin + index < buffers[source, at.ITEMS_END]:
            item_bytes = buffers[pool[begin + index, at.ITEM], at.BYTES]
        else:
            item_bytes = size
        pool[first + index, at.ITEM] = new_buffer(run, op, device, item_bytes, at.ACTIVATION)
    return _list_of(step, run, op, value, first, first + count, count)


@compiled_part
def _joined_lists(step: StepArrays, run: Run, op: int, value: int) -> int:
    """A list of the elements that one of the lists has, and sums of those that both
    have."""
    buffers, pool, device = run.buffers, run.pool, step.values[value, step_at.VALUE_MEMORY]
    inputs, inputs_end = step.ops[op, step_at.OP_INPUTS], step.ops[op, step_at.OP_INPUTS_END]
    capacity, most = 0, 0
    for place in range(inputs, inputs_end):
        source = run.values[step.flat[place], at.HELD]
        if source >= 0:
            capacity = max(capacity, buffers[source, at.CAPACITY])
            most += buffers[source, at.ITEMS_END] - buffers[source, at.ITEMS]
    first, count = _room(run, most), 0
    if first < 0:
        return 0
    for place in range(inputs, inputs_end):
        source = run.values[step.flat[place], at.HELD]
        if source < 0:
            continue
        begin = buffers[source, at.ITEMS]
        more = buffers[source, at.ITEMS_END] - begin
        both = max(0, min(count + more - capacity, count, more)) if capacity else 0
        for index in range(both, count):
            pool[first + index - both, at.ITEM] = pool[first + index, at.ITEM]
        end = first + count - both
        for index in range(both, more):
            pool[end + index - both, at.ITEM] = pool[begin + index, at.ITEM]
        end += more - both
        for index in range(both):
            size = buffers[pool[begin + index, at.ITEM], at.BYTES]
            pool[end + index, at.ITEM] = new_buffer(run, op, device, size, at.ACTIVATION)
        count = end + both - first
    return _list_of(step, run, op, value, first, first + count, capacity if capacity else -1)


@compiled_part
def add_item(step: StepArrays, run: Run, op: int) -> None:
    """Puts a tensor into the list; what is beyond its capacity leaves it."""
    buffers, pool = run.buffers, run.pool
    item = run.values[step.ops[op, step_at.OP_ITEM], at.HELD]
    holder = run.values[step.ops[op, step_at.OP_OUTPUTS], at.HELD]
    if item < 0 or holder < 0:  # of a branch that does not run
        return
    buffers[item, at.HOLDERS] += 1
    first, end = buffers[holder, at.ITEMS], buffers[holder, at.ITEMS_END]
    if end == buffers[holder, at.ITEMS_ROOM]:
        room = 2 * (end - first) + 4
        begin = _room(run, room)
        if begin < 0:
            return
        for index in range(end - first):
            pool[begin + index, at.ITEM] = pool[first + index, at.ITEM]
        first, end = begin, begin + end - first
        buffers[holder, at.ITEMS] = begin
        buffers[holder, at.ITEMS_ROOM] = begin + room
    pool[end, at.ITEM] = item
    buffers[holder, at.ITEMS_END] = end + 1
    if 0 <= buffers[holder, at.CAPACITY] < end + 1 - first:
        buffers[holder, at.ITEMS] += 1
        _drop(run, pool[first, at.ITEM])
        buffers[holder, at.ITEMS_READ] = max(buffers[holder, at.ITEMS_READ] - 1, 0)


@compiled_part
def take_item(step: StepArrays, run: Run, op: int) -> None:
    """Takes the element out, unless the list was copied without it."""
    buffers, outputs = run.buffers, step.ops[op, step_at.OP_OUTPUTS]
    rest, item = run.values[outputs, at.HELD], run.values[outputs + 1, at.HELD]
    if rest < 0 or rest == item or buffers[rest, at.ITEMS] == buffers[rest, at.ITEMS_END]:
        return
    if run.pool[buffers[rest, at.ITEMS_END] - 1, at.ITEM] == item:
        buffers[rest, at.ITEMS_END] -= 1
        _drop(run, item)


@compiled_part
def _list_of(
    step: StepArrays, run: Run, op: int, value: int, first: int, end: int, capacity: int
) -> int:
    """A new list of those in the pool."""
    buffers, pool = run.buffers, run.pool
    new = new_buffer(run, op, step.values[value, step_at.VALUE_MEMORY], at.NOTHING, at.ACTIVATION)
    begin = _room(run, end - first)
    if begin < 0:
        return new
    for index in range(end - first):
        item = pool[first + index, at.ITEM]
        pool[begin + index, at.ITEM] = item
        buffers[item, at.HOLDERS] += 1
    buffers[new, at.ITEMS] = begin
    buffers[new, at.ITEMS_END] = buffers[new, at.ITEMS_ROOM] = begin + end - first
    buffers[new, at.CAPACITY] = capacity
    return new


@compiled_part
def _room(run: Run, count: int) -> int:
    """Where in the pool there is room for so many, which is taken; -1 if there is none."""
    first = run.counts[at.ITEMS_IN_POOL]
    if first + count >= len(run.pool):
        run.counts[at.FULL] = 1
        return -1
    run.counts[at.ITEMS_IN_POOL] += count
    return int(first)


@compiled_part
def _drop(run: Run, item: int) -> None:
    """A list holds the element no more."""
    run.buffers[item, at.HOLDERS] -= 1
    if not run.buffers[item, at.HOLDERS] and not run.buffers[item, at.RESIDENT]:
        let_go(run, item, run.counts[at.NOW])
