"""The plan: a placement with everything needed to apply, check and explain it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from placer.argument_types import checked
from placer.errors import InfeasibleError, UsageError, near_names, some
from placer.files import rebased, write_text
from placer.graph.program_source import Bindings, ModelSource
from placer.graph.rewriting import NO_REWRITING, Rewriting
from placer.plan.loading_facts import LoadingFacts
from placer.plan.request import current_names
from placer.plan.results import Page, interactive
from placer.plan.rows import GateVerdict, PlanMetrics, PlannedDevice, PlanWarning, SolverAnswer
from placer.plan.schemas import parse_json, read_kept, require_fit
from placer.prediction.metrics import SENT, Transfer, over_caps
from placer.problem.conflict import Conflict
from placer.problem.rows import Row
from placer.problem.status import Stage

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from placer.application.binding.model_binding import BoundModel
    from placer.prediction.predicted_step import PredictedStep

SCHEMA = "placer.plan/1"


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Page):
    """The content of ``plan.json``, field by field (see ``docs/plan.md`` and the JSON Schema).

    ``placement`` maps every op of the flat graph to a device name, ``variables`` every variable.
    ``control_edges`` are pairs of ops, the second of which waits for the first: they keep memory
    low, or the pieces of a batch in a pipeline (:mod:`placer.fitting`).  ``rewriting`` is
    what is computed twice, swapped and released before that (:mod:`placer.graph.rewriting`); the
    ops that it adds are placed too.
    ``hints_apart`` counts the colocation hints (``_class``) of
    the graph that the placement does not follow.  ``loading`` is what loaders restore of the placed
    model and where.  ``gate`` is the verdict of the gates that were
    asked for.  ``request`` are the options that the plan was made with, as far as JSON holds them.
    ``step`` predicts one step op by op, for pictures; a plan out of a file has none.
    """

    model: ModelSource
    bindings: Bindings
    devices: tuple[PlannedDevice, ...]
    placement: Mapping[str, str]
    variables: Mapping[str, str]
    transfers: tuple[Transfer, ...]
    metrics: PlanMetrics
    solver: SolverAnswer
    unmodelled: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[PlanWarning, ...] = ()
    conflict: Conflict | None = None
    control_edges: tuple[tuple[str, str], ...] = ()
    rewriting: Rewriting = NO_REWRITING
    hints_apart: int = 0
    request: Mapping[str, Any] = field(default_factory=dict)
    loading: LoadingFacts | None = None
    gate: GateVerdict | None = None
    tensorflow_version: str = ""
    tool_version: str = ""
    step: Callable[[], PredictedStep] | None = field(
        default=None, compare=False, repr=False, metadata={"in_file": False}
    )

    @property
    def fits(self) -> bool:
        """There is a placement, and its predicted peaks are within all caps (a plan with status
        ``UNKNOWN`` may hold one that breaks some)."""
        return bool(self.placement) and self.solver.status in ("OPTIMAL", "FEASIBLE")

    @property
    def proof(self) -> str:
        """Returns how far it is proven that nothing fits: with what ``fit`` tried only that nothing
        does without; ``""`` if that is not proven."""
        if self.solver.status == "INFEASIBLE":
            return "proven"
        return "proven without --fit" if self.conflict and not self.placement else ""

    def raise_for_conflict(self) -> None:
        """Does nothing unless it is proven that nothing fits.

        Raises :class:`~placer.errors.InfeasibleError`, which says why and carries ``conflict``.
        """
        if self.solver.status != "INFEASIBLE":
            return
        why = f": {interactive().conflict_text(self.conflict)}" if self.conflict else ""
        told = f"the plan has no placement, as none fits (proven){why}"
        raise InfeasibleError(told, self.conflict)

    @property
    def sent(self) -> list[Transfer]:
        """The transfers whose bytes a step sends, the largest first and unsized ones last."""
        rows = (row for row in self.transfers if row.kind in SENT)
        return sorted(
            rows,
            key=lambda row: (-1 if row.bytes is None else -row.bytes, row.tensor, row.target),
        )

    @property
    def peak_bytes(self) -> dict[str, int]:
        """The highest predicted peak by device; empty where nothing is placed."""
        peaks = {device.name: device.peak_memory_bytes for device in self.devices}
        return {name: peak for name, peak in peaks.items() if peak is not None}

    @property
    def required_bytes(self) -> dict[str, int]:
        """The bytes that are held against the caps, by device (``required_bytes`` of its rows);
        empty where nothing is placed."""
        required = {device.name: device.required_bytes for device in self.devices}
        return {name: size for name, size in required.items() if size is not None}

    @property
    def over_bytes(self) -> dict[str, int]:
        """The bytes by which needs exceed their caps, of the devices where they do."""
        return over_caps(self.required_bytes, {d.name: d.usable_bytes for d in self.devices})

    @property
    def device_function(self) -> Callable[[Any], str]:
        """A function from an op (anything with ``.name``) to its full device string, for
        ``tf.compat.v1.device``; ops the plan does not know keep what they ask for.

        Where the plan's GPUs are absent it rehearses, with a warning; see
        :func:`placer.application.devices.session_devices.device_function`.  Raises what
        :meth:`make_device_function` does.
        """
        return self.make_device_function()

    @checked
    def make_device_function(self, *, missing: str = "warn") -> Callable[[Any], str]:
        """:attr:`device_function`; with ``missing="error"`` absent devices raise ``UsageError``.

        Raises ``UsageError`` also for a plan without a placement, for one that says more than
        devices (control edges, ops that are computed again or swapped, a divided batch), and if it
        does not follow every colocation hint of the graph: TensorFlow puts hints over any device
        function.
        """
        if not self.placement:
            raise UsageError(f"the plan has no placement ({self.solver.status})")
        division = self.model.get("division")
        more = {
            "control edges": len(self.control_edges),
            "rewritten ops": len(self.rewriting.sources),
            "parts of the batch": division["parts"] if division else 0,
        }
        said = ", ".join(f"{count:,} {what}" for what, count in more.items() if count)
        if said:
            raise UsageError(
                f"the plan has {said}, which a device function cannot make: build the graph "
                "without one and place it with placer.apply(graph, plan)"
            )
        if self.hints_apart:
            raise UsageError(
                f"the plan does not follow {self.hints_apart:,} colocation hints (_class) of the "
                "graph, which TensorFlow puts over any device function: build the graph without "
                "one and place it with placer.apply(graph, plan), or make a plan with "
                "--keep-colocation"
            )
        function: Callable[[Any], str] = interactive().device_function(self, missing=missing)
        return function

    @checked
    def bind(
        self, model: Any, *, strict: bool = False, missing: str = "warn"
    ) -> AbstractContextManager[BoundModel]:
        """A context in which a compiled Keras model trains, evaluates and predicts as planned; see
        :func:`placer.application.binding.model_binding.bind_model`."""
        bound: AbstractContextManager[BoundModel] = interactive().bind(
            self, model, strict=strict, missing=missing
        )
        return bound

    @checked
    def scope(self, *, values: bool = True, missing: str = "warn") -> AbstractContextManager[None]:
        """A context in which variables are created on their planned devices; see
        :func:`placer.application.placing.variable_scopes.planned_variables`."""
        planned: AbstractContextManager[None] = interactive().scope(
            self, values=values, missing=missing
        )
        return planned

    def __repr__(self) -> str:
        """One line; :meth:`summary` has the rest."""
        figures = f"{len(self.placement)} ops, {self.metrics.sent_bytes} bytes sent a step"
        return f"<Plan {self.solver.status}: {figures if self.placement else 'no placement'}>"

    def to_json(self) -> str:
        """The content of ``plan.json``: sorted keys, one line per op, a newline at the end."""
        data = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.metadata.get("in_file", True)
        }
        if self.conflict is not None:
            data["conflict"] = self.conflict.to_json()
        data["rewriting"] = self.rewriting.to_json()
        text = json.dumps(
            {"schema": SCHEMA, **data}, sort_keys=True, indent=1, allow_nan=False, default=_object
        )
        return text + "\n"

    @classmethod
    @checked
    def from_json(cls, text: str, *, source: str = "the plan") -> Plan:
        """The plan written by :meth:`to_json`; ``source`` names it in messages.

        Raises ``UsageError`` if the text is broken JSON, is not a plan, has a newer schema than
        this version reads, or does not fit ``plan.schema.json``.
        """
        data = _parse(text, source)
        _check_schema(data, source)
        del data["schema"]
        data["request"] = current_names(data.get("request", {}))
        data["metrics"] = PlanMetrics.read(data["metrics"]).with_sent()
        stages = tuple(Stage.read(row) for row in data["solver"].get("stages", ()))
        data["solver"] = SolverAnswer.read({**data["solver"], "stages": stages})
        data["devices"] = tuple(PlannedDevice.read(row) for row in data["devices"])
        data["transfers"] = tuple(Transfer.read(row) for row in data["transfers"])
        data["warnings"] = tuple(PlanWarning.read(row) for row in data["warnings"])
        if data["conflict"] is not None:
            data["conflict"] = Conflict.from_json(data["conflict"])
        if data.get("loading") is not None:
            data["loading"] = LoadingFacts.read(data["loading"])
        if data.get("gate") is not None:
            data["gate"] = GateVerdict.read(data["gate"])
        edges = data.get("control_edges", ())
        data["control_edges"] = tuple((before, after) for before, after in edges)
        data["rewriting"] = Rewriting.from_json(data.get("rewriting", {}))
        data.pop("optimised", None)  # which plans had once
        plan = cls(**data)
        plan._check_devices(source)
        return plan

    def _check_devices(self, source: str) -> None:
        """Raises ``UsageError`` if an op or variable is on a device that the plan has not."""
        devices = [row.name for row in self.devices]
        for what, table in (("op", self.placement), ("variable", self.variables)):
            wrong = [name for name, device in table.items() if device not in devices]
            if wrong:
                raise UsageError(
                    f"{source} places {what} {wrong[0]!r} on {table[wrong[0]]}"
                    + (f" (and {len(wrong) - 1:,} more alike)" if len(wrong) > 1 else "")
                    + f"; its devices are {', '.join(devices)}"
                )

    @checked
    def check_ops(self, ops: Collection[str]) -> None:
        """Raises ``UsageError`` with near names unless the plan places exactly the ``ops``, and
        those that it adds."""
        known, added = set(ops), self.rewriting.sources
        unknown = [name for name in self.placement if name not in known and name not in added]
        missing = [name for name in (*ops, *added) if name not in self.placement]
        if unknown:
            are = "is not in the model:" if len(unknown) == 1 else "are not in the model, the first"
            raise UsageError(
                f"{len(unknown):,} of the plan's {len(self.placement):,} ops {are} {unknown[0]!r}"
                + near_names(unknown[0], missing or ops)
            )
        if missing:
            raise UsageError(
                f"the placement lacks {len(missing):,} of the {len(known):,} ops of "
                f"the model, such as {some(missing)}; was it made for another "
                "model or signature?"
            )

    @checked
    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the plan to ``path``; paths in it are relative to its folder.

        Raises ``UsageError`` if the file exists and ``force`` is false.
        """
        write_text(path, self.kept_in(path).to_json(), force=force)

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """The plan in a file, the model and other files that it names as they are found from there.

        Raises ``UsageError`` if there is none or it is not one.
        """
        plan = cls.from_json(read_kept(path, "plan"), source=os.fspath(path))
        return plan.found_in(path)

    @checked
    def kept_in(self, path: str | os.PathLike[str]) -> Plan:
        """The plan with paths as seen from the folder of the file ``path``."""
        folder = os.path.dirname(os.path.abspath(path))
        return self._with_paths(lambda known: rebased(known, os.getcwd(), folder))

    @checked
    def found_in(self, path: str | os.PathLike[str]) -> Plan:
        """The plan out of the file ``path``, with paths as seen from here."""
        folder = os.path.dirname(os.path.abspath(path))

        def from_here(known: str) -> str:
            """As seen from the plan; in older plans from where it was made."""
            found = rebased(known, folder, os.getcwd())
            return found if os.path.exists(found) or not os.path.exists(known) else known

        return self._with_paths(from_here)

    def _with_paths(self, change: Callable[[str], str]) -> Plan:
        """The plan with the paths changed that it names: of its model, cluster and costs."""
        model = self.model.copy()
        if model.get("path"):
            model["path"] = change(model["path"])
        request = dict(self.request)
        for key in ("devices", "costs"):
            if str(request.get(key, "")).endswith((".toml", ".json")):
                request[key] = change(request[key])
        return replace(self, model=model, request=request)


def _object(value: Any) -> dict[str, Any]:
    """A row or a mapping as JSON holds it."""
    return value.to_json() if isinstance(value, Row) else dict(value)


def _parse(text: str, source: str) -> dict[str, Any]:
    """The JSON object in ``text``.  Raises ``UsageError`` with line and column."""
    data = parse_json(text, source)
    if not isinstance(data, dict) or not str(data.get("schema")).startswith("placer."):
        raise UsageError(f'{source} is not a plan: it has no "schema": "{SCHEMA}"')
    return data


def _check_schema(data: Mapping[str, Any], source: str) -> None:
    """Raises ``UsageError`` unless ``data`` is a plan of this version's schema."""
    kind, _, version = str(data["schema"]).partition("/")
    if kind != "placer.plan":
        raise UsageError(f"{source} is not a plan: it is a {data['schema']} document, not {SCHEMA}")
    if version != SCHEMA.partition("/")[2]:
        raise UsageError(
            f"{source} has schema {data['schema']}, written by placer "
            f"{data.get('tool_version') or '(unknown version)'}; this placer reads {SCHEMA}: "
            "upgrade placer, or make the plan again with this version"
        )
    require_fit(data, "plan", SCHEMA, source)
