"""The stages of a search as text: what took how long, and what came of it."""

from cost_models.byte_sizes import format_bytes, format_count
from placer.plan.rows import SolverAnswer
from placer.problem.status import Stage
from placer.rendering.quantities import format_seconds


def stages_text(solver: SolverAnswer) -> str:
    """A line per stage: why it began, how it ended, and the best known by then."""
    return "".join(_line(stage, solver.objective) for stage in solver.stages)


def _line(stage: Stage, objective: str) -> str:
    amount = format_bytes if objective == "transfer" else format_seconds
    best = "nothing fits yet" if stage.value is None else amount(stage.value)
    bound = "none" if stage.lower_bound is None else amount(stage.lower_bound)
    searches = format_count(stage.searches, "search", "searches")
    return (
        f"{stage.name}: {stage.why}; {stage.ended} after {format_seconds(stage.seconds)}, "
        f"{searches}; {best}, lower bound {bound}\n"
    )
