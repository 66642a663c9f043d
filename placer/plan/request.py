"""The options of a placement, and how a plan remembers them."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from inspect import Parameter, signature
from operator import index
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

from cost_models.clusters import Devices, spec_text
from placer.argument_types import OLD_NAMES, hints_of, require_range, require_type
from placer.errors import UsageError, unknown_option
from placer.graph.op_graph import Op
from placer.graph.program_source import Access
from placer.plan.measured_costs import Costs

Sizes = tuple[int | str | None, ...]

AUTO: Literal["auto"] = "auto"
NEVER: Literal["never"] = "never"

FIT_MEANS = ("release", "order", "recompute", "swap")
"""The means of making a training step fit."""

NEVER_KEPT = ("allow_unsafe", "follow_links")
"""Options that only the caller gives: a plan out of a file does not allow anything."""

DeviceFunction = Callable[[Op], str]
"""From an op of the flat graph to a device string; ``""`` leaves it free."""


class Keywords(TypedDict, total=False):
    """The fields of :class:`Options` as keyword arguments, for editors and type checkers."""

    tag_set: str | None
    signature: str | None
    outputs: tuple[str, ...] | None
    batch_size: int | None
    shapes: Mapping[str, Sizes] | None
    dims: Mapping[str, int] | None
    ragged: Mapping[str, Sizes] | None
    allow_unsafe: bool
    follow_links: bool
    max_memory: str | Mapping[int | str, int | str] | None
    reserve: str | None
    offload: Literal["auto", "never"]
    objective: Literal["transfer", "step-time", "throughput"]
    order: Literal["free", "fit", "memory"]
    fit: str
    max_slowdown: float | str | None
    pins: Mapping[str, str]
    pin_types: Mapping[str, str]
    keep_together: tuple[str, ...]
    device_function: DeviceFunction | None
    clear_devices: bool
    colocate_gradients: bool
    keep_colocation: bool
    split_tables: str | Mapping[str, int]
    costs: Costs
    trip_count: int | None
    strategy: str | None
    time_limit: float
    work_limit: int | None
    seed: int
    solver: str
    red_zones: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything a placement can be asked for; each field is the command-line option's namesake.

    ``docs/options.md`` has a line and an example for each.
    """

    tag_set: str | None = None
    """Tags of the MetaGraph in a SavedModel, with commas between them."""
    signature: str | None = None
    """Signature of a SavedModel, or one of its functions by path or name."""
    outputs: tuple[str, ...] | None = None
    """Outputs, ops or tensors to run."""
    batch_size: int | None = None
    """Binds unknown leading dimensions of the inputs."""
    shapes: Mapping[str, Sizes] | None = None
    """Shapes by the name of an input or any op; a dimension may be a name out of ``dims``."""
    dims: Mapping[str, int] | None = None
    """Sizes of named dimensions."""
    ragged: Mapping[str, Sizes] | None = None
    """Rows and mean lengths of ragged and sparse inputs; ``None`` rows are the batch."""
    allow_unsafe: bool = False
    """Loads and runs a file although it runs code of its own or touches files of others."""
    follow_links: bool = False
    """Follows links that lead out of a model's folder."""
    max_memory: str | Mapping[int | str, int | str] | None = None
    """Caps by device (a number is a GPU): ``"8GiB"``, or bytes."""
    reserve: str | None = None
    """Memory kept free on each accelerator, such as ``"1GiB+10%"``."""
    offload: str = "auto"
    """Whether ops may go to the host when the accelerators cannot hold all: ``"never"`` forbids."""
    objective: str = "transfer"
    """The quantity to minimise: bytes sent, ``"step-time"``, or ``"throughput"``."""
    order: str = "free"
    """Control edges: none, where the caps need them (``"fit"``), for low peaks (``"memory"``)."""
    fit: str = ""
    """The means of making a training step fit, before ops are offloaded: some of
    ``"release,order,recompute,swap"``, or ``"auto"``."""
    max_slowdown: float | str | None = None
    """By how much longer a step may take for that: ``"30%"``, or a share such as 0.3."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Devices by glob of op names."""
    pin_types: Mapping[str, str] = field(default_factory=dict)
    """Devices by glob of op types."""
    keep_together: tuple[str, ...] = ()
    """Globs of op names; the ops of each share a device."""
    device_function: DeviceFunction | None = None
    """Gives device strings in place of the graph's own; ops without a kernel there, and groups that
    contradict, go elsewhere."""
    clear_devices: bool = False
    """Ignores the device strings of the graph."""
    colocate_gradients: bool = False
    """Puts every gradient op on the device of its forward op."""
    keep_colocation: bool = False
    """Takes the graph's colocation hints (``_class``) for law."""
    split_tables: str | Mapping[str, int] = NEVER
    """Variables that are split by rows, and into how many parts: ``"users=4"`` or ``{"users": 4}``;
    ``"auto"``: those that no accelerator can hold."""
    costs: Costs = None
    """Measured costs or a path of them, or seconds by op name."""
    trip_count: int | None = None
    """Iterations of loops whose number is not in the graph."""
    strategy: str | None = None
    """How the batch is run other than whole (:mod:`placer.strategies.requests`)."""
    time_limit: float = 30.0
    """Seconds of the search."""
    work_limit: int | None = None
    """Steps after which each search ends: the plan is the same every time, unless the time limit
    comes first."""
    seed: int = 0
    """Seed of the search."""
    solver: str = "cp-sat"
    """Solver by its registered name: this one, a baseline such as ``"heft"``, or one's own."""
    red_zones: bool | None = None
    """Whether autotuning of convolutions takes red zones: ``False`` says that
    ``TF_DISABLE_RZ_CHECK=1`` will be set; by default, as TensorFlow comes for a file, ``False`` for
    a live program, which ``bind`` sets it for."""

    def __post_init__(self) -> None:
        """Raises ``UsageError`` for numbers out of range."""
        for name in ("time_limit", "shapes", "ragged", "dims"):
            require_range(name, getattr(self, name))
        for name in ("batch_size", "trip_count", "seed", "work_limit"):
            value = getattr(self, name)
            require_range(name, value)
            if value is not None:
                object.__setattr__(self, name, index(value))  # of numpy's, too, a plan keeps an int
        self._check_fit()
        object.__setattr__(self, "split_tables", format_splits(read_splits(self.split_tables)))

    @property
    def most_slowdown(self) -> float | None:
        """``max_slowdown`` as a share; ``None`` if there is no limit."""
        return read_share(self.max_slowdown)

    @property
    def access(self) -> Access:
        """The permissions of the model, as keyword arguments of functions that read and run it."""
        return Access(allow_unsafe=self.allow_unsafe, follow_links=self.follow_links)

    @property
    def fit_means(self) -> tuple[str, ...]:
        """The means of ``fit``, one by one."""
        if self.fit == "auto":
            return FIT_MEANS
        return tuple(part.strip() for part in self.fit.split(",") if part.strip())

    @property
    def splits(self) -> dict[str, int]:
        """Into how many parts which variables are split, as far as that is decided."""
        found = read_splits(self.split_tables)
        return found if isinstance(found, dict) else {}

    def _check_fit(self) -> None:
        unknown = [means for means in self.fit_means if means not in FIT_MEANS]
        if unknown or (self.fit and not self.fit_means):
            raise UsageError(
                f"--fit must be auto alone, or some of {','.join(FIT_MEANS)}, got {self.fit!r}"
            )
        if self.most_slowdown is not None and not self.fit:
            raise UsageError("--max-slowdown requires --fit")
        if self.fit and self.strategy:
            raise UsageError(
                "--fit rewrites a whole step and --strategy divides it: leave out one of them"
            )
        if self.fit and self.order != "free":
            raise UsageError("--fit chooses an order itself: leave out --order")


def read_splits(given: object) -> dict[str, int] | str:
    """Parts by variable, or ``"auto"``.  Raises ``UsageError`` for what is neither.

    >>> read_splits("users=4, items=2"), read_splits("auto"), read_splits("never")
    ({'users': 4, 'items': 2}, 'auto', {})
    """
    if given in (AUTO, NEVER):
        return AUTO if given == AUTO else {}
    try:
        if isinstance(given, Mapping):
            found = {str(name): index(count) for name, count in given.items()}
        else:
            rows = [row.strip().rpartition("=") for row in str(given).split(",")]
            found = {name: int(count) for name, _, count in rows}
            if len(found) < len(rows):
                raise ValueError(given)
        if not all(name and count > 1 for name, count in found.items()):
            raise ValueError(given)
    except (ValueError, TypeError) as error:
        raise UsageError(
            "split_tables must be auto, never, or variables with the number of their parts, 2 or "
            f"more, such as users=4,items=2, got {given!r}"
        ) from error
    return found


def format_splits(splits: Mapping[str, int] | str) -> str:
    """Returns the text that :func:`read_splits` reads.

    >>> format_splits({"users": 4, "items": 2}), format_splits({})
    ('users=4,items=2', 'never')
    """
    if isinstance(splits, str):
        return splits
    return ",".join(f"{name}={count}" for name, count in splits.items()) or NEVER


def read_share(given: float | str | None) -> float | None:
    """A share from what was given: ``"30%"`` or 0.3, not 30; raises ``UsageError`` if it is none.

    >>> read_share("30%"), read_share(0.3), read_share("150%")
    (0.3, 0.3, 1.5)
    """
    if given is None:
        return None
    try:
        text = str(given).strip()
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        is_share = 0 <= share <= (math.inf if text.endswith("%") else 1)
    except ValueError:
        is_share = False
    if not is_share or share == math.inf:
        raise UsageError(f"--max-slowdown must be a share such as 30% or 0.3, got {given!r}")
    return share


Asking = TypeVar("Asking", bound=Callable[..., Any])


def takes_options(function: Asking, **defaults: Any) -> Asking:
    """``function`` with the fields of :class:`Options` in the signature that Python shows, in place
    of its ``**options``: shells and notebooks complete them.  ``defaults`` are its own."""
    own = signature(function)
    named = [p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    listed = [
        Parameter(item.name, Parameter.KEYWORD_ONLY, default=value, annotation=item.type)
        for item in fields(Options)
        if item.name not in own.parameters
        for value in (defaults.get(item.name, getattr(Options(), item.name)),)
    ]
    function.__signature__ = own.replace(parameters=[*named, *listed])  # type: ignore[attr-defined]
    return function


def read_options(given: Mapping[str, Any]) -> Options:
    """The options of keyword arguments.

    Raises ``UsageError`` for a name that is none, with the nearest ones, and for wrong values.
    """
    require_options(given := current_names(given))
    hints = hints_of(Keywords)
    for name, value in given.items():
        require_type(name, value, hints[name])
    return Options(**given)


def current_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``given`` with options and strategies under the names that they have now.

    >>> current_names({"spill": "never", "strategy": "towers:2"})
    {'offload': 'never', 'strategy': 'replicas:2'}
    """
    found = {OLD_NAMES.get(name, name): value for name, value in given.items()}
    if str(found.get("strategy", "")).startswith("towers"):
        found["strategy"] = found["strategy"].replace("towers", "replicas")
    return found


def require_options(names: Iterable[str]) -> None:
    """Raises ``UsageError`` for a name that is no option, with the nearest ones."""
    known = [item.name for item in fields(Options)]
    for name in current_names(dict.fromkeys(names)):
        if name not in known:
            raise unknown_option(name, known)


def describe_request(devices: Devices, wanted: Options) -> dict[str, Any]:
    """The devices and all options that are not their defaults, as JSON holds them.

    What was allowed (:data:`NEVER_KEPT`) is left out.  Of costs only the path can be kept:
    ``"given"`` stands for others, and for a device function.
    """
    request, defaults = dict[str, Any](devices=spec_text(devices)), Options()
    for item in fields(Options):
        value = getattr(wanted, item.name)
        if item.name in NEVER_KEPT or value == getattr(defaults, item.name):
            continue
        if item.name == "device_function":
            value = "given"
        elif item.name == "costs":
            value = str(value) if isinstance(value, str | Path) else "given"
        elif item.name == "max_memory" and isinstance(value, Mapping):
            named = {f"GPU:{key}" if isinstance(key, int) else key: value[key] for key in value}
            value = ",".join(f"{name}={cap}" for name, cap in named.items())
        elif item.name in ("shapes", "ragged"):
            value = {key: list(shape) for key, shape in value.items()}
        elif isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            value = list(value)
        request[item.name] = value
    return request


def requested_options(request: Mapping[str, Any], **changes: Any) -> Options:
    """The options that :func:`describe_request` described, with ``changes`` of the caller."""
    known = {item.name for item in fields(Options)}.difference(NEVER_KEPT)
    kept = {key: value for key, value in current_names(request).items() if key in known}
    values = {**kept, **current_names(changes)}
    for key in values.keys() & {"outputs", "keep_together"}:
        values[key] = tuple(values[key])
    for key in values.keys() & {"shapes", "ragged"}:
        values[key] = {name: tuple(sizes) for name, sizes in values[key].items()}
    lost = [key for key in ("costs", "device_function") if values.get(key) == "given"]
    return Options(**{key: value for key, value in values.items() if key not in lost})
