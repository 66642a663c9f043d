"""Measures the house: ``make house`` prints the figures that issues and reviews speak of.

Lines are those of ``wc -l`` over the Python files of ``placer`` and ``cost_models``; the rest is
read from their syntax trees.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("placer", "cost_models")
LIMITS = {"files": 350, "functions": 60, "classes": 11, "parameters": 7}
"""Lines, lines, attributes and parameters, at most; ``reasons.toml`` has what is over them."""

REASONS = Path(__file__).parent / "reasons.toml"
RECORD_FIELDS = LIMITS["classes"]
ROW_BASES = {"NamedTuple", "TypedDict"}
ODD_BEGINNINGS = ("What", "Of", "That of")
SHOWN = 20
"""Rows listed under each count; the others are counted."""

TITLES = {
    "files": "files over {} lines",
    "functions": "functions over {} lines",
    "classes": "classes of more than {} attributes",
    "parameters": "functions of more than {} parameters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One place in the house that a limit speaks of, with its size."""

    size: int
    place: str

    @property
    def name(self) -> str:
        """The place without its line, as ``reasons.toml`` names it."""
        return re.sub(r":\d+", "", self.place)

    def __str__(self) -> str:
        return f"{self.size:>7,}  {self.place}"


@dataclass(slots=True)
class House:
    """The figures of all files together; lists are in the order of the files."""

    room_lines: Counter[str] = field(default_factory=Counter)
    files: list[Found] = field(default_factory=list)
    functions: list[Found] = field(default_factory=list)
    classes: list[Found] = field(default_factory=list)
    records: list[Found] = field(default_factory=list)
    parameters: list[Found] = field(default_factory=list)
    constants: list[Found] = field(default_factory=list)
    docstrings: list[Found] = field(default_factory=list)

    def add_file(self, path: str, text: str) -> None:
        """Measures one file."""
        lines = text.count("\n")
        self.room_lines["/".join(path.split("/")[:2])] += lines
        self.files.append(Found(size=lines, place=path))
        tree = ast.parse(text)
        self._add_constants(path, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self._add_class(path, node)
                self._add_constants(path, node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._add_function(path, node)
            self._add_docstrings(path, node)

    def _add_class(self, path: str, node: ast.ClassDef) -> None:
        count = len(fields(node) | attributes_set(node))
        kind = self.records if is_record(node) else self.classes
        kind.append(Found(size=count, place=f"{path}:{node.lineno} {node.name}"))

    def _add_function(self, path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        place = f"{path}:{node.lineno} {node.name}"
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        self.functions.append(Found(size=lines, place=place))
        self.parameters.append(Found(size=parameter_count(node), place=place))

    def _add_constants(self, path: str, node: ast.Module | ast.ClassDef) -> None:
        """Numbers with a name at the top of a module, and defaults of the fields of a class."""
        for name, line, value in named_values(node):
            if is_number(value):
                self.constants.append(Found(size=1, place=f"{path}:{line} {name}"))

    def _add_docstrings(self, path: str, node: ast.AST) -> None:
        for line, text in docstrings(node):
            if text.lstrip().startswith(tuple(f"{word} " for word in ODD_BEGINNINGS)):
                first = text.strip().splitlines()[0]
                self.docstrings.append(Found(size=1, place=f"{path}:{line} {first}"))


def named_values(node: ast.Module | ast.ClassDef) -> Iterator[tuple[str, int, ast.expr]]:
    """The assignments of a body: name, line, value."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield ast.unparse(statement.target), statement.lineno, statement.value
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield ast.unparse(target), statement.lineno, statement.value


def is_number(value: ast.expr) -> bool:
    """Whether an expression is arithmetic on numbers alone (``2 * 2**20``, ``-1``)."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.UnaryOp) and is_number(value.operand)


def fields(node: ast.ClassDef) -> set[str]:
    """The annotated fields of a class body, constants of the class aside."""
    return {
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and not ast.unparse(statement.annotation).startswith("ClassVar")
    }


def attributes_set(node: ast.ClassDef) -> set[str]:
    """The attributes that methods of a class set on ``self``."""
    return {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Store)
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "self"
    }


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a frozen dataclass, a NamedTuple or a TypedDict."""
    frozen = any("frozen=True" in ast.unparse(each) for each in node.decorator_list)
    return frozen or any(ast.unparse(base).split(".")[-1] in ROW_BASES for base in node.bases)


def parameter_count(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The parameters of a function, ``self`` and ``cls`` aside."""
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    stars = [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
    return len([each for each in named if each.arg not in ("self", "cls")]) + len(stars)


def docstrings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The docstring of a module, class or function, and the strings below its constants."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for statement in node.body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield statement.lineno, value.value


def measure(root: Path = ROOT) -> House:
    """The figures of the files that git tracks, or has not been told of yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PRODUCT]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    house = House()
    for path in sorted(set(listed.stdout.split())):
        if path.endswith(".py") and (root / path).exists():
            house.add_file(path, (root / path).read_text())
    return house


def over(house: House, kind: str) -> list[Found]:
    """What is over the limit of a kind, the largest first."""
    found: list[Found] = getattr(house, kind)
    return sorted((each for each in found if each.size > LIMITS[kind]), key=lambda each: -each.size)


def reasons() -> dict[str, dict[str, str]]:
    """By kind and name, why something may be over the limit."""
    return tomllib.loads(REASONS.read_text())


def show(title: str, found: list[Found], why: dict[str, str] | None = None) -> None:
    """Prints how many there are, and with ``why`` the largest, each with its reason."""
    print(f"\n{len(found):,} {title}")
    if why is not None:
        for each in found[:SHOWN]:
            print(f"{each}: {why.get(each.name, 'NO REASON')}")


def main() -> None:
    """Prints the figures of this checkout."""
    house = measure()
    print(f"{sum(house.room_lines.values()):,} lines of product in {len(house.files):,} files")
    for room, lines in house.room_lines.most_common():
        print(f"{lines:>7,}  {room}")
    why = reasons()
    for kind, title in TITLES.items():
        show(title.format(LIMITS[kind]), over(house, kind), why[kind])
    large = [each for each in house.records if each.size > RECORD_FIELDS]
    show(f"frozen records, NamedTuples and TypedDicts of more than {RECORD_FIELDS} fields", large)
    show("numeric constants (module level, and fields with a number)", house.constants)
    beginnings = ", ".join(f'"{word} ..."' for word in ODD_BEGINNINGS)
    show(f"docstrings that begin with {beginnings}", house.docstrings)


if __name__ == "__main__":
    main()
