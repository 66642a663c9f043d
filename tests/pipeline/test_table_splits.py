"""A table that no accelerator can hold is split into as few parts as fit."""

from __future__ import annotations

import pytest
import split_tables as tables

import placer
from placer.errors import UsageError
from placer.plan.request import Options

ROWS_OF_140_GIB = 140 * 2**30 // (4 * tables.COLUMNS)
DEVICES = "4xA100-40GB,CPU:256GiB"


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """The graph of a model whose table has 140 GiB; weights are not read to place it."""
    from tensorflow.core.protobuf import saved_model_pb2

    folder = tmp_path_factory.mktemp("huge")
    tables.export_recommender(folder / "small")
    message = saved_model_pb2.SavedModel.FromString(
        (folder / "small" / "saved_model.pb").read_bytes()
    )
    for node in message.meta_graphs[0].graph_def.node:
        if node.name == "users":
            node.attr["shape"].shape.dim[0].size = ROWS_OF_140_GIB
    for item in message.meta_graphs[0].object_graph_def.nodes:
        if item.variable.name == "users":
            item.variable.shape.dim[0].size = ROWS_OF_140_GIB
    (folder / "huge").mkdir()
    (folder / "huge" / "saved_model.pb").write_bytes(message.SerializeToString())
    return folder / "huge"


@pytest.mark.slow
def test_a_table_above_every_cap_is_split_over_the_accelerators(huge):
    """Four parts of 35 GiB on four devices of 37.9, nothing on the host, proven best."""
    plan = placer.place(
        huge, DEVICES, signature="size", batch_size=64, split_tables="auto", offload="never"
    )
    assert plan.model["splits"] == {"users": 4}
    assert plan.request["split_tables"] == "users=4"
    assert plan.fits
    assert plan.solver.status == "OPTIMAL"
    parts = {plan.variables[f"users/part_{number}"] for number in range(4)}
    assert parts == {"GPU:0", "GPU:1", "GPU:2", "GPU:3"}
    assert "users in 4 parts" in plan.summary()
    assert placer.Plan.from_json(plan.to_json()) == plan


@pytest.mark.slow
def test_what_would_fit_names_the_split(huge):
    """Who did not ask is told, after it was tried."""
    plan = placer.place(huge, DEVICES, signature="size", batch_size=64, offload="never")
    assert plan.solver.status == "INFEASIBLE"
    fixes = {fix.change: fix.note for fix in plan.conflict.fixes}
    assert fixes["--split-tables auto"] == "users in 4 parts"


def test_numbers_of_parts_are_read_from_text_and_mappings():
    """Both say the same; what is neither is refused."""
    assert Options(split_tables={"users": 4, "a=b": 2}).split_tables == "users=4,a=b=2"
    assert Options(split_tables="users=4,a=b=2").splits == {"users": 4, "a=b": 2}
    for wrong in ("users", "users=1", "users=", "=3", {"users": 2.5}, 3):
        with pytest.raises(UsageError, match="must be auto, never, or variables with"):
            Options(split_tables=wrong)
