"""The pages that list what the program has: options, names in Python, and codes of warnings."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

from commands import reference_page

import placer
from cost_models.card_memory import CardMemory
from placer.simulation.cards import SimulatedGpu
from placer.simulation.records import GpuRecord, Held, Moment, ProcessRecord
from placer.simulation.runs import SimulatedRun

ROOT = Path(__file__).parents[2]
MESSAGES = {"message", "text", "str(error)", "self.damage"}
MOVES = {"host_only_kernel", "no_kernel_for_dtype"}
"""Why TensorFlow moves an op; these are in the page on verification."""


def test_the_reference_is_what_the_parser_has():
    """``make reference`` writes it anew."""
    assert (ROOT / "docs" / "reference.md").read_text() == reference_page.page()


def test_the_python_interface_has_every_name():
    """What ``import placer`` offers is in the page that is made of docstrings."""
    page = (ROOT / "docs" / "api.md").read_text()
    assert set(re.findall(r"auto(?:function|class):: placer\.(\w+)", page)) == {*placer._HOMES}


def test_the_page_of_simulate_has_every_field_of_its_json():
    """Those of all records, and no other."""
    kinds = (SimulatedRun, SimulatedGpu, CardMemory, ProcessRecord, GpuRecord, Moment, Held)
    names = {item.name for kind in kinds for item in fields(kind)} | {"schema"}
    names |= {name for kind in kinds for name in getattr(kind, "IN_JSON", ())}
    page = (ROOT / "docs" / "simulate.md").read_text()
    table = page.partition("| field |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(?:\w+\[\]\.)*(\w+)(?:\[\])?`", table)) == names


def test_the_page_of_warnings_has_every_code():
    """What stands before a message in a tuple, and what a warning of a plan is made of, is listed;
    and what is listed is still in the program."""
    trees = [ast.parse(file.read_text()) for file in (ROOT / "placer").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    values = {
        ast.unparse(node.targets[0]): node.value for node in nodes if isinstance(node, ast.Assign)
    }
    said = [
        node.elts[0]
        for node in nodes
        if isinstance(node, ast.Tuple) and len(node.elts) in (2, 3)
        if isinstance(node.elts[1], ast.JoinedStr) or ast.unparse(node.elts[1]) in MESSAGES
    ]
    said += [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "code"]
    codes = {getattr(values.get(ast.unparse(node), node), "value", "") for node in said}
    codes = {code for code in codes if re.fullmatch(r"[a-z]+(_[a-z]+)+", str(code))}
    page = (ROOT / "docs" / "warnings.md").read_text()
    cells = re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)
    listed = {code for cell in cells for code in re.findall(r"`(\w+)`", cell)}
    assert len(codes) > 30
    assert codes - listed - MOVES - {"device_string"} == set()  # the last says why an op is held
    assert listed - texts == set()
