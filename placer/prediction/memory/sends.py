"""The tensors that GPUs have sent and still hold, along one execution order.

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

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from placer.prediction.memory.buffers import Buffer
from placer.prediction.step.routes import is_cpu

_Stream = tuple[str, bool]


class _Send(NamedTuple):
    """One tensor that an op has sent: the value that arrives, and the buffer that it is copied
    from."""

    op: int
    copy: int
    source: Buffer


class Sends:
    """The buffers that wait to be given back, by GPU and by whether they go to the host, and the
    values that nobody has read yet on the GPU where they arrive."""

    def __init__(self) -> None:
        self._leaving: dict[_Stream, deque[_Send]] = {}
        self._stream_of: dict[int, _Stream] = {}
        self._last: dict[str, int] = {}
        self._sending: dict[str, list[Buffer]] = {}
        self._new: set[int] = set()

    def begin(self, op: int, copy: int, target: str, source: Buffer) -> None:
        """The ``source`` is sent to the memory of ``target``, where it is the value ``copy``."""
        to_host = is_cpu(target)
        if not to_host:
            self._new.add(copy)
        if is_cpu(source.device):
            return
        stream = self._stream_of[copy] = source.device, to_host
        self._leaving.setdefault(stream, deque()).append(_Send(op, copy, source))
        source.holders += 1

    def start(self, op: int, device: str) -> list[Buffer]:
        """An op begins: returns what its device gives back by then."""
        self._last[device] = op
        return _given_back(self._sending.pop(device, ()))

    def end(self, copy: int) -> list[Buffer]:
        """The copy is read: returns what is given back by then."""
        stream = self._stream_of.get(copy)
        if stream is None:
            return []
        found, leaving = [], self._leaving[stream]
        while copy in self._stream_of:
            sent = leaving.popleft()
            del self._stream_of[sent.copy]
            if self._last.get(stream[0]) == sent.op:
                self._sending.setdefault(stream[0], []).append(sent.source)
            else:
                found.append(sent.source)
        return _given_back(found)

    def is_new(self, value: int) -> bool:
        """Whether that is what has arrived on a GPU, and nobody asked for before."""
        if value not in self._new:
            return False
        self._new.remove(value)
        return True


def _given_back(sources: Iterable[Buffer]) -> list[Buffer]:
    found = [*sources]
    for source in found:
        source.holders -= 1
    return found
