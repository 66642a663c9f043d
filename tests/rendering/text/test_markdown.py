"""Blocks as Markdown."""

from __future__ import annotations

from plans_by_hand import small_plan, small_report
from rich.text import Text

from placer.rendering.text.formats import render, to_csv, to_markdown
from placer.rendering.text.layout import Facts, Rows, Title
from placer.rendering.text.plan_text import plan_blocks
from placer.rendering.text.report_text import report_blocks, report_csv

EXPECTED = """\
## a\\_b

a note

### Facts

- **one**: first<br>second
- **two**: \\<b\\>

| Name | Size |
| --- | ---: |
| x\\|y | **3** |
| z | 4 |

and 1 more
"""


def test_every_kind_of_block_has_a_form():
    """Titles, facts and tables; what Markdown or HTML would take for markup is escaped."""
    rows = [("x|y", "3"), ("z", "4"), ("w", "5")]
    blocks = [
        Title("a_b", "a note"),
        Facts("Facts", [("one", Text("first\nsecond")), ("two", "<b>")]),
        Rows(("Name", "Size>"), rows, width=9, limit=2, marked=[(0, 1)]),
    ]
    assert to_markdown(blocks) == EXPECTED


def test_plans_and_reports_have_a_form():
    """Nothing is shortened and every table is there."""
    plan = small_plan()
    text = render(lambda w: plan_blocks(plan, w), "markdown", width=40, colour=True)
    assert "| Device | Ops | Required |" in text
    assert "| a:0 | 3.00 MiB | GPU:0 | GPU:1 | data | device |" in text
    text = render(lambda w: report_blocks(small_report(), w), "markdown", width=40, colour=True)
    assert "| Op type | Time |" in text


def test_hotspots_as_csv_are_plain_numbers():
    """One row per op type and per name scope."""
    lines = report_csv(small_report()).splitlines()
    assert lines[0] == "group,name,op_count,seconds,flops,bytes_accessed,output_bytes"
    assert lines[1] == "op_type,MatMul,2,0.003,4000000,2097152,1048576"


def test_csv_quotes_what_it_must():
    """Commas and quotation marks in op names stay part of the field."""
    assert to_csv(("a", "b"), [('x,"y"', None)]) == 'a,b\n"x,""y""",\n'
