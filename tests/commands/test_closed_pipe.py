"""A reader that has seen enough, such as ``head``, does not change what came out."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from placer.__main__ import main
from placer.errors import InfeasibleError

def show(_):
    for _ in range(4):
        sys.stdout.write("x" * 60_000)
    {ending}

parser = __import__("placer.commands.parser", fromlist=["parse"])
parsed = parser.parse
def parse(words):
    found = parsed(words)
    found.run = show
    return found
parser.parse = parse
sys.exit(main(["devices"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code"), [("pass", 141), ("raise InfeasibleError('nothing fits')", 5)]
)
def test_the_exit_code_is_that_of_the_result(ending, code):
    """141 where all went well, else what it is without the pipe."""
    command = [sys.executable, "-c", SCRIPT.format(ending=ending)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.read(10) == "x" * 10
    child.stdout.close()
    told = child.stderr.read()
    child.stderr.close()
    assert child.wait(60) == code
    assert "Traceback" not in told
