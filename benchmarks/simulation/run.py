"""Do people's scripts run to their last step on simulated GPUs, unchanged?

    python benchmarks/simulation/run.py [--python PYTHON ...] [--cards 1,2,4] [SCRIPT ...]

Each of ``scripts/`` and the examples runs by ``placer simulate`` on that many T4s, with every
``PYTHON`` (one that has placer and its own TensorFlow; this one if none is given), and must end
with exit code 0 and its last line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"

LAST_LINES = {
    "fit_text": "last step: 6",
    "fit_images": "last step: 12",
    "fit_transformer": "last step: 8",
    "own_loop": "last step: 8",
    "mirrored": "last step: 12",
    "session_training": "last step: 10",
    "session_towers": "last step: 5",
    "server": "last step: 24",
    # of the examples, where another number would do as well
    "keras_model": "",
    "embeddings_on_the_host": "",
    "demo": "",
    "keras_training": "",
}
NOTEBOOK = "from nbclient.cli import main; main()"
"""Runs every cell of a notebook, in a kernel of the same interpreter."""
LIMIT_SECONDS = 900
HEADER = (
    "| TensorFlow | script | T4s | seconds | peak by GPU, MB | ended |\n|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one script ended, and the most in use on every GPU by any of its processes."""

    exit_code: int
    printed: str
    seconds: float
    peak_bytes: tuple[int, ...]

    def ended(self, last_line: str) -> str:
        """Its last line, or what went wrong."""
        found = self.printed.strip().splitlines()[-1:] or [""]
        if self.exit_code:
            return f"**exit code {self.exit_code}**"
        if last_line and found != [last_line]:
            return f"**{found[0]}**, not {last_line}"
        return last_line or "to its end"


def simulate(python: str, command: list[str], devices: str, folder: Path) -> Run:
    """Runs ``command`` by ``placer simulate`` with one interpreter."""
    record = folder / "run.json"
    options = ["--devices", devices, "-q", "--format", "json", "-o", str(record), "--force"]
    record.unlink(missing_ok=True)
    done = subprocess.run(
        [python, "-m", "placer", "simulate", *options, "--", python, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        cwd=folder,
    )
    (folder / "errors.txt").write_text(done.stderr)
    if not record.exists():
        return Run(exit_code=done.returncode, printed=done.stderr, seconds=0.0, peak_bytes=())
    found = json.loads(record.read_text())
    return Run(
        exit_code=done.returncode,
        printed=done.stdout,
        seconds=found["seconds"],
        peak_bytes=tuple(found["peak_bytes"].values()),
    )


def words_of(name: str) -> list[str]:
    """What an interpreter is given to run the script or notebook of that name."""
    path = HERE / "scripts" / f"{name}.py"
    notebook = EXAMPLES / f"{name}.ipynb"
    if notebook.exists():
        return ["-c", NOTEBOOK, str(notebook)]
    return [str(path if path.exists() else EXAMPLES / f"{name}.py")]


def tensorflow_version(python: str) -> str:
    """The version that an interpreter has."""
    code = "from importlib.metadata import version; print(version('tensorflow'))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def main() -> None:
    """Prints a row for every script, number of cards and TensorFlow; exit code 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", metavar="PYTHON")
    parser.add_argument("--cards", default="1,2,4")
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT")
    arguments = parser.parse_args()
    print(HEADER)
    failed = 0
    for python in arguments.python or [sys.executable]:
        version = tensorflow_version(python)
        for name in arguments.scripts or LAST_LINES:
            for cards in arguments.cards.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    found = simulate(python, words_of(name), f"{cards}xT4", Path(folder))
                    ended = found.ended(LAST_LINES[name])
                    if "**" in ended:
                        failed += 1
                        sys.stderr.write(Path(folder, "errors.txt").read_text()[-3000:])
                peaks = " + ".join(f"{size / 1e6:.1f}" for size in found.peak_bytes)
                row = (version, name, cards, f"{found.seconds:.0f}", peaks, ended)
                print("| " + " | ".join(row) + " |", flush=True)
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
