"""The ops of a flat graph in columns, for a reader in another process.

What needs no shapes is found beside the shapes, in a copy of the reading process, and goes from
there to the reader as it is: only the reader makes ops of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cost_models.op_info import OpInfo
from placer.extraction.graph_defs.flat_nodes import Alike
from placer.extraction.graph_defs.op_definitions import DEVICES_ATTRIBUTE, decoded
from placer.graph.op_graph import Op

Bodies = Mapping[str, tuple[str, ...]]
NO_BODIES: Bodies = {}


@dataclass(frozen=True, slots=True)
class Structure:
    """Everything of every op but what cost rules see and its bodies; see :class:`Op`."""

    names: tuple[str, ...]
    inputs: tuple[tuple[str, ...], ...]
    control_inputs: tuple[tuple[str, ...], ...]
    devices: tuple[str, ...]
    origins: tuple[tuple[str, str], ...]

    def ops(self, infos: Sequence[OpInfo], bodies: Mapping[str, Bodies]) -> dict[str, Op]:
        """The ops by name; ``infos`` in the order of the graph, ``bodies`` by op."""
        columns = self.names, infos, self.inputs, self.control_inputs, self.devices, self.origins
        return {
            name: Op(
                name=name,
                info=info,
                inputs=inputs,
                control_inputs=controls,
                device=device,
                origin=origin,
                bodies=bodies.get(name, NO_BODIES),
            )
            for name, info, inputs, controls, device, origin in zip(*columns, strict=True)
        }


def find_structure(
    nodes: Sequence[Any],
    contents: Mapping[str, bytes | None],
    origins: Mapping[str, tuple[str, str]],
) -> Structure:
    """The structure of the ops of a flat graph, whose inputs are there."""
    names = {name: name for name in origins}  # every name is one object: it is pickled once
    tensors: dict[str, str] = {}
    devices = Alike(_device)

    def tensor_of(reference: str) -> str:
        found = tensors.get(reference)
        if found is None:
            found = reference if ":" in reference else f"{reference}:0"
            found = tensors[reference] = tensors.setdefault(found, found)
        return found

    references = [tuple(node.input) for node in nodes]
    order = [names[node.name] for node in nodes]
    return Structure(
        names=tuple(order),
        inputs=tuple(
            [tuple([tensor_of(text) for text in given if text[0] != "^"]) for given in references]
        ),
        control_inputs=tuple(
            [
                tuple([names[text[1:]] for text in given if text[0] == "^"])
                if given and given[-1][0] == "^"  # control inputs come last
                else ()
                for given in references
            ]
        ),
        devices=tuple(map(devices.of, nodes, map(contents.get, order))),
        origins=tuple([origins[name] for name in order]),
    )


def _device(node: Any) -> str:
    """The device string of a node, or the devices of which it asks for one, ``""`` for none."""
    if node.device or DEVICES_ATTRIBUTE not in node.attr:
        return str(node.device)
    return decoded(node.attr[DEVICES_ATTRIBUTE].s)


class Parcel:
    """A structure that crosses processes unopened: it is unpickled where it is opened."""

    def __init__(self, structure: Structure) -> None:
        self._open: Callable[[], Structure] = lambda: structure
        self._content: bytes | None = None

    def __getstate__(self) -> bytes:
        if self._content is not None:
            return self._content
        return pickle.dumps(self._open(), protocol=pickle.HIGHEST_PROTOCOL)

    def __setstate__(self, content: bytes) -> None:
        self._content = content
        self._open = lambda: pickle.loads(content)

    @property
    def is_closed(self) -> bool:
        """Whether it came from another process."""
        return self._content is not None

    def open(self) -> Structure:
        """The structure."""
        return self._open()


class ClosedOps(Mapping[str, Op]):
    """The ops of a graph whose structure nobody opened yet; unpickled, they are a plain dict."""

    def __init__(
        self, structure: Parcel, infos: Sequence[OpInfo], bodies: Mapping[str, Bodies]
    ) -> None:
        self._content = structure, tuple(infos), dict(bodies)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_ops, self._content

    @cached_property
    def _ops(self) -> dict[str, Op]:
        return open_ops(*self._content)

    def __getitem__(self, name: str) -> Op:
        return self._ops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)


def open_ops(
    structure: Parcel, infos: Sequence[OpInfo], bodies: Mapping[str, Bodies]
) -> dict[str, Op]:
    """The ops by name."""
    return structure.open().ops(infos, bodies)
