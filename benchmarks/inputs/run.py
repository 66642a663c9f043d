"""Every file under a folder: does it load, and does what runs also run placed?

    python benchmarks/inputs/run.py --graphs DIR --json FILE [--table report|place] [--only TEXT]
        [--again] [--write]

Each row goes into the file as soon as it is known, and a file that has a row is skipped: the same
command goes on where the last one stopped.  ``--again`` makes the rows anew.  The tables have all
rows of the file; ``--write`` puts them into the README.

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
from importlib import import_module
from pathlib import Path
from typing import Any

from model_files import Model, find_models

TABLES = {"report": "reports", "place": "placed_runs"}
"""Modules by table.  That of placed runs imports TensorFlow, which the memory of a child that is
started later would seem to include."""
README = Path(__file__).with_name("README.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=Path, required=True)
    parser.add_argument("--table", choices=tuple(TABLES), default="")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--json", type=Path, required=True, help="rows are kept here")
    parser.add_argument("--again", action="store_true", help="make rows that are there anew")
    parser.add_argument("--write", action="store_true", help="put the tables into the README")
    arguments = parser.parse_args()
    models = [m for m in find_models(arguments.graphs) if arguments.only in m.name]
    for name in TABLES:
        if arguments.table in ("", name):
            make_rows(name, models, arguments.json, again=arguments.again)
            print(table_text(name, kept(arguments.json, name)) + "\n")
    if arguments.write:
        write_tables(arguments.json)


def make_rows(name: str, models: list[Model], file: Path, *, again: bool) -> None:
    """Makes the rows of one table that are missing; each is told on stderr as it comes."""
    table = import_module(TABLES[name])
    for model in models:
        if not again and model.name in kept(file, name):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            row = table.row(model, Path(scratch))
        keep(file, name, row)
        print(line(table.cells(row)), file=sys.stderr, flush=True)


def kept(file: Path, name: str) -> dict[str, Any]:
    """The rows of earlier runs, by file."""
    tables = json.loads(file.read_text()) if file.exists() else {}
    rows: dict[str, Any] = tables.get(name, {})
    return rows


def keep(file: Path, name: str, row: dict[str, Any]) -> None:
    """Puts a row into the file, in the place of an older one."""
    tables = {table: kept(file, table) for table in TABLES}
    tables[name] = dict(sorted({**tables[name], row["file"]: row}.items()))
    part = file.with_suffix(".part")
    part.write_text(json.dumps(tables, indent=1))
    part.replace(file)


def write_tables(file: Path) -> None:
    """Puts each table that has rows between its two comments in the README."""
    text = README.read_text()
    for name in TABLES:
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if rows := kept(file, name):
            before, _, rest = text.partition(start)
            text = f"{before}{start}\n{table_text(name, rows)}\n\n{end}{rest.partition(end)[2]}"
    README.write_text(text)


def table_text(name: str, rows: dict[str, Any]) -> str:
    """The summary of a table, and the table in Markdown."""
    table = import_module(TABLES[name])
    lines = [table.summary(list(rows.values())), ""]
    lines += [line(table.HEADER), "|---" * len(table.HEADER) + "|"]
    return "\n".join([*lines, *(line(table.cells(row)) for row in rows.values())])


def line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
