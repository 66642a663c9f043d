"""The whole path: a TensorFlow program in, a plan or a report out."""

from dataclasses import replace
from typing import Any, Unpack

from cost_models.clusters import Devices
from cost_models.device_names import LOCAL
from placer.extraction.files.sources import require_source
from placer.fitting.placed_order import FREE
from placer.graph.passes.roles import find_roles
from placer.pipeline.fixes import with_fixes
from placer.pipeline.model_report import analyse, with_placement
from placer.pipeline.placement import place_workload, predict_on_one_device
from placer.pipeline.preparation import (
    decide,
    needs_trials,
    on_accelerators,
    place_in_parts,
    prepare,
)
from placer.pipeline.workload import Workload, read_workload
from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.plan.request import (
    Keywords,
    Options,
    describe_request,
    read_options,
    takes_options,
)
from placer.plan.rows import PlanWarning
from placer.processes import collection_paused
from placer.solving.process import clock
from placer.solving.process.child_search import start_searcher_ahead
from placer.solving.process.compiling import (
    NEEDS,
    PEAKS,
    TRANSFER,
    await_compiled,
    load_needs_ahead,
    warm_up,
)

REFERENCE_DEVICE = "1xA100-40GB"
"""The device of the times in ``report`` when none is named."""


@takes_options
@collection_paused()
def place(source: Any, devices: Devices = LOCAL, **options: Unpack[Keywords]) -> Plan:
    """The best placement of ``source`` on ``devices`` as a plan.

    ``source`` is a path (SavedModel folder, GraphDef, MetaGraphDef, Keras file), a ``tf.function``
    or ConcreteFunction, a Keras model or a ``tf.Graph``; ``devices`` a list such as
    ``"2xA100-40GB,CPU:64GiB"``, the path of a ``cluster.toml``, or by default the GPUs of this
    machine; the other keywords are :class:`placer.plan.request.Options`.

    An infeasible problem is a plan too: its ``solver.status`` says so, and ``conflict`` why and
    what would fit, as far as that is found in what is left of the time limit.

    Raises :class:`UsageError` for a wrong request, :class:`ModelError` for a model that cannot be
    read, :class:`ShapeError` when too many shapes stay unknown.
    """
    read = read_options(on_accelerators(options))
    require_source(source, devices)
    wanted = decide(source, devices, read)
    if needs_trials(wanted):
        return place_in_parts(source, devices, wanted)
    warm_up(TRANSFER, PEAKS)  # once per user, while the model is read
    start_searcher_ahead()
    load_needs_ahead()
    workload = prepare(source, devices, wanted)  # the flat graph, its costs, the cluster
    await_compiled(NEEDS)
    deadline = clock.monotonic() + wanted.time_limit
    plan = place_workload(workload, explains=True)
    return advise(plan, workload, devices, deadline)


@takes_options
@collection_paused()
def report(source: Any, devices: Devices | None = None, **options: Unpack[Keywords]) -> Report:
    """Returns the contents of ``source`` and what one step takes; with ``devices``, also a
    placement.

    Shapes may stay unknown: the report lists them, and says so if they prevent a placement.
    Without ``devices`` the figures are for one accelerator, the reference device.  ``options``
    and errors as for :func:`place`.
    """
    wanted = read_options(options)
    require_source(source, devices)
    load_needs_ahead()
    workload = read_workload(source, devices or REFERENCE_DEVICE, wanted)
    await_compiled(NEEDS)
    found = analyse(workload, predict_on_one_device(workload))
    return found if devices is None else with_placement(found, workload, devices)


def advise(plan: Plan, workload: Workload, devices: Devices, deadline: float) -> Plan:
    """``plan`` with the changes that would fit, as far as they are found before the ``deadline``,
    with the ways that may be better, and with what was asked for."""
    wanted = workload.wanted
    plan = with_fixes(plan, workload, devices, deadline)
    notes = (_fit_instead(plan, workload), _whole_instead(plan, wanted))
    plan = replace(plan, warnings=(*plan.warnings, *filter(None, notes)))
    return replace(plan, request=describe_request(devices, wanted))


def _fit_instead(plan: Plan, workload: Workload) -> PlanWarning | None:
    """A warning for a plan that spills ops of a step that trains, where no accelerator in use has
    room for what the host holds: what may keep them."""
    wanted = workload.wanted
    spilled = max((row.required_bytes or 0 for row in plan.devices if row.offloaded), default=0)
    used = [row for row in plan.devices if row.need_bytes and row.type != "CPU"]
    lacks_room = all((row.required_bytes or 0) + spilled > row.usable_bytes for row in used)
    if not (plan.fits and spilled and used and lacks_room):
        return None
    if wanted.fit or wanted.strategy or wanted.order != FREE:
        return None
    if not find_roles(workload.graph).gradients:
        return None
    message = (
        "ops are offloaded to the CPU; --fit auto may keep them on the accelerators by rewriting "
        "the step: gradients released, tensors computed again (not tried)"
    )
    return PlanWarning(code="fit_instead", message=message, count=1, ops=())


def _whole_instead(plan: Plan, wanted: Options) -> PlanWarning | None:
    """A warning for a plan that divides the batch: the whole may be faster."""
    if not plan.fits or not plan.model.get("division"):
        return None
    message = (
        f"The whole batch may be faster than --strategy {wanted.strategy} (not tried); placer auto "
        "compares the two"
    )
    return PlanWarning(code="whole_instead", message=message, count=1, ops=())
