"""Models of Keras 2 (``tf_keras``): what they call otherwise than models of Keras 3, which is not
imported to find out.  They are placed and bound as they are, and their batches are not divided."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from placer.graph.name_scopes import free_name
from placer.graph.tensor_names import op_of

_COUNTERS = {"train_step": "_train_counter", "test_step": "_test_counter"}


@dataclass(frozen=True, slots=True)
class NamedVariable:
    """A TensorFlow variable under the names by which Keras 3's variables are asked."""

    path: str
    value: Any

    @property
    def _value(self) -> Any:
        return self.value


def base_model(model: Any) -> Any:
    """The class ``Model`` of the Keras that a model is of; ``None`` for anything else."""
    for kind in type(model).__mro__:
        if kind.__name__ == "Model" and "keras" in kind.__module__.split(".")[0]:
            return kind
    return None


def is_keras_two(model: Any) -> bool:
    """Whether a Keras model is one of Keras 2."""
    return ".engine." in getattr(base_model(model), "__module__", "")


def is_compiled(model: Any) -> bool:
    """Whether a model of Keras 2 or 3 is compiled."""
    return bool(getattr(model, "compiled", False) or getattr(model, "_is_compiled", False))


def optimizer_variables(optimizer: Any) -> list[Any]:
    """The TensorFlow variables of an optimizer of either; of Keras 2 their list may be called."""
    found = optimizer.variables
    found = found() if callable(found) else found
    return [getattr(variable, "_value", variable) for variable in found]


def variables_of(model: Any) -> list[NamedVariable]:
    """The variables of a Keras 2 model, its metrics and its optimizer, each once and under a name
    of its own."""
    optimizer = getattr(model, "optimizer", None)
    named = [
        *((variable, "") for variable in model.variables),
        *((variable, f"{m.name}/") for m in model.metrics for variable in m.variables),
        *((v, "") for v in (optimizer_variables(optimizer) if optimizer is not None else ())),
    ]
    found, taken = dict[int, NamedVariable](), set[str]()
    for variable, scope in named:
        variable = getattr(variable, "_variable", variable)  # of mixed precision
        if id(variable) not in found:
            path = free_name(scope + op_of(variable.name), taken)
            taken.add(path)
            found[id(variable)] = NamedVariable(path, variable)
    return list(found.values())


def build_state(model: Any, specs: Any) -> None:
    """Has a Keras 2 model make slots and metrics, as it does when it is first traced.  What it
    draws next is what the last of these traces drew, which is the one that Keras 2 would run."""
    import tensorflow as tf

    seeds: list[tuple[Any, int]] = []

    def run(data: Any) -> Any:
        seeds[:] = _seeds(model)
        return model.train_step(data)

    with traced_alike(model):
        tf.function(run).get_concrete_function(specs)
    _restore(seeds)


@contextmanager
def traced_alike(model: Any) -> Iterator[None]:
    """In the block a Keras 2 model is traced as it will be again: its layers, which count what they
    draw, go on from where they were, and its optimizer does not update by XLA, as it does on a
    machine with a GPU.  Other models are as they are."""
    own = getattr(model, "optimizer", None) if is_keras_two(model) else None
    optimizers: list[Any] = [own, getattr(own, "inner_optimizer", None)]
    compiled = [each for each in optimizers if getattr(each, "jit_compile", False)]
    seeds = _seeds(model)
    for each in compiled:
        each.jit_compile = False
    try:
        yield
    finally:
        for each in compiled:
            each.jit_compile = True
        _restore(seeds)


def _seeds(model: Any) -> list[tuple[Any, int]]:
    """The generators of a Keras 2 model's layers, with the seed that each gives next."""
    layers = model._flatten_layers() if is_keras_two(model) else ()
    found = [getattr(layer, "_random_generator", None) for layer in layers]
    return [(each, each._seed) for each in found if each is not None]


def _restore(seeds: list[tuple[Any, int]]) -> None:
    for generator, seed in seeds:
        generator._seed = seed


def count_step(model: Any, step: str) -> None:
    """Counts a batch where a Keras 2 model does itself in what runs otherwise."""
    counter = getattr(model, _COUNTERS.get(step, "_predict_counter"), None)
    if counter is not None:
        counter.assign_add(1)
