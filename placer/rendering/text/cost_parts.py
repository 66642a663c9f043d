"""The parts of what a placement costs, as a person adds them up."""

from cost_models.byte_sizes import format_bytes
from placer.plan.plan import Plan
from placer.rendering.quantities import format_count, format_seconds


def cost_text(plan: Plan) -> str:
    """Returns the parts of a cost in bytes: ``"260 KiB sent in 9 messages, ..."``."""
    metrics, solver = plan.metrics, plan.solver
    if metrics.sent_bytes is None or metrics.messages is None or solver.objective != "transfer":
        return ""
    again = _sent_again(plan)
    messages = metrics.messages - len(again)
    sent = format_bytes(metrics.sent_bytes - sum(again))
    found = f"{sent} sent in {format_count(messages, 'message')}" if messages else "nothing sent"
    latency = (solver.link_latency_seconds or 0.0) * (solver.link_bandwidth or 0.0)
    if latency and messages:
        found += f", whose latency counts as {format_bytes(round(messages * latency))}"
    if again:
        more = f"{format_count(len(again), 'message')} of {format_bytes(sum(again))}"
        found += (
            f" (without {more} that a device receives once more, for kernels that read on the host)"
        )
    if not metrics.slower_seconds:
        return found
    longer = f"ops take {format_seconds(metrics.slower_seconds)} longer than on the fastest device"
    counts = round(metrics.slower_seconds * (solver.link_bandwidth or 0.0))
    told = f", which counts as {format_bytes(counts)}" if counts >> 10 or not messages else ""
    return f"{found}; {longer}{told}"


def _sent_again(plan: Plan) -> list[int]:
    """The bytes of transfers that a cost does not count: of tensors that their target gets in both
    of its memories."""
    seen, again = set[tuple[str, str]](), list[int]()
    for row in plan.transfers:
        if (row.tensor, row.target) in seen:
            again.append(row.bytes or 0)
        seen.add((row.tensor, row.target))
    return again
