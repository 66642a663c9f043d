"""The step that pictures are drawn from is what was predicted, put side by side."""

from graphs_by_hand import draw, draw_cluster, draw_costs
from steps_by_hand import KIB, drawn_step

from placer.prediction.predicted_step import Edge, describe_step
from placer.prediction.prediction import predict


def test_buffers_add_up_to_the_timelines():
    """On every device, at every moment, the buffers alive are the bytes of the timeline."""
    metrics, step, _ = drawn_step()
    for number, device in enumerate(step.devices):
        sums = [
            sum(b.bytes for b in step.buffers if b.device == number and b.first <= at <= b.last)
            for at in range(len(step.order))
        ]
        assert tuple(sums) == metrics.timelines[device].bytes == step.memory_bytes[device]
    assert max(step.memory_bytes["GPU:0"]) == 4 * KIB + 4 * KIB


def test_edges_and_transfers_name_their_ends():
    """a reads x and w; a is sent to GPU:1 for b, its signal for c, each when a is done."""
    _, step, placement = drawn_step()
    at = {name: number for number, name in enumerate(step.ops)}
    a, b, c = (at[f"net/{name}"] for name in ("one/a", "two/b", "two/c"))
    assert step.edges[a] == (
        Edge(producer=at["x"], index=0),
        Edge(producer=at["net/w"], index=0),
    )
    assert Edge(producer=a, index=-1) in step.edges[c]
    sent = {(row.transfer.tensor, row.transfer.target): row for row in step.sent}
    assert sent["net/one/a:0", "GPU:1"].readers == (b,)
    assert sent["^net/one/a", "GPU:1"].readers == (c,)
    assert sent["net/one/a:0", "GPU:1"].start_seconds == step.finish_seconds[a]
    assert step.start_seconds[b] == sent["net/one/a:0", "GPU:1"].finish_seconds
    assert [step.devices[number] for number in step.device_of] == [
        placement[name] for name in step.ops
    ]
    assert step.step_seconds == max(row.finish_seconds for row in step.sent)


def test_a_copy_is_read_in_its_own_memory():
    """Reshape reads its shape in host memory, ``m`` the same tensor in that of the device: no copy
    counts for both."""
    graph = draw("x, s -> r=Reshape", "s -> m", dtypes={"s": "int32"}, bytes={"s": 8})
    placement = {"s": "GPU:0", "x": "GPU:1", "r": "GPU:1", "m": "GPU:1"}
    cluster, costs = draw_cluster("GPU:0", "GPU:1"), draw_costs(graph)
    metrics = predict(graph, costs, placement, cluster)
    step = describe_step(graph, costs, placement, cluster, metrics)
    readers = {row.transfer.memory: [step.ops[op] for op in row.readers] for row in step.sent}
    assert readers == {"device": ["m"], "host": ["r"]}
