"""Several batch sizes, and the largest that fits."""

from __future__ import annotations

import csv
import io

import pytest

from placer.argument_types import front
from placer.errors import UsageError
from placer.pipeline.pipeline import place, report
from placer.plan.request import Keywords
from placer.questions.batch_sizes import sweep
from placer.rendering.text.sweep_text import sweep_csv


@pytest.fixture
def counted(monkeypatch) -> list[int]:
    """The batch sizes that were analysed."""
    from placer.questions import batch_sizes

    sizes: list[int] = []

    def count(source, devices, **options):
        sizes.append(options["batch_size"])
        return report(source, devices, **options)

    monkeypatch.setattr(batch_sizes, "report_model", count)
    return sizes


@pytest.mark.slow
def test_the_largest_batch_is_the_last_that_fits(saved_model, counted):
    """It fits the cap by its own report, the next one does not, and few sizes had to be tried."""
    found = sweep(saved_model, [8, 64], "GPU:2MiB", offload="never", time_limit=2.0)
    assert found.largest_fitting is not None
    assert found.smallest_failing == found.largest_fitting + 1
    assert len(counted) <= 8
    plans = {
        size: place(saved_model, "GPU:2MiB", batch_size=size, offload="never", time_limit=2.0)
        for size in (found.largest_fitting, found.smallest_failing)
    }
    need = {size: plan.devices[0].need_bytes for size, plan in plans.items()}
    assert need[found.largest_fitting] <= 2 * 1024**2 < need[found.smallest_failing]


@pytest.mark.slow
def test_a_batch_size_beside_the_sizes_is_refused(saved_model):
    """It would have no effect."""
    with pytest.raises(UsageError, match="batch_sizes alone"):
        sweep(saved_model, [8, 16], "2xT4", batch_size=4)


def test_what_fits_with_offloading_alone_is_said(saved_model):
    """The largest batch is asked of the accelerators; where none fits, one that does with the host
    is named, and was tried."""
    found = sweep(saved_model, [8], "GPU:100KiB,CPU:1GiB", time_limit=2.0, max_trials=0)
    assert (found.largest_fitting, found.offloaded_fitting) == (None, 8)
    assert "was found to fit without offloading, not even 8" in found.summary(width=200)
    assert "With offload='auto', batch 8 fits (tried)." in found.summary(width=200)
    (row,) = csv.DictReader(io.StringIO(sweep_csv(found)))
    assert (found.rows[0].step_seconds, row["step_seconds"]) == (None, "")  # "-" in the table
    asked = sweep(saved_model, [8], "GPU:100KiB", offload="auto", time_limit=2.0, max_trials=0)
    assert asked.largest_fitting == 8
    assert "All fit with offloading (limits" in asked.summary(width=200)


@pytest.mark.slow
def test_rows_are_sorted_and_rendered(saved_model):
    """One row per size, in order, in every format."""
    found = sweep(saved_model, [16, 4, 16], "GPU:8MiB", time_limit=2.0, max_trials=0)
    assert [row.batch_size for row in found.rows] == [4, 16]
    small, large = found.rows
    assert large.flops == pytest.approx(4 * small.flops)
    text = found.summary(width=100)
    assert "All fit without offloading (limits" in text
    rows = list(csv.DictReader(io.StringIO(sweep_csv(found))))
    assert [row["batch_size"] for row in rows] == ["4", "16"]
    assert int(rows[1]["peak_bytes GPU:0"]) == large.peak_bytes["GPU:0"]
    assert "everything on one" not in text
    assert "everything on one A100-40GB" in sweep(saved_model, [4], None, max_trials=0).summary()


@pytest.mark.slow
def test_the_table_says_what_the_single_report_says(tmp_path, counted):
    """Tensors of unknown size make every figure a least one: whether a batch fits is not known,
    none is searched for, and the inputs are named with what binds them."""
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, None, 64], name="x")
        tf.matmul(x, x, transpose_b=True, name="y")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    found = sweep(path, [1, 64], None)
    assert counted == [1, 64]
    assert [row.fits for row in found.rows] == [None, None]
    assert (found.largest_fitting, found.smallest_failing) == (None, None)
    single = report(path, batch_size=64)
    assert found.rows[1].unknown_tensors == len(single.unknown_shapes) > 0
    text = found.summary(width=120)
    assert "≥" in text
    assert "at least; 2 tensors of unknown size not counted; x still open: shapes={'x'" in text
    assert "It is unknown which batch fits" in text
    rows = list(csv.DictReader(io.StringIO(sweep_csv(found))))
    assert [row["fits"] for row in rows] == ["", ""]
    bound = sweep(path, [1, 64], None, shapes={"x": (None, 32, 64)})
    assert [row.fits for row in bound.rows] == [True, True]
    assert "≥" not in bound.summary(width=120)


def test_a_batch_size_that_binds_nothing_has_no_largest(tmp_path, counted):
    """The rows are all alike: nothing is searched, and the warning of the report is shown."""
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [8, 64], name="x")
        tf.nn.relu(x, name="y")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    found = sweep(path, [1, 64], None)
    assert (counted, found.is_bound, found.largest_fitting) == ([1, 64], False, 64)
    text = found.summary(width=120)
    assert "1 has no effect" in text
    assert "The required memory does not depend on the batch size" in text


def test_a_batch_size_beyond_a_dimension_is_refused():
    """TensorFlow's shapes of 32 bits cannot hold it."""
    with pytest.raises(UsageError, match="the size 99999999999; give at most 2,147,483,646"):
        front(sweep, Keywords)("absent", [8, 99999999999])


def test_a_bound_size_must_follow_the_batch():
    """Every row would be that of the one size: it says what to write, before anything is read."""
    for options, told in (
        ({"shapes": {"op": (4, 20)}}, r"{'op': \(4, 20\)} is 4 at each.*{'op': \('batch', 20\)}"),
        ({"ragged": {"ids": (4, 5)}}, r"\('batch', 5\)}.*\('N', 5\)} dims={'N': 4}"),
    ):
        with pytest.raises(UsageError, match=told):
            sweep("absent", [1, 4, 64], **options)


def test_the_batch_is_a_name_of_a_dimension():
    """It is the size of each row's batch, unless it is given another."""
    from placer.extraction.shapes.binding import resolve_shapes

    shapes, ragged, dims = resolve_shapes({"op": ("batch", 20)}, None, {"f": ("batch", 3)}, 8)
    assert (shapes, ragged) == ({"op": (8, 20)}, {"f": (8, 3)})
    assert dims == {"batch": {"size": 8, "of": ["op:0", "f:0"]}}
    assert resolve_shapes({"op": ("batch",)}, {"batch": 2}, None, 8)[0] == {"op": (2,)}
    with pytest.raises(UsageError, match="add batch_size=32"):
        resolve_shapes({"op": ("batch",)}, None)
