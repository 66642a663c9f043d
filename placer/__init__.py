"""placer: find, prove, apply and verify the placement of TensorFlow programs on devices.

Nothing heavy is imported here; each name below loads its module at first use.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False
"""As in typing, which ``python -m placer`` would look for in the current directory first."""

if TYPE_CHECKING:
    from typing import Any

    from placer.application.devices.device_mapping import cpu_devices as cpu_devices
    from placer.application.devices.runtime_settings import configure_runtime as configure_runtime
    from placer.application.devices.runtime_settings import session_config as session_config
    from placer.application.measuring.profiling import profile as profile
    from placer.application.placing.placed_programs import apply as apply
    from placer.application.placing.variable_scopes import empty_variables as empty_variables
    from placer.application.running.cluster_runs import ClusterSession as ClusterSession
    from placer.application.running.cluster_runs import connect_cluster as connect_cluster
    from placer.application.running.cluster_runs import serve_task as serve_task
    from placer.application.running.cluster_tasks import read_addresses as read_addresses
    from placer.application.running.streaming import stream as stream
    from placer.application.verifying.verification import verify as verify
    from placer.extraction import extract as extract
    from placer.extraction.reading.training_steps import training_step as training_step
    from placer.interactive import load_checkpoint as load_checkpoint
    from placer.interactive import load_placed as load_placed
    from placer.pipeline.pipeline import place as place
    from placer.pipeline.pipeline import report as report
    from placer.plan.plan import Plan as Plan
    from placer.problem.placement_problem import PlacementProblem as PlacementProblem
    from placer.questions.auto import auto as auto
    from placer.questions.auto import compare_strategies as compare_strategies
    from placer.questions.auto_result import AutoResult as AutoResult
    from placer.questions.batch_sizes import sweep as sweep
    from placer.questions.calibration import calibrate as calibrate
    from placer.questions.comparison import compare as compare
    from placer.questions.difference import diff_models as diff_models
    from placer.questions.difference import diff_plans as diff_plans
    from placer.questions.explanation import explain as explain
    from placer.questions.fixes import fewest_pieces as fewest_pieces
    from placer.questions.fixes import find_fixes as find_fixes
    from placer.questions.traces import profile_trace as profile_trace
    from placer.simulation.environment import simulate_gpus as simulate_gpus
    from placer.solving.solver import solve as solve
    from placer.strategies.pieces import micro_batches as micro_batches
    from placer.strategies.replicas import data_parallel as data_parallel

_HOMES = {
    "AutoResult": "placer.questions.auto_result",
    "ClusterSession": "placer.application.running.cluster_runs",
    "PlacementProblem": "placer.problem.placement_problem",
    "Plan": "placer.plan.plan",
    "apply": "placer.application.placing.placed_programs",
    "auto": "placer.questions.auto",
    "calibrate": "placer.questions.calibration",
    "compare": "placer.questions.comparison",
    "compare_strategies": "placer.questions.auto",
    "cpu_devices": "placer.application.devices.device_mapping",
    "data_parallel": "placer.strategies.replicas",
    "configure_runtime": "placer.application.devices.runtime_settings",
    "connect_cluster": "placer.application.running.cluster_runs",
    "diff_models": "placer.questions.difference",
    "diff_plans": "placer.questions.difference",
    "empty_variables": "placer.application.placing.variable_scopes",
    "explain": "placer.questions.explanation",
    "extract": "placer.extraction",
    "fewest_pieces": "placer.questions.fixes",
    "find_fixes": "placer.questions.fixes",
    "micro_batches": "placer.strategies.pieces",
    "load_checkpoint": "placer.interactive",
    "load_placed": "placer.interactive",
    "place": "placer.pipeline.pipeline",
    "profile": "placer.application.measuring.profiling",
    "profile_trace": "placer.questions.traces",
    "read_addresses": "placer.application.running.cluster_tasks",
    "report": "placer.pipeline.pipeline",
    "serve_task": "placer.application.running.cluster_runs",
    "session_config": "placer.application.devices.runtime_settings",
    "simulate_gpus": "placer.simulation.environment",
    "solve": "placer.solving.solver",
    "stream": "placer.application.running.streaming",
    "sweep": "placer.questions.batch_sizes",
    "training_step": "placer.extraction.reading.training_steps",
    "verify": "placer.application.verifying.verification",
}

_LONG = frozenset(
    {"auto", "calibrate", "compare", "compare_strategies", "diff_models", "explain", "place"}
    | {"fewest_pieces", "find_fixes", "profile", "profile_trace", "report", "sweep", "verify"}
)
"""Functions that show what they do where they take long."""

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    name = "cpu_devices" if name == "rehearsal_devices" else name  # as it was called before
    if name not in _HOMES:
        raise AttributeError(f"module 'placer' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    if isinstance(found, type):
        return found
    options = import_module("placer.plan.request").Keywords
    found = import_module("placer.argument_types").front(found, options)
    if name not in _LONG:
        return found
    return import_module("placer.rendering.progress").with_progress(found, f"placer.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
