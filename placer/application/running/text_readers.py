"""The texts that a program is fed, by what it makes of them: messages, pictures, sounds.

A reader and what it reads may be in bodies of loops and branches (``tf.map_fn``), and the text may
go through ops that only pass it on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placer.extraction.graph_defs.op_definitions import OpDefinitions, attribute, called_functions
from placer.extraction.graph_defs.parsing_ops import PARSERS, Parser, find_parsers
from placer.extraction.graph_defs.protobufs import NodeDef
from placer.graph.op_types import BRANCHES, ENTERS, LOOPS, MERGES, NEXT_ITERATIONS, SWITCHES
from placer.graph.tensor_names import data_inputs, op_of

PICTURE, JPEG, SOUND = "picture", "jpeg", "sound"
_DECODERS: Mapping[str, str] = {
    **dict.fromkeys(("DecodeImage", "DecodeJpeg", "DecodePng"), PICTURE),
    **dict.fromkeys(("DecodeAndCropJpeg", "ExtractJpegShape"), JPEG),
    "DecodeWav": SOUND,
}
"""By op type what it decodes: a picture of any format, a JPEG picture, a sound."""

_DECODES_BASE64 = "DecodeBase64"
_PASSING = (
    frozenset({"Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "StopGradient"})
    | {"StridedSlice", "Slice", "Gather", "GatherV2", "Pack", "Unpack", "ConcatV2", "Split"}
    | {"TensorListFromTensor", "TensorListGetItem", "TensorArrayScatterV3", "TensorArrayReadV3"}
    | {"TensorArrayUnpack", "TensorArrayWriteV3", _DECODES_BASE64}
    | (ENTERS | SWITCHES | MERGES | NEXT_ITERATIONS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """A thing that is decoded out of a text: its ``kind``, how many ``channels`` it has (0: any),
    whether it is in base64, and by which op (``body/op`` in control flow)."""

    kind: str
    channels: int = 0
    in_base64: bool = False
    op: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FedTexts:
    """The things that texts hold: the ``parsers`` of messages by the op that is fed, and what is
    ``decoded`` by (op, output), the op being one that is fed or one that parses."""

    parsers: Mapping[str, list[Parser]]
    decoded: Mapping[tuple[str, int], Decoding]


class _Texts:
    """Where texts in a graph and its library come from."""

    def __init__(self, graph_def: Any) -> None:
        functions = {function.signature.name: function for function in graph_def.library.function}
        self.nodes = {"": {node.name: node for node in graph_def.node}}
        self._definitions = OpDefinitions((), functions.values())
        self._arguments: dict[str, dict[str, int]] = {"": {}}
        self._callers: dict[str, list[tuple[str, NodeDef]]] = {}
        for name, function in functions.items():
            self.nodes[name] = {node.name: node for node in function.node_def}
            arguments = (argument.name for argument in function.signature.input_arg)
            self._arguments[name] = {argument: number for number, argument in enumerate(arguments)}
        for scope, node in self.all(lambda node: node.op in LOOPS | BRANCHES):
            for _, called in called_functions(node):
                self._callers.setdefault(called.name, []).append((scope, node))

    def all(self, is_meant: Callable[[NodeDef], bool]) -> Iterator[tuple[str, NodeDef]]:
        """Yields (scope, node) of the nodes that are meant."""
        for scope, nodes in self.nodes.items():
            yield from ((scope, node) for node in nodes.values() if is_meant(node))

    def origins(self, scope: str, reference: str) -> Iterator[tuple[str, str, int, bool]]:
        """Yields the outputs of ops, other than those that pass texts on, that one comes from."""
        pending, seen = [(scope, reference, False)], set[tuple[str, str, bool]]()
        while pending:
            here = pending.pop()
            if here in seen:
                continue
            seen.add(here)
            scope, reference, in_base64 = here
            name = op_of(reference)
            node = self.nodes[scope].get(name)
            if name in self._arguments[scope]:
                number = self._arguments[scope][name]
                for caller, call in self._callers.get(scope, ()):
                    inputs = data_inputs(call.input)[call.op in BRANCHES :]
                    pending += [(caller, inputs[number], in_base64)]
            elif node is not None and node.op in _PASSING:
                in_base64 = in_base64 or node.op == _DECODES_BASE64
                pending += [(scope, name, in_base64) for name in data_inputs(node.input)]
            elif node is not None:
                yield scope, name, self._number(node, reference), in_base64

    def _number(self, node: NodeDef, reference: str) -> int:
        """The number of an output, also as functions write it (``op:output:2``)."""
        _, *parts = reference.split(":")
        offset = self._definitions.output_offset(node, parts[0]) if len(parts) == 2 else 0
        return offset + int(parts[-1] if parts else 0)


def fed_texts(graph_def: Any, fed: Iterable[str]) -> FedTexts:
    """Returns what the ops ``fed`` of the main graph, and features parsed out of them, hold."""
    texts, wanted = _Texts(graph_def), set(fed)
    found: dict[str, list[Parser]] = {}
    decoded: dict[tuple[str, int], Decoding] = {}
    readers = [
        (scope, node, set(texts.origins(scope, data_inputs(node.input)[0])))
        for scope, node in texts.all(lambda node: node.op in PARSERS or node.op in _DECODERS)
    ]
    for scope, node, origins in readers:
        if node.op in PARSERS:
            parsers = find_parsers(texts.nodes[scope].values())
            own = [replace(p, op=_full(scope, p.op)) for p in parsers if p.op == node.name]
            for name in sorted({name for owner, name, _, _ in origins if not owner} & wanted):
                found.setdefault(name, []).extend(own)
            continue
        kind = _DECODERS[node.op]
        channels = attribute(node.attr, "desired_channels" if kind == SOUND else "channels").i
        for owner, name, number, in_base64 in origins:
            key = _full(owner, name), number
            if key not in decoded or decoded[key].kind == PICTURE:
                decoded[key] = Decoding(
                    kind=kind,
                    channels=max(0, int(channels)),
                    in_base64=in_base64,
                    op=_full(scope, node.name),
                )
    return FedTexts(parsers=found, decoded=decoded)


def _full(scope: str, name: str) -> str:
    """An op of a body as ``body/op``."""
    return f"{scope}/{name}" if scope else name
