"""The first lines of a screen: what a person would say of the result, and of what it is."""

from cost_models.byte_sizes import AMPLE_BYTES, format_bytes, format_count
from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.plan.request import NEVER
from placer.plan.rows import GateVerdict, device_words
from placer.plan.status_words import status_words
from placer.problem.device_peaks import LEAST_LIMIT_BYTES
from placer.problem.limits import fullest, limits_for, limits_option, overruns
from placer.rendering.quantities import share_of_cap
from placer.rendering.text.conflict_text import conflict_reason

_NO_FIX = " No change that makes it fit was found."


_FORMAT_WORDS = {
    "saved_model": "SavedModel",
    "graph_def": "GraphDef",
    "meta_graph": "MetaGraphDef",
    "keras": "Keras model",
    "function": "tf.function",
    "graph": "tf.Graph",
}


def kind_of_model(kind: str, path: object) -> str:
    """Returns what a model is for people; a plan's ``graph_def`` may come from a checkpoint."""
    return "MetaGraphDef" if str(path).endswith(".meta") else _FORMAT_WORDS[kind]


def model_line(plan: Plan) -> str:
    """Format, signature, batch, how it is divided and the ops in one line."""
    count = [format_count(len(plan.placement), "op")] if plan.placement else []
    return " · ".join([*model_parts(plan), *count])


def model_parts(plan: Plan) -> list[str]:
    """Returns format, signature and batch, and how the plan divides the model."""
    signature, batch = plan.model.get("signature"), plan.bindings.get("batch_size")
    return [
        kind_of_model(plan.model["format"], plan.model["path"]),
        *([f"signature {signature}"] if signature else []),
        *([] if batch is None else [f"batch {batch}"]),
        *division_parts(plan),
    ]


def division_parts(plan: Plan) -> list[str]:
    """Returns the strategy of a plan, and the tables that it splits."""
    strategy, splits = plan.request.get("strategy"), plan.model.get("splits", {})
    parts = [f"{name} in {count} parts" for name, count in splits.items()]
    return [strategy, *parts] if strategy else parts


def report_parts(report: Report) -> list[str]:
    """Returns format, tags, signature, and how the model is divided where it is placed."""
    model = report.model
    is_program = model.format in ("keras", "function")
    return [
        kind_of_model(model.format, model.path),
        *([f"tags {', '.join(model.tags)}"] if model.tags else []),
        *([f"signature {model.signature}"] if model.signature else []),
        *(["without XLA (jit_compile=False)"] if is_program else []),
        *(division_parts(report.plan) if report.plan else []),
    ]


def plan_answer(plan: Plan) -> str:
    """Whether it fits, how full the fullest device is, what a step sends, and how good that is."""
    devices = device_words(plan.devices)
    if not plan.placement:
        return _nothing_placed(plan, devices)
    over = plan.over_bytes
    if over:
        name = max(over, key=over.__getitem__)
        most, *_ = overruns(plan.devices, {name: over[name]})
        return (
            f"Not known to fit on {devices}: in the best placement found, {most}.{fix_words(plan)}"
        )
    figures = []
    caps = {row.name: row.usable_bytes for row in plan.devices}
    if name := fullest(plan.required_bytes, caps)[0]:
        figures.append(f"{name} {share_of_cap(plan.required_bytes[name], caps[name])} full")
    figures.append(f"sends {format_bytes(plan.metrics.sent_bytes)} a step")
    return f"{_fits(plan, devices)}: {', '.join(figures)} ({status_words(plan)})."


def fix_words(plan: Plan) -> str:
    """Returns the change with which it fits, or may: of a plan that has none what limits take."""
    fixes = plan.conflict.fixes if plan.conflict else ()
    if fixes and fixes[0].kind:
        return f" Would fit (tried): {fixes[0].change}."
    untried = fixes[0].change if fixes else ""
    if not untried and plan.request.get("offload") == NEVER:
        untried = "--offload auto"
    if not untried and plan.over_bytes:
        needed = {name: plan.required_bytes[name] for name in plan.over_bytes}
        asked, reserve = plan.request.get("max_memory"), plan.request.get("reserve")
        untried = limits_option(limits_for(plan.devices, needed, asked, reserve))
    return f" May fit (not tried): {untried}." if untried else ""


def at_least(unknown_shapes: object) -> str:
    """Returns the words before every figure that leaves tensors of unknown size out."""
    return "at least " if unknown_shapes else ""


def report_answer(report: Report) -> str:
    """Answers for the plan, or whether one device is enough for a step."""
    if report.plan is not None:
        return plan_answer(report.plan)
    memory, device = report.memory, report.compute.reference
    least = at_least(report.unknown_shapes)
    required = f"{least}{format_bytes(memory.required_bytes)}"
    if memory.usable_bytes == AMPLE_BYTES:
        return f"A step requires {required} on one device."
    more = memory.required_bytes - memory.usable_bytes
    if more > 0:
        limit = format_bytes(memory.usable_bytes)
        return (
            f"Does not fit on one {device}: a step requires {required}, {format_bytes(more)} more "
            f"than its limit of {limit}."
        )
    share = share_of_cap(memory.required_bytes, memory.usable_bytes)
    usable = format_bytes(memory.usable_bytes)
    verb = "Fits" if report.is_sized else "May fit"
    return f"{verb} on one {device}: a step requires {required} of {usable} ({share})."


def gate_words(gate: GateVerdict) -> str:
    """Returns a verdict with its reasons in a line."""
    told = "; ".join((*gate.failures, *gate.notes))
    return f"Gate {'passed' if gate.passed else 'failed'}{told and f': {told}'}."


def idle_note(plan: Plan) -> str:
    """Accelerators on which a plan that fits has no op, and why; ``""`` if there are none."""
    used = set(plan.placement.values())
    accelerators = [row.name for row in plan.devices if row.type != "CPU"]
    idle = [name for name in accelerators if name not in used]
    if not plan.fits or not idle or len(idle) == len(accelerators):
        return ""
    them = "it" if len(idle) == 1 else "them"
    why = "costs less" if plan.solver.objective == "transfer" else "is faster"
    none = f"no placement was found that {why} with {them}"
    if plan.solver.status == "OPTIMAL":
        none = f"no placement with {them} {why}"
    return (
        f"Idle: {', '.join(idle)}, since {none}. To compare "
        f"all strategies that use {them}: placer auto"
    )


def required_note(plan: Plan) -> str:
    """Returns what the required memory is where no allocator decides; ``""`` if one does."""
    told = []
    if any(
        row.type == "CPU" and (row.required_bytes or 0) > (row.peak_memory_bytes or 0)
        for row in plan.devices
    ):
        told.append("A CPU requires more than its peak where ops run at the same time.")
    if any((row.need_bytes or 0) > (row.required_bytes or 0) for row in plan.devices):
        least = format_bytes(LEAST_LIMIT_BYTES)
        told.append(f"Under a limit below {least} the peak is what is required.")
    return " ".join(told)


def unrun_note(plan: Plan, running: int) -> str:
    """The difference between the ops of a plan and those ``running``; ``""`` if there is none."""
    count = len(plan.placement) - running
    if count <= 0 or not plan.rewriting.released:
        return ""
    joins = "the other one joins" if count == 1 else "the others join"
    run = f"{running:,} of the {len(plan.placement):,} ops run"
    return f"{run}; {joins} gradients, and --fit does without."


def _fits(plan: Plan, devices: str) -> str:
    """That it fits, and how much of it is on the host for want of room."""
    used, offloaded = set(plan.placement.values()), []
    accelerators = {row.name for row in plan.devices if row.type != "CPU"}
    if accelerators and not used & accelerators:
        return f"Fits with everything on {', '.join(sorted(used))}, no accelerator is used"
    for row in plan.devices:
        if row.offloaded:
            offloaded.append(f"{row.offloaded} offloaded to {row.name}")
    return f"Fits on {devices}" + (f" with {' and '.join(offloaded)}" if offloaded else "")


def _nothing_placed(plan: Plan, devices: str) -> str:
    if not plan.proof:
        seconds = f"{plan.solver.seconds:.0f} s"
        return (
            f"Not known to fit on {devices}: no placement was found in {seconds}, though there "
            "may be one."
        )
    why = f": {conflict_reason(plan.conflict)}" if plan.conflict else ""
    return f"No placement fits on {devices} ({plan.proof}){why}.{fix_words(plan) or _NO_FIX}"
