"""The parts of what a placement costs, as a person adds them up."""

from cost_models.byte_sizes import format_bytes, format_count
from cost_models.devices import Link
from placer.graph.tensor_names import op_of
from placer.plan.plan import Plan
from placer.problem.placement_costs import message_bytes
from placer.rendering.quantities import format_seconds


def cost_text(plan: Plan) -> str:
    """Returns the parts of a cost in bytes: ``"260 KiB sent + 234 KiB for the latency of ..."``."""
    metrics, solver = plan.metrics, plan.solver
    if metrics.sent_bytes is None or metrics.messages is None or solver.objective != "transfer":
        return ""
    again, swapped = _sent_again(plan), _swapped(plan)
    bandwidth, seconds = solver.link_bandwidth or 0.0, solver.link_latency_seconds or 0.0
    latency = message_bytes(Link(bandwidth=bandwidth, latency=seconds))
    slower = metrics.slower_bytes
    if slower is None:  # of an older plan
        slower = round((metrics.slower_seconds or 0.0) * bandwidth)
    size = metrics.sent_bytes - sum(again) - sum(swapped)
    messages = metrics.messages - len(again) - len(swapped)
    beyond = size + messages * latency + slower - (solver.value or 0.0)
    own = min(_own_signals(plan), max(0, round(beyond / latency))) if latency else 0
    messages -= own
    sent, counted = f"{format_bytes(size)} sent", format_count(messages, "message")
    parts = []
    if messages and latency:
        parts = [sent, f"{format_bytes(messages * latency)} for the latency of {counted}"]
    elif messages:
        parts = [f"{sent} in {counted}"]
    if slower and metrics.slower_seconds:
        longer = format_seconds(metrics.slower_seconds)
        parts.append(
            f"{format_bytes(slower)} for the extra {longer} of ops on slower devices (as much as a "
            "link sends in that time)"
        )
    rest = round((solver.value or 0.0) - size - messages * latency - slower)
    if rest > 0 and any(warning.code == "assumed_sizes" for warning in plan.warnings):
        parts.append(f"{format_bytes(rest)} of assumed size")
    found = " + ".join(parts) or "nothing sent"
    left = []
    if again:
        verb = "repeats" if len(again) == 1 else "repeat"
        left.append(f"{_counted(again)} that {verb} a tensor into host memory")
    if swapped:
        left.append(f"{_counted(swapped)} that --fit adds")
    if own:
        left.append(f"{format_count(own, 'control edge')} between devices that the plan adds")
    return f"{found}; not counted: {', '.join(left)}" if left else found


def _counted(sizes: list[int]) -> str:
    """How many messages: ``"16 messages (64.0 MiB together)"``."""
    together = "" if len(sizes) == 1 else " together"
    return f"{format_count(len(sizes), 'message')} ({format_bytes(sum(sizes))}{together})"


def _own_signals(plan: Plan) -> int:
    """How many signals between devices control edges of the plan send."""
    edges = {(f"^{before}", plan.placement[after]) for before, after in plan.control_edges}
    return sum(
        row.kind == "control" and (row.tensor, row.target) in edges for row in plan.transfers
    )


def _swapped(plan: Plan) -> list[int]:
    """The bytes of transfers of tensors that are swapped to the host and back, 0 of signals."""
    swaps = plan.rewriting.swaps
    out = {(swap.tensor, plan.placement.get(swap.arrival, "")) for swap in swaps}
    out |= {(f"^{op}", plan.placement.get(swap.name, "")) for swap in swaps for op in swap.after}
    held = set(plan.rewriting.on_host)
    return [
        0 if row.kind == "control" else row.bytes or 0
        for row in plan.transfers
        if (row.tensor, row.target) in out or op_of(row.tensor.removeprefix("^")) in held
    ]


def _sent_again(plan: Plan) -> list[int]:
    """The bytes of transfers that a cost does not count: of tensors that their target gets in both
    of its memories."""
    seen, again = set[tuple[str, str]](), list[int]()
    for row in plan.transfers:
        if (row.tensor, row.target) in seen:
            again.append(row.bytes or 0)
        seen.add((row.tensor, row.target))
    return again
