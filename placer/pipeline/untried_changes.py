"""Changes that may make a placement fit that exceeds limits; nobody tries them."""

from collections.abc import Sequence
from dataclasses import replace

from placer.pipeline.workload import Workload
from placer.plan.request import NEVER
from placer.prediction.metrics import MemoryNeed, Metrics
from placer.problem.conflict import Conflict, Fix
from placer.problem.limits import limits_for, limits_option


def serve_later_steps(needs: Sequence[MemoryNeed], caps: Sequence[int]) -> bool:
    """Whether loading and later steps fit the ``caps`` of their devices, and the first does not."""
    return all(
        found.parts and max(found.parts.loading_bytes, found.parts.later_steps_bytes) <= cap
        for found, cap in zip(needs, caps, strict=True)
    )


def with_untried(
    conflict: Conflict | None, workload: Workload, metrics: Metrics | None
) -> Conflict | None:
    """``conflict`` with whole limits, and with what may help: leave to offload, where that is
    forbidden, settings of TensorFlow under which no device needs more than it has, and limits that
    a card has."""
    cluster = workload.cluster
    over = metrics.over_caps(cluster.caps) if metrics else ()
    if conflict is None:
        return None
    conflict = conflict.with_limits(cluster.devices)
    if metrics is None or not over:
        return conflict
    needs = [metrics.needs[name] for name in over]
    may_offload = any(cluster.device(name).type != "CPU" for name in over)
    settings = ["--offload auto"] if may_offload and workload.wanted.offload == NEVER else []
    if serve_later_steps(needs, [cluster.caps[name] for name in over]):
        settings.append(
            "set TF_DISABLE_RZ_CHECK=1 where the program runs: --red-zones off (or "
            "TF_CUDNN_USE_AUTOTUNE=0, with which no convolution is tuned)"
        )
    if all(found.parts and found.parts.serves_split for found in needs):
        settings.append(
            "set gpu_options.experimental.internal_fragmentation_fraction = 1e-5 in the session's "
            "ConfigProto, so that every chunk is split"
        )
    wanted, taken = workload.wanted, metrics.taken_bytes(cluster.caps)
    cards = {name: cluster.device(name).card for name in over}
    if all(card is None or taken[name] <= card.usable_bytes for name, card in cards.items()):
        least = {name: taken[name] for name in over}
        limits = limits_for(cluster.devices, least, wanted.max_memory, wanted.reserve)
        settings.append(limits_option(limits))
    fixes = (*(Fix(change=setting) for setting in settings), *conflict.fixes)
    return replace(conflict, fixes=fixes)
