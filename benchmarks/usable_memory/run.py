"""What TensorFlow hands out of a card: the cost model beside TensorFlow's own logs.

    python benchmarks/usable_memory/run.py LOGS.csv

`LOGS.csv` has a row per log with `gpu`, `compute_capability`, `driver_total_mib`, `tf_limit_mb`
("Created device ... with N MB memory") and `tf_version` or `tf_version_inferred`.  Of each card the
highest figure of TensorFlow 2.5 and later counts: nothing else was running then.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from cost_models.byte_sizes import MEBIBYTE
from cost_models.card_memory import card_memory


def cleanest_logs(path: Path) -> dict[str, dict[str, str]]:
    """The row with the highest figure of every card whose total is known."""
    found: dict[str, dict[str, str]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            version = re.match(r"2\.(\d+|x)", row["tf_version"] or row["tf_version_inferred"])
            if version is None or not row["driver_total_mib"]:
                continue
            if version[1] != "x" and int(version[1]) < 5:
                continue
            best = found.setdefault(row["gpu"], row)
            if int(row["tf_limit_mb"]) > int(best["tf_limit_mb"]):
                found[row["gpu"]] = row
    return found


def main() -> None:
    print("| card | total MiB | kept back | context | usable, predicted | logged | error |")
    print("|---|---|---|---|---|---|---|")
    for name, row in sorted(cleanest_logs(Path(sys.argv[1])).items()):
        total = int(row["driver_total_mib"])
        card = card_memory(total * MEBIBYTE, row["compute_capability"])
        logged = int(row["tf_limit_mb"])
        parts = (card.kept_back_bytes, card.context_bytes, card.usable_bytes)
        sizes = " | ".join(f"{size / MEBIBYTE:,.0f}" for size in parts)
        error = card.usable_bytes / MEBIBYTE / logged - 1
        print(f"| {name} | {total:,} | {sizes} | {logged:,} | {error:+.1%} |")


if __name__ == "__main__":
    main()
