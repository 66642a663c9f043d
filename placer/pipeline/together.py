"""Everything on one device: what a report is about.

::

    reading process   read | inline | tell the outline | infer shapes ...... | answer
    this process                                       | Together.foresee |  | the rest
"""

from __future__ import annotations

from dataclasses import replace

from cost_models.devices import Cluster
from cost_models.op_info import OpInfo
from placer.graph.buffer_sharing import views_by_shape
from placer.graph.op_graph import OpGraph
from placer.graph.op_types import BODY_ATTRIBUTES, LOOPS
from placer.graph.passes.roles import find_roles
from placer.pipeline.formulation import restrict
from placer.pipeline.loading import idle_bytes
from placer.pipeline.predicted_placement import PredictedPlacement, predict_placement
from placer.pipeline.workload import Workload
from placer.plan.request import Options
from placer.prediction.orders.execution_orders import executor_orders, uses_accelerator
from placer.problem.constraints import bodies_restrict


class Together:
    """A step with everything on one device of ``cluster``, feeds and host-only kernels aside."""

    def __init__(self, cluster: Cluster, wanted: Options) -> None:
        self.cluster = cluster
        self.wanted = replace(wanted, pins={}, pin_types={}, keep_together=(), clear_devices=True)

    def foresee(self, outline: OpGraph) -> None:
        """Finds what does not depend on shapes, which are not known yet, nor on what runs in
        bodies."""
        _ = outline.consumers, outline.producer_numbers, outline.gpu_kernels
        if self.wanted.device_function is None:  # which may ask for shapes
            outline.ask_once(self.place)
        types = {info.op for info in outline.infos}
        if types.isdisjoint(LOOPS):  # else they are laid out
            names = [device.name for device in self.cluster.devices]
            executor_orders(outline, accelerated=uses_accelerator(names))
        if not any(map(_decides_roles, outline.infos)):
            outline.ask_once(find_roles)

    def place(self, graph: OpGraph) -> dict[str, str]:
        """The device of every op."""
        return restrict(graph, self.cluster, self.wanted).first_choice

    def predict(self, workload: Workload) -> PredictedPlacement:
        """What it takes."""
        idle = idle_bytes(workload.extraction.stored, self.cluster)
        workload = workload.with_graph(workload.graph.with_idle(idle))
        graph = workload.graph
        foreseen = not bodies_restrict(graph)
        return predict_placement(
            workload, graph.ask_once(self.place) if foreseen else self.place(graph)
        )


def _decides_roles(info: OpInfo) -> bool:
    """Whether bodies or shapes say what an op does with variables."""
    in_bodies = info.op in BODY_ATTRIBUTES and any(i.dtype == "resource" for i in info.inputs)
    return in_bodies or views_by_shape(info)


def predict_together(workload: Workload) -> PredictedPlacement:
    """A step with everything on one device, feeds and host-only kernels aside."""
    return Together(workload.cluster, workload.wanted).predict(workload)
