"""What GPUs hold of what they have sent."""

from graphs_by_hand import draw, draw_costs

from placer.prediction.memory.allocations import find_allocations
from placer.prediction.memory.timelines import StepMemory

GPUS = ("GPU:0", "GPU:1")


def _placed(*drawn, there, target="GPU:1", **options):
    """The step of a graph on GPU:0, but for the ops ``there`` on ``target``."""
    graph = draw(*drawn, **options)
    placement = {name: target if name in there else "GPU:0" for name in graph.ops}
    return StepMemory(graph, draw_costs(graph), placement, (*GPUS, "CPU:0"))


def _in_use(step, order, device="GPU:0"):
    return dict(zip(order, step.timelines(order)[device].bytes, strict=True))


def test_what_was_sent_is_held_until_it_is_read_there():
    """s is 400 bytes; nobody reads it on GPU:0 after a, but r may begin at any time.

    GPU:0    s ---> a --> b --> c
    GPU:1    '-------------> r
    """
    sizes = {"s": 400, "a": 4, "b": 4, "c": 4, "r": 4}
    step = _placed("s -> a -> b -> c", "s -> r", there="r", bytes=sizes)
    assert _in_use(step, tuple("sarbc"))["b"] == 8
    assert _in_use(step, tuple("sabrc"))["b"] == 408
    assert _in_use(step, tuple("sabcr"))["c"] == 408
    assert _in_use(step, tuple("sabcr"), "GPU:1")["s"] == 400  # where it goes from the start


def test_what_was_sent_before_is_there_before():
    """s is read last of all, but t, sent after it, is read before c: both are there then.  What
    goes to the host goes another way, and says nothing of s.

    GPU:0            s --> t --> a --> b --> c
    GPU:1 or CPU:0   |     '----------> u
    GPU:1            '-----------------------------> r
    """
    drawn = ("s -> t -> a -> b -> c", "t -> u", "s -> r")
    sizes = {"s": 400, "t": 40, "a": 4, "b": 4, "c": 4, "u": 4, "r": 4}
    order = tuple("staubcr")
    step = _placed(*drawn, there="ur", bytes=sizes)
    assert _in_use(step, order)["a"] == 444
    assert _in_use(step, order)["b"] == 8
    graph = step.graph
    placement = {name: {"u": "CPU:0", "r": "GPU:1"}.get(name, "GPU:0") for name in graph.ops}
    apart = StepMemory(graph, draw_costs(graph), placement, (*GPUS, "CPU:0"))
    assert _in_use(apart, order)["b"] == 408


def test_what_was_sent_last_is_there_when_the_answer_comes():
    """The thread of GPU:0 may not have returned from sending s when r has read it and u, which is
    computed of that, is on its way back.

    GPU:0    s                 a
    GPU:1    '--> r --> u -----'
    """
    step = _placed("s -> r -> u -> a", there="ru", bytes={"s": 400, "r": 4, "u": 40, "a": 4})
    found = _in_use(step, tuple("srua"))
    assert found["u"] == 440
    assert found["a"] == 44


def test_nothing_is_written_over_what_is_being_sent():
    """The second Relu writes over s once it has arrived, and takes a buffer of its own before."""
    step = _placed("s -> a=Relu", "s -> r", there="r", bytes=400)
    assert step.peaks(("s", "r", "a"))["GPU:0"] == 400
    assert step.peaks(("s", "a", "r"))["GPU:0"] == 800
    asked = find_allocations(step, ("s", "a", "r"))["GPU:0"]
    assert len([event for event in asked.events if event >= 0]) == 2


def test_the_first_reader_does_not_write_over_what_has_arrived():
    """On GPU:1 the first Relu takes a buffer of its own, the second one writes over that; a second
    reader of r may write over r, once the first is done.

    GPU:0    s
    GPU:1    '--r--> a=Relu --> b=Relu          s arrives as r
    """
    step = _placed("s -> a=Relu -> b=Relu", there="ab", bytes=400)
    assert step.peaks(tuple("sab"))["GPU:1"] == 800
    step = _placed("s -> a=Relu, b=Relu", there="ab", bytes=400)
    assert step.peaks(tuple("sab"))["GPU:1"] == 800
    graph = draw("s -> a=Relu", bytes=400)
    fed = StepMemory(graph, draw_costs(graph), {"s": "CPU:0", "a": "GPU:0"}, ("GPU:0", "CPU:0"))
    assert fed.peaks(tuple("sa"))["GPU:0"] == 800


def test_the_host_gives_away_what_it_sends():
    """Its memory is not what a card lacks: s is free as soon as a is done."""
    graph = draw("s -> a -> b", "s -> r", bytes={"s": 400, "a": 4, "b": 4, "r": 4})
    placement = {name: "GPU:0" if name == "r" else "CPU:0" for name in graph.ops}
    step = StepMemory(graph, draw_costs(graph), placement, ("GPU:0", "CPU:0"))
    assert _in_use(step, tuple("sabr"), "CPU:0")["b"] == 8
