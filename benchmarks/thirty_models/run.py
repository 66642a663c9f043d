"""Thirty models of ten kinds along the whole way: report, place, apply, verify.

    python benchmarks/thirty_models/run.py [--only NAME ...]

The models are built here as public reports and documentation describe them.  Each is placed on two
T4 at a batch of 8 and verified in a rehearsal on logical CPU devices.  One row per model is printed
as a Markdown table: the exit code of every command, and the last line of the first failure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

SERVING = (
    *("example_classifier", "example_pooled", "png_pictures", "spectrogram", "detector"),
    *("greedy_decoder", "experts", "message_passing", "viterbi", "clusters", "retrieval"),
    *("sessions", "counters", "quantised", "words_of_texts"),
)
KERAS = (
    *("wide_and_deep", "buckets", "text_counts", "text_pairs", "autoencoder"),
    *("unet", "video", "series", "masked", "twins"),
)
VERSION1 = ("averages", "recurrent", "queued", "sparse_ids", "datasets")
SUFFIXES = {
    **dict.fromkeys(("unet", "video", "series", "twins"), ".keras"),
    **dict.fromkeys(VERSION1, ".meta"),
    "masked": ".h5",
    "recurrent": ".pb",
}
BUILD = "import sys; from benchmarks.thirty_models.{0} import {1}; print(repr({1}(sys.argv[1])))"


def main() -> None:
    """Builds, places and verifies the models, and prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[*SERVING, *KERAS, *VERSION1])
    print("| model | report | place | apply | verify | first failure |\n|---|---|---|---|---|---|")
    for name in parser.parse_args().only:
        with tempfile.TemporaryDirectory() as folder:
            print(row(name, Path(folder)), flush=True)


def row(name: str, folder: Path) -> str:
    """One line of the table."""
    room = {**dict.fromkeys(SERVING, "serving"), **dict.fromkeys(KERAS, "keras_models")}
    path = str(folder / f"{name}{SUFFIXES.get(name, '')}")
    built = command(sys.executable, "-c", BUILD.format(room.get(name, "version1"), name), path)
    if built.returncode:
        return f"| {name} | not built | | | | {last_line(built)} |"
    options: list[str] = eval(built.stdout.strip().splitlines()[-1])  # a list of strings
    plan, placed = str(folder / "plan.json"), str(folder / "placed")
    bound = ["--batch-size", "8", *options]
    codes, failure = [], ""
    for words in (
        ["report", path, *bound],
        ["place", path, *bound, "--devices", "2xT4", "--time-limit", "5", "-o", plan],
        ["apply", path, plan, "-o", placed],
        ["verify", path, plan],
    ):
        done = command(sys.executable, "-m", "placer", *words)
        codes.append(str(done.returncode))
        if done.returncode and not failure:
            failure = last_line(done)
    return f"| {name} | {' | '.join(codes)} | {failure} |"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """A finished process."""
    return subprocess.run(words, capture_output=True, text=True, timeout=600)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of what a process said, without what would break a table."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("placer:")] or lines[-1:] or [""]
    return told[0].replace("|", "/")[:240]


if __name__ == "__main__":
    main()
