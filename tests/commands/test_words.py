"""Screens, help and messages use the words of ``docs/glossary.md``."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

from placer.commands.parser import EPILOGUE, HELP, build_parser

ROOT = Path(__file__).parents[2]

OLD = re.compile(
    r"\b(caps?|capped|spill\w*|footprint|allowance|law|rehears\w*|stand-?ins?|stood in|ways?|"
    r"towers?|pieces?|sinks?|left over|unmodelled|debris|dealt out|hairpin|nobody|"
    r"says better|is least|optimis\w+|analys(?:ed|es|ing)|(?:\w+al|min|max)is(?:e|ed|es|ing))\b",
    re.IGNORECASE,
)
"""Words that the glossary has others for, and British spellings."""

ALLOWED = (
    "can be read in two ways",
    "--fail-on GATE,... unmodelled",  # the name of a gate
    "unmodelled (an op type has no cost rule)",
    "spill is {}; it can be",  # the key of a problem file
    "place --optimised was removed",
)
"""Sentences that have such a word in another meaning, or as a name that stays."""


def docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements that are a text alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def sentences(tree: ast.AST) -> Iterator[str]:
    """Texts with a space in them, what is filled in as ``{}``, and heads of columns."""
    aside = {id(node) for node in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            aside.update(map(id, node.values))
            parts = [each.value if isinstance(each, ast.Constant) else "{}" for each in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Tuple | ast.List) and any(
            isinstance(each, ast.Constant) and str(each.value).endswith(">") for each in node.elts
        ):
            yield from (str(each.value) for each in node.elts if isinstance(each, ast.Constant))
        elif isinstance(node, ast.Constant) and id(node) not in aside and " " in str(node.value):
            yield str(node.value)


def test_messages_and_tables_have_no_old_words():
    """Every text in the code that a person may read: messages, templates, column heads."""
    found = []
    for file in [*(ROOT / "placer").rglob("*.py"), *(ROOT / "cost_models").rglob("*.py")]:
        for text in sentences(ast.parse(file.read_text())):
            if OLD.search(text) and not any(known in text for known in ALLOWED):
                found.append((file.name, OLD.search(text).group(), text[:80]))
    assert found == []


def test_help_has_no_old_words():
    """Names and help of all options that are shown, descriptions, and the list of commands."""
    commands = build_parser()._subparsers._group_actions[0].choices
    texts = [HELP, EPILOGUE, *(each.description for each in commands.values())]
    for command in commands.values():
        shown = [each for each in command._actions if each.help != argparse.SUPPRESS]
        texts += [f"{' '.join(each.option_strings)} {each.metavar} {each.help}" for each in shown]
        vague = [each.dest for each in shown if not each.help or not each.help[0].isupper()]
        assert vague == []  # an imperative, or what it is
    found = {OLD.search(text).group(): text for text in texts if OLD.search(text)}
    assert [word for word in found if word != "unmodelled"] == []  # the name of a gate
