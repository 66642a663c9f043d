"""What fills the memory of a model, before it is loaded.

    python examples/memory_hotspots.py MODEL [--batch-size 32]

Prints what is alive when a step peaks: by kind, by name scope, and the largest buffers with the op
until which each is needed.  Weights are not loaded.
"""

from __future__ import annotations

import argparse
from typing import Any

GIB = 1 << 30


def find_hotspots(model: Any, batch_size: int | None = None) -> Any:
    """The memory part of the report."""
    import placer

    return placer.report(model, batch_size=batch_size).memory


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--batch-size", type=int)
    arguments = parser.parse_args()
    memory = find_hotspots(arguments.model, arguments.batch_size)
    print(f"{memory.peak_bytes / GIB:.3f} GiB while {memory.peak_op} runs")
    for title, amounts in (("kind", memory.bytes_at_peak), ("scope", memory.scopes_at_peak)):
        for name, size in amounts.items():
            print(f"  {title:6} {size / memory.peak_bytes:6.1%}  {name or '(no scope)'}")
    for buffer in memory.largest_at_peak:
        print(f"  buffer {buffer.bytes / memory.peak_bytes:6.1%}  {buffer.op} until {buffer.until}")
