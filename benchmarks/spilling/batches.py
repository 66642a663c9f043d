"""Image models at batches whose activations nearly fill a GPU, on two of them.

    python benchmarks/spilling/batches.py FOLDER [--limit SECONDS] [NAME ...]

Each of ``keras.applications`` is exported to ``FOLDER`` if it is not there, and placed by ``placer
place`` on two GPUs whose limits are a share of what one device alone requires.  What is left above
a limit there is what an allocator loses: one large buffer does not go where another has been.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from commands import mib, run_placer

MODELS = (
    ("ResNet50", 32, 0.85),
    ("ResNet50", 32, 0.8),
    ("DenseNet121", 32, 0.8),
    ("InceptionV3", 32, 0.8),
    ("Xception", 16, 0.8),
    ("MobileNetV2", 64, 0.8),
    ("EfficientNetB0", 32, 0.8),
    ("NASNetMobile", 16, 0.8),
    ("ResNet101V2", 16, 0.8),
    ("ConvNeXtTiny", 16, 0.8),
    ("VGG16", 16, 0.7),
)
_EXPORT = """
import sys, keras
getattr(keras.applications, sys.argv[1])(weights=None).export(sys.argv[2])
"""


def main() -> None:
    """Places every model and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=[name for name, *_ in MODELS])
    parser.add_argument("--limit", default="30", help="seconds for each search")
    arguments = parser.parse_args()
    heads = ("model", "batch", "limits", "cost, MiB", "bound, MiB", "sent, MiB", "s")
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    for name, batch, share in MODELS:
        if name in arguments.names:
            found = place(arguments.folder / name, batch, share, arguments.limit)
            cells = (found["solver"]["value"], found["solver"]["lower_bound"])
            sizes = [mib(size) for size in (*cells, found["metrics"]["sent_bytes"])]
            seconds = f"{found['solver']['seconds']:.0f}"
            print(
                "|",
                " | ".join((name, str(batch), f"{share:.0%}", *sizes, seconds)),
                "|",
                flush=True,
            )


def place(model: Path, batch: int, share: float, limit: str) -> dict[str, Any]:
    """The plan of a model, which is exported first if it is not there."""
    if not model.exists():
        model.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-c", _EXPORT, model.name, model], check=True)
    given = (model, "--batch-size", batch, "--red-zones", "off")
    report = json.loads(run_placer("report", *given, "--format", "json", "-q").stdout)
    unused = report["loading"]["restored_bytes"] - report["loading"]["used_bytes"]
    cap = int(share * (report["memory"]["required_bytes"] - unused))
    plan = model.with_name(f"{model.name}-{batch}-{share}.plan.json")
    devices = ("--devices", "2xGPU", "--max-memory", f"GPU:*={cap}", "--time-limit", limit)
    run_placer("place", *given, *devices, "-o", plan, "--force", "-q").check_returncode()
    content: dict[str, Any] = json.loads(plan.read_text())
    return content


if __name__ == "__main__":
    main()
