"""Inference a part at a time: a model whose weights do not fit, in stages.

The weights of the next stage are read from the checkpoint while the current one computes, and are
freed when it is done; so two stages' weights are in memory at most.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from cost_models.byte_sizes import bytes_with_unit, positive_bytes
from placer.application.placing.function_graphs import build_function
from placer.application.running.checkpoints import stored_value
from placer.application.running.program_checks import session_start
from placer.application.running.unsafe_ops import require_harmless
from placer.application.running.weight_stages import StageCutter, WeightStage
from placer.errors import ModelError, UsageError
from placer.extraction.files.model_paths import require_own_files
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import Tensor
from placer.extraction.reading.checkpoint_index import PREFIX, read_index
from placer.extraction.reading.loaded_variables import checkpoint_keys
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.saved_functions import captured_tensors
from placer.extraction.reading.signatures import choose_meta_graph
from placer.graph.tensor_names import full_tensor, op_of


class StreamedModel:
    """A callable with the inputs of a signature, by name; it gives its outputs, by name.

    ``stages`` are run one after the other; ``weight_bytes`` is what the largest two neighbours
    hold together.
    """

    def __init__(self, program: Any, stages: list[WeightStage], weights: StoredWeights) -> None:
        self.program = program
        self.stages = stages
        self.weights = weights
        self._functions = [build_function(stage.graph_def, stage.ends, {}) for stage in stages]

    @property
    def weight_bytes(self) -> int:
        """The most bytes of weights in memory at once."""
        sizes = [stage.weight_bytes for stage in self.stages]
        return max(map(sum, zip(sizes, [*sizes[1:], 0], strict=True)))

    def __call__(self, **inputs: Any) -> dict[str, Tensor]:
        """The outputs for ``inputs``.  Raises :class:`UsageError` if they are not the model's."""
        wanted = {item.key: item for item in self.program.inputs}
        if set(inputs) != set(wanted):
            raise UsageError(
                f"the model takes {', '.join(wanted) or 'nothing'}, and was given "
                f"{', '.join(inputs) or 'nothing'}"
            )
        values = {
            full_tensor(item.tensor): tf.convert_to_tensor(inputs[key], item.dtype)
            for key, item in wanted.items()
        }
        with ThreadPoolExecutor(1) as reader:
            self._run(values, reader)
        return {key: values[full_tensor(tensor)] for key, tensor in self.program.outputs}

    def _run(self, values: dict[str, Tensor], reader: ThreadPoolExecutor) -> None:
        """Runs all stages; ``values`` holds what later ones need."""
        kept = {full_tensor(tensor) for _, tensor in self.program.outputs}
        coming: Future[list[Any]] = reader.submit(self._read, 0)
        for number, (stage, function) in enumerate(zip(self.stages, self._functions, strict=True)):
            weights = coming.result()
            if number + 1 < len(self.stages):
                coming = reader.submit(self._read, number + 1)
            results = function(*(values[name] for name in stage.inputs), *weights)
            del weights
            values.update(zip(stage.outputs, results, strict=True))
            later = {name for other in self.stages[number + 1 :] for name in other.inputs} | kept
            for name in [name for name in values if name not in later]:
                del values[name]

    def _read(self, number: int) -> list[Any]:
        return [self.weights.read(handle) for handle in self.stages[number].weights]


def stream(
    path: str | os.PathLike[str],
    resident: int | str,
    *,
    tag_set: str | None = None,
    signature: str | None = None,
    allow_unsafe: bool = False,
    follow_links: bool = False,
) -> StreamedModel:
    """The SavedModel ``path``, run in stages with at most ``resident`` bytes (``"1GiB"``) of its
    weights in memory.

    Activations come on top, and assertions are left out.  The model may only compute and read what
    is in its folder, unless ``allow_unsafe``; links that lead out of that are refused unless
    ``follow_links``.  Raises :class:`UsageError` for a program
    that does more with its variables than to read them, or an op that needs more than half of
    ``resident`` at once; :class:`~placer.errors.ModelError` if the model or its weights cannot be
    read, or it does what it may not.
    """
    try:
        size = positive_bytes(resident, "resident", bytes_with_unit)
    except ValueError as error:
        raise UsageError(str(error)) from error
    require_own_files(Path(path), whole=True, follow_links=follow_links)
    program = load_program(path, tag_set=tag_set, signature=signature)
    if program.source_format != "saved_model":
        raise UsageError(f"placer.stream takes a SavedModel, and {os.fspath(path)} is not one")
    if not allow_unsafe:
        ends = (*program.output_ops, *program.targets)
        fed = [item.tensor for item in program.inputs]
        require_harmless(program.graph_def, [session_start(ends, fed)], Path(path))
    stages = StageCutter(program, size // 2).stages()
    return StreamedModel(program, stages, StoredWeights(Path(path), program))


class StoredWeights:
    """The values of the variables of ``program`` in the checkpoint of the SavedModel ``path``.

    A variable is found by the object that the signature's function is bound to, in a checkpoint of
    TensorFlow 1 by its name.  Raises :class:`ModelError` if one has no value.
    """

    def __init__(self, path: Path, program: FlatProgram) -> None:
        index = read_index(path)
        if not index.has_data or index.damage:
            raise ModelError(
                f"the weights of {str(path)!r} cannot be read: "
                f"{index.unreadable or index.damage or 'they are not there'}"
            )
        self.prefix, self.entries = str(path / PREFIX), index.entries
        names = {variable.handle: variable.name for variable in program.variables}
        self.keys, numbered = names, checkpoint_keys(index)
        if numbered is not None:
            meta_graph = choose_meta_graph(read_source(path), path, ",".join(program.tags))
            captured = captured_tensors(meta_graph)
            self.keys = {op_of(t): numbered[n] for n, t in captured if n in numbered}
        missing = [names[h] for h in names if self.keys.get(h) not in self.entries]
        if missing:
            raise ModelError(
                f"{str(path)!r} has no value for {len(missing)} of {len(names)} variables, the "
                f"first {missing[0]}: its checkpoint is of another model"
            )

    def read(self, handle: str) -> Any:
        """The value of a variable, as a tensor on the host."""
        key = self.keys[handle]
        return stored_value(self.prefix, key, self.entries[key].dtype)
