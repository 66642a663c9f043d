"""Ops whose structure comes from another process are the ops that this one would have made."""

import pickle

import pytest
from layered_graphs import layered_graph

pytest.importorskip("tensorflow")

from placer.beside import FEWEST_OPS
from placer.extraction import extract
from placer.extraction.flat_program import analyse_program
from placer.extraction.op_columns import ClosedOps, Parcel, Structure, open_ops
from placer.extraction.reading.loading import load_program

STRUCTURE = Structure(
    names=("x", "y"),
    inputs=((), ("x:0",)),
    control_inputs=((), ("x",)),
    devices=("", "/CPU:0"),
    origins=(("", "x"), ("f", "y")),
)


def sent(value):
    """What arrives in another process."""
    return pickle.loads(pickle.dumps(value))


def test_a_parcel_is_opened_after_two_processes():
    first = Parcel(STRUCTURE)
    second = sent(sent(first))
    assert not first.is_closed
    assert second.is_closed
    assert first.open() == second.open() == STRUCTURE


def test_closed_ops_arrive_as_a_dict_of_the_same_ops():
    bodies = {"y": {"body": ("g",)}}
    closed = ClosedOps(sent(Parcel(STRUCTURE)), ["info of x", "info of y"], bodies)
    expected = open_ops(Parcel(STRUCTURE), ["info of x", "info of y"], bodies)
    assert type(sent(closed)) is dict
    assert sent(closed) == dict(closed) == expected
    assert [(op.name, op.info, op.inputs, op.control_inputs) for op in expected.values()] == [
        ("x", "info of x", (), ()),
        ("y", "info of y", ("x:0",), ("x",)),
    ]
    assert expected["y"].device == "/CPU:0"
    assert expected["y"].origin == ("f", "y")
    assert (expected["x"].bodies, expected["y"].bodies) == ({}, bodies["y"])


@pytest.mark.parametrize("batch_size", [32, None])
def test_a_large_graph_read_on_two_cores(tmp_path, batch_size):
    """The reading process finds with a copy of itself what this one finds alone, also where
    shapes stay unknown."""
    graph = layered_graph(FEWEST_OPS + 100)
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.SerializeToString())
    alone = analyse_program(load_program(graph), {}, batch_size=batch_size)
    read = extract(path, batch_size=batch_size)
    assert len(read.graph.ops) >= FEWEST_OPS
    assert type(read.graph.ops) is dict
    assert read.graph == alone.graph
    assert (read.unknown, read.unknown_roots) == (alone.unknown, alone.unknown_roots)
    assert bool(read.unknown) == (batch_size is None)
