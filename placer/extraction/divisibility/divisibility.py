"""Whether a program can be divided along its batch, and which inputs hold it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placer.errors import ShapeError, UsageError
from placer.extraction.analysis import analyse_program
from placer.extraction.divisibility.batch_axis import require_apart, require_mean
from placer.extraction.divisibility.batch_op import Undecided
from placer.extraction.division.division import Division
from placer.extraction.graph_defs.loop_reads import with_reads_before_loops
from placer.extraction.graph_defs.program import FlatProgram, ProgramInput
from placer.extraction.graph_defs.tensor_states import TensorState
from placer.extraction.shapes.binding import names_of
from placer.graph.op_graph import OpGraph
from placer.graph.op_types import READS
from placer.graph.passes.differentiation import is_update_type
from placer.graph.program_source import Bindings
from placer.graph.tensor_names import op_of

Shapes = Mapping[str, Sequence[int | None]] | None


def with_inputs(division: Division, program: FlatProgram, shapes: Shapes) -> Division:
    """``division`` with the inputs that hold the batch: those of unknown first dimension, else all
    if they have the same first dimension; and, of parts apart, with the variables that each has.

    Raises :class:`UsageError` if it is not clear which those are.
    """
    composite = next((item.part for item in program.inputs if item.part), None)
    if composite is not None:
        raise UsageError(
            f"{composite.of!r} is {'ragged' if composite.is_ragged else 'sparse'}: its rows cannot "
            "be cut into parts; place the program without --strategy"
        )
    declared = {item.key: _declared(item, program, shapes) for item in program.inputs}
    found = [item.key for item in program.inputs if item.shape and item.shape[0] is None]
    if not found:
        first = {key: shape[0] for key, shape in declared.items() if shape}
        if len(set(first.values())) != 1 or None in first.values():
            sizes = ", ".join(f"{key}: {size}" for key, size in first.items()) or "there is none"
            raise UsageError(
                "no input has an unknown first dimension, and the known ones do not agree on a "
                f"batch ({sizes}): place the program without --strategy"
            )
        found = list(first)
    own = _read_only(program) if division.is_apart else ()
    return replace(division, inputs=tuple(found), variables=tuple(own))


def _read_only(program: FlatProgram) -> list[str]:
    """The handles of variables that neither ``program`` nor anything else in its file writes.

    A live function is given copies of what it captures; of files those are copied that every loader
    of a SavedModel restores.
    """
    if program.find_unwritten is not None:
        known = program.find_unwritten()
    else:
        known = {v.handle for v in program.variables if v.handle in program.captures}
    known = known & {v.handle for v in program.variables if v.dtype != "resource"}
    written = {
        op_of(text)
        for node in with_reads_before_loops(program).graph_def.node
        for text in node.input
        if node.op not in READS
    }
    return sorted(known - written)


def require_divisible(
    program: FlatProgram,
    captures: Mapping[str, TensorState],
    division: Division,
    bindings: Bindings,
) -> None:
    """Raises :class:`UsageError` unless the parts give what the whole batch gives.

    The program is analysed with one part's examples and with all of them.  The error names the op
    that mixes examples, the batch that is too small, or the updates that only a loss can be divided
    for.
    """
    updates = [node for node in program.graph_def.node if is_update_type(node.op)]
    if updates:
        raise UsageError(
            "only inference can be divided, and this program trains: it updates "
            f"{len(updates):,} variables ({updates[0].name}, ...). To divide training, write the "
            "step in Python with placer.micro_batches or placer.data_parallel"
        )
    examples = _examples(program, division, bindings)
    if examples < division.parts:
        raise UsageError(
            f"a batch of {examples} cannot be divided into {division.parts} parts; ask for at "
            f"most {examples}, or place a batch of at least {division.parts}"
        )
    part = examples // division.parts
    small, large = (
        _graph(program, captures, division, size, bindings) for size in (part, examples)
    )
    inputs = [item.op for item in program.inputs if item.key in division.inputs]
    require_apart(small, large, (part, examples), inputs)


def require_mean_loss(
    program: FlatProgram,
    captures: Mapping[str, TensorState],
    examples: int,
    parts: int,
    bindings: Bindings,
) -> None:
    """Raises :class:`MixesExamples` unless every output of ``program``, whose inputs all hold one
    example per row, is a mean over the examples; its subclass :class:`Undecided` where no rule
    says so.  A program that does not work with the examples of a part raises
    :class:`UsageError`."""
    keys = tuple(item.key for item in program.inputs)
    if any(item.part for item in program.inputs):
        raise Undecided("the batch has ragged or sparse tensors")
    division = Division(parts=parts, inputs=keys)
    part = max(2, examples // parts)
    sizes = part, max(examples, 2 * part)
    small, large = (_graph(program, captures, division, size, bindings) for size in sizes)
    require_mean(small, large, sizes, [item.op for item in program.inputs])


def _declared(item: ProgramInput, program: FlatProgram, shapes: Shapes) -> Sequence[int | None]:
    for key in names_of(item, {each.key for each in program.inputs}):
        if shapes and key in shapes:
            return shapes[key]
    return item.shape or ()


def _examples(program: FlatProgram, division: Division, bindings: Bindings) -> int:
    """How many examples the batch has."""
    sizes: dict[str, int | None] = {}
    for item in program.inputs:
        if item.key in division.inputs:
            first = _declared(item, program, bindings["shapes"])[0]
            sizes[item.key] = bindings["batch_size"] if first is None else first
    if None in sizes.values():
        raise ShapeError(
            f"the batch is to be divided, and its size is unknown (input {min(sizes)}): give it "
            "with --batch-size N"
        )
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{key}: {size}" for key, size in sizes.items())
        raise UsageError(
            f"the inputs hold different numbers of examples ({listed}): set them alike with "
            "--shape NAME=8x128"
        )
    return next(size for size in sizes.values() if size is not None)


def _graph(
    program: FlatProgram,
    captures: Mapping[str, TensorState],
    division: Division,
    examples: int,
    bindings: Bindings,
) -> OpGraph:
    """The undivided graph with so many examples."""
    shapes, batch_size = bindings["shapes"], bindings["batch_size"]
    bound = dict(shapes or {})
    inputs, keys = [], {item.key for item in program.inputs}
    for item in program.inputs:
        if item.key in division.inputs:
            rest = tuple(_declared(item, program, shapes))[1:]
            for key in names_of(item, keys)[1:]:
                bound.pop(key, None)
            bound[item.key] = (examples, *rest)
            item = replace(item, shape=(None, *(item.shape or (None, *rest))[1:]))
        inputs.append(item)
    open_program = replace(program, inputs=tuple(inputs), stored_shapes={})
    try:
        found = analyse_program(open_program, captures, batch_size=batch_size, shapes=bound)
    except ShapeError as error:
        raise UsageError(
            f"the program cannot be divided: with {examples} examples it does not work ({error}); "
            "the size of its batch is part of it. Place it without --strategy"
        ) from error
    return found.graph
