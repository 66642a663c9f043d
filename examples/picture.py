"""The picture in the README: the page of a placed ResNet-50, as a browser shows it.

    python examples/picture.py [--directory demo-output] [--output docs/images/page.png]

Writes the page of the plan that ``make demo`` made, with ``placer export``, and has Chromium
(Debian's package) photograph it.
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

from demo import placer

SIZE = (1240, 2060)


def make_picture(directory: Path, picture: Path) -> Path:
    """The picture of the demo's plan, whose page is written under ``directory``."""
    plan, page = directory / "plan.json", directory / "plan.html"
    if not plan.exists():
        raise SystemExit(f"there is no {plan}: run make demo first")
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
