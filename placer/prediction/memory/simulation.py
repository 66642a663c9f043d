"""The simulation of a step's buffers, compiled: see :mod:`placer.prediction.memory.lifetimes`."""

from placer.machine_code.jit import compiled, compiled_part
from placer.prediction.memory import run as at
from placer.prediction.memory.lists import add_item, list_output, take_item
from placer.prediction.memory.run import Run
from placer.prediction.memory.run_log import (
    add_note,
    add_read,
    let_go,
    new_buffer,
    new_for,
    record,
    shared_buffer,
)
from placer.prediction.memory.sends import end_receiving, receive, send
from placer.prediction.memory.variables import assign, note_copies, read_variable, update_variables
from placer.prediction.step import step_arrays as step_at
from placer.prediction.step.step_arrays import Ints, StepArrays
from placer.prediction.step.step_layout import Effect

_FED, _RESIDENT, _READ_VARIABLE, _UPDATE, _ASSIGN, _ADD_ITEM, _TAKE_ITEM = map(
    int,
    (
        Effect.FED,
        Effect.RESIDENT,
        Effect.READ_VARIABLE,
        Effect.UPDATE_VARIABLE,
        Effect.ASSIGN_VARIABLE,
        Effect.ADD_ITEM,
        Effect.TAKE_ITEM,
    ),
)


@compiled
def run_step(step: StepArrays, run: Run, order: Ints, lasts: Ints) -> bool:
    """Runs the step along ``order``; op number i runs until that at ``lasts[i]`` has started.
    Returns whether there was room for all that it writes down."""
    counts, ops, active = run.counts, step.ops, at.NOTHING
    for now in range(len(order)):
        run.ops[order[now], at.POSITION] = now
    for now in range(len(order)):
        active = _finish_until(step, run, order, lasts, active, now)
        op = order[now]
        counts[at.NOW] = now
        counts[at.OP] = op
        if ops[op, step_at.OP_IDLE]:
            continue
        receive(step, run, op)
        if ops[op, step_at.OP_DEAD]:
            end_receiving(step, run, op)
            _finish(step, run, op)
            continue
        _start(step, run, op)
        if counts[at.FULL]:
            return False
        if lasts[now] == now:
            _finish(step, run, op)
        else:
            run.ops[active, at.RUNNING] = now
            active += 1
    _finish_until(step, run, order, lasts, active, len(order) + 1)
    for value in range(len(run.values)):
        buffer = run.values[value, at.HELD]
        if buffer < 0 or run.buffers[buffer, at.RESIDENT]:
            continue
        if run.buffers[buffer, at.HOLDERS] > 0:
            record(run, buffer, counts[at.NOW])
            run.buffers[buffer, at.HOLDERS] = -1
    return not counts[at.FULL]


@compiled_part
def _finish_until(
    step: StepArrays, run: Run, order: Ints, lasts: Ints, active: int, now: int
) -> int:
    """Finishes the ops that are done before position ``now``; returns how many still run."""
    ops = run.ops
    while active:
        first = 0
        for index in range(1, active):
            one, other = ops[index, at.RUNNING], ops[first, at.RUNNING]
            if lasts[one] < lasts[other] or (lasts[one] == lasts[other] and one < other):
                first = index
        done = ops[first, at.RUNNING]
        if lasts[done] >= now:
            break
        active -= 1
        ops[first, at.RUNNING] = ops[active, at.RUNNING]
        run.counts[at.NOW] = lasts[done]
        run.counts[at.OP] = order[lasts[done]]
        _finish(step, run, order[done])
    return active


@compiled_part
def _start(step: StepArrays, run: Run, op: int) -> None:
    """Makes the op's outputs and temporaries, and does what it does to variables and lists."""
    values, buffers, effect = run.values, run.buffers, step.ops[op, step_at.OP_EFFECT]
    first, end = step.ops[op, step_at.OP_OUTPUTS], step.ops[op, step_at.OP_OUTPUTS_END]
    if effect != _FED:
        _take_workspaces(step, run, op, True)
        for value in range(first, end):
            values[value, at.HELD] = _output_buffer(step, run, op, effect, value)
        _take_workspaces(step, run, op, False)
    for value in range(first, end):
        buffer = values[value, at.HELD]
        buffers[buffer, at.HOLDERS] += step.values[value, step_at.VALUE_READERS]
        send(step, run, op, value)
        if run.counts[at.LOGS_READS] and step.values[value, step_at.VALUE_FETCHED]:
            now, size = run.counts[at.NOW], step.values[value, step_at.VALUE_BYTES]
            add_read(run, buffer, now, len(step.ops), size)
    end_receiving(step, run, op)
    if effect >= _UPDATE:
        _change_state(step, run, op, effect)
    if run.counts[at.LOGS_REQUESTS] and not run.counts[at.FULL]:
        _note_requests(step, run, op)


@compiled_part
def _take_workspaces(step: StepArrays, run: Run, op: int, is_early: bool) -> None:
    """Takes what the op's kernel needs for itself before its outputs (``is_early``), or else after
    them."""
    ops, device = step.ops, step.ops[op, step_at.OP_DEVICE]
    first, end = ops[op, step_at.OP_EARLY], ops[op, step_at.OP_EARLY_END]
    if not is_early:
        if end > first or not ops[op, step_at.OP_TEMPORARY]:
            return
        first, end = ops[op, step_at.OP_LATE], ops[op, step_at.OP_LATE_END]
    if end > first or not is_early:
        run.ops[op, at.FIRST_WORKSPACE] = run.counts[at.BUFFERS]
        run.ops[op, at.WORKSPACES] = max(1, end - first)
    for place in range(first, end):
        new_buffer(run, op, device, step.flat[place], at.TEMPORARY)
    if first == end and not is_early:
        new_buffer(run, op, device, ops[op, step_at.OP_TEMPORARY], at.TEMPORARY)


@compiled_part
def _note_requests(step: StepArrays, run: Run, op: int) -> None:
    """Notes what the op may take besides, and what is taken once for all of its shape."""
    ops, buffers, device = step.ops, run.buffers, step.ops[op, step_at.OP_DEVICE]
    if ops[op, step_at.OP_ELASTIC]:
        add_note(run, at.ELASTIC, device, ops[op, step_at.OP_ELASTIC], op, at.NONE)
    if ops[op, step_at.OP_REPLACED] and run.ops[op, at.WORKSPACES]:
        # the chunk that came last is the output; the first is given back
        output = run.values[ops[op, step_at.OP_OUTPUTS], at.HELD]
        last = run.ops[op, at.FIRST_WORKSPACE] + run.ops[op, at.WORKSPACES] - 1
        given, own = buffers[output, at.CHUNK], buffers[last, at.CHUNK]
        if output >= 0 and given >= 0:
            run.chunks[given, 1] = 1 - run.chunks[given, 1]
            run.chunks[own, 1] = 1 - run.chunks[own, 1]
            buffers[output, at.CHUNK] = own
            buffers[last, at.CHUNK] = given
    tuned = ops[op, step_at.OP_TUNED]
    if tuned >= 0 and not run.ops[tuned, at.TUNED_BEFORE]:
        run.ops[tuned, at.TUNED_BEFORE] = 1
        add_note(run, at.TUNED, device, ops[op, step_at.OP_TUNED_BYTES], op, at.NONE)


@compiled_part
def _finish(step: StepArrays, run: Run, op: int) -> None:
    """The op needs its temporaries and inputs no more; what nobody reads is freed with them."""
    ops, values, buffers, now = step.ops, run.values, run.buffers, run.counts[at.NOW]
    first = run.ops[op, at.FIRST_WORKSPACE]
    for workspace in range(first, first + run.ops[op, at.WORKSPACES]):
        record(run, workspace, now)
    run.ops[op, at.WORKSPACES] = 0
    for place in range(ops[op, step_at.OP_INPUTS], ops[op, step_at.OP_INPUTS_END]):
        value = step.flat[place]
        buffer = values[value, at.HELD]
        if buffer >= 0:
            _add_read_of(step, run, buffer, value)
            buffers[buffer, at.HOLDERS] -= 1
            if not buffers[buffer, at.HOLDERS] and not buffers[buffer, at.RESIDENT]:
                let_go(run, buffer, now)
    first, end = ops[op, step_at.OP_OUTPUTS], ops[op, step_at.OP_OUTPUTS_END]
    if not ops[op, step_at.OP_DEAD]:
        for place in range(ops[op, step_at.OP_TURNED], ops[op, step_at.OP_TURNED_END], 2):
            _turn(step, run, op, step.flat[place], step.flat[place + 1])
    for value in range(first, end):
        buffer = values[value, at.HELD]
        if buffer >= 0 and not buffers[buffer, at.HOLDERS] and not buffers[buffer, at.RESIDENT]:
            let_go(run, buffer, now)


@compiled_part
def _turn(step: StepArrays, run: Run, op: int, value: int, copy: int) -> None:
    """Makes the copy in another order of its dimensions, as soon as the op is done."""
    values, buffers, source = run.values, run.buffers, run.values[value, at.HELD]
    turned = new_for(step, run, op, copy, at.ACTIVATION)
    values[copy, at.HELD] = turned
    buffers[turned, at.HOLDERS] = step.values[copy, step_at.VALUE_READERS]
    if source < 0:
        return
    buffers[source, at.HOLDERS] -= 1
    if buffers[source, at.HOLDERS] or buffers[source, at.RESIDENT]:
        return
    if not step.ops[op, step_at.OP_OUTPUTS] <= value < step.ops[op, step_at.OP_OUTPUTS_END]:
        let_go(run, source, run.counts[at.NOW])


@compiled_part
def _add_read_of(step: StepArrays, run: Run, buffer: int, value: int) -> None:
    """Writes down, if that is wanted, that the current op reads ``value``."""
    if run.counts[at.LOGS_READS]:
        values, now = step.values, run.counts[at.NOW]
        written = run.ops[values[value, step_at.VALUE_PRODUCER], at.POSITION]
        add_read(run, buffer, written, now, values[value, step_at.VALUE_BYTES])


@compiled_part
def _output_buffer(step: StepArrays, run: Run, op: int, effect: int, value: int) -> int:
    """The buffer of an output: resident, an input's, written over an input, or a new one."""
    if effect == _RESIDENT:
        return new_for(step, run, op, value, at.WEIGHTS)
    if effect == _READ_VARIABLE:
        return read_variable(step, run, op, value)
    if effect >= _ADD_ITEM:
        return list_output(step, run, op, effect, value)
    shared = shared_buffer(step, run, value)
    if shared >= 0:
        return shared
    for place in range(
        step.values[value, step_at.VALUE_OVER], step.values[value, step_at.VALUE_OVER_END]
    ):
        if _may_overwrite(run, step.flat[place]):
            return _overwrite(step, run, op, step.flat[place], value)
    return new_for(step, run, op, value, at.ACTIVATION)


@compiled_part
def _may_overwrite(run: Run, source: int) -> bool:
    """Whether the op is the only holder of an input that it may write over."""
    buffer = run.values[source, at.HELD]
    if buffer < 0 or run.buffers[buffer, at.RESIDENT]:
        return False
    return bool(run.buffers[buffer, at.HOLDERS] == 1)


@compiled_part
def _overwrite(step: StepArrays, run: Run, op: int, source: int, value: int) -> int:
    """The buffer of ``source``, now the op's own, unless what is written is only a slice of it; its
    chunk stays where it is."""
    buffers, now, buffer = run.buffers, run.counts[at.NOW], run.values[source, at.HELD]
    if buffers[buffer, at.BYTES] != step.values[value, step_at.VALUE_BYTES]:
        return int(buffer)
    _add_read_of(step, run, buffer, source)
    chunk, recorded = buffers[buffer, at.CHUNK], run.counts[at.RECORDS]
    buffers[buffer, at.CHUNK] = -1
    record(run, buffer, now - 1)
    if run.counts[at.RECORDS] > recorded:
        run.records[recorded, 8] = 1
    buffers[buffer, at.CHUNK] = chunk
    buffers[buffer, at.OWNER] = op
    buffers[buffer, at.KIND] = at.ACTIVATION
    buffers[buffer, at.FIRST] = now
    buffers[buffer, at.FIRST_READ] = -1
    buffers[buffer, at.LAST_READ] = -1
    return int(buffer)


@compiled_part
def _change_state(step: StepArrays, run: Run, op: int, effect: int) -> None:
    """Does what the op does to variables and lists."""
    if run.counts[at.LOGS_REQUESTS]:
        note_copies(step, run, op, effect == _UPDATE)
    if effect == _UPDATE:
        update_variables(step, run, op)
    elif effect == _ASSIGN:
        assign(step, run, op)
    elif effect == _ADD_ITEM:
        add_item(step, run, op)
    elif effect == _TAKE_ITEM:
        take_item(step, run, op)
