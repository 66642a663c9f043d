"""A flat program whose batch is divided: every part of it runs through ops of its own.

    x ---> f ---> y          x -+-> rows 0..2 ---> piece_0/f -+-> y (joined)
                                '-> rows 3..5 ---> piece_1/f -'

What depends on the batch is copied for each part; variables and whatever else does not depend on
it stay what they are, once.  With ``in_flight`` a part waits for the one so many before it.  Parts
that run on devices of their own (replicas) have their own constants too, and their own copies of
the variables that nothing writes, so that none is sent at every step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cost_models.device_names import full_name
from placer.errors import UsageError
from placer.extraction.division.batched_ops import BatchedOps
from placer.extraction.division.division import Division, copy_name, planned_division
from placer.extraction.graph_defs.fingerprint import with_fingerprint
from placer.extraction.graph_defs.flat_nodes import NO_CONTENTS, rename_hints
from placer.extraction.graph_defs.loop_reads import with_reads_before_loops
from placer.extraction.graph_defs.op_definitions import attribute, decoded
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import (
    Captures,
    dtype_number,
    fill_constant,
    without_nodes,
)
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.graph.op_graph import Variable
from placer.graph.op_types import ANONYMOUS
from placer.graph.tensor_names import data_inputs, renamed, short_tensor, source_of, split_tensor

_HOST = "/device:CPU:0"
_SCOPE = "batch"


def divided_as_planned(program: FlatProgram, plan: Any) -> FlatProgram:
    """``program`` as ``plan`` divides it; itself if it is so already, or is another program."""
    division = planned_division(plan)
    if division is None or program.fingerprint == plan.model["fingerprint"]:
        return program
    keys = {item.key for item in program.inputs}
    return divided(program, division) if keys >= set(division.inputs) else program


def divided(program: FlatProgram, division: Division | None) -> FlatProgram:
    """``program`` with its batch divided; itself without a division.

    Raises :class:`UsageError` if it is divided already, or if no op depends on the batch.
    """
    if division is None:
        return program
    apart = with_reads_before_loops(program) if division.is_apart else program
    return replace(_Divider(BatchedOps(apart, division)).divide(), original=program)


class _Divider:
    """Writes the parts of a ``batch``."""

    def __init__(self, batch: BatchedOps) -> None:
        self.batch, self.program, self.division = batch, batch.program, batch.division
        self.scope = f"{batch.path[0][1]}/" if batch.path else ""
        self.own, self.private = batch.own_ops
        self.types = GraphTypes(self.program.graph_def.node, self.program.definitions)
        self.graph_def = without_nodes(self.program.graph_def)
        self.origins = {name: self.program.origins[name] for name in batch.shared}
        self.call_path = {name: self.program.call_path[name] for name in batch.shared}
        self.targets = [name for name in self.program.targets if name not in batch.batched]

    def divide(self) -> FlatProgram:
        """The program with its parts side by side or one after the other."""
        program, count = self.program, self.division.parts
        taken = {f"{self.scope}{self.division.scope}_{number}/" for number in range(count)}
        if any(name.startswith(tuple(taken)) for name in self.batch.nodes):
            raise UsageError(
                f"the program is divided already ({min(taken)}...); place it without --strategy"
            )
        for name in self.batch.shared:
            node = self.graph_def.node.add()
            node.CopyFrom(self.batch.nodes[name])
            if name in self.own:
                node.device = self._device(name, 0)
        self._add_bounds()
        for number in range(count):
            self._add_part(number)
        self._add_joined()
        found = replace(
            program,
            graph_def=self.graph_def,
            contents=NO_CONTENTS,
            origins=self.origins,
            call_path=self.call_path,
            targets=tuple(self.targets),
            variables=(*program.variables, *self._variables()),
            captures={**program.captures, **self._captures()},
            stored_shapes={
                name: shapes
                for name, shapes in program.stored_shapes.items()
                if name in self.origins and name not in self.batch.batched
            },
            division=self.division,
        )
        return with_fingerprint(found)

    def _variables(self) -> list[Variable]:
        """The copies of variables."""
        return [
            replace(variable, name=copy_name(variable.name, number), handle=copy)
            for variable in self.program.variables
            for number, copy in enumerate(self.division.copies(variable.handle), 1)
            if copy in self.origins
        ]

    def _captures(self) -> Captures:
        """The placeholders of copies, which stand for what is captured once."""
        captured = self.program.captures
        copies = {copy: name for name in captured for copy in self.division.copies(name)}
        return {copy: captured[name] for copy, name in copies.items() if copy in self.origins}

    def _add(
        self, name: str, op: str, inputs: Sequence[str], device: str = "", **types: str
    ) -> Any:
        """A new op; ``types`` are its type attributes."""
        node = self.graph_def.node.add(name=name, op=op, device=device)
        node.input.extend(inputs)
        for key, dtype in types.items():
            node.attr[key].type = dtype_number(dtype)
        self.origins[name], self.call_path[name] = ("", name), self.batch.path
        return node

    def _constant(self, name: str, value: Any) -> str:
        fill_constant(self._add(name, "Const", (), _HOST), value)
        return name

    def _add_bounds(self) -> None:
        """``batch/bounds``: where each part begins, and where the last one ends.

        Part i of n has the rows from ``i * examples // n`` on: sizes differ by at most one.
        """
        scope, count = f"{self.scope}{_SCOPE}", self.division.parts

        def add(name: str, op: str, *inputs: str, **types: str) -> str:
            self._add(f"{scope}/{name}", op, inputs, _HOST, **types)
            return f"{scope}/{name}"

        tensor = next(iter(self.batch.sources.values()))
        shape = add("shape", "Shape", tensor, T=self.types.of(tensor).dtype, out_type="int32")
        zero, one = self._constant(f"{scope}/zero", [0]), self._constant(f"{scope}/one", [1])
        examples = add("examples", "StridedSlice", shape, zero, one, one, T="int32", Index="int32")
        steps = self._constant(f"{scope}/steps", list(range(count + 1)))
        products = add("products", "Mul", examples, steps, T="int32")
        parts = self._constant(f"{scope}/parts", [count])
        quotients = add("quotients", "FloorDiv", products, parts, T="int32")
        axis = self._constant(f"{scope}/axis", 0)
        bounds = self._add(f"{scope}/bounds", "Split", [axis, quotients], _HOST, T="int32")
        bounds.attr["num_split"].i = count + 1

    def _add_part(self, number: int) -> None:
        scope, batched = f"{self.scope}{_SCOPE}", self.batch.batched
        new_names = {name: self._part_name(name, number) for name in (*batched, *self.private)}
        new_names |= {name: copy_name(name, number) for name in self.own if number}
        waiting = self._waiting(number)
        for position, (source, tensor) in enumerate(self.batch.sources.items()):
            rows = f"{self.scope}{self.division.scope}_{number}/rows_{position}"
            new_names[source] = rows
            inputs = [
                tensor,
                f"{scope}/bounds:{number}",
                f"{scope}/bounds:{number + 1}",
                f"{scope}/one",
                *waiting,
            ]
            dtype = self.types.of(tensor).dtype
            self._add(rows, "StridedSlice", inputs, _HOST, T=dtype, Index="int32")
        for name, node in self.batch.nodes.items():
            if name in batched or name in self.private or (number and name in self.own):
                self._add_copy(node, number, new_names)
        self.targets += [new_names[name] for name in self.program.targets if name in batched]

    def _add_copy(self, node: Any, number: int, new_names: Mapping[str, str]) -> None:
        copy = self.graph_def.node.add()
        copy.CopyFrom(node)
        copy.name = new_names[node.name]
        copy.input[:] = [renamed(reference, new_names) for reference in node.input]
        if "frame_name" in copy.attr:
            copy.attr["frame_name"].s += f"_{self.division.scope}_{number}".encode()
        rename_hints(copy, lambda name: new_names.get(name, name))
        if node.name in self.own and attribute(copy.attr, "shared_name").s:
            shared = decoded(copy.attr["shared_name"].s)
            if shared != ANONYMOUS:
                copy.attr["shared_name"].s = copy_name(shared, number).encode()
        if self.division.devices:
            read = data_inputs(node.input)
            handles = (source_of(t) for t in read if self.types.of(t).dtype == "resource")
            copy.device = self._device(node.name, number) if self.own.issuperset(handles) else ""
        self.origins[copy.name] = self.program.origins[node.name]
        self.call_path[copy.name] = self.program.call_path[node.name]

    def _device(self, name: str, number: int) -> str:
        """The device of an op of part ``number``; "" where that is open."""
        devices = self.division.devices[number] if self.division.devices else {}
        device = devices.get(name) or devices.get("", "")
        return full_name(device) if device else ""

    def _part_name(self, name: str, number: int) -> str:
        part = f"{self.scope}{self.division.scope}_{number}/"
        return part + name.removeprefix(self.scope)

    def _waiting(self, number: int) -> list[str]:
        """The end of the part that part ``number`` waits for, as a control input."""
        before = number - self.division.in_flight
        if not self.division.in_flight or before < 0:
            return []
        end = f"{self.scope}{self.division.scope}_{before}/end"
        self._add(end, "NoOp", [f"^{self._part_name(name, before)}" for name in self.batch.last])
        return [f"^{end}"]

    def _add_joined(self) -> None:
        """The outputs of the whole batch, under the names that they have undivided.

        Where it is not the first output of an op that is asked for, an ``IdentityN`` has it in its
        place, with the last of them in the places of those that nobody asks for.
        """
        wanted: dict[str, set[int]] = {}
        for _, tensor in self.program.outputs:
            name, index = split_tensor(tensor)
            if name in self.batch.batched:
                wanted.setdefault(name, set()).add(index)
        if not wanted:
            raise UsageError("no output depends on the batch: nothing to divide")
        for name, outputs in wanted.items():
            if outputs == {0}:
                self._add_join(name, name, 0)
                continue
            last = max(outputs)
            for output in sorted(outputs):
                self._add_join(f"{name}/joined_{output}", name, output)
            joined = [n if n in outputs else last for n in range(last + 1)]
            node = self._add(name, "IdentityN", [f"{name}/joined_{n}" for n in joined], _HOST)
            node.attr["T"].list.type.extend(self._dtype(name, n) for n in joined)

    def _add_join(self, joined: str, name: str, output: int) -> None:
        parts = [
            short_tensor(self._part_name(name, number), output)
            for number in range(self.division.parts)
        ]
        axis = self._constant(f"{joined}/axis", 0)
        node = self._add(joined, "ConcatV2", [*parts, axis], _HOST, Tidx="int32")
        node.attr["T"].type = self._dtype(name, output)
        node.attr["N"].i = len(parts)

    def _dtype(self, name: str, output: int) -> int:
        return dtype_number(self.types.of(f"{name}:{output}").dtype)
