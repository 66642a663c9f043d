"""Blocks of text at the width of a terminal."""

from rich.text import Text

from placer.rendering.text.layout import Facts, to_text

NAME = "model/sequential_1/very_long_layer_name/AssignSubVariableOp"


def test_a_long_name_goes_on_after_a_separator():
    """Within a value and in a paragraph; words that fit stay whole."""
    blocks = [Facts("Placement", [("op", f"it is at {NAME} now")]), Text(f"See {NAME}.", "bold")]
    assert to_text(blocks, width=40, colour=False) == (
        "Placement\n"
        "  op  it is at model/sequential_1/\n"
        "      very_long_layer_name/\n"
        "      AssignSubVariableOp now\n"
        "\n"
        "See model/sequential_1/\n"
        "very_long_layer_name/\n"
        "AssignSubVariableOp.\n"
    )
