"""Every file under a folder: does it load, and does what runs also run placed?

    python benchmarks/inputs/run.py --graphs DIR [--table report|place] [--only TEXT] [--json FILE]

With ``--json`` rows are kept in a file, and the tables have all rows that are in it.

The first table is ``placer report`` of every file, each in a fresh process.  The second one has
every model that TensorFlow itself runs (:mod:`tensorflow_runs`): placed on two GPUs, applied, and
verified in a rehearsal on logical CPU devices.  What a file needs to be told is in ``cases.toml``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import placed_runs
import reports
from model_files import Model, find_models

TABLES = {"report": reports, "place": placed_runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=Path, required=True)
    parser.add_argument("--table", choices=tuple(TABLES), default="")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--json", type=Path, help="rows are kept here")
    arguments = parser.parse_args()
    models = [m for m in find_models(arguments.graphs) if arguments.only in m.name]
    tables = [name for name in TABLES if arguments.table in ("", name)]
    for name in tables:
        rows = run_table(TABLES[name], models)
        if arguments.json:
            keep(arguments.json, name, rows)
            rows = kept(arguments.json)[name]
        print(table_text(TABLES[name], rows) + "\n")


def run_table(table: Any, models: list[Model]) -> dict[str, Any]:
    """The rows of one table, by file; each is told on stderr as it comes."""
    rows = {}
    for model in models:
        with tempfile.TemporaryDirectory() as scratch:
            rows[model.name] = table.row(model, Path(scratch))
        print(line(table.cells(rows[model.name])), file=sys.stderr, flush=True)
    return rows


def kept(file: Path) -> dict[str, dict[str, Any]]:
    """The rows of earlier runs, by table and file."""
    return json.loads(file.read_text()) if file.exists() else {}


def keep(file: Path, name: str, rows: dict[str, Any]) -> None:
    """Puts rows into the file, in the place of older ones."""
    tables = kept(file)
    tables[name] = dict(sorted({**tables.get(name, {}), **rows}.items()))
    file.write_text(json.dumps(tables, indent=1))


def table_text(table: Any, rows: dict[str, Any]) -> str:
    """A Markdown table and its summary."""
    lines = [line(table.HEADER), "|---" * len(table.HEADER) + "|"]
    lines += [line(table.cells(row)) for row in rows.values()]
    return "\n".join([*lines, "", table.summary(list(rows.values()))])


def line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
