"""What TensorFlow hands out of a card, against what it logged on real ones."""

import os
from pathlib import Path

import pytest

from benchmarks.usable_memory.run import cleanest_logs
from cost_models.byte_sizes import MEBIBYTE
from cost_models.card_memory import card_memory
from cost_models.devices import presets

# the names in TensorFlow's log of cards that have a preset
CARDS = {
    "Tesla T4": "T4",
    "Tesla V100-SXM2-16GB": "V100-16GB",
    "Tesla V100-SXM2-32GB": "V100-32GB",
    "NVIDIA GeForce RTX 3090": "RTX-3090",
    "NVIDIA A100-SXM4-80GB": "A100-80GB",
    "NVIDIA H100 80GB HBM3": "H100-80GB",
    "NVIDIA H200": "H200-141GB",
}


@pytest.mark.parametrize(
    ("total_mib", "capability", "kept_back_mib"),
    [
        (2048, "7.5", 225),  # less than 2 GiB is left by the context
        (8192, "5.2", 500),
        (16384, "6.0", 500),
        (16384, "7.0", 1050),
        (24576, "8.9", 1536),
        (81559, "9.0", 1800),
        (183359, "10.0", 1800),
        (32607, "12.0", 1800),
    ],
)
def test_what_is_kept_back_is_min_system_memory(total_mib, capability, kept_back_mib):
    """The figures of ``MinSystemMemory`` in TensorFlow's ``gpu_device.cc``."""
    card = card_memory(total_mib * MEBIBYTE, capability)
    assert card.kept_back_bytes == kept_back_mib * MEBIBYTE
    assert card.usable_bytes == card.total_bytes - card.context_bytes - card.kept_back_bytes


def test_a_card_that_the_context_fills_gives_nothing():
    """Never below zero."""
    assert card_memory(300 * MEBIBYTE, "7.5").usable_bytes == 0


def test_every_gpu_preset_with_a_size_has_a_capability():
    """Without one, its cap would be missing."""
    assert [p.model for p in presets().values() if p.memory_bytes and p.card is None] == []


@pytest.mark.parametrize("card", CARDS)
def test_presets_are_what_tensorflow_logged(card):
    """Within 2% of "Created device ... with N MB memory"."""
    folder = os.environ.get("PLACER_TEST_DATA")
    if not folder:
        pytest.skip("PLACER_TEST_DATA is not set: logs of real cards are needed")
    log = cleanest_logs(Path(folder) / "gpu" / "usable_memory.csv")[card]
    logged = int(log["tf_limit_mb"]) * MEBIBYTE
    assert presets()[CARDS[card]].card.usable_bytes == pytest.approx(logged, rel=0.02)
