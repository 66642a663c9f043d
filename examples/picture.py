"""The picture in the README: the page of a placed ResNet-50, as a browser shows it.

    python examples/picture.py [--directory demo-output] [--output docs/images/page.png]

Places the model of ``examples/demo.py`` on two GPUs whose memory is 80% of what one device would
require, writes the page with ``placer export``, and has Chromium (Debian's package) photograph it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from demo import BATCH_SIZE, CAP_SHARE, build_model, placer, placer_json, step_need

SIZE = (1240, 2060)


def make_picture(directory: Path, picture: Path) -> Path:
    """The picture, after everything it needs is written under ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    model, plan, page = (directory / name for name in ("resnet50", "plan.json", "plan.html"))
    if not model.exists():
        build_model(model)
    batch = ["--batch-size", str(BATCH_SIZE), "--red-zones", "off"]
    cap = int(CAP_SHARE * step_need(placer_json("report", model, *batch)))
    caps = ["--devices", "2xT4", "--max-memory", f"GPU:0={cap},GPU:1={cap}"]
    placer("place", model, *batch, *caps, "-o", plan, "--force")
    placer("export", plan, "--to", "html", "-o", page, "--force")
    print(json.dumps({"page_bytes": page.stat().st_size}))
    picture.parent.mkdir(parents=True, exist_ok=True)
    photograph(page, picture)
    return picture


def photograph(page: Path, picture: Path) -> None:
    """Writes what a browser shows of ``page`` at its top."""
    binary = shutil.which("chromium")
    if binary is None:
        raise SystemExit("there is no Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        command = [
            binary,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
            f"--user-data-dir={profile}",
            f"--window-size={SIZE[0]},{SIZE[1]}",
            f"--screenshot={picture.resolve()}",
            page.resolve().as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    """Makes the picture and says where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=Path("demo-output"))
    parser.add_argument("--output", type=Path, default=Path("docs/images/page.png"))
    arguments = parser.parse_args()
    print(make_picture(arguments.directory, arguments.output))


if __name__ == "__main__":
    main()
