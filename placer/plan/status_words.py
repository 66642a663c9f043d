"""How good the answer of a search is, in words: the same on every screen."""

from placer.plan.plan import Plan

_ASSUMED = {
    "assumed_sizes": "assumed sizes",
    "assumed_trip_count": "assumed trip count",
}
"""Words for what is assumed, by the code of the warning that says so."""

_STATUS_WORDS = {
    "OPTIMAL": "proven best",
    "FEASIBLE": "found, not proven best",
    "INFEASIBLE": "proven: no placement fits these limits and pins",
    "UNKNOWN": "none found that fits, though there may be one",
}


def status_words(plan: Plan) -> str:
    """How good the answer is; what is proven of assumed figures is no proof."""
    solver = plan.solver
    assumed = [_ASSUMED[row.code] for row in plan.warnings if row.code in _ASSUMED]
    if solver.status == "FEASIBLE" and assumed and solver.relative_gap == 0.0:
        return f"proven best for the {' and the '.join(assumed)}"
    if solver.status == "UNKNOWN" and plan.proof:
        return "none found that fits with --fit; without it none fits (proven)"
    return _STATUS_WORDS[solver.status]
