"""``with plan.bind(model)``: a Keras model's fit, evaluate and predict run placed.

Inside the block the model's variables (weights, optimizer slots, metrics) are on their planned
devices and nowhere else, and the functions that Keras runs for a batch are placed ones.  Slots that
are not there yet are made where the plan has them.  At the end the variables go back, one at a
time.  They are the same variables all along, so checkpoints, callbacks and ``model.save()`` read
and write what is current.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import tensorflow as tf

from placer.application.binding.bindable_models import (
    MOST_UNKNOWN,
    check_model,
    without_compilation,
)
from placer.application.binding.bound_variables import BoundVariables
from placer.application.binding.derived_placement import derive_placement
from placer.application.binding.fit_data import (
    batch_advice,
    count_examples,
    data_on_host,
    fitted,
)
from placer.application.devices.device_mapping import DeviceMapping, running_mapping
from placer.application.devices.graph_optimisers import memory_optimiser_off, switch_red_zones_off
from placer.application.placing.collectives import collectives_open
from placer.application.placing.graph_placement import rewritten_as_planned
from placer.application.placing.placed_function import PlacedFunction, place_function
from placer.extraction.division.dividing import divided_as_planned
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.reading.keras_two import count_step, is_keras_two
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.own_specs import with_own_specs
from placer.extraction.reading.training_steps import (
    as_tensors,
    batch_specs,
    build_before_trace,
    trace_step,
)
from placer.plan.plan import Plan

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStep:
    """Which step of a model a plan is of: ``name`` is Keras's (``train_step``, ``predict_step``).

    ``method`` gives for the model what runs in its place, the batch in ``parts``; a batch of fewer
    examples runs undivided.  ``check`` sees the model and the first batch of each kind before it is
    trained, and raises where parts are not what the whole is; where it ``is_proved``, only batches
    that the plan is not of are checked.  Where the batches, or what the model was compiled with,
    are not quite those that the plan was made for (``adapts``), ops that it does not know run
    beside what they read, if they are no larger a share than ``most_unknown``.
    """

    name: str = "train_step"
    method: Callable[[Any], Callable[[Any], Any]] | None = None
    parts: int = 1
    check: Callable[[Any, Any], None] | None = None
    is_proved: bool = False
    adapts: bool = False
    most_unknown: float = MOST_UNKNOWN


def bind_model(
    plan: Plan,
    model: Any,
    *,
    strict: bool = False,
    step: BoundStep = BoundStep(),
    missing: str = "warn",
) -> AbstractContextManager[BoundModel]:
    """The Keras model ``model``, running as ``plan`` says inside of the block.

    ``plan`` is one of ``placer.training_step(model, data)``, or of what ``step`` says.  ``fit`` and
    ``train_on_batch`` run that step; ``evaluate`` and ``predict`` run their ops where the step has
    the same ones, and the rest on the devices of what it reads.  With ``strict`` TensorFlow may not
    move ops elsewhere.  XLA (``jit_compile``) and TensorFlow's memory optimiser are off inside of
    the block.  A model that is compiled in the block is bound again.

    Raises :class:`UsageError` for a model that is not compiled or runs eagerly, one under a
    ``tf.distribute`` strategy, absent devices where ``missing`` is ``"error"``, and, at the first
    batch, for a plan of another step.  Absent devices, a batch larger than the planned one, a model
    that asked for XLA and a forgotten ``with`` are warnings.
    """
    return _Block(_bound_model(plan, model, strict, step, missing))


class _Block(AbstractContextManager["BoundModel"]):
    """A block that warns where ``with`` was forgotten."""

    def __init__(self, block: AbstractContextManager[BoundModel]) -> None:
        self._block, self._was_entered = block, False

    def __enter__(self) -> BoundModel:
        self._was_entered = True
        return self._block.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._block.__exit__(*error)

    def __del__(self) -> None:
        if not self._was_entered:
            _LOG.warning("bind(model) alone does nothing: write 'with plan.bind(model):'")


@contextmanager
def _bound_model(
    plan: Plan, model: Any, strict: bool, step: BoundStep, missing: str
) -> Iterator[BoundModel]:
    check_model(model, compiled=step.name != "predict_step")
    switch_red_zones_off()
    mapping = running_mapping(plan.placement.values(), missing)
    bound = BoundModel(model, plan, mapping, strict=strict, step=step)
    before = {name: getattr(model, name) for name in bound.runners}
    compile_, asked = model.compile, [without_compilation(model)]

    def compile_and_bind(*arguments: Any, **keywords: Any) -> None:
        compile_(*arguments, **keywords)
        before.update(dict.fromkeys(before))
        asked.append(without_compilation(model))
        bound.start_again()

    try:
        with data_on_host(model), memory_optimiser_off():
            vars(model)["compile"] = compile_and_bind
            bound.start()
            yield bound
    finally:
        vars(model).pop("compile", None)
        bound.end()
        model.jit_compile = asked[-1]
        for name, function in before.items():
            placed = getattr(model, name) in bound.runners.values()
            setattr(model, name, function if placed else None)


class BoundModel:
    """A model while it is bound: its ``plan``, and the ``functions`` it ran so far, by the name
    of the step (``train_step``, ``test_step``, ``predict_step``).  ``runners`` are what Keras calls
    meanwhile, by the name of its attribute."""

    def __init__(
        self, model: Any, plan: Plan, mapping: DeviceMapping, *, strict: bool, step: BoundStep
    ) -> None:
        self.model = model
        self.plan = plan
        self.step = step
        self._method: Callable[[Any], Any] | None = None
        self.functions: dict[str, PlacedFunction] = {}
        self._strict = strict
        self._variables = BoundVariables(model, plan, mapping)
        self._known: dict[Any, PlacedFunction] = {}
        self._largest_batch = 0
        self._are_old = False  # the replicas, since a step of another kind updated variables
        self.runners = {
            "train_function": self._runner("train_step"),
            "test_function": self._runner("test_step"),
            "predict_function": self._predict,
        }

    def start(self) -> None:
        """Moves the variables that the plan names, and puts the placed functions in place."""
        self._start_variables()
        for name, runner in self.runners.items():
            setattr(self.model, name, runner)

    def _start_variables(self) -> None:
        self._method = self.step.method(self.model) if self.step.method else None
        self._variables.start(self._method)

    def start_again(self) -> None:
        """The same once the model was compiled inside of the block: what it runs from now on is
        nearly what the plan is of.  The slots of an optimizer that it has no longer are let go."""
        check_model(self.model, compiled=True)
        self._variables.release()
        self._known.clear()
        self.functions.clear()
        self.step = replace(self.step, adapts=True, most_unknown=1.0)
        self.start()

    def end(self) -> None:
        """Brings every variable home, with its value."""
        self._variables.end()

    def placed(self, step: str, data: Any) -> PlacedFunction:
        """The placed function of ``step`` for batches much like ``data``."""
        if self._variables.wait and (self.model.built or step != "predict_step"):
            build_before_trace(self.model, batch_specs(data))
            self._start_variables()
        specs = batch_specs(data)
        self._check_batch(data)
        is_planned = step == self.step.name and not self._runs_whole(data)
        key = step, is_planned, str(tf.nest.map_structure(str, specs))
        if key not in self._known:
            if step == "train_step" != self.step.name:
                _LOG.warning(
                    "the plan was not made for a training step: its ops run on the devices of what "
                    "they read, and take memory that the plan does not count. For a plan of the "
                    "training step call placer.auto after model.compile"
                )
            self._known[key] = self._place(step, specs, data, is_planned=is_planned)
            self.functions[step] = self._known[key]
        return self._known[key]

    def _runs_whole(self, data: Any) -> bool:
        """Whether a batch has fewer examples than the step has parts."""
        return 0 < count_examples(data) < self.step.parts

    def _check_batch(self, data: Any) -> None:
        """Warns, once a size, of a batch larger than the one that the plan's peaks are of."""
        most, size = self.plan.bindings.get("batch_size"), count_examples(data)
        if most is not None and size > max(most, self._largest_batch):
            self._largest_batch = size
            _LOG.warning(
                "this batch has %d examples, and the plan was made for %d: it may not fit. To "
                "know, place the step with batch_size=%d",
                size,
                most,
                size,
            )

    def _place(self, step: str, specs: Any, data: Any, *, is_planned: bool) -> PlacedFunction:
        function, program = self._traced(step, specs, is_planned=is_planned)
        is_of_plan = self.plan.model.get("fingerprint") == program.fingerprint
        is_decided = self.step.is_proved and is_of_plan
        if is_planned and self.step.check is not None and not is_decided:
            self.step.check(self.model, data)
        plan, asked = self.plan, is_planned
        is_planned = is_planned and (is_of_plan or not self._differs(program, specs))
        if is_planned:
            program = rewritten_as_planned(program, plan, batch_advice(specs))
        else:
            held = self._variables.held_devices(program, function)
            placement = derive_placement(program, plan.placement, held)
            plan = replace(plan, placement=placement, transfers=())
        if self._variables.settle_captured(program, function, plan.placement):
            return self._place(step, specs, data, is_planned=asked)
        known = set(self._variables.copies)
        placed = place_function(
            function,
            program,
            plan,
            mapping=self._variables.mapping,
            strict=self._strict,
            copies=self._variables.copies,
        )
        self._variables.add_copies(placed, known)
        return placed

    def _traced(self, step: str, specs: Any, *, is_planned: bool) -> tuple[Any, FlatProgram]:
        """The function of a step and its program.

        Where a plan is not of such batches it may be of what the model says itself.
        """
        if not is_planned:
            function = trace_step(self.model, specs, step)
            return function, load_program(function)

        def traced(wanted: Any) -> tuple[Any, FlatProgram]:
            function = trace_step(self.model, wanted, step, self._method)
            return function, divided_as_planned(load_program(function), self.plan)

        fingerprint, first = self.plan.model.get("fingerprint"), traced(specs)
        own = with_own_specs(self.model, specs) if step == "train_step" else None
        if first[1].fingerprint == fingerprint or own is None:
            return first
        second = traced(own)
        return second if second[1].fingerprint == fingerprint else first

    def _differs(self, program: FlatProgram, specs: Any) -> bool:
        """Whether the plan is of nearly ``program``, and may be adapted to it."""
        if not self.step.adapts:
            return False
        ops = {node.name for node in program.graph_def.node}
        missing = len(ops - self.plan.placement.keys())
        if missing > self.step.most_unknown * len(ops):
            return False  # another program; what differs is said where it is refused
        if self.plan.control_edges or self.plan.rewriting:
            return False  # what keeps memory low is about the planned ops
        _LOG.warning(
            "%d of %d ops are not in the plan, and run on the devices of what they read; %s",
            missing,
            len(ops),
            batch_advice(specs),
        )
        return True

    def _runner(self, step: str) -> Callable[[Any], Any]:
        def run(iterator: Any) -> Any:
            """The outputs of the last of the next ``steps_per_execution`` batches."""
            outputs = None
            for number in range(int(self.model.steps_per_execution)):
                try:
                    data = next(iterator)
                except StopIteration:
                    if number == 0:
                        raise
                    break
                data = as_tensors(data)
                with collectives_open():
                    function = self.placed(step, data)
                    outputs = function(fitted(function, data))
                count_step(self.model, step)
                if step == self.step.name and self._runs_whole(data):
                    self._variables.replicas.spread()
                elif step == "train_step" != self.step.name:
                    self._are_old = True
            return outputs

        return run

    def _predict(self, batches: Any) -> Any:
        if self._are_old:
            self._variables.replicas.spread()
            self._are_old = False
        if is_keras_two(self.model):  # gives an iterator
            batches = list(islice(batches, int(self.model.steps_per_execution)))
            if not batches:
                raise StopIteration
            count_step(self.model, "predict_step")
        outputs = [self.placed("predict_step", data)(data) for data in map(as_tensors, batches)]
        return tf.nest.map_structure(
            lambda *parts: parts[0] if len(parts) == 1 else tf.concat(parts, 0), *outputs
        )
