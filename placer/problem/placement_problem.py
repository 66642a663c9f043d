"""The placement problem as plain data: what a solver sees, and nothing else.

Ops and devices are numbered; every sequence is indexed by those numbers.  The format is stable
and written as JSON (``placer solve`` reads it), so that solvers can be compared without
TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from placer.errors import UsageError
from placer.problem.document_kinds import check_kinds

if TYPE_CHECKING:
    from networkx import DiGraph, MultiDiGraph

    from cost_models.devices import Cluster

SCHEMA = "placer.problem/1"

OBJECTIVES = ("transfer", "step-time", "throughput")

PIN, DEVICE_STRING, TOGETHER = "pin", "device_string", "together"
REQUEST_KINDS = (PIN, DEVICE_STRING, TOGETHER)

NEVER_SPILL = "--offload never"
"""How a problem with ``spill: "never"`` was asked for, where that is in conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemTensor:
    """One tensor: ``bytes`` are sent once to every device, other than the producer's, that reads
    it.  ``producer`` and ``consumers`` are op numbers."""

    producer: int
    consumers: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something that somebody asked for, and could do without.

    ``name`` is how it was asked.  Of kind ``"pin"`` or ``"device_string"``: each of ``ops`` (op
    numbers) is on one of ``devices``; of kind ``"together"``: the ops of each of ``groups`` share a
    device.
    """

    name: str
    kind: str
    ops: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementProblem:
    """Where should each op run?

    ``op_names`` and ``device_names`` give the numbers a meaning.

    Per op: ``resident_bytes`` (weights, constants), ``temporary_bytes``, ``seconds`` (one entry
    per device), ``group`` (ops with the same number share a device), ``allowed`` (device numbers
    the op may use) and ``spillable`` (with ``spill: "auto"`` it may be on ``host`` too).

    Per device: ``capacity_bytes``.

    ``live_bytes`` are moments of the step: each maps op numbers to the bytes that the op needs in
    its device's memory at that moment (outputs, inputs it is still to read, workspace).  At every
    moment the resident bytes plus the live bytes of the ops on a device must stay within its
    capacity; with no moments, the resident bytes alone.  ``transient_bytes`` are kept
    free on each device at every moment: what lies idle there, and what a prediction held beyond
    the moments.

    ``control_edges`` are (before, after) pairs of op numbers.  ``bandwidth`` and ``latency`` are
    matrices, source device by target device, in bytes/s and seconds.  ``host`` is the number of
    ``CPU:0``; ``spill`` is ``"auto"`` or ``"never"``; ``objective`` one of :data:`OBJECTIVES`.

    ``parallel_ops`` is how many ops each device runs at once, ``occupied`` whether transfers keep
    it busy (empty: one, and yes).  With ``multicast`` a sender pays for the dearest receiver of a
    tensor only; TensorFlow sends to each in turn.

    ``tables`` are the ops that hold tables of which others read some rows.

    What a placement costs in bytes (:func:`placer.prediction.scoring.cost`): every message, a
    tensor or the signal of a control edge, once per receiving device, costs its bytes and
    ``message_bytes``; an op on device d costs ``slower_bytes[op][d]`` (empty: nothing), what its
    slower work there is worth.  The tensors ``fetched`` are read on the host as well, from outside
    the program.  Without these fields a placement costs the bytes that it transfers.

    Why an op is confined, for :mod:`placer.solving.conflicts.conflict` (``allowed`` and ``group``
    have all of it in them already, and every field may be empty): ``requests`` are what could be
    dropped; ``unconfined`` maps ops to the devices that they could use if nobody had asked for
    anything and no group held them, where those are not their ``allowed``; ``colocation`` is
    ``group`` without the requests that join groups; ``working_set_bytes`` is, per op, what its
    device holds at once while it runs, wherever its inputs come from: no device with less capacity
    is for its group.
    """

    op_names: tuple[str, ...]
    device_names: tuple[str, ...]
    host: int
    resident_bytes: tuple[int, ...]
    temporary_bytes: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    group: tuple[int, ...]
    allowed: tuple[tuple[int, ...], ...]
    spillable: tuple[bool, ...]
    tensors: tuple[ProblemTensor, ...]
    control_edges: tuple[tuple[int, int], ...]
    capacity_bytes: tuple[int, ...]
    transient_bytes: tuple[int, ...]
    live_bytes: tuple[Mapping[int, int], ...]
    bandwidth: tuple[tuple[float, ...], ...]
    latency: tuple[tuple[float, ...], ...]
    objective: str = "transfer"
    spill: str = "auto"
    parallel_ops: tuple[int, ...] = ()
    occupied: tuple[bool, ...] = ()
    multicast: bool = False
    requests: tuple[Request, ...] = ()
    unconfined: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    colocation: tuple[int, ...] = ()
    working_set_bytes: tuple[int, ...] = ()
    tables: tuple[int, ...] = ()
    slower_bytes: tuple[tuple[int, ...], ...] = ()
    message_bytes: int = 0
    fetched: tuple[int, ...] = ()

    @property
    def beside_host(self) -> list[int]:
        """The numbers of all devices but the host."""
        return [device for device in range(len(self.device_names)) if device != self.host]

    def may_use(self, op: int, device: int) -> bool:
        """Whether an op may be on a device: allowed there, or to the host that is open to it."""
        is_open = device == self.host and self.spill == "auto" and self.spillable[op]
        return is_open or device in self.allowed[op]

    def footprint_bytes(self) -> tuple[int, ...]:
        """Per op, its resident and temporary bytes and those of the tensors that it produces: the
        same whatever moments are known."""
        pairs = zip(self.resident_bytes, self.temporary_bytes, strict=True)
        footprint = [resident + temporary for resident, temporary in pairs]
        for tensor in self.tensors:
            footprint[tensor.producer] += tensor.bytes
        return tuple(footprint)

    def placement(self, device_of: Sequence[int]) -> dict[str, str]:
        """Op name -> device name, from one device number per op."""
        return {
            name: self.device_names[device]
            for name, device in zip(self.op_names, device_of, strict=True)
        }

    @classmethod
    def from_networkx(
        cls,
        graph: DiGraph[Any] | MultiDiGraph[Any],
        devices: str | Cluster | None = None,
        *,
        max_memory: str | Mapping[int | str, int | str] | None = None,
        reserve: str | int | None = None,
        objective: str = "transfer",
        offload: str = "auto",
        spill: str | None = None,  # the earlier name of ``offload``
    ) -> PlacementProblem:
        """The problem that a networkx graph poses: which device for each of its nodes?

        The attributes that are read, and what they are without being given, are those of
        :mod:`placer.problem.networkx_problems`; ``devices``, ``max_memory`` and ``reserve`` are
        as for :func:`placer.place`.  Without ``devices`` the graph must come from
        :meth:`to_networkx`.

        Raises :class:`~placer.errors.UsageError` for a graph with a cycle or without directions,
        for devices that cannot be read, and for an attribute that makes no sense.
        """
        from placer.problem.networkx_problems import document_of

        try:
            document = document_of(
                graph,
                devices,
                max_memory=max_memory,
                reserve=reserve,
                objective=objective,
                offload=spill or offload,
            )
            problem = _from_document(document)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"the graph is not a placement problem: {error}") from error
        check(problem)
        return problem

    def to_networkx(self) -> MultiDiGraph[str]:
        """The problem as a graph that :meth:`from_networkx` reads back without ``devices``.

        Raises :class:`~placer.errors.UsageError` if two ops have the same name.
        """
        from placer.problem.networkx_problems import graph_of

        return graph_of(asdict(self))


def check(problem: PlacementProblem) -> None:
    """Raises :class:`~placer.errors.UsageError` if a number of the problem refers to nothing."""
    _check_lengths(problem)
    _check_numbers(problem)
    _check_requests(problem)
    if problem.spill not in ("auto", "never"):
        raise UsageError(f"spill is {problem.spill!r}; it can be 'auto' or 'never'")
    if problem.objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise UsageError(f"the objective is {problem.objective!r}; it can be {known}")


_PER_OP = ("resident_bytes", "temporary_bytes", "seconds", "group", "allowed", "spillable")
_MAY_BE_PER_OP = ("colocation", "working_set_bytes", "slower_bytes")
_PER_DEVICE = ("capacity_bytes", "transient_bytes", "bandwidth", "latency")
_MAY_BE_PER_DEVICE = ("parallel_ops", "occupied")


def _check_lengths(problem: PlacementProblem) -> None:
    ops, devices = len(problem.op_names), len(problem.device_names)
    if not devices:
        raise UsageError("the problem has no devices")
    for named, number, noun, optional in (
        (_PER_OP, ops, "ops", False),
        (_MAY_BE_PER_OP, ops, "ops", True),
        (_PER_DEVICE, devices, "devices", False),
        (_MAY_BE_PER_DEVICE, devices, "devices", True),
    ):
        for name in named:
            found = len(getattr(problem, name))
            if found != number and not (optional and not found):
                raise UsageError(f"{name} has {found} entries for {number} {noun}")
    matrices = (problem.seconds, problem.bandwidth, problem.latency, problem.slower_bytes)
    if any(len(row) != devices for row in chain.from_iterable(matrices)):
        raise UsageError(
            f"seconds, bandwidth, latency or slower_bytes has a row without {devices} entries"
        )


def _check_numbers(problem: PlacementProblem) -> None:
    ops, devices = range(len(problem.op_names)), range(len(problem.device_names))
    _check_known("the host is device", (problem.host,), devices)
    for name, allowed in zip(problem.op_names, problem.allowed, strict=True):
        _check_known(f"op {name!r} is allowed on device", allowed, devices)
    for number, tensor in enumerate(problem.tensors):
        _check_known(f"tensor {number} names op", (tensor.producer, *tensor.consumers), ops)
    sizes = [
        *problem.resident_bytes,
        *problem.transient_bytes,
        *problem.working_set_bytes,
        *chain.from_iterable(problem.slower_bytes),
        problem.message_bytes,
        *(tensor.bytes for tensor in problem.tensors),
        *(size for moment in problem.live_bytes for size in moment.values()),
    ]
    if min(sizes, default=0) < 0:
        raise UsageError(f"a size is {min(sizes)} bytes; sizes cannot be negative")
    if min(problem.parallel_ops, default=1) < 1:
        raise UsageError(f"parallel_ops has {min(problem.parallel_ops)}; a device runs 1 or more")
    for source, row in enumerate(problem.bandwidth):
        slow = [device for device in devices if device != source and not row[device] > 0]
        if slow:
            between = " to ".join(problem.device_names[end] for end in (source, slow[0]))
            raise UsageError(f"the bandwidth of {between} is {row[slow[0]]}; it has to be above 0")
    _check_known("a moment names op", chain.from_iterable(problem.live_bytes), ops)
    _check_known("tables name op", problem.tables, ops)
    _check_known("fetched names tensor", problem.fetched, range(len(problem.tensors)))


def _check_known(what: str, numbers: Iterable[int], known: range) -> None:
    wrong = [number for number in numbers if number not in known]
    if wrong:
        raise UsageError(f"{what} {wrong[0]} of {len(known)}")


def _check_requests(problem: PlacementProblem) -> None:
    ops, devices = range(len(problem.op_names)), range(len(problem.device_names))
    for request in problem.requests:
        if not isinstance(request.name, str):
            raise UsageError(f"a request is called {request.name!r}; names are text")
        if request.kind not in REQUEST_KINDS:
            known = ", ".join(REQUEST_KINDS)
            raise UsageError(f"a request is of kind {request.kind!r}; it can be {known}")
        named = [*request.ops, *(op for group in request.groups for op in group)]
        _check_known(f"the request {request.name!r} names op", named, ops)
    named_devices = [device for request in problem.requests for device in request.devices]
    named_devices += [device for allowed in problem.unconfined.values() for device in allowed]
    _check_known("a request or unconfined names device", named_devices, devices)
    _check_known("unconfined names op", problem.unconfined, ops)


def to_json(problem: PlacementProblem) -> str:
    """The problem as JSON text with sorted keys."""
    return json.dumps({"schema": SCHEMA, **asdict(problem)}, sort_keys=True)


def from_json(text: str) -> PlacementProblem:
    """The problem written by :func:`to_json`.

    Raises ``ValueError`` if the text is not a problem of this schema.
    """
    data: dict[str, Any] = dict(json.loads(text))
    if (found := data.pop("schema", None)) != SCHEMA:
        raise ValueError(
            f'its "schema" is {found!r}, not "{SCHEMA}"; docs/formulation.md says what is in '
            "such a file"
        )
    return _from_document(data)


def _from_document(data: dict[str, Any]) -> PlacementProblem:
    """The problem of a document without its schema, which is used up."""

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, (list, tuple)) else value

    tensors = tuple(
        ProblemTensor(
            producer=row["producer"], consumers=tuple(row["consumers"]), bytes=row["bytes"]
        )
        for row in data.pop("tensors")
    )
    live_bytes = tuple(
        {int(op): size for op, size in moment.items()} for moment in data.pop("live_bytes")
    )
    requests = tuple(
        Request(**{key: tuples(value) for key, value in row.items()})
        for row in data.pop("requests", ())
    )
    unconfined = {int(op): tuple(allowed) for op, allowed in data.pop("unconfined", {}).items()}
    # fields that problems had once; they said nothing about what a placement costs
    gone = ("counted", "followers", "may_follow", "spill_allowance_bytes")
    plain = {key: tuples(value) for key, value in data.items() if key not in gone}
    problem = PlacementProblem(
        tensors=tensors, live_bytes=live_bytes, requests=requests, unconfined=unconfined, **plain
    )
    check_kinds(problem)
    return problem
