"""What nobody said is assumed, and the plan says so: the host, the network, the outputs."""

import pytest
from graph_defs_by_hand import add_node

from cost_models.byte_sizes import AMPLE_BYTES, format_bytes
from placer import Plan, place

MIB = 2**20


@pytest.fixture(autouse=True)
def small_machine(monkeypatch):
    """This machine has 1 MiB and no accelerator."""
    monkeypatch.setattr("cost_models.clusters.host_memory_bytes", lambda: MIB)
    monkeypatch.setattr("cost_models.clusters.accelerator_count", lambda: 0)


def decoder(layers=4, positions=1024, width=64):
    """Layers of x <- softmax(x w x') x, each with 4 MiB of gradients that nobody reads."""
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef()
    nodes, kind = graph_def.node, "float32"
    add_node(nodes, "Placeholder", "x", dtype=kind, shape=(positions, width))
    x = "x"
    for number in range(layers):
        here = f"layer_{number}/"
        shape = (width, width)
        add_node(
            nodes, "VarHandleOp", f"{here}w", dtype=kind, shape=shape, shared_name=here.encode()
        )
        add_node(nodes, "ReadVariableOp", f"{here}read", [f"{here}w"], dtype=kind)
        add_node(nodes, "MatMul", f"{here}q", [x, f"{here}read"], T=kind)
        add_node(nodes, "MatMul", f"{here}qk", [f"{here}q", x], T=kind, transpose_b=True)
        add_node(nodes, "Softmax", f"{here}softmax", [f"{here}qk"], T=kind)
        add_node(nodes, "Identity", f"{here}gradients/scores", [f"{here}softmax"], T=kind)
        x = add_node(nodes, "MatMul", f"{here}out", [f"{here}softmax", x], T=kind).name
    add_node(nodes, "Relu", "y", [x], T=kind)
    return graph_def


def codes(plan):
    return {warning.code: warning.message for warning in plan.warnings}


def test_a_program_is_placed_without_fetching_its_gradients():
    """16 MiB of them stay where they are; named, they are fetched to a host that holds them."""
    plan = place(decoder(), "1xGPU:64MiB", time_limit=20)
    assert plan.solver.status in ("OPTIMAL", "FEASIBLE")
    assert plan.metrics.fetch_bytes == 1024 * 64 * 4
    message = codes(plan)["sinks_not_fetched"]
    assert "so y is fetched" in message
    assert "4 gradients (16.0 MiB) run and are not fetched" in message
    named = tuple(f"layer_{number}/gradients/scores" for number in range(4))
    fetched = place(decoder(), "1xGPU:64MiB", outputs=("y", *named), time_limit=20)
    assert fetched.metrics.fetch_bytes == plan.metrics.fetch_bytes + 16 * MIB
    assert fetched.fits
    assert "sinks_not_fetched" not in codes(fetched)
    assert fetched.model["fingerprint"] == plan.model["fingerprint"]


@pytest.mark.slow
def test_a_host_that_is_not_here_is_as_large_as_needed_unless_it_is_given():
    """The memory of the machine that plans confines what runs on it, and nothing else."""
    named = ("y", *(f"layer_{number}/gradients/scores" for number in range(4)))
    plan = place(decoder(), "1xGPU:64MiB", outputs=named, time_limit=20)
    host = next(device for device in plan.devices if device.name == "CPU:0")
    assert host.memory_limit_bytes == AMPLE_BYTES
    assert f"{format_bytes(host.required_bytes)} on CPU:0" in codes(plan)["assumed_host"]
    assert "as needed" in plan.summary(width=100)
    assert Plan.from_json(plan.to_json()).devices[-1].memory_limit_bytes == AMPLE_BYTES
    given = place(decoder(), "1xGPU:64MiB,CPU:4MiB", outputs=named, time_limit=20)
    assert not given.fits
    assert "assumed_host" not in codes(given)
    here = place(decoder(), "CPU:0", time_limit=20)
    assert here.devices[0].memory_limit_bytes == MIB
    assert not here.fits


@pytest.mark.parametrize(
    ("table", "assumed"), [("", True), ("[network_link]\nbandwidth=3e9", False)]
)
def test_a_network_that_nobody_described_is_said_to_be_assumed(tmp_path, table, assumed):
    """Two machines without a word on what joins them."""
    path = tmp_path / "cluster.toml"
    rows = (
        f'[[device]]\nname = "/job:worker/task:{task}/device:GPU:0"\nmodel = "T4"\n'
        for task in (0, 1)
    )
    path.write_text("".join(rows) + table)
    found = codes(place(decoder(), path, time_limit=20))
    assert ("assumed_network" in found) == assumed
    assert not assumed or "assumed to have 1 GB/s and 150 µs" in found["assumed_network"]
