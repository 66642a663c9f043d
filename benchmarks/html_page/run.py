"""Size of the HTML page, and how soon a browser shows it.

    python benchmarks/html_page/run.py [--sizes 1000,40000] [--rounds 3] [MODEL ...]

Graphs of ``tests/layered_graphs.py``, or any MODEL.  For each ``placer report --devices 2xT4
--format html`` writes the page, and a fresh headless Chromium opens it as often as there are rounds
(medians are shown): first contentful paint, and until every view is drawn and answers, both from
the start of the navigation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

WRITE = """
import sys
from layered_graphs import layered_graph
open(sys.argv[2], "wb").write(layered_graph(int(sys.argv[1])).SerializeToString())
"""
PAINT = """const paint = performance.getEntriesByType('paint')
    .find((entry) => entry.name === 'first-contentful-paint');
return paint ? paint.startTime / 1000 : null"""
READY = "return performance.getEntriesByType('navigation')[0].domContentLoadedEventStart / 1000"


def write_graph(folder: Path, size: int) -> Path:
    """A graph of so many ops, written by a process of its own."""
    path = folder / f"{size}.pb"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", WRITE, str(size), str(path)]
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
    return path


def write_page(model: Path, page: Path) -> None:
    command = ["-m", "placer", "report", str(model), "--batch-size", "32", "--devices", "2xT4"]
    output = ["--format", "html", "-o", str(page), "--time-limit", "10", "-q"]
    subprocess.run([sys.executable, *command, *output], check=True, cwd=ROOT)


def measure(page: Path, profile: Path) -> tuple[float, float]:
    """Seconds to the first contentful paint and until the script has run to its end."""
    from browser import chromium, open_page

    with chromium(profile) as driver:
        open_page(driver, page)
        return float(driver.execute_script(PAINT) or 0.0), float(driver.execute_script(READY))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,40000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("models", nargs="*", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {path.stem: path for path in arguments.models}
        if not models:
            for size in map(int, arguments.sizes.split(",")):
                models[f"{size:,} ops"] = write_graph(folder, size)
        print("| graph | page | first contentful paint | ready |")
        print("|---|---|---|---|")
        for label, model in models.items():
            page = folder / f"{model.stem}.html"
            write_page(model, page)
            found = [measure(page, folder / f"profile{i}") for i in range(arguments.rounds)]
            paint, ready = (median(values) for values in zip(*found, strict=True))
            size = page.stat().st_size / 1e6
            print(f"| {label} | {size:.2f} MB | {paint:.2f} s | {ready:.2f} s |", flush=True)


if __name__ == "__main__":
    main()
