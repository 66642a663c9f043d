"""What buffers are for, told from the graph alone."""

from graphs_by_hand import draw, draw_costs

from placer.graph.op_graph import Variable
from placer.graph.passes.roles import find_roles
from placer.prediction.memory.timelines import predict_memory


def _training_step():
    """One layer with momentum; ``n`` is a moving average that only updates itself.

    x, w --> h --> loss (fetched)
    x, h --> dw --> step (also reads m) --> updates m and w
    h, n --> mean --> updates n
    """
    variables = [
        Variable(name=name, handle=name, dtype="float32", shape=(25,)) for name in ("w", "m", "n")
    ]
    return draw(
        *(f"{name}=VarHandleOp -> r{name}=ReadVariableOp" for name in ("w", "m", "n")),
        "x=Placeholder, rw -> h -> loss",
        "x, h -> dw",
        "dw, rm -> step",
        "m -> um=AssignVariableOp",
        "step -> um",
        "w -> uw=AssignSubVariableOp",
        "step -> uw",
        "h, rn -> mean",
        "n -> un=AssignVariableOp",
        "mean -> un",
        dtypes=dict.fromkeys(("w", "m", "n"), "resource"),
        bytes=dict.fromkeys(("rw", "rm", "rn", "h", "dw", "step", "mean"), 100),
        feeds=["x"],
        fetches=["loss:0"],
        variables=variables,
    )


def test_slots_are_optimizer_state_and_moving_averages_are_not():
    """A slot goes into the update of another variable, an average into its own only."""
    roles = find_roles(_training_step())
    assert roles.optimizer_state == {"m"}
    assert [roles.of_state(name) for name in ("w", "m", "n", "x")] == [
        "weights",
        "optimizer_state",
        "weights",
        "constant",
    ]


def test_what_is_computed_for_updates_alone_is_gradients():
    """The loss does not depend on it, an update does."""
    roles = find_roles(_training_step())
    assert {"dw", "step"} <= roles.gradients
    assert roles.gradients.isdisjoint({"x", "h", "loss", "rw"})


def test_slots_of_fused_updates_are_optimizer_state():
    """``ResourceApplyMomentum`` reads and writes the slot that is its second input."""
    graph = draw(
        "w=VarHandleOp -> rw=ReadVariableOp",
        "x=Placeholder, rw -> h -> dw",
        "w -> u=ResourceApplyMomentum",
        "m=VarHandleOp -> u",
        "dw -> u",
        dtypes={"w": "resource", "m": "resource"},
        feeds=["x"],
        fetches=["h:0"],
        variables=[Variable(name=n, handle=n, dtype="float32", shape=(1,)) for n in ("w", "m")],
    )
    assert find_roles(graph).optimizer_state == {"m"}


def test_the_peak_says_what_is_alive_by_kind_and_until_when():
    """Weights, optimizer state, activations and gradients add up to the peak."""
    graph = _training_step()
    costs = draw_costs(graph, persistent_bytes={"w": 100, "m": 100, "n": 100})
    placement = dict.fromkeys(graph.ops, "CPU:0")
    order = tuple(graph.ops)
    timeline = predict_memory(graph, costs, placement, ("CPU:0",), order=order)["CPU:0"]
    kinds = timeline.peak_by_kind()
    assert sum(kinds.values()) == timeline.peak_bytes
    assert (kinds["weights"], kinds["optimizer_state"]) == (200, 100)
    assert (kinds["activation"], kinds["gradient"]) == (104, 200)
    until = {buffer.op: buffer.until for buffer in timeline.live_at_peak}
    assert (until["h"], until["dw"], until["w"]) == ("mean", "step", "")
    assert timeline.peak_by_scope() == {"": timeline.peak_bytes}


def test_a_value_that_an_update_replaced_is_a_tensor_of_the_step():
    """It is read to its end, and weights are not counted twice."""
    roles = find_roles(_training_step())
    assert roles.of_buffer("w", "weights") == "activation"
    assert roles.of_state("w") == "weights"
