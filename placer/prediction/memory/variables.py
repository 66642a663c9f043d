"""The values of variables while a step runs, compiled.

Updates copy a variable that is still being read; an assigned value becomes its buffer.  A variable
that is accessed row by row keeps its buffer to itself: reads copied it, and what is assigned is
copied into a new one.  ``PrepareToUpdateVariable``, ``EnsureSparseVariableAccess`` and
``AssignVariableOp`` of
``tensorflow/core/kernels/{training_op_helpers.h,resource_variable_ops.cc}``.
"""

from placer.machine_code.jit import compiled_part
from placer.prediction.memory import run as at
from placer.prediction.memory.run import Run
from placer.prediction.memory.run_log import add_event, add_note, ask, new_buffer, new_for, record
from placer.prediction.step import step_arrays as step_at
from placer.prediction.step.step_arrays import StepArrays


@compiled_part
def read_variable(step: StepArrays, run: Run, op: int, value: int) -> int:
    """Returns the variable's own buffer, or a copy if the variable is also accessed row by row."""
    variable = step.flat[step.ops[op, step_at.OP_VARIABLES]]
    if run.variables[variable, at.COPIED_ON_READ]:
        return new_for(step, run, op, value, at.ACTIVATION)
    if run.variables[variable, at.VALUE] < 0:
        run.variables[variable, at.VALUE] = new_for(step, run, op, value, at.WEIGHTS)
    return int(run.variables[variable, at.VALUE])


@compiled_part
def note_copies(step: StepArrays, run: Run, op: int, is_update: bool) -> None:
    """Notes what the first update of a variable that starts as a constant writes to."""
    variables = run.variables
    for place in range(step.ops[op, step_at.OP_VARIABLES], step.ops[op, step_at.OP_VARIABLES_END]):
        variable = step.flat[place]
        size = variables[variable, at.CONSTANT_BYTES]
        variables[variable, at.CONSTANT_BYTES] = 0
        if size > 0 and is_update:
            device, kept = (
                variables[variable, at.VARIABLE_DEVICE],
                variables[variable, at.KEPT_CHUNK],
            )
            add_note(run, at.COPIED, device, size, op, kept)


@compiled_part
def update_variables(step: StepArrays, run: Run, op: int) -> None:
    """Writes to a copy of what is still being read."""
    for place in range(step.ops[op, step_at.OP_VARIABLES], step.ops[op, step_at.OP_VARIABLES_END]):
        _release_value(run, step.flat[place], run.counts[at.NOW])


@compiled_part
def assign(step: StepArrays, run: Run, op: int) -> None:
    """Gives the variable another value."""
    buffers, variables, now = run.buffers, run.variables, run.counts[at.NOW]
    variable = step.flat[step.ops[op, step_at.OP_VARIABLES]]
    value = run.values[step.flat[step.ops[op, step_at.OP_INPUTS] + 1], at.HELD]
    if value < 0:  # of a branch that does not run
        return
    if variables[variable, at.COPIED_ON_READ]:
        device, size = step.ops[op, step_at.OP_DEVICE], buffers[value, at.BYTES]
        record(run, new_buffer(run, op, device, size, at.TEMPORARY), now)
        return
    kind, given = buffers[value, at.KIND], buffers[value, at.CHUNK]
    becomes_its = kind in (at.ACTIVATION, at.TRANSFER)
    device = variables[variable, at.VARIABLE_DEVICE]
    if becomes_its and given >= 0 and device == buffers[value, at.DEVICE]:
        buffers[value, at.CHUNK] = -1  # the variable's from now on
        if not _is_set_aside(run, variable):
            add_event(run, device, ~variables[variable, at.VARIABLE_CHUNK], at.NONE)
        variables[variable, at.VARIABLE_CHUNK] = given
    _release_value(run, variable, now + 1)
    if becomes_its and not buffers[value, at.RESIDENT]:
        record(run, value, now)
        buffers[value, at.RESIDENT] = 1
        variables[variable, at.VALUE] = value


@compiled_part
def _release_value(run: Run, variable: int, first: int) -> None:
    """The old value is resident no more; from ``first`` on it lives while it is read.  A variable
    that is still being read is copied before it changes."""
    buffers, variables = run.buffers, run.variables
    old = variables[variable, at.VALUE]
    if old < 0:
        return
    logs = run.counts[at.LOGS_REQUESTS]
    if logs and buffers[old, at.CHUNK] < 0 and _is_set_aside(run, variable):
        size = run.chunks[buffers[old, at.CHUNK], 0]
        variables[variable, at.VARIABLE_CHUNK] = ask(run, buffers[old, at.DEVICE], size)
    variables[variable, at.VALUE] = -1
    if buffers[old, at.HOLDERS] > 0:
        buffers[old, at.RESIDENT] = 0
        buffers[old, at.KIND] = at.WEIGHTS
        buffers[old, at.FIRST] = first


@compiled_part
def _is_set_aside(run: Run, variable: int) -> bool:
    """Whether the value of a variable is still being read, where the variable is: then it keeps
    the chunk until it is not."""
    buffers, old = run.buffers, run.variables[variable, at.VALUE]
    if old < 0 or buffers[old, at.HOLDERS] <= 0:
        return False
    if buffers[old, at.DEVICE] != run.variables[variable, at.VARIABLE_DEVICE]:
        return False
    buffers[old, at.CHUNK] = run.variables[variable, at.VARIABLE_CHUNK]
    return True
