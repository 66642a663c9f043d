"""Several batch sizes, and the largest that fits."""

from __future__ import annotations

import csv
import io

import pytest

from placer.pipeline.pipeline import report
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
    found = sweep(saved_model, [8, 64], "GPU:2MiB", spill="never", time_limit=2.0)
    assert found.largest_fitting is not None
    assert found.smallest_failing == found.largest_fitting + 1
    assert len(counted) <= 8
    high = {
        size: report(saved_model, batch_size=size).memory.high_bytes
        for size in (found.largest_fitting, found.smallest_failing)
    }
    assert high[found.largest_fitting] <= 2 * 1024**2 < high[found.smallest_failing]


def test_rows_are_sorted_and_rendered(saved_model):
    """One row per size, in order, in every format."""
    found = sweep(saved_model, [16, 4, 16], "GPU:8MiB", time_limit=2.0, max_trials=0)
    assert [row.batch_size for row in found.rows] == [4, 16]
    small, large = found.rows
    assert large.flops == pytest.approx(4 * small.flops)
    text = found.summary(width=100)
    assert "Every batch size tried fits, up to 16" in text
    rows = list(csv.DictReader(io.StringIO(sweep_csv(found))))
    assert [row["batch_size"] for row in rows] == ["4", "16"]
    assert int(rows[1]["peak_bytes GPU:0"]) == large.peak_bytes["GPU:0"]
    assert "everything on one" not in text
    assert "everything on one A100-40GB" in sweep(saved_model, [4], max_trials=0).summary()
