"""The program that is to run, whole and in parts: where ``placer.auto`` gets its plans from.

A training step of a Keras model is divided when it is traced, any other program when its graph is
read; here both are asked in the same words.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cost_models.clusters import Devices
from cost_models.devices import Cluster
from placer.errors import NoSolutionError, ShapeError, UsageError
from placer.extraction.files.sources import require_source
from placer.graph.passes.roles import find_roles
from placer.pipeline.fitting import fit_workload
from placer.pipeline.formulation import constraints_of
from placer.pipeline.placement import as_loaded, place_first_choices, place_workload
from placer.pipeline.predicted_placement import predict_seconds
from placer.pipeline.preparation import decide_strategy, prepare
from placer.pipeline.solved_plan import fitted_plan
from placer.pipeline.workload import Workload, read_cluster
from placer.plan.plan import Plan
from placer.plan.request import Options, describe_request
from placer.strategies.requests import (
    PIPELINE,
    StrategyRequest,
    training_division,
    with_all_threads,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A built way: its plan, and the workload of that.

    ``name`` is what it became, where several of one kind were tried; ``refused`` says why it may
    not be chosen: a device string or a pin has an op elsewhere.
    """

    plan: Plan
    workload: Workload
    name: str = ""
    refused: str = ""

    @property
    def step_seconds(self) -> float:
        """Seconds of a predicted step."""
        return self.plan.metrics.step_seconds or 0.0

    @property
    def fits(self) -> bool:
        """Everything is placed within the caps."""
        return bool(self.plan.placement) and not self.plan.over_bytes

    def seconds_on(self, cluster: Cluster) -> float:
        """The predicted step on other links or devices of the same names."""
        workload, plan = replace(self.workload, cluster=cluster), self.plan
        return predict_seconds(workload, plan.placement, plan.control_edges, plan.rewriting)


@dataclass(kw_only=True)
class AutoProgram:
    """A program on some devices: a file, or a function.

    ``source`` is what :func:`placer.place` takes, or a flat program, of which ``function`` keeps
    the variables.  ``inexact`` are variables that parts of a batch
    would give other values than the whole; ``note`` is what a reader should know of the parts,
    ``irreducible`` why no all-reduce joins the gradients, ``shape_advice`` what to do about
    unknown shapes.
    """

    source: Any
    devices: Devices
    wanted: Options
    function: Any = None
    name: str = ""
    task: str = "inference"
    inexact: tuple[str, ...] = ()
    note: str = ""
    irreducible: str = ""
    shape_advice: str = ""
    workloads: dict[int | None, Workload] = field(default_factory=dict)

    @property
    def undivided(self) -> str:
        """Why parts of a batch would not give what the whole gives; "" where nothing is known."""
        return ""

    @property
    def keras_seconds(self) -> float:
        """The seconds that Keras takes for a step beside its ops; 0 for other programs."""
        return self.cluster.host.keras_seconds if self.name else 0.0

    @property
    def cluster(self) -> Cluster:
        """The devices."""
        return self.whole().cluster

    @property
    def trains(self) -> bool:
        """Whether a step has gradients, of a file too."""
        return self.task == "training" or bool(self.whole().graph.ask_once(find_roles).gradients)

    @property
    def size(self) -> int | None:
        """The examples of a batch; ``None`` where there is none to divide."""
        return self.wanted.batch_size

    def whole(self, size: int | None = None) -> Workload:
        """The undivided program with a batch of ``size``, by default the one asked for."""
        size = size or self.size
        if size not in self.workloads:
            # a shape that begins with the batch is one of this batch
            shapes = self.wanted.shapes and {
                name: (size, *shape[1:]) if shape and shape[0] == self.size else shape
                for name, shape in self.wanted.shapes.items()
            }
            wanted = replace(self.wanted, batch_size=size, shapes=shapes)
            try:
                self.workloads[size] = prepare(self.source, self.devices, wanted)
            except ShapeError as error:
                raise ShapeError(f"{error}{self.shape_advice}") from error
        return self.workloads[size]

    def on_one_device(self, device: str, size: int | None = None) -> Built:
        """Everything on one accelerator, fits or not, and whether or not device strings and pins
        allow it; a CPU device has the threads of all."""
        whole = self.whole(size)
        alone = replace(whole, cluster=with_all_threads(whole.cluster, device))
        try:
            return self._built(place_first_choices(alone), alone)
        except UsageError as error:
            constraints_of(whole)  # raises for what no device allows
            free = replace(whole.wanted, clear_devices=True, pins={}, pin_types={})
            alone = replace(alone, wanted=free)
            asked = error.message.partition(";")[0].partition(": there is no device")[0]
            refused = f"not all ops may be on {device}: {asked}"  # there is one, not here
            return replace(self._built(place_first_choices(alone), alone), refused=refused)

    def as_it_is(self, built: Built, device: str) -> Built:
        """Returns what was ``built`` on one accelerator as it is where nothing is placed."""
        workload = as_loaded(built.workload)
        if built.refused or not workload.graph.idle_bytes.get(device):
            return replace(built)
        return self._built(place_first_choices(workload), workload)

    def place(self, cluster: Cluster, **changes: Any) -> Built:
        """Places the program on some of the devices, with options changed."""
        whole = self.whole()
        changed = replace(whole, cluster=cluster, wanted=replace(self.wanted, **changes))
        return self._built(place_workload(changed), changed)

    def rewritten(self, cluster: Cluster) -> Built:
        """The whole batch on some of the devices, the step rewritten until it fits.

        Raises :class:`NoSolutionError` if it does not.
        """
        seconds = 3 * self.wanted.time_limit  # it takes several predictions
        wanted = replace(self.wanted, fit="auto", time_limit=seconds)
        workload = replace(self.whole(), cluster=cluster, wanted=wanted)
        fitted = fit_workload(workload)
        plan = fitted_plan(fitted)
        if plan is None:
            found = " (the search ran out of time)" if fitted and fitted.step.is_cut else ""
            raise NoSolutionError(
                f"does not fit, whatever is released, computed again or swapped{found}"
            )
        return self._built(plan, workload)

    def divided(
        self, asked: StrategyRequest, cluster: Cluster, speeds: tuple[float, ...] | None = None
    ) -> Built:
        """Places the batch in parts on some of the devices, without spilling; only training steps
        heed ``speeds``, other parts are even."""
        del speeds
        parts = replace(self.wanted, strategy=str(asked), offload="never")
        wanted = decide_strategy(self.devices, parts)
        workload = replace(prepare(self.source, self.devices, wanted), cluster=cluster)
        return self._built(place_workload(workload), workload)

    def _built(self, plan: Plan, workload: Workload) -> Built:
        request = describe_request(self.devices, workload.wanted)
        return Built(plan=replace(plan, request=request), workload=workload)


@dataclass(kw_only=True)
class TrainingProgram(AutoProgram):
    """The training step of a compiled Keras model; ``specs`` are those of its batches, ``data`` is
    one where it was given."""

    model: Any
    specs: Any
    data: Any = None

    @property
    def undivided(self) -> str:
        """Why parts of a batch would train another model than the whole; "" if they do not."""
        return self._decided[0]

    @cached_property
    def _decided(self) -> tuple[str, bool]:
        from placer.extraction.reading.keras_two import is_keras_two

        if is_keras_two(self.model):
            return "the batch of a Keras 2 model is not divided (Keras 3 models can be)", False
        from placer.application.running.generated_inputs import batch_like
        from placer.strategies.same_training import decide_division

        size, found = self.size or 1, self.whole().extraction
        return decide_division(
            self.model,
            self.specs,
            size,
            min(size, max(2, len(self.cluster.workers))),
            lambda: batch_like(self.source, self.specs, self.data, found.bindings),
            bindings=found.bindings,
            is_exact=not self.inexact,
        )

    def divided(
        self, asked: StrategyRequest, cluster: Cluster, speeds: tuple[float, ...] | None = None
    ) -> Built:
        """As of any program; the step is traced again, in its parts."""
        from placer.extraction.reading.training_steps import trace_step
        from placer.strategies.keras_replicas import divided_train_step

        division = training_division(asked, cluster, speeds)
        is_proved = self._decided == ("", True)
        division = replace(division, is_exact=not self.inexact, is_proved=is_proved)
        method = divided_train_step(self.model, division)
        function = trace_step(self.model, self.specs, "train_step", method, values=False)
        objective = "throughput" if asked.kind == PIPELINE else "transfer"
        wanted = replace(self.wanted, objective=objective, offload="never")
        workload = replace(prepare(function, self.devices, wanted), cluster=cluster)
        plan = place_workload(workload)
        model = plan.model.copy()
        model["training_division"] = division.as_json()
        return self._built(replace(plan, model=model), workload)


def open_program(source: Any, devices: Devices, wanted: Options, data: Any) -> AutoProgram:
    """``source`` on ``devices``: a compiled Keras model trains, any other program runs as it is.

    ``data`` is a batch as ``fit`` takes it, for a Keras model that does not say what it takes.
    Raises :class:`UsageError` for a Keras model without a batch size, and for options that
    ``auto`` decides itself.
    """
    require_source(source, devices)
    decided = [name for name in ("strategy", "fit") if getattr(wanted, name)]
    if decided:
        raise UsageError(f"auto chooses {decided[0]} itself: leave it out")
    read_cluster(devices, wanted)  # a wrong device is said before any work
    common: dict[str, Any] = {"devices": devices, "wanted": wanted}
    if not _is_keras(source):
        if data is not None:
            raise UsageError("data is for Keras models; for this program give batch_size or shapes")
        return AutoProgram(source=source, **common)
    if wanted.batch_size is None:
        also = "" if data is None else ", since data sets the other dimensions only"
        raise UsageError(f"auto requires the batch size of the model: give batch_size{also}")
    common["name"] = source.name
    if data is None:
        common["shape_advice"] = (
            f"; or give auto a batch of {source.name!r} as fit takes it, data=(x, y), which has "
            "all lengths"
        )
    from placer.extraction.reading.keras_two import is_compiled, is_keras_two
    from placer.extraction.reading.loading import load_program
    from placer.extraction.reading.training_steps import (
        batch_specs,
        model_specs,
        refused_batches,
        trace_step,
    )

    specs = model_specs(source) if data is None else batch_specs(data)
    if not is_compiled(source):
        specs = (specs if isinstance(specs, tuple) else (specs,))[:1]
        function = trace_step(source, specs, "predict_step")
        program = load_program(function, fingerprinted=False)
        return AutoProgram(source=program, function=function, **common)
    from placer.strategies.keras_steps import draws_numbers, with_gradients, written_state

    with nullcontext() if data is None else refused_batches(source, specs):
        function, irreducible = with_gradients(
            source, lambda: trace_step(source, specs, "train_step", values=False)
        )
    program = load_program(function, fingerprinted=False)
    return TrainingProgram(
        source=program,
        function=function,
        task="training",
        model=source,
        specs=specs,
        data=data,
        inexact=() if is_keras_two(source) else tuple(written_state(source, program)),
        note="parts draw other random numbers than the whole" if draws_numbers(program) else "",
        irreducible=irreducible,
        **common,
    )


def _is_keras(source: Any) -> bool:
    if isinstance(source, str | Path):
        return False
    from placer.extraction.reading.live import is_keras_model

    return is_keras_model(source)
