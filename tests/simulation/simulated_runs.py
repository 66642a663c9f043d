"""Scripts that tests run on simulated GPUs, each in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from placer.errors import UsageError
from placer.plan.plan import Plan
from placer.simulation.building import build_libraries
from placer.simulation.cards import read_cards
from placer.simulation.environment import child_environment

_LIMIT_SECONDS = 240


def require_simulation() -> None:
    """Skips the test, with the reason, where GPUs cannot be simulated."""
    try:
        build_libraries()
    except UsageError as error:
        pytest.skip(str(error))


def with_caps(plan: Plan, caps: Mapping[str, int]) -> Plan:
    """The plan with other caps, in bytes, of the devices that ``caps`` names."""
    rows = [
        replace(row, memory_limit_bytes=caps.get(row.name, row.memory_limit_bytes))
        for row in plan.devices
    ]
    return replace(plan, devices=tuple(rows))


def run_script(
    script: str, devices: str, records: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """The ended process of ``script`` on ``devices``; ``settings`` are environment variables."""
    require_simulation()
    own = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    own |= {"TF_CPP_MIN_LOG_LEVEL": "0", "KERAS_BACKEND": "tensorflow", **settings}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=child_environment(read_cards(devices), own, records),
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )


def answer_of(script: str, devices: str, records: Path | None = None, **settings: str) -> str:
    """What ``script`` prints; fails with its errors where it does not end well."""
    done = run_script(script, devices, records, **settings)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
