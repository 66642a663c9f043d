"""Variables that are created where somebody says, with values or without."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

SMALL_BYTES = 4096
"""Variables up to this size get their values even where none are asked for: counters and rates,
which programs read while they are built."""


@contextmanager
def created_on(
    device_of: Callable[[str], str | None],
    *,
    values: bool = True,
    made: Callable[[str, Callable[[], Any]], Any] = lambda _, make: make(),
) -> Iterator[None]:
    """Inside of the block a new variable is created, and its first value computed, on the device
    that ``device_of`` gives for its name (``None``: where it is asked for); of variables with one
    name the second is ``NAME_1``, and so on.  Without ``values`` those of more than 4 KiB have
    none and take no memory.  ``made`` may call what makes one on a device more than once."""
    import tensorflow as tf

    seen: Counter[str] = Counter()

    def create(next_creator: Callable[..., Any], **settings: Any) -> Any:
        base = variable_name(settings.get("name"))
        name = f"{base}_{seen[base]}" if seen[base] else base
        seen[base] += 1
        device = device_of(name)
        with nullcontext() if device is None else tf.device(device):
            if values:
                return made(device or "", lambda: next_creator(**settings))
            return _empty_or(next_creator, settings)

    with tf.variable_creator_scope(create):
        yield


def variable_name(name: str | None) -> str:
    """The full name of a variable that is created here and now."""
    import tensorflow as tf

    scope = tf.get_current_name_scope()
    return "/".join(filter(None, (scope, name or "Variable")))


def _empty_or(next_creator: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """A variable without a value; a small one, or one whose value is there already, with it."""
    import tensorflow as tf
    from tensorflow.python.framework import func_graph
    from tensorflow.python.ops import resource_variable_ops

    value = settings.get("initial_value")
    if not callable(value):
        return next_creator(**settings)
    with func_graph.FuncGraph("shape_of_variable").as_default():
        spec = value()
    dtype = settings.get("dtype") or spec.dtype
    size = spec.shape.num_elements()
    if size is None or size * max(tf.as_dtype(dtype).size, 1) <= SMALL_BYTES:
        return next_creator(**settings)
    kept = {"trainable", "name", "constraint", "synchronization", "aggregation"}
    return resource_variable_ops.UninitializedVariable(
        shape=spec.shape,
        dtype=dtype,
        **{key: value for key, value in settings.items() if key in kept and value is not None},
    )
