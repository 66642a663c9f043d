"""Where every op runs under a placement, and where every tensor is produced and read.

Mirrors ``BuildMemoryDeviceInfo`` and ``IsDstInputOnHost`` of
``tensorflow/core/graph/graph_partition.cc``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from cost_models import device_names
from cost_models.kernels import KernelMatch
from cost_models.op_info import OpInfo
from placer.errors import UsageError
from placer.graph.op_graph import OpGraph

Place = tuple[str, str]
"""A device name and ``"device"`` or ``"host"``: the memory of that device that holds a tensor."""

_ALL_DEVICE_MEMORY = KernelMatch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """``device_of`` op, ``home`` of every tensor, and ``reads`` of every op, input by input.

    Ops that are fed run on the host, wherever they were placed.  All memory of a CPU is host
    memory; a GPU kernel keeps some of its arguments there too.
    """

    device_of: Mapping[str, str]
    home: Mapping[str, Place]
    reads: Mapping[str, tuple[Place, ...]]


def find_routes(graph: OpGraph, placement: Mapping[str, str], host: str) -> Routes:
    """The routes of all tensors of ``graph``.

    Raises :class:`UsageError` if an op has no device in ``placement``, or would read a resource
    handle (a variable, a table, an iterator) of another device, which TensorFlow cannot send.
    """
    device_of = _devices(graph, placement, host)
    keys = [*zip(device_of.values(), map(id, graph.infos), strict=True)]
    alike = dict(zip(keys, graph.ops.values(), strict=True))  # those of one OpInfo on one device
    known = {
        key: _argument_places(op.info, key[0], graph.gpu_kernels[op.name])
        for key, op in alike.items()
    }
    places = [known[key] for key in keys]
    reads = dict(zip(graph.ops, [inputs for inputs, _ in places], strict=True))
    written = chain.from_iterable([outputs for _, outputs in places])
    home = dict(zip(graph.tensor_numbers, written, strict=True))
    routes = Routes(device_of=device_of, home=home, reads=reads)
    _check_handles(graph, routes)
    return routes


@cache
def is_cpu(device: str) -> bool:
    """Is the device called ``device`` a CPU?"""
    return device_names.parse(device).type == "CPU"


@cache
def host_of(device: str) -> str:
    """The CPU whose memory is the host memory of ``device``: itself, or ``CPU:0`` of its task.

    >>> host_of("GPU:1"), host_of("/job:worker/task:1/device:GPU:0")
    ('CPU:0', '/job:worker/task:1/device:CPU:0')
    """
    if is_cpu(device):
        return device
    return device_names.canonical(replace(device_names.parse(device), type="CPU", index=0))


def _devices(graph: OpGraph, placement: Mapping[str, str], host: str) -> dict[str, str]:
    """The device of every op, fed ones on the host."""
    if not placement.keys() >= graph.ops.keys():
        missing = [name for name in graph.ops if name not in placement]
        raise UsageError(
            f"the placement has no device for {len(missing):,} of {len(graph.ops):,} ops, "
            f"the first one {missing[0]}; was it made for another model?"
        )
    devices = map(placement.__getitem__, graph.ops)
    return dict(zip(graph.ops, devices, strict=True)) | dict.fromkeys(graph.feeds, host)


def _argument_places(
    info: OpInfo, device: str, kernel: KernelMatch | None
) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Where an op on ``device`` has its inputs and its outputs."""
    kernel = kernel or _ALL_DEVICE_MEMORY

    def places(count: int, on_host: frozenset[int]) -> tuple[Place, ...]:
        all_host = is_cpu(device)
        return tuple(
            (device, "host" if all_host or index in on_host else "device") for index in range(count)
        )

    return (
        places(len(info.inputs), kernel.host_inputs),
        places(len(info.outputs), kernel.host_outputs),
    )


def _check_handles(graph: OpGraph, routes: Routes) -> None:
    """Raises :class:`UsageError` for the first op that reads a handle of another device."""
    if len({*routes.device_of.values()}) == 1:
        return
    for op, tensor in graph.handle_reads:
        device = routes.device_of[op]
        if routes.home[tensor][0] != device:
            raise UsageError(
                f"{op} on {device} reads the resource handle {tensor} on "
                f"{routes.home[tensor][0]}; a handle cannot be sent: place both on one device"
            )
