"""A wrong request is told before the model is read."""

import pytest

from placer.errors import UsageError
from placer.pipeline.workload import read_workload
from placer.plan.request import read_options


def test_an_unknown_solver_is_told_before_the_model_is_read(tmp_path):
    """Which takes seconds, or fails."""
    with pytest.raises(UsageError, match="there is no solver 'hefty'; there are balanced, "):
        read_workload(tmp_path / "nothing", "T4", read_options({"solver": "hefty"}))
