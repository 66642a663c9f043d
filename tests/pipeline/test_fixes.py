"""What would fit, as far as placements show it: here they are made up."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from plans_by_hand import infeasible_plan, small_plan

from cost_models.clusters import parse_cluster
from placer.pipeline.fixes import LEAST_STEP, NO_LESS, placed_fixes
from placer.plan.plan import Plan
from placer.plan.request import Options
from placer.problem.conflict import Conflict, Fix, OpsInConflict
from placer.problem.placement_problem import NEVER_SPILL
from placer.solving.process import clock

GPUS = "2xGPU:1MiB,CPU:1GiB"


def find(
    fits: Callable[[str | Path, Options], bool],
    devices: str = GPUS,
    conflict: Conflict | None = None,
    notes: bool = False,
    **options: object,
) -> dict[str, str]:
    """Change by kind, where placements exist as ``fits`` says."""

    def attempt(devices: str | Path, wanted: Options) -> Plan:
        return small_plan() if fits(devices, wanted) else infeasible_plan()

    fixes = placed_fixes(attempt, devices, Options(**options), conflict, clock.monotonic() + 60.0)
    return {fix.kind: f"{fix.change} ({fix.note})" if notes else fix.change for fix in fixes}


def test_caps_are_asked_for_so_that_the_reserve_is_left() -> None:
    """The problem wants 3 MiB usable, a placement 1.3 times as much: with what is reserved the caps
    are larger, and within two percent of the least."""
    reserve = "4KiB+10%"

    def usable(wanted: Options) -> int:
        return parse_cluster(GPUS, wanted.max_memory, wanted.reserve).devices[0].usable_bytes

    least = 1.3 * (3 << 20)
    known = Fix(kind="caps", change="", caps={"GPU:0": 3 << 20})
    found = find(
        lambda _, wanted: usable(wanted) >= least,
        conflict=Conflict(fixes=(known,)),
        reserve=reserve,
    )
    caps = found["caps"].removeprefix("--max-memory ")
    assert least <= usable(Options(max_memory=caps, reserve=reserve)) <= LEAST_STEP * least


def test_a_rewritten_step_may_fit_less_than_is_proven_for_the_step_as_it_is() -> None:
    """Without ``fit`` 135 KiB are proven; with it 125 of the 100 to 135 do, and no more is said."""

    def usable(wanted: Options) -> float:
        return parse_cluster(GPUS, wanted.max_memory).devices[0].usable_bytes / 1024

    def fits(_: str | Path, wanted: Options) -> bool:
        return usable(wanted) >= 125

    known = Conflict(fixes=(Fix(kind="caps", change="", caps={"GPU:0": 135 << 10}),))
    asked = {"conflict": known, "notes": True, "max_memory": "GPU:0=100KiB"}
    change = find(fits, **asked, fit="auto")["caps"]
    caps, tried = re.match(r"--max-memory (\S+) .*; (\d+) KiB was tried in vain", change).groups()
    assert 125 <= usable(Options(max_memory=caps)) <= LEAST_STEP * 125
    assert 125 / LEAST_STEP <= int(tried) <= 125
    assert find(fits, **asked)["caps"].endswith(f"; {NO_LESS})")


def test_requests_are_dropped_one_by_one_then_all_of_them() -> None:
    """No single one is enough; what is told is how to ask for less."""
    names = (NEVER_SPILL, "the device string '/gpu:0'", "--pin a=GPU:0")
    conflict = Conflict(pins=tuple(OpsInConflict(request=name) for name in names))
    request = {"offload": "never", "pins": {"a": "GPU:0", "b": "GPU:1"}}
    found = find(
        lambda _, wanted: (
            wanted.offload == "auto" and wanted.clear_devices and "a" not in wanted.pins
        ),
        conflict=conflict,
        **request,
    )
    assert found == {"spill": "--offload auto without --pin a=GPU:0 --clear-devices"}
    single = find(lambda _, wanted: wanted.pins == {"b": "GPU:1"}, conflict=conflict, **request)
    assert single == {"pin": "without --pin a=GPU:0"}


def test_a_device_function_is_dropped_as_one() -> None:
    """Two of its device strings are in conflict; the graph's own stay."""
    names = ("the device string '/gpu:0'", "the device string '/gpu:1'")
    found = find(
        lambda _, wanted: wanted.device_function is None and not wanted.clear_devices,
        conflict=Conflict(fixes=(Fix(kind="pin", change="", requests=names),)),
        device_function=lambda _op: "/gpu:0",
    )
    assert found["pin"] == "without the device function"


def test_the_next_larger_device_and_the_largest_batch_are_found() -> None:
    """Of the models with more memory the first that fits, of batches the largest."""
    found = find(lambda devices, _: "A100-40GB" in str(devices), devices="2xT4")
    assert found == {"devices": "--devices 2xA100-40GB"}
    assert find(lambda _, wanted: wanted.batch_size <= 21, batch_size=64) == {
        "batch": "--batch-size 21"
    }


def test_groups_that_were_asked_for_are_a_kind_of_their_own() -> None:
    """Without a conflict everything that was asked for is tried."""
    found = find(
        lambda _, wanted: not wanted.keep_together, keep_together=("a*",), pins={"b": "GPU:0"}
    )
    assert found == {"group": "without --keep-together 'a*'"}
