"""Graphs that are built under a plan: is it the planned one?"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow")

from placer.application.devices.session_devices import device_function
from placer.errors import UsageError

LAYERS = 100
PLANNED = {f"layer_{n}/{op}": "CPU:0" for n in range(LAYERS) for op in ("w", "MatMul")}


class Graph:
    """Takes the place of a ``tf.Graph``: only its identity counts."""


def build(names):
    """The devices of ops that are built one after the other in one graph."""
    function, graph = device_function(PLANNED), Graph()
    return [function(SimpleNamespace(name=name, graph=graph)) for name in names]


def test_ops_around_the_planned_ones_are_no_other_program():
    """Initialisers stand in the scopes of variables; summaries and savers come to a few."""
    names = [
        name
        for n in range(LAYERS)
        for name in (
            *(f"layer_{n}/w/Initializer/{part}" for part in range(8)),
            f"layer_{n}/w",
            f"layer_{n}/w/Assign",
            f"layer_{n}/MatMul",
            f"summary_{n}",
        )
    ]
    devices = build(names)
    assert sum(map(bool, devices)) == 2 * LAYERS


def test_one_more_scope_is_told():
    """No name is known: the graph would run without any placement, and nobody would see it."""
    with pytest.raises(UsageError, match="under one more name scope, 'outer'"):
        build(f"outer/{name}" for name in PLANNED)


def test_another_program_is_told():
    """Also where a few names are those of planned ops."""
    with pytest.raises(UsageError, match="64 of its first 65 ops are not in the plan"):
        build(["layer_0/w", *(f"generator/dense_{n}" for n in range(200))])


def test_graphs_are_judged_apart():
    """What was built before under the same plan does not count for the next graph."""
    function = device_function(PLANNED)
    for _ in range(3):
        graph = Graph()
        for number in range(50):
            assert function(SimpleNamespace(name=f"other_{number}", graph=graph)) == ""
