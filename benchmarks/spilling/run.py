"""How good are plans after 1, 3, 10 and 30 seconds where something must spill or be split?

    python benchmarks/spilling/run.py [--seconds 1,3,10,30] [--busy 8] [--record] [NAME ...]

Every problem of the library is solved anew for each limit.  A row has the best cost known, what a
person or a baseline comes to, and the cost after each limit as a multiple of the best known.  With
``--busy`` so many processes do nothing but turn round meanwhile; with ``--record`` what is better
than the best known is written to ``best_known.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np
from busy_loops import busy
from problems import CASES, Case

from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem, to_json
from placer.solving.baselines import BASELINES, DoesNotFitError
from placer.solving.process.child_search import start_searcher_ahead
from placer.solving.solution import SolverParameters
from placer.solving.solver import solve

_BEST = Path(__file__).with_name("best_known.json")
_MOST_PARTS = 20
"""Tables or layers of which all sets are tried on the host."""

_READING_SECONDS = 3.0
"""The process of a search loads its code meanwhile, as it does in ``placer place`` while TensorFlow
is imported and the model is read."""

_TRIED = 200
"""Sets, the cheapest by sums, that are scored."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", default="1,3,10,30")
    parser.add_argument("--busy", type=int, default=0, help="loops beside")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    limits = [float(text) for text in arguments.seconds.split(",")]
    known = json.loads(_BEST.read_text()) if _BEST.exists() else {}
    heads = ["problem", "ops", "best known", "by hand", *(f"{limit:g} s" for limit in limits)]
    print("| " + " | ".join(heads) + " | status |\n" + "|---" * (len(heads) + 1) + "|", flush=True)
    rows = []
    with busy(arguments.busy):
        for case in CASES:
            if not arguments.names or case.name in arguments.names:
                rows.append(_row(case, limits, arguments.seed, known, record=arguments.record))
    for index, limit in enumerate(limits):
        near, fair = (sum(ratios[index] <= most for ratios, _ in rows) for most in (1.02, 1.1))
        print(f"\nafter {limit:g} s: {near} of {len(rows)} within 2% of the best known, {fair} "
              "within 10%")  # fmt: skip
    print(f"\nthe latest answer came {max(late for _, late in rows):.1f} s after its limit")


def _row(
    case: Case,
    limits: list[float],
    seed: int,
    known: dict[str, dict[str, object]],
    *,
    record: bool,
) -> tuple[list[float], float]:
    """Solves a case under each limit and prints its row; the costs as multiples of the best known,
    and by how much the latest answer was late."""
    problem, parts = case.problem()
    hand = by_hand(problem, parts)
    costs, late, status = [], 0.0, ""
    for limit in limits:
        start_searcher_ahead()
        time.sleep(_READING_SECONDS)
        began = time.monotonic()
        found = solve(problem, SolverParameters(time_limit_seconds=limit, seed=seed))
        late = max(late, time.monotonic() - began - limit)
        costs.append(float("inf") if found.value is None else float(found.value))
        status = found.status.value
    best = _best(known, case, problem, min([hand, *costs]), record=record)
    ratios = [cost / max(1.0, best) for cost in costs]
    shown = (f"{ratio:.3f}" for ratio in (hand / max(1.0, best), *ratios))
    row = [case.name, f"{len(problem.op_names):,}", f"{best / 1e6:,.3f} MB", *shown, status]
    print("| " + " | ".join(row) + " |", flush=True)
    return ratios, late


def by_hand(problem: PlacementProblem, parts: list[list[int]]) -> float:
    """The least cost of all baselines that fit, and on one accelerator of all sets of parts (tables
    or layers) put on the host with the rest on the accelerator."""
    found = [_cost(problem, [problem.host] * len(problem.op_names))]
    for place in BASELINES.values():
        try:
            found.append(_cost(problem, place(problem)))
        except DoesNotFitError:
            continue
    if len(problem.device_names) == 2 and 0 < len(parts) <= _MOST_PARTS:
        found.append(_best_parts(problem, parts))
    return min(found)


def _best_parts(problem: PlacementProblem, parts: list[list[int]]) -> float:
    """Of all sets of parts those that are cheapest if what they cost one by one adds up, scored."""

    def placed(chosen: list[int]) -> list[int]:
        gone = {op for part in chosen for op in parts[part]}
        return [problem.host if len(allowed) == 1 or op in gone else 1 - problem.host
                for op, allowed in enumerate(problem.allowed)]  # fmt: skip

    base = score(problem, placed([])).cost
    alone = np.array([score(problem, placed([part])).cost - base for part in range(len(parts))])
    sizes = np.zeros((len(parts), len(problem.live_bytes)))
    total = np.zeros(len(problem.live_bytes))
    free = {op for op, allowed in enumerate(problem.allowed) if len(allowed) > 1}
    kept = sum(problem.resident_bytes[op] for op in free)
    for moment, live in enumerate(problem.live_bytes):
        total[moment] = kept + sum(size for op, size in live.items() if op in free)
        for part, ops in enumerate(parts):
            sizes[part, moment] = sum(problem.resident_bytes[op] + live.get(op, 0) for op in ops)
    sets = np.arange(1 << len(parts))
    cost, over = np.zeros(len(sets)), np.tile(total, (len(sets), 1)) - problem.capacity_bytes[0]
    for part in range(len(parts)):
        is_in = (sets >> part & 1).astype(bool)
        cost[is_in] += alone[part]
        over[is_in] -= sizes[part]
    fitting = np.flatnonzero((over <= 0).all(axis=1))
    cheapest = fitting[np.argsort(cost[fitting], kind="stable")[:_TRIED]]
    chosen = [[part for part in range(len(parts)) if each >> part & 1] for each in cheapest]
    return min((_cost(problem, placed(each)) for each in chosen), default=float("inf"))


def _cost(problem: PlacementProblem, device_of: list[int] | tuple[int, ...]) -> float:
    scored = score(problem, device_of)
    return float("inf") if scored.violations else float(scored.cost)


def _best(
    known: dict[str, dict[str, object]],
    case: Case,
    problem: PlacementProblem,
    cost: float,
    *,
    record: bool,
) -> float:
    """The best cost known of exactly this problem, with what has just been found."""
    mark = hashlib.sha256(to_json(problem).encode()).hexdigest()[:16]
    row = known.get(case.name, {})
    if row.get("problem") == mark:
        cost = min(cost, float(str(row["cost"])))
    if record and np.isfinite(cost):
        known[case.name] = {"problem": mark, "cost": cost}
        _BEST.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return cost


if __name__ == "__main__":
    main()
