"""The tensors that GPUs have sent and still hold, along one execution order, compiled.

A tensor that leaves a GPU is copied on a stream of its own, once what was launched before on both
GPUs is done, and is held until an event says that it is there: local readers that are done do not
free it, and none may write over it meanwhile.  Copies of one GPU to others, and those to the host,
are each done in the order in which they were sent.  So what is sent is surely given back when an op
elsewhere begins to read it, or what was sent after it::

    GPU:0   a ──┬── b ── c ── d        a is held while b, c and d are launched,
    GPU:1       └─────────── e         until e begins

The thread that sends may be slow to return from that: what was sent last is surely given back only
when the GPU's next op begins, and what it receives meanwhile finds it still there.

What arrives on a GPU is held there by the rendezvous, too, until after it has woken the readers:
none of those that begin first can count on being the only holder, and so may write over it.

``DeviceToDeviceCopy`` and ``CopyGPUTensorToCPU`` of ``core/common_runtime/gpu/gpu_util.cc`` (their
``input_ref``), ``EventMgr::ThenExecute`` of ``core/common_runtime/device/device_event_mgr.h``,
``IntraProcessRecvAsyncImpl`` of ``core/common_runtime/rendezvous_mgr.cc`` (its ``out``).
"""

from placer.machine_code.jit import compiled_part
from placer.prediction.memory import run as at
from placer.prediction.memory.run import Run
from placer.prediction.memory.run_log import let_go, new_for
from placer.prediction.step import step_arrays as step_at
from placer.prediction.step.step_arrays import StepArrays


@compiled_part
def send(step: StepArrays, run: Run, op: int, value: int) -> None:
    """Makes the receive buffers of what is read elsewhere, held by the readers; a GPU holds what it
    sends."""
    sent, buffers, devices, source = (
        run.values,
        run.buffers,
        run.devices,
        run.values[value, at.HELD],
    )
    for place in range(
        step.values[value, step_at.VALUE_COPIES], step.values[value, step_at.VALUE_COPIES_END]
    ):
        copy = step.flat[place]
        received = new_for(step, run, op, copy, at.TRANSFER)
        sent[copy, at.HELD] = received
        buffers[received, at.HOLDERS] = step.values[copy, step_at.VALUE_READERS]
        if source < 0:
            continue
        to_host = devices[step.values[copy, step_at.VALUE_MEMORY], at.IS_CPU]
        sent[copy, at.IS_NEW] = 1 - to_host
        device = buffers[source, at.DEVICE]
        if devices[device, at.IS_CPU]:
            continue
        sent[copy, at.SENT_TO], sent[copy, at.SENT_BY] = 2 * device + to_host, op
        sent[copy, at.SOURCE], sent[copy, at.NEXT_SENT] = source, -1
        buffers[source, at.HOLDERS] += 1
        first = at.FIRST_SENT + to_host
        if devices[device, first] < 0:
            devices[device, first] = copy
        else:
            sent[devices[device, first + 2], at.NEXT_SENT] = copy
        devices[device, first + 2] = copy


@compiled_part
def receive(step: StepArrays, run: Run, op: int) -> None:
    """Lets go what is surely given back as the op begins; the rendezvous still has what it is the
    first to read there, until :func:`end_receiving`."""
    device, sent, buffers, devices = (
        step.ops[op, step_at.OP_DEVICE],
        run.values,
        run.buffers,
        run.devices,
    )
    first, end = step.ops[op, step_at.OP_INPUTS], step.ops[op, step_at.OP_INPUTS_END]
    found, copy = 0, devices[device, at.FIRST_GIVEN]
    while copy >= 0:
        sent[found, at.GIVEN] = copy
        found += 1
        copy = sent[copy, at.NEXT_GIVEN]
    devices[device, at.FIRST_GIVEN] = -1
    devices[device, at.LAST_OP] = op
    for place in range(first, end):
        if sent[step.flat[place], at.SENT_TO] >= 0:
            found = _end_sending(run, step.flat[place], found)
    for index in range(found):
        buffers[sent[sent[index, at.GIVEN], at.SOURCE], at.HOLDERS] -= 1
    for index in range(found):
        source = sent[sent[index, at.GIVEN], at.SOURCE]
        if not buffers[source, at.HOLDERS] and not buffers[source, at.RESIDENT]:
            let_go(run, source, run.counts[at.NOW] - 1)
    for place in range(first, end):
        value = step.flat[place]
        if sent[value, at.IS_NEW] == 1:
            sent[value, at.IS_NEW] = 0
            if sent[value, at.HELD] >= 0:
                buffers[sent[value, at.HELD], at.HOLDERS] += 1
                sent[value, at.IS_NEW] = 2


@compiled_part
def end_receiving(step: StepArrays, run: Run, op: int) -> None:
    """Lets the rendezvous go, which has woken the readers by now."""
    for place in range(step.ops[op, step_at.OP_INPUTS], step.ops[op, step_at.OP_INPUTS_END]):
        value = step.flat[place]
        if run.values[value, at.IS_NEW] == 2:
            run.values[value, at.IS_NEW] = 0
            run.buffers[run.values[value, at.HELD], at.HOLDERS] -= 1


@compiled_part
def _end_sending(run: Run, copy: int, found: int) -> int:
    """The copy is read: it has arrived, as have those sent before it.  Adds to the ``found`` copies
    that are ``GIVEN`` back by then; what the GPU sent last waits for its next op."""
    sent, devices = run.values, run.devices
    device = sent[copy, at.SENT_TO] // 2
    column = at.FIRST_SENT + sent[copy, at.SENT_TO] % 2
    while sent[copy, at.SENT_TO] >= 0:
        first = devices[device, column]
        devices[device, column] = sent[first, at.NEXT_SENT]
        sent[first, at.SENT_TO] = -1
        if devices[device, at.LAST_OP] != sent[first, at.SENT_BY]:
            sent[found, at.GIVEN] = first
            found += 1
            continue
        sent[first, at.NEXT_GIVEN] = -1
        if devices[device, at.FIRST_GIVEN] < 0:
            devices[device, at.FIRST_GIVEN] = first
        else:
            sent[devices[device, at.LAST_GIVEN], at.NEXT_GIVEN] = first
        devices[device, at.LAST_GIVEN] = first
    return found
