"""Why ``placer.auto`` does not build a strategy, or does not choose it."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from cost_models.clusters import parse_cluster
from placer.errors import UsageError
from placer.plan.request import read_options
from placer.questions.auto import Choice
from placer.questions.auto_advice import Advice
from placer.questions.auto_programs import open_program
from placer.questions.auto_result import AutoRow
from placer.questions.auto_ways import Way, Ways


@pytest.mark.parametrize(("memory", "busy"), [("8MiB", "the whole batch on"), ("300KiB", "host")])
def test_a_bound_says_what_is_busy(saved_model, memory, busy):
    """The host takes a part where one accelerator does not hold the batch."""
    wanted = read_options({"batch_size": 64})
    program = open_program(str(saved_model), f"1xGPU:{memory}", wanted, None)
    ways = {way.name: way for way in Ways(program, latency=False)}
    assert busy in ways["one-placement"].why_no_faster
    if memory == "300KiB":
        assert ways["one-placement"].least_seconds < ways["order"].least_seconds


def test_loaders_put_variables_on_the_first_card_whichever_is_chosen(saved_model):
    """As the same placement on both cards says: TensorFlow knows no other default."""
    wanted = read_options({"batch_size": 64, "max_memory": "GPU:0=100KiB"})
    program = open_program(str(saved_model), "2xGPU:8MiB", wanted, None)
    plan = program.on_one_device("GPU:1").plan
    assert "GPU:0" not in {row.name for row in plan.devices}
    (told,) = [row.message for row in plan.warnings if row.code == "loader_overfills"]
    assert told.endswith("puts 332 KiB of variables on GPU:0, more than its limit")


@pytest.mark.parametrize(
    ("seconds", "beside", "told"),
    [
        (95e-6, 0.0, "within the margin (5% faster) and more complex"),
        (50e-6, 0.0, "too close to tell (50% faster, by less than 100 µs) and more complex"),
        (50e-5, 2e-3, "too close to tell (19% slower, and both take less than the 2.00 ms that "),
    ],
)
def test_what_is_too_close_to_tell_says_why(seconds, beside, told):
    """Less than predictions tell apart, or than Keras adds to both."""
    choice = SimpleNamespace(margin=0.1, exact=True, program=SimpleNamespace(keras_seconds=beside))
    choice.ratio = partial(Choice.ratio, choice)
    choice.is_as_good_as = partial(Choice.is_as_good_as, choice)
    row = AutoRow(name="as-it-is", changes="", least_seconds=0.0, step_seconds=1e-4)
    other = replace(row, name="replicas:2", step_seconds=seconds)
    assert Choice._explained(choice, other, row).note.startswith(told)


def test_a_refusal_is_kept_in_one_wording():
    """In Python as on the command line: who shows a row finds the words of its reader."""
    error = UsageError("--strategy is for inference")

    def refused():
        raise error

    way = Way(name="replicas:2", changes="", least_seconds=1.0, why_no_faster="", build=refused)
    program = SimpleNamespace(note="", inexact=False)
    choice = SimpleNamespace(program=program, ways=SimpleNamespace(to_beat=0.0), choosable=list)
    choice._ruled_out = lambda way, row: row
    assert str(error) == "strategy is for inference"
    assert Choice._tried(choice, way).note == "--strategy is for inference"


def test_a_process_for_each_is_told_in_the_figures_of_the_rows():
    """Times and samples per second leave out what Keras adds, as those of every strategy do; how
    many times as many counts it."""
    cluster = parse_cluster("2xT4")
    whole = SimpleNamespace(fits=True, seconds_on=lambda _: 40e-6)
    ways = SimpleNamespace(cluster=cluster, fastest="GPU:0", alone={"GPU:0": 0})
    program = SimpleNamespace(trains=False, size=8, keras_seconds=5e-4)
    choice = SimpleNamespace(program=program, ways=ways, ratio=lambda one, other: one / other)
    choice.built = {"as-it-is": whole}
    (told,) = Advice(choice)._a_process_each(40e-6)
    assert told.startswith(
        "one process per accelerator: 400,000 samples/s in total (2.00 times as many), 40.0 µs per"
    )
    whole.fits = False  # though a plan of it may
    assert not list(Advice(choice)._a_process_each(40e-6))


def test_a_smaller_batch_fits_as_its_row_has_it():
    """Beside what is loaded and not used, which a plan puts on the host."""

    def built(size, beside=0):
        need = 2**20 * (size + beside)
        return SimpleNamespace(
            size=size, plan=SimpleNamespace(required_bytes={"GPU:0": need}), fits=need <= 2**26
        )

    program = SimpleNamespace(
        size=256,
        on_one_device=lambda device, size: built(size),
        as_it_is=lambda alone, device: built(alone.size, beside=24),
    )
    need = built(256, beside=24).plan.required_bytes
    row = AutoRow(
        name="as-it-is", changes="", least_seconds=0.0, required_bytes=need, over_bytes=need
    )
    ways = SimpleNamespace(cluster=parse_cluster("1xGPU:64MiB"))
    choice = SimpleNamespace(program=program, ways=ways, rows=[row])
    assert [*Advice(choice)._smaller_batch()] == ["--batch-size 40: as-it-is"]


@pytest.mark.parametrize(
    ("idle", "host", "told"),
    [
        ((), "CPU:1GiB", ""),
        ((3, 4), "CPU:1GiB", "; loading puts 7 B of unused variables on CPU:0"),
        ((3, 4), "T4", ""),
    ],
)
def test_a_placement_that_does_not_fit_beside_unused_variables_says_so(idle, host, told):
    """As it is, a model loads them elsewhere, and may fit; they need no room without a limit."""
    plan = SimpleNamespace(placement={}, solver=SimpleNamespace(status="INFEASIBLE"))
    built = SimpleNamespace(plan=plan, refused="", name="one-placement")
    graph = SimpleNamespace(idle_bytes={"CPU:0": idle})
    program = SimpleNamespace(note="", inexact=(), whole=lambda: SimpleNamespace(graph=graph))
    ways = SimpleNamespace(cluster=parse_cluster(f"16xT4,{host}"))
    choice = SimpleNamespace(program=program, ways=ways, rows=[], built={})
    choice.choosable = list
    choice._ruled_out = lambda way, row: row
    way = SimpleNamespace(
        name="one-placement", changes="", least_seconds=0.0, in_parts=False, build=lambda: built
    )
    row = Choice._tried(choice, way)
    assert row.note == f"does not fit (proven){told}"
