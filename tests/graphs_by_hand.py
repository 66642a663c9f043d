"""Small graphs and costs drawn by hand, for tests that need no TensorFlow.

    draw("x=Placeholder -> a, b -> c", "a ..> d", bytes={"a": 1024}, feeds=["x"], fetches=["c:0"])

            .-> a --.              x is a Placeholder, the others are of the default type
       x ---|   :    |---> c       a gives 1024 bytes, the others 4
            '-> b --'              ``a ..> d`` is a control edge
                :
                v
                d

``->`` joins every op on its left to every op on its right, ``,`` lists ops, ``name=Type`` gives
an op its type (once is enough), ``a:1`` is the second output of ``a``.  Inputs are numbered in
the order in which the edges are drawn.  The default type ``MatMul`` neither shares nor reuses a
buffer of its inputs, and has a GPU kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from cost_models.devices import Cluster, DeviceProperties, Link
from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, TensorProperties
from placer.graph.op_graph import ColocationGroup, Op, OpGraph, Variable
from placer.graph.order import topological_order

_ITEM_BYTES = {"float32": 4, "int32": 4, "uint8": 1, "bool": 1, "int64": 8}


def draw(
    *lines: str,
    bytes: int | Mapping[str, int] = 4,
    dtypes: Mapping[str, str] | None = None,
    default_type: str = "MatMul",
    attributes: Mapping[str, Mapping[str, object]] | None = None,
    devices: Mapping[str, str] | None = None,
    bodies: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
    groups: Sequence[Sequence[str]] = (),
    feeds: Sequence[str] = (),
    fetches: Sequence[str] = (),
    targets: Sequence[str] = (),
    variables: Sequence[Variable] = (),
    functions: Mapping[str, OpGraph] | None = None,
) -> OpGraph:
    """The graph drawn by ``lines``.

    ``bytes`` is the size of every output, or of those named (op or ``"op:1"``), else 4; it must
    be a multiple of the dtype's size.  ``dtypes`` names what is not float32 the same way; strings,
    variants and resources get a scalar shape.
    """
    types: dict[str, str] = {}
    edges = [edge for line in lines for edge in _edges(line, types)]
    inputs: dict[str, list[str]] = {name: [] for name in types}
    controls: dict[str, list[str]] = {name: [] for name in types}
    for source, kind, target in edges:
        if kind == "->":
            inputs[target].append(source if ":" in source else f"{source}:0")
        else:
            controls[target].append(source)
    named = [*(tensor for names in inputs.values() for tensor in names), *fetches]
    named += [
        key for keys in (bytes if isinstance(bytes, dict) else {}, dtypes or {}) for key in keys
    ]

    def properties(tensor: str) -> TensorProperties:
        name = tensor.rpartition(":")[0]
        dtype = _pick(dtypes or {}, tensor, name, "float32")
        size = bytes if isinstance(bytes, int) else _pick(bytes, tensor, name, 4)
        if dtype not in _ITEM_BYTES:
            return TensorProperties(dtype=dtype, shape=())
        if size % _ITEM_BYTES[dtype]:
            raise ValueError(f"{size} bytes of {tensor} are no multiple of a {dtype}")
        return TensorProperties(dtype=dtype, shape=(size // _ITEM_BYTES[dtype],))

    def outputs(name: str) -> tuple[TensorProperties, ...]:
        last = max((int(t.partition(":")[2]) for t in named if t.startswith(f"{name}:")), default=0)
        return tuple(properties(f"{name}:{index}") for index in range(last + 1))

    ops = {
        name: Op(
            name=name,
            info=OpInfo(
                op=types[name] or default_type,
                inputs=tuple(properties(tensor) for tensor in inputs[name]),
                outputs=outputs(name),
                attributes=(attributes or {}).get(name, {}),
            ),
            inputs=tuple(inputs[name]),
            control_inputs=tuple(dict.fromkeys(controls[name])),
            device=(devices or {}).get(name, ""),
            bodies=(bodies or {}).get(name, {}),
        )
        for name in types
    }
    return OpGraph(
        ops={name: ops[name] for name in topological_order(ops)},
        feeds=tuple(feeds),
        fetches=tuple(fetches),
        targets=tuple(targets),
        functions=functions or {},
        variables=tuple(variables),
        colocation_groups=tuple(
            ColocationGroup(ops=tuple(group), reasons=("drawn",)) for group in groups
        ),
    )


def draw_costs(
    graph: OpGraph,
    *,
    flops: int | Mapping[str, int] = 0,
    bytes_accessed: int | Mapping[str, int] = 0,
    temporary_bytes: Mapping[str, int] | None = None,
    persistent_bytes: Mapping[str, int] | None = None,
) -> dict[str, OpCost]:
    """Costs of a drawn graph: output bytes from the shapes, the rest as given (else 0)."""

    def amount(given: int | Mapping[str, int], name: str) -> int:
        return given if isinstance(given, int) else given.get(name, 0)

    return {
        op.name: OpCost(
            flops=amount(flops, op.name),
            bytes_accessed=amount(bytes_accessed, op.name),
            output_bytes=tuple(_tensor_bytes(output) for output in op.info.outputs),
            temporary_bytes=(temporary_bytes or {}).get(op.name, 0),
            persistent_bytes=(persistent_bytes or {}).get(op.name, 0),
        )
        for op in graph.ops.values()
    }


def draw_cluster(
    *names: str,
    memory_limit_bytes: int | Mapping[str, int] = 1 << 30,
    bandwidth: float = 1e9,
    latency: float = 0.0,
    peak_flops: float = 1e9,
    launch_seconds: float = 0.0,
    parallel_ops: Mapping[str, int] | None = None,
) -> Cluster:
    """Equal devices called ``names`` (``"GPU:0"``), ``CPU:0`` added if it is missing.

    By default a device does 1e9 FLOP/s, a link 1e9 bytes/s, and nothing has an overhead.
    """
    names = names if "CPU:0" in names else (*names, "CPU:0")

    def limit(name: str) -> int:
        if isinstance(memory_limit_bytes, int):
            return memory_limit_bytes
        return memory_limit_bytes.get(name, 1 << 30)

    return Cluster(
        devices=tuple(
            DeviceProperties(
                name=name,
                type=name.partition(":")[0],
                memory_limit_bytes=limit(name),
                peak_flops=peak_flops,
                memory_bandwidth=1e30,
                launch_seconds=launch_seconds,
                parallel_ops=(parallel_ops or {}).get(name, 1),
            )
            for name in names
        ),
        default_link=Link(bandwidth=bandwidth, latency=latency),
    )


def _edges(line: str, types: dict[str, str]) -> list[tuple[str, str, str]]:
    """The edges of one line; ``types`` is filled with its ops in the order they appear."""
    parts = re.split(r"\s*(->|\.\.>)\s*", line.strip())
    stages = [
        [_read_name(word, types) for word in part.split(",") if word.strip()] for part in parts[::2]
    ]
    return [
        (source, kind, target.partition(":")[0])
        for left, kind, right in zip(stages, parts[1::2], stages[1:], strict=False)
        for target in right
        for source in left
    ]


def _read_name(word: str, types: dict[str, str]) -> str:
    """The op or tensor that ``word`` names; notes the type it may carry (``name=Type``)."""
    tensor, _, op_type = word.strip().partition("=")
    name = tensor.partition(":")[0]
    types[name] = op_type or types.get(name, "")
    return tensor


def _pick(values: Mapping[str, Any], tensor: str, name: str, default: Any) -> Any:
    """The value given for the tensor, else for its op, else the default."""
    return values.get(tensor, values.get(name, default))


def _tensor_bytes(properties: TensorProperties) -> int | None:
    """Bytes of a drawn tensor; ``None`` where the dtype has no size."""
    if properties.dtype not in _ITEM_BYTES or properties.shape is None:
        return None
    total = _ITEM_BYTES[properties.dtype]
    for dimension in properties.shape:
        if dimension is None:
            return None
        total *= dimension
    return total


_TYPES = ["MatMul", "Identity", "Relu", "AddV2", "Reshape", "Const"]


@st.composite
def random_graphs(draw_value, item_bytes=(4, 8)):
    """Graphs of up to nine ops whose outputs have one of these sizes."""
    size = draw_value(st.integers(1, 9))
    names = [f"n{i}" for i in range(size)]
    lines = [f"{name}={draw_value(st.sampled_from(_TYPES))}" for name in names]
    for index, name in enumerate(names[1:], start=1):
        if "Const" not in lines[index]:
            sources = draw_value(st.lists(st.sampled_from(names[:index]), max_size=2))
            lines += [f"{source} -> {name}" for source in sources]
    sizes = {name: draw_value(st.sampled_from(item_bytes)) for name in names}
    fetches = [f"{name}:0" for name in draw_value(st.lists(st.sampled_from(names), max_size=2))]
    fed = draw_value(st.booleans()) and "Const" not in lines[0]
    return draw(*lines, bytes=sizes, fetches=fetches, feeds=names[:1] if fed else [])
