"""Arguments of functions that people call, held against their annotations before anything runs."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, Literal, SupportsIndex, TypeVar, Union, get_args, get_origin

from cost_models.tensor_size import MOST_ELEMENTS as MOST
from cost_models.tensor_size import MOST_SIZE
from placer.errors import ArgumentError, UsageError, unknown_option

Called = TypeVar("Called", bound=Callable[..., Any])

_PLAN = "a Plan, as placer.place returns one and placer.Plan.load(path) reads one"
_WORDS: Mapping[str, str] = {
    "addresses": "the path of a cluster.toml, or a mapping such as {'worker': ['host:2222']}",
    "after": _PLAN,
    "batch_size": "a whole number such as 32",
    "batch_sizes": "a list of whole numbers such as [8, 32]",
    "before": _PLAN,
    "build": "a function from the number of micro-batches to the program",
    "clip": "a function from a list of gradients to a list of gradients",
    "cluster": "the path of a cluster.toml, or a mapping such as {'worker': ['host:2222']}",
    "configure_runtime.plan": "a Plan, or devices such as '2xT4'",
    "costs": "the path of a costs file, or seconds by op name such as {'dense/MatMul': 0.002}",
    "data_parallel.devices": "a list of devices such as ['GPU:0', 'GPU:1']",
    "device_function": "a function from an op to a device such as 'GPU:0' ('' leaves it free)",
    "devices": "a text such as '2xT4,CPU:64GiB', or the path of a cluster.toml",
    "dims": "a mapping such as {'T': 128}",
    "fit": "a text such as 'auto'",
    "functions": "a mapping such as {'mine': lambda op: 'GPU:0'}",
    "keep_together": "a list of names such as ['users*']",
    "max_memory": "such as {'GPU:0': '8GiB'}",
    "max_slowdown": "a share such as '30%' or 0.3",
    "measured": "a list of what placer.profile returns",
    "path": "the path of a file",
    "outputs": "a list of names such as ['logits']",
    "pin_types": "a mapping such as {'Gather*': 'CPU:0'}",
    "pins": "a mapping such as {'users*': 'CPU:0'}",
    "plan": _PLAN,
    "problem": "a PlacementProblem, as placer.PlacementProblem.from_networkx makes one",
    "ragged": "a mapping such as {'ids': (None, 50)}",
    "reserve": "a text such as '1GiB+10%' or '5%'",
    "resident": "a text such as '4GiB', or a whole number of bytes",
    "shapes": "a mapping such as {'ids': (8, 128)}",
    "signature": "a name such as 'serving_default'",
    "simulate_gpus.devices": "a text such as '2xT4' or 'GPU:8GiB'",
    "split_tables": "a text such as 'users=4', or a mapping such as {'users': 4}",
    "strategy": "a text such as 'replicas:2'",
    "time_limit": "a number of seconds such as 30",
    "trip_count": "a whole number such as 100",
}
"""The words for arguments, where their type alone says too little."""

_LEAST = {
    **{"batch_size": 1, "most": 1, "steps": 1, "threads": 1, "work_limit": 1},
    **{"seed": 0, "transfer_count": 0, "trip_count": 0},
}
"""The least that these whole numbers may be."""

OLD_NAMES = {"spill": "offload"}
"""The names that options have now, by those that they had before."""

_KINDS: Mapping[Any, str] = {
    str: "a text",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
}


def checked(function: Called, options: Any = None) -> Called:
    """Returns ``function``, which raises :class:`~placer.errors.ArgumentError` for a keyword that
    its signature has not, and for an argument of another type than it is annotated with;
    ``**options`` are typed as another record is."""

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        code = inspect.unwrap(function).__code__
        hints = {**(hints_of(options) if options else {}), **hints_of(function)}
        _require_names(function, named)
        given = dict(zip(code.co_varnames[: code.co_argcount], arguments, strict=False)) | named
        for name in filter(hints.__contains__, given):
            require_type(name, given[name], hints[name], function.__name__)
        return function(*arguments, **named)

    return called  # type: ignore[return-value]


def _require_names(function: Callable[..., Any], named: Iterable[str]) -> None:
    """Raises :class:`~placer.errors.ArgumentError` for a keyword that ``function`` does not take,
    unless it takes any."""
    taken = inspect.signature(function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        return
    known = [name for name in taken if name != "self"]
    for name in named:
        if OLD_NAMES.get(name, name) not in known:
            raise unknown_option(name, known)


@functools.cache
def front(function: Callable[..., Any], options: Any) -> Callable[..., Any]:
    """Returns the checked function as a name of the package ``placer``, where pickles find it."""
    found = checked(function, options)
    found.__module__, found.__qualname__ = "placer", function.__name__
    return found


def require_type(name: str, value: object, hint: Any, function: str = "") -> None:
    """Raises :class:`~placer.errors.ArgumentError` for a ``value`` that is not of a type."""
    wrong = next(_wrong_parts(value, hint), None)
    if wrong is None:
        require_range(name, value)
        return
    words = _WORDS.get(f"{function}.{name}") or (_WORDS.get(name) or _in_words(hint))
    (part,) = wrong
    whole = "" if part is value else f" in {_shown(value)}"
    raise ArgumentError(f"{name} must be {words}; got {_shown(part)}{whole}")


def require_range(name: str, value: Any) -> None:
    """Raises :class:`~placer.errors.UsageError` for a number that no argument ``name`` can be."""
    least = _LEAST.get(name)
    if value is None:
        return
    if least is not None:
        most, shown = (MOST_SIZE, f"{MOST_SIZE:,}") if name == "batch_size" else (MOST, "2^63-1")
        if not isinstance(value, SupportsIndex) or not least <= operator.index(value) <= most:
            raise UsageError(f"{name} is {value!r}; give a whole number from {least} to {shown}")
    elif name in ("shapes", "ragged", "dims", "batch_sizes"):
        _require_sizes(name, value)
    elif name.startswith("time_limit") and not 0 < value < math.inf:
        raise UsageError(f"{name} is {value!r}; give seconds above zero")


def _require_sizes(name: str, value: Any) -> None:
    """Raises :class:`~placer.errors.UsageError` for a size of a dimension that is too large."""
    for key, given in value.items() if isinstance(value, Mapping) else [("", value)]:
        for size in [given] if _is_number(given, int) else given or ():
            if _is_number(size, int) and operator.index(size) > MOST_SIZE:
                of = f" of {key!r}" if key else ""
                raise UsageError(f"{name} has the size {size}{of}; give at most {MOST_SIZE:,}")


@functools.cache
def hints_of(owner: Any) -> dict[str, Any]:
    """Returns the types of arguments or fields, as far as they can be looked up when it runs."""
    found: dict[str, Any] = {}
    scope = getattr(inspect.unwrap(owner), "__globals__", None)
    for name, given in owner.__annotations__.items():
        alone = types.SimpleNamespace(__annotations__={name: given})
        try:
            found |= typing.get_type_hints(alone, scope)
        except NameError:  # imported for type checkers alone
            continue
    return found


def _wrong_parts(value: Any, hint: Any) -> Iterator[tuple[Any]]:
    """Yields (part,) of what in ``value`` does not fit ``hint``, ``value`` itself among it."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if hint is Any:
        return
    if kind in (Union, types.UnionType):
        found = [next(_wrong_parts(value, each), None) for each in inner]
        if None not in found:
            yield next((part for part in found if part and part[0] is not value), (value,))
    elif kind is Literal:
        fits = isinstance(value, str) and value in inner
        yield from () if fits else ((value,),)
    elif not _is_of(value, kind):
        yield (value,)
    elif isinstance(value, Mapping) and len(inner) == 2:
        for key, each in value.items():
            yield from _wrong_parts(key, inner[0])
            yield from _wrong_parts(each, inner[1])
    elif _is_list(kind) and inner and isinstance(value, Collection):
        for each in value:
            yield from _wrong_parts(each, inner[0])


def _is_of(value: Any, kind: Any) -> bool:
    """Whether ``value`` may stand for a type without its parameters."""
    if kind in (bool, int, float):
        is_truth = type(value).__name__ in ("bool", "bool_")
        return is_truth if kind is bool else not is_truth and _is_number(value, kind)
    if _is_list(kind) and not isinstance(value, Mapping):
        return isinstance(value, Iterable) and not isinstance(value, str | bytes)
    if getattr(kind, "__name__", "") == "Plan" and hasattr(value, "placement"):
        return True  # as much of a plan as is read
    return not isinstance(kind, type) or isinstance(value, kind)


def _is_number(value: Any, kind: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return kind is float and isinstance(value, Real)
    return True


def _is_list(kind: Any) -> bool:
    """Whether any collection will do."""
    return kind is tuple or (
        isinstance(kind, type) and kind is not object and issubclass(list, kind)
    )


def _in_words(hint: Any) -> str:
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, types.UnionType):
        words = [_in_words(each) for each in inner if each is not types.NoneType]
        return "a path" if "a PathLike" in words else " or ".join(words)
    if kind is Literal:
        return " or ".join(map(repr, inner))
    if _is_list(kind):
        return "a list"
    known = {Mapping: "a mapping", Callable: "a function", **_KINDS}
    return known.get(kind) or f"a {getattr(kind, '__name__', kind)}"


def _shown(value: object) -> str:
    """A value of Python's own as it is written, of others the type."""
    if value is None or isinstance(value, (str, bytes, int, float, list, tuple, dict, set)):
        return reprlib.repr(value)
    return f"an object of type {type(value).__name__!r}"
