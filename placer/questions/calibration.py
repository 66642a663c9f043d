"""From measured costs to a device description."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cost_models.clusters import HOST, parse_cluster
from cost_models.device_fit import KindFit, Sample, fit_device, slowed
from cost_models.devices import DeviceProperties, preset
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.errors import UsageError
from placer.extraction import extract
from placer.extraction.extraction import tag_set_of
from placer.plan.measured_costs import MeasuredCosts
from placer.plan.results import Summarised
from placer.prediction.costs.op_costs import estimate_costs


@dataclass(frozen=True, kw_only=True, repr=False)
class Calibration(Summarised):
    """A device fitted to ``op_count`` ops of ``files`` costs files, which took ``seconds`` in all.

    ``median_error`` is that of single ops and ``step_error`` of whole steps,
    relative, over what it was fitted to.  Steps take ``between_ops`` times what their ops do.
    """

    device: DeviceProperties
    fits: tuple[KindFit, ...]
    files: int
    op_count: int
    seconds: float
    between_ops: float
    median_error: float
    step_error: float
    machine: str = ""

    @property
    def heading(self) -> str:
        """Comment lines that say where the figures come from."""
        return (
            f"# Fitted by placer calibrate to {self.op_count} ops of {self.files} costs files"
            f"{f', measured on {self.machine}' if self.machine else ''}.\n"
            f"# Median error: {self.median_error:.0%} of an op, {self.step_error:.0%} of a step.\n"
        )

    def to_json(self) -> dict[str, object]:
        """The figures that are printed, as plain data."""
        return {
            "schema": "placer.calibration/1",
            "files": self.files,
            "op_count": self.op_count,
            "between_ops": self.between_ops,
            "median_error": self.median_error,
            "step_error": self.step_error,
            "kinds": {
                fit.kind: {
                    "op_count": fit.op_count,
                    "seconds": fit.seconds,
                    "compute": fit.efficiency.compute,
                    "memory": fit.efficiency.memory,
                    "launch_seconds": fit.efficiency.launch_seconds,
                    "median_error": fit.median_error,
                }
                for fit in self.fits
            },
        }


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """One step: what it took, and its ops."""

    seconds: float
    ops: Sequence[Sample]

    def predicted(self, device: DeviceProperties) -> float:
        """The sum of the ops' predicted seconds."""
        return sum(op_seconds(sample.cost, device) for sample in self.ops)


def calibrate(measured: Sequence[MeasuredCosts]) -> Calibration:
    """The device as it shows itself in measured costs: the host, or the GPUs of a trace.

    The models are extracted again from the paths in the files.  Raises :class:`UsageError` if
    they changed, or if the files are of different machines or settings.
    """
    if not measured:
        raise UsageError("calibrate requires the measured costs of one program or more")
    _check_alike(measured)
    steps = [_step(costs) for costs in measured]
    machine = measured[0].machine.get("processor") if measured else ""
    device = _accelerator(measured[0]) if measured[0].device_type == "GPU" else None
    return fit_steps(steps, machine=str(machine or ""), device=device)


def _accelerator(measured: MeasuredCosts) -> DeviceProperties:
    """A GPU with the memory that its trace states, before anything is fitted.

    Raises :class:`UsageError` where none is stated.
    """
    limits = [peaks["limit_bytes"] for name, peaks in measured.memory.items() if "GPU" in name]
    stated = max(limits, default=0) or measured.machine.get("memory_bytes")
    if not stated:
        raise UsageError(
            "the costs do not say how much memory the GPU has: make them with placer profile "
            "--trace, of a trace that has the GPU's plane"
        )
    known = preset("GPU")
    return DeviceProperties(
        name="GPU:0",
        type="GPU",
        memory_limit_bytes=int(stated),
        peak_flops=known.peak_flops,
        memory_bandwidth=float(measured.machine.get("memory_bandwidth") or known.memory_bandwidth),
    )


def fit_steps(
    steps: Sequence[MeasuredStep], *, machine: str = "", device: DeviceProperties | None = None
) -> Calibration:
    """``device`` (the host) fitted to the ops of some steps, and then to how long the steps took.

    Between ops the executor works and buffers are given back, which is in no op's time: all times
    are scaled by one factor, so that the median step is right.  Raises :class:`UsageError` if no
    op does any work.
    """
    samples = [sample for step in steps for sample in step.ops]
    try:
        fitted, fits = fit_device(device or parse_cluster(HOST).device(HOST), samples)
    except ValueError as error:
        raise UsageError(str(error)) from error
    factor = statistics.median(step.seconds / step.predicted(fitted) for step in steps)
    slow = slowed(fitted, factor)
    step_error = statistics.median(abs(step.predicted(slow) / step.seconds - 1) for step in steps)
    calibrated = replace(slow, relative_error=float(f"{step_error:.2g}"))
    working = [s for s in samples if (s.cost.flops or s.cost.bytes_accessed) and s.seconds > 0]
    return Calibration(
        device=calibrated,
        fits=fits,
        files=len(steps),
        op_count=len(samples),
        seconds=sum(sample.seconds for sample in samples),
        between_ops=factor,
        median_error=statistics.median(
            abs(op_seconds(s.cost, fitted) / s.seconds - 1) for s in working
        ),
        step_error=step_error,
        machine=machine,
    )


def measured_step(costs: Mapping[str, OpCost], measured: MeasuredCosts) -> MeasuredStep:
    """The ops that were measured, each with its cost, and the processor time of the step (with
    several threads, its time on the clock)."""
    several = measured.configuration.get("intra_op_threads", 1) != 1
    key = "median_seconds" if several else "median_processor_seconds"
    seconds = measured.seconds_by_type[measured.device_type]
    seconds = {name: s for name, s in seconds.items() if not measured.ops[name].get("fused")}
    return MeasuredStep(
        seconds=measured.step.get(key) or sum(seconds.values()),
        ops=[Sample(cost=costs[name], seconds=s) for name, s in seconds.items() if name in costs],
    )


def _step(measured: MeasuredCosts) -> MeasuredStep:
    """The ops of a costs file with their costs, from the model that it names."""
    model = measured.model
    path = model.get("path")
    if not path:
        raise UsageError("a costs file does not name its model: make it again with placer profile")
    if "://" in path:
        raise UsageError(
            f"{path} is on another machine, and calibrate downloads no model: copy it here and "
            "profile the copy"
        )
    found = extract(
        path,
        tag_set=tag_set_of(model),
        signature=model.get("signature") or None,
        outputs=model.get("outputs") or None,
        batch_size=measured.bindings.get("batch_size"),
        shapes=measured.bindings.get("shapes") or None,
        ragged=measured.bindings.get("ragged") or None,
    )
    measured.check_graph(found.graph.fingerprint, f"the costs file of {path}")
    return measured_step(estimate_costs(found.graph, in_place=True), measured)


def _check_alike(measured: Sequence[MeasuredCosts]) -> None:
    """Raises :class:`UsageError` if some were measured otherwise than others."""
    for what in ("device_type", "machine", "configuration"):
        values = [_setting(getattr(costs, what)) for costs in measured]
        other = next((value for value in values if value != values[0]), None)
        if other is not None:
            raise UsageError(
                f"the costs files differ in {what}: {values[0]} and {other}; fit to files that "
                f"were measured alike"
            )


def _setting(value: Any) -> Any:
    """A setting without what may differ: the number of steps."""
    return {k: v for k, v in value.items() if k != "steps"} if isinstance(value, dict) else value
