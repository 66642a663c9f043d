"""What processes of their own are started with."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(__file__).parents[3]),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
}
