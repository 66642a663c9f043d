"""From measured costs to a device description."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.calibration import KindFit, Sample, fit_device
from cost_models.clusters import HOST, parse_cluster
from cost_models.devices import DeviceProperties
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.errors import UsageError
from placer.extraction import extract
from placer.measured_costs import MeasuredCosts
from placer.prediction import estimate_costs


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A device fitted to ``op_count`` ops of ``files`` costs files, which took ``seconds`` in all.

    ``median_error`` is that of single ops and ``step_error`` of whole steps (the sum of the ops),
    relative, over what it was fitted to.
    """

    device: DeviceProperties
    fits: tuple[KindFit, ...]
    files: int
    op_count: int
    seconds: float
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

    def to_json(self) -> dict[str, Any]:
        """The figures that are printed, as plain data."""
        return {
            "schema": "placer.calibration/1",
            "files": self.files,
            "op_count": self.op_count,
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


def calibrate(measured: Sequence[MeasuredCosts]) -> Calibration:
    """The host as it shows itself in measured costs.

    The models are extracted again from the paths in the files.  Raises :class:`UsageError` if
    they changed, or if the files are of different machines or settings.
    """
    _check_alike(measured)
    return calibrate_samples([_samples(costs) for costs in measured], machine=_machine(measured))


def calibrate_samples(steps: Sequence[Sequence[Sample]], *, machine: str = "") -> Calibration:
    """The host fitted to the ops of some steps.  Raises :class:`UsageError` if none do work."""
    samples = [sample for step in steps for sample in step]
    try:
        device, fits = fit_device(parse_cluster(HOST).device(HOST), samples)
    except ValueError as error:
        raise UsageError(str(error)) from error
    working = [s for s in samples if (s.cost.flops or s.cost.bytes_accessed) and s.seconds > 0]
    return Calibration(
        device=device,
        fits=fits,
        files=len(steps),
        op_count=len(samples),
        seconds=sum(sample.seconds for sample in samples),
        median_error=statistics.median(
            abs(op_seconds(s.cost, device) / s.seconds - 1) for s in working
        ),
        step_error=statistics.median(
            abs(sum(op_seconds(s.cost, device) for s in step) / sum(s.seconds for s in step) - 1)
            for step in steps
        ),
        machine=machine,
    )


def pair(costs: dict[str, OpCost], measured: MeasuredCosts) -> list[Sample]:
    """The ops that were measured, each with its cost."""
    return [
        Sample(cost=costs[name], seconds=seconds)
        for name, seconds in measured.op_seconds.items()
        if name in costs
    ]


def _samples(measured: MeasuredCosts) -> list[Sample]:
    """The ops of a costs file with their costs, from the model that it names."""
    model = measured.model
    path = model.get("path")
    if not path:
        raise UsageError("a costs file without a model cannot be fitted to: it names no path")
    found = extract(
        path,
        tag_set=",".join(model.get("tags") or ()) or None,
        signature=model.get("signature") or None,
        outputs=model.get("outputs") or None,
        batch_size=measured.bindings.get("batch_size"),
        shapes=measured.bindings.get("shapes") or None,
    )
    measured.check_graph(found.graph.fingerprint, f"the costs file of {path}")
    return pair(estimate_costs(found.graph), measured)


def _check_alike(measured: Sequence[MeasuredCosts]) -> None:
    """Nothing, if all were measured alike.  Raises :class:`UsageError`."""
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


def _machine(measured: Sequence[MeasuredCosts]) -> str:
    return str(measured[0].machine.get("processor") or "") if measured else ""
