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

    from placer.application import ClusterSession as ClusterSession
    from placer.application import apply as apply
    from placer.application import connect_cluster as connect_cluster
    from placer.application import load_placed as load_placed
    from placer.application import read_addresses as read_addresses
    from placer.application import rehearsal_devices as rehearsal_devices
    from placer.application import serve_task as serve_task
    from placer.application import verify as verify
    from placer.application.devices.runtime_settings import configure_runtime as configure_runtime
    from placer.application.devices.runtime_settings import session_config as session_config
    from placer.application.measuring.profiling import profile as profile
    from placer.application.placing.variable_scopes import empty_variables as empty_variables
    from placer.application.running.streaming import stream as stream
    from placer.extraction import extract as extract
    from placer.extraction.reading.training_steps import training_step as training_step
    from placer.interactive import load_checkpoint as load_checkpoint
    from placer.pipeline.pipeline import place as place
    from placer.pipeline.pipeline import report as report
    from placer.plan.plan import Plan as Plan
    from placer.questions.batch_sizes import sweep as sweep
    from placer.questions.calibration import calibrate as calibrate
    from placer.questions.comparison import compare as compare
    from placer.questions.difference import diff_models as diff_models
    from placer.questions.difference import diff_plans as diff_plans
    from placer.questions.explanation import explain as explain
    from placer.questions.fixes import fewest_pieces as fewest_pieces
    from placer.questions.fixes import find_fixes as find_fixes
    from placer.questions.strategies import compare_strategies as compare_strategies
    from placer.strategies import asynchronous_towers as asynchronous_towers
    from placer.strategies import data_parallel as data_parallel
    from placer.strategies import micro_batches as micro_batches

_NAMES = {
    "placer.application": "apply ClusterSession connect_cluster load_placed read_addresses "
    "rehearsal_devices serve_task verify",
    "placer.application.devices.runtime_settings": "configure_runtime session_config",
    "placer.application.measuring.profiling": "profile",
    "placer.application.placing.variable_scopes": "empty_variables",
    "placer.application.running.streaming": "stream",
    "placer.extraction": "extract",
    "placer.extraction.reading.training_steps": "training_step",
    "placer.interactive": "load_checkpoint",
    "placer.pipeline.pipeline": "place report",
    "placer.plan.plan": "Plan",
    "placer.questions.batch_sizes": "sweep",
    "placer.questions.calibration": "calibrate",
    "placer.questions.comparison": "compare",
    "placer.questions.difference": "diff_models diff_plans",
    "placer.questions.explanation": "explain",
    "placer.questions.fixes": "fewest_pieces find_fixes",
    "placer.questions.strategies": "compare_strategies",
    "placer.strategies": "asynchronous_towers data_parallel micro_batches",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'placer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
