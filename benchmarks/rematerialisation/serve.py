"""Whether TensorFlow's BFC allocator serves steps of a graph within a limit, as JSON lines.

    python serve.py GRAPH.pb LIMIT_MIB [GRAPH.pb LIMIT_MIB ...]

A program of its own: oneDNN has to be off before TensorFlow is loaded.  Each graph runs in a
process of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from measure import ONE_REGION, attempts


def main() -> None:
    names = sys.argv[1:]
    for name, limit in zip(names[::2], names[1::2], strict=True):
        path = Path(name)
        found = attempts(path)(int(limit), ONE_REGION)
        print(json.dumps({"graph": path.stem, **found}), flush=True)


if __name__ == "__main__":
    main()
