"""Whether TensorFlow has a kernel for a node on a kind of device."""

from typing import Any

from cost_models.device_names import parse
from cost_models.kernels import gpu_kernel, known, snapshot
from cost_models.op_info import OpInfo
from placer.extraction.building import plain_value


def has_kernel(node: Any, device: str) -> bool:
    """Whether ``node`` can run on ``device``, by its op type and attributes.

    Op types that the kernel registry does not know are taken to run anywhere.
    """
    if parse(device).type in (None, "CPU") or not known(node.op):
        return True
    attributes = {key: plain_value(value) for key, value in node.attr.items()}
    info = OpInfo(op=node.op, attributes={k: v for k, v in attributes.items() if v is not None})
    return gpu_kernel(info) is not None


def gpu_dtypes(op_type: str) -> tuple[str, ...]:
    """The dtypes that the op type has GPU kernels for; none if it has no GPU kernel at all."""
    if not known(op_type):
        return ()
    rows = snapshot()[op_type].kernels
    found: set[str] = set()
    for kernel in (*rows.get("GPU", ()), *rows.get("DEFAULT", ())):
        found |= {str(value) for values in kernel.constraints.values() for value in values}
    return tuple(sorted(found))
