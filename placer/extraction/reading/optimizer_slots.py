"""The slots of a Keras optimizer, made where somebody says instead of beside their variables.

Keras makes slots when an optimizer is built, all on the device of the weights: on GPU:0, before
there is a plan.  A step that is only traced has a copy of the optimizer instead; the optimizer
itself is built when the model trains, and where it trains.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from placer.extraction.reading.created_variables import created_on


@contextmanager
def with_host_optimizer(model: Any, *, values: bool) -> Iterator[Any]:
    """The built ``model`` with a copy of its optimizer, which has no slots: that of the copy are
    on the host, and without ``values`` take no memory.  Yields the copy."""
    optimizer = model.optimizer
    own = copied_optimizer(optimizer)
    with created_on(lambda _: "/device:CPU:0", values=values):
        own.build(model.trainable_variables)
    names = [name for name, value in vars(model).items() if value is optimizer]
    try:
        vars(model).update(dict.fromkeys(names, own))
        yield own
    finally:
        vars(model).update(dict.fromkeys(names, optimizer))


def slot_devices(model: Any) -> dict[str, str]:
    """The device on which Keras would make each slot of the model's optimizer, by its path."""
    own = copied_optimizer(model.optimizer)
    known = {id(variable) for variable in own.variables}
    with created_on(lambda _: None, values=False):
        own.build(model.trainable_variables)
    return {slot.path: slot.value.device for slot in own.variables if id(slot) not in known}


def copied_optimizer(value: Any) -> Any:
    """An optimizer that shares the variables it has and makes its own slots; a container with
    what it holds, inner optimizers copied; anything else itself."""
    import keras

    if isinstance(value, keras.optimizers.Optimizer):
        own = object.__new__(type(value))
        vars(own).update({name: copied_optimizer(part) for name, part in vars(value).items()})
        is_variable, _ = value._tracker.config["variables"]
        tracker = type(value._tracker)({"variables": (is_variable, own._variables)})
        tracker.stored_ids["variables"].update(map(id, own._variables))
        vars(own)["_tracker"] = tracker
        return own
    if isinstance(value, list):
        return [copied_optimizer(item) for item in value]
    kind = next((kind for kind in (dict, set) if isinstance(value, kind)), None)
    return value if kind is None else kind(value)
