"""Searches in an interpreter of their own: OR-Tools must not be loaded into a process that may have
loaded TensorFlow, so one interpreter solves a whole batch of problems."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import placer
from placer.solving.process.search_run import Answer

_RUN = """
import pickle, sys
from pathlib import Path
sys.path.insert(0, {root!r})
{code}
path = Path(sys.argv[1])
path.write_bytes(pickle.dumps(answer(pickle.loads(path.read_bytes()))))
"""

_SEARCH = """
import time
from {module} import {function} as search
from placer.solving.process.search_run import BestSoFar, Effort

def answer(batch):
    problems, seconds = batch
    return [searched(problem, hint, seconds) for problem, hint in problems]

def searched(problem, hint, seconds):
    best = BestSoFar(lambda _: None)
    search(problem, hint, best, Effort(deadline=time.time() + seconds, workers=1))
    return best.answer
"""


def in_fresh_interpreter(folder: Path, code: str, argument: object) -> Any:
    """What the function ``answer`` that ``code`` defines makes of ``argument``."""
    path = folder / "argument"
    path.write_bytes(pickle.dumps(argument))
    code = _RUN.format(root=str(Path(placer.__file__).parent.parent), code=code)
    subprocess.run([sys.executable, "-P", "-c", code, str(path)], check=True)
    return pickle.loads(path.read_bytes())


def search_each(
    folder: Path,
    search: str,
    problems: Sequence[tuple[Any, Sequence[int] | None]],
    seconds: float = 60.0,
) -> list[Answer]:
    """What ``search`` (``package.module:function``) finds for problems with placements to start
    at, each in ``seconds`` at most, with one worker."""
    module, _, function = search.partition(":")
    code = _SEARCH.format(module=module, function=function)
    answers: list[Answer] = in_fresh_interpreter(folder, code, (problems, seconds))
    return answers
