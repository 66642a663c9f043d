"""Prints ``docs/reference.md``: every command, and every option with the commands that have it.

``make reference`` writes the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import fields

from placer.commands.parser import HELP, build_parser
from placer.plan.request import Options

HEAD = """# Commands and options

Written by `make reference` out of the parser. `placer COMMAND -h` shows the common options of
a command, `--help` all. [Options](options.md) explains shapes, ragged inputs and models, and has
the names that options had before. The [exit codes](exit_codes.md) are those of every command.
"""

KEYWORDS = {item.name for item in fields(Options)}


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands of ``placer --help``, in its order."""
    found = build_parser()._subparsers._group_actions[0].choices
    place = {name: HELP.find(f"\n  {name} ") for name in found}
    return {name: found[name] for name in sorted(found, key=place.__getitem__) if place[name] >= 0}


def shown_options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options that the help of a command shows, but for ``--help``."""
    for action in parser._actions:
        if action.option_strings and argparse.SUPPRESS not in (action.help, action.dest):
            yield action


def keyword(action: argparse.Action) -> str:
    """The argument of ``placer.place`` and its kin with the meaning of an option, or nothing."""
    names = (action.dest, f"{action.dest}s")
    found = [each for each in names if each in KEYWORDS and action.dest != "output"]
    return f"`{found[0]}`" if found else ""


def shown(action: argparse.Action) -> str:
    """An option with what stands for its value, in Markdown."""
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
    words = [", ".join(action.option_strings), *([value] if action.nargs != 0 and value else [])]
    return f"`{' '.join(words)}`".replace("|", "\\|")


def option_rows() -> Iterator[str]:
    """A row for every option and meaning; what commands say of one option may differ."""
    meanings: dict[tuple[str, str, str], list[str]] = {}
    known = commands()
    for name, parser in known.items():
        for action in shown_options(parser):
            text = " ".join(action.help.replace("%%", "%").split())
            text = text.replace("|", "\\|").replace("*", "\\*")
            meanings.setdefault((shown(action), keyword(action), text), []).append(name)
    for (flags, name, text), users in sorted(meanings.items(), key=lambda row: row[0]):
        where = "all" if len(users) == len(known) else ", ".join(users)
        yield f"| {flags} | {name} | {text} | {where} |"


def page() -> str:
    """The whole page."""
    lines = [HEAD, "## Commands", "", "| command | what it does |", "|---|---|"]
    for parser in commands().values():
        lines.append(f"| `{parser.usage}` | {' '.join(parser.description.split())} |")
    lines += [
        "",
        "## Options",
        "",
        "| option | in Python | meaning | commands |",
        "|---|---|---|---|",
    ]
    return "\n".join([*lines, *option_rows(), ""])


if __name__ == "__main__":
    sys.stdout.write(page())
