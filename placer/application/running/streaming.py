"""Inference a part at a time: a model whose weights do not fit, in stages.

The weights of the next stage are read from the checkpoint while the current one computes, and are
freed when it is done; so two stages' weights are in memory at most.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cost_models.byte_sizes import parse_bytes
from placer.application.placing.function_graphs import build_function
from placer.application.running.stored_weights import StoredWeights
from placer.application.running.weight_stages import WeightStage, cut_into_stages
from placer.errors import UsageError
from placer.extraction.graph_defs.protobufs import Tensor
from placer.extraction.reading.loading import load_program
from placer.graph.tensor_names import full_tensor


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
        import tensorflow as tf

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
) -> StreamedModel:
    """The SavedModel ``path``, run in stages with at most ``resident`` bytes (``"1GiB"``) of its
    weights in memory.

    Activations come on top, and assertions are left out.  Raises :class:`UsageError` for a program
    that does more with its variables than to read them, or an op that needs more than half of
    ``resident`` at once; :class:`~placer.errors.ModelError` if the model or its weights cannot be
    read.
    """
    program = load_program(path, tag_set=tag_set, signature=signature)
    if program.source_format != "saved_model":
        raise UsageError(f"{os.fspath(path)} is no SavedModel: only one is run a part at a time")
    size = parse_bytes(resident) if isinstance(resident, str) else resident
    stages = cut_into_stages(program, size // 2)
    return StreamedModel(program, stages, StoredWeights(Path(path), program))
