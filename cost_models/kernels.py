"""Where can an op run, and which of its arguments stay in host memory?

The answer comes from a registry of kernels: a snapshot of TensorFlow's own (``data/kernels.json``,
written by ``benchmarks/inputs/kernel_snapshot.py``).  Kernels are chosen as
``FindKernelRegistration`` of ``tensorflow/core/framework/op_kernel.cc`` does, host memory as
``MemoryTypesForNode`` of ``memory_types.cc`` does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cost_models.op_info import OpInfo, TensorProperties

SCHEMA = "placer.kernels/1"

_LABEL = "_kernel"
"""The attribute by which an op asks for a kernel that is registered with this label."""

_PLATFORMS: Mapping[str, str] = {"XlaCallModule": "platforms"}
"""The attribute that lists the platforms which an op was compiled for, none meaning any
(``tf2xla/kernels/xla_call_module_loader.cc``)."""

_DEVICE_PLATFORMS: Mapping[str, frozenset[str]] = {
    "CPU": frozenset({"CPU"}),
    "GPU": frozenset({"CUDA", "ROCM"}),
}

_ALWAYS_ON_HOST = frozenset({"string", "resource"})
_FUNCTION_CALLS = frozenset(
    {"SymbolicGradient", "PartitionedCall", "StatefulPartitionedCall", "While"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMatch:
    """The kernel of an op on a GPU: the numbers of the inputs and outputs it keeps on the host."""

    host_inputs: frozenset[int] = frozenset()
    host_outputs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One registered kernel: ``constraints`` are the allowed values of attributes (dtype names or
    plain values), ``host_arguments`` the arguments that it reads or writes in host memory."""

    constraints: Mapping[str, frozenset[object]] = field(default_factory=dict)
    host_arguments: frozenset[str] = frozenset()
    label: str
    priority: int


@dataclass(frozen=True, slots=True)
class Argument:
    """One input or output argument of an op definition: what the snapshot has between colons.

    ``type_attribute``, ``number_attribute`` and ``list_attribute`` name the attributes that give
    its dtype, how many tensors it stands for, and the dtypes of a list.
    """

    name: str
    type_attribute: str = ""
    number_attribute: str = ""
    list_attribute: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpKernels:
    """All kernels of one op type by device type (``CPU``, ``GPU``, ``DEFAULT``).

    ``defaults`` are the op definition's defaults of the attributes that kernels constrain.
    """

    inputs: tuple[Argument, ...] = ()
    outputs: tuple[Argument, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)
    kernels: Mapping[str, tuple[Kernel, ...]] = field(default_factory=dict)


class KernelRegistry:
    """Which kernels a TensorFlow has.  ``ops`` maps op types to rows of the snapshot's format,
    read when they are first asked for."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        if document.get("schema") != SCHEMA:
            raise ValueError(f"not a {SCHEMA} document")
        self.tensorflow_version: str = document["tensorflow_version"]
        self._values = [frozenset(values) for values in document["values"]]
        self._rows: Mapping[str, Mapping[str, Any]] = document["ops"]
        self._read: dict[str, OpKernels] = {}

    def __iter__(self) -> Iterator[str]:
        """The op types with a kernel, in alphabetical order."""
        return iter(self._rows)

    def __contains__(self, op_type: str) -> bool:
        return op_type in self._rows

    def __getitem__(self, op_type: str) -> OpKernels:
        """The kernels of ``op_type``; ``KeyError`` if it has none on any device."""
        if op_type not in self._read:
            self._read[op_type] = self._op_kernels(self._rows[op_type])
        return self._read[op_type]

    def _op_kernels(self, row: Mapping[str, Any]) -> OpKernels:
        return OpKernels(
            inputs=_arguments(row.get("in", "")),
            outputs=_arguments(row.get("out", "")),
            defaults=row.get("defaults", {}),
            kernels={
                device: tuple(self._kernel(*kernel) for kernel in row[device])
                for device in ("CPU", "GPU", "DEFAULT")
                if device in row
            },
        )

    def _kernel(
        self,
        constraints: Mapping[str, int] | None = None,
        host_arguments: str = "",
        label: str = "",
        priority: int = 0,
    ) -> Kernel:
        return Kernel(
            constraints={key: self._values[index] for key, index in (constraints or {}).items()},
            host_arguments=frozenset(host_arguments.split()),
            label=label,
            priority=priority,
        )


def _arguments(text: str) -> tuple[Argument, ...]:
    """The arguments written as ``name:type:number:list``, separated by blanks."""
    return tuple(Argument(*argument.split(":")) for argument in text.split())


@cache
def snapshot() -> KernelRegistry:
    """The registry of the TensorFlow that the snapshot was made with, read at the first call."""
    text = (Path(__file__).parent / "data" / "kernels.json").read_text(encoding="utf-8")
    return KernelRegistry(json.loads(text))


def known(op_type: str) -> bool:
    """Does the op type have a kernel on any device?

    >>> known("MatMul"), known("MyOp")
    (True, False)
    """
    return op_type in snapshot()


def platforms_of(info: OpInfo) -> tuple[str, ...]:
    """The platforms that an op was compiled for; none if that says nothing.

    >>> platforms_of(OpInfo(op="XlaCallModule", attributes={"platforms": ("CPU",)}))
    ('CPU',)
    """
    found = info.attributes.get(_PLATFORMS.get(info.op, ""), ())
    return tuple(map(str, found)) if isinstance(found, tuple | list) else ()


def _is_for(device_type: str, info: OpInfo) -> bool:
    """Is the op compiled for the device type, as far as it says?"""
    platforms = platforms_of(info)
    wanted = _DEVICE_PLATFORMS.get(device_type, frozenset())
    return not platforms or not wanted.isdisjoint(name.upper() for name in platforms)


def has_cpu_kernel(info: OpInfo) -> bool:
    """Does the op, with its dtypes, have a kernel on a CPU?"""
    return _find("CPU", info) is not None


def prefers_cpu(info: OpInfo) -> bool:
    """Does TensorFlow run the op on a CPU unless a GPU is asked for, although it has a GPU kernel?

    Kernels have priorities, and the placer takes the device of the highest
    (``core/common_runtime/placer.cc``): iterators of datasets have 2 on CPUs and 1 on GPUs.

    >>> prefers_cpu(OpInfo(op="IteratorGetNext")), prefers_cpu(OpInfo(op="MatMul"))
    (True, False)
    """
    cpu, gpu = _find("CPU", info), _find("GPU", info)
    return cpu is not None and gpu is not None and cpu.priority > gpu.priority


def gpu_kernel(info: OpInfo) -> KernelMatch | None:
    """The kernel that runs the op on a GPU, or ``None`` if there is none for its dtypes.

    Strings and resources are always in host memory.  The ops that call functions (``While``,
    ``PartitionedCall``, ...) keep int32 there too, as TensorFlow does.

    >>> gpu_kernel(OpInfo(op="NoOp"))
    KernelMatch(host_inputs=frozenset(), host_outputs=frozenset())
    """
    if not known(info.op):
        return None
    key = _deciding(info)
    if key not in _on_gpu:
        _on_gpu[key] = _match_on_gpu(info)
    return _on_gpu[key]


_on_gpu: dict[object, KernelMatch | None] = {}
"""By what decides: of 40,000 ops a few hundred differ in that."""


def _deciding(info: OpInfo) -> object:
    """Returns the key of an op's kernels: its type, some of its attributes, and all dtypes."""
    attributes = [info.attributes.get(name) for name in _deciding_attributes(info.op)]
    return (
        info.op,
        tuple([tuple(value) if isinstance(value, list) else value for value in attributes]),
        tuple([tensor.dtype for tensor in info.inputs]),
        tuple([tensor.dtype for tensor in info.outputs]),
    )


@cache
def _deciding_attributes(op_type: str) -> tuple[str, ...]:
    """Those that kernels constrain, and those that count the tensors of an argument."""
    op = snapshot()[op_type]
    names = {_LABEL, _PLATFORMS.get(op_type, "")}.union(
        *[k.constraints for found in op.kernels.values() for k in found]
    )
    for argument in (*op.inputs, *op.outputs):
        names |= {argument.number_attribute, argument.list_attribute}
    return tuple(names - {""})


def _match_on_gpu(info: OpInfo) -> KernelMatch | None:
    kernel = _find("GPU", info)
    if kernel is None:
        return None
    op = snapshot()[info.op]
    on_host = _ALWAYS_ON_HOST | ({"int32"} if info.op in _FUNCTION_CALLS else frozenset())
    named = frozenset() if info.op in _FUNCTION_CALLS else kernel.host_arguments
    return KernelMatch(
        host_inputs=_host_indices(op.inputs, info.inputs, named, info, on_host),
        host_outputs=_host_indices(op.outputs, info.outputs, named, info, on_host),
    )


def _find(device_type: str, info: OpInfo) -> Kernel | None:
    """The matching kernel of highest priority of the device type, else of ``DEFAULT``."""
    if not known(info.op) or not _is_for(device_type, info):
        return None
    op = snapshot()[info.op]
    label = info.attributes.get(_LABEL, "")
    for device in (device_type, "DEFAULT"):
        matching = [
            kernel
            for kernel in op.kernels.get(device, ())
            if kernel.label == label
            and all(
                _allows(allowed, _attribute(key, info, op))
                for key, allowed in kernel.constraints.items()
            )
        ]
        if matching:
            return max(matching, key=lambda kernel: kernel.priority)
    return None


def _allows(allowed: frozenset[object], value: object) -> bool:
    """Is the value, or every element of a list of dtypes, among the allowed ones?"""
    return all(v in allowed for v in value) if isinstance(value, tuple | list) else value in allowed


def _attribute(key: str, info: OpInfo, op: OpKernels) -> object:
    """The attribute's value: as written, as the tensors show it, or the definition's default."""
    if key in info.attributes:
        return info.attributes[key]
    for arguments, tensors in ((op.inputs, info.inputs), (op.outputs, info.outputs)):
        for argument, found in _ranges(arguments, tensors, info):
            if argument.type_attribute == key and found:
                return tensors[found[0]].dtype
            if argument.list_attribute == key:
                return tuple(tensors[index].dtype for index in found)
    return op.defaults.get(key)


def _host_indices(
    arguments: Sequence[Argument],
    tensors: Sequence[TensorProperties],
    named: frozenset[str],
    info: OpInfo,
    on_host: frozenset[str],
) -> frozenset[int]:
    """The numbers of the tensors in host memory, by their argument's name or their dtype."""
    by_dtype = {index for index, tensor in enumerate(tensors) if tensor.dtype in on_host}
    by_name = {
        index
        for argument, found in (_ranges(arguments, tensors, info) if named else ())
        if argument.name in named
        for index in found
    }
    return frozenset(by_dtype | by_name)


def _ranges(
    arguments: Sequence[Argument], tensors: Sequence[TensorProperties], info: OpInfo
) -> Iterator[tuple[Argument, range]]:
    """Each argument with the numbers of its tensors (``NameRangesForNode``).

    Where a length attribute was left out, the argument gets the tensors that the others leave.
    """
    open_lengths = [_length(argument, info) for argument in arguments]
    left = len(tensors) - sum(length for length in open_lengths if length is not None)
    start = 0
    for argument, length in zip(arguments, open_lengths, strict=True):
        stop = min(len(tensors), start + max(0, left if length is None else length))
        yield argument, range(start, stop)
        start = stop


def _length(argument: Argument, info: OpInfo) -> int | None:
    """How many tensors the argument stands for, ``None`` where the attribute is missing."""
    if argument.number_attribute:
        number = info.attributes.get(argument.number_attribute)
        return number if isinstance(number, int) else None
    if argument.list_attribute:
        dtypes = info.attributes.get(argument.list_attribute)
        return len(dtypes) if isinstance(dtypes, tuple | list) else None
    return 1
