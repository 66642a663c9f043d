"""What ``placer COMMAND --help`` shows last: command lines to copy."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "report": (
        "placer report model --batch-size 32",
        "placer report model --batch-size 1,8,32,128 --devices 1xT4",
        "placer report model --batch-size 32 --devices 2xT4 --fail-over 'GPU:*=14GiB'",
    ),
    "place": (
        "placer place model --batch-size 32 --devices 2xA100-40GB -o plan.json",
        "placer place model --batch-size 32 --devices 2xGPU:8GiB,CPU:64GiB --reserve 1GiB+10% "
        "--pin 'embeddings/*=CPU:0' -o plan.json",
        "placer place model --batch-size 32 --devices 4xT4 --objective step-time "
        "--baseline plan.json --fail-over +5%",
        "placer place model --devices 4xT4 --batch-size 256 --strategy towers -o plan.json",
        "placer place model --devices 1xT4 --batch-size 256 --micro-batches auto -o plan.json",
    ),
    "apply": ("placer apply model plan.json -o placed",),
    "verify": (
        "placer verify placed plan.json",
        "placer verify model plan.json --inputs inputs.npz --on-hardware",
    ),
    "compare": ("placer compare model --batch-size 32 --devices 2xT4 --format markdown",),
    "explain": (
        "placer explain plan.json",
        "placer explain plan.json encoder/layer_0/MatMul",
        "placer explain infeasible.json --time-limit 300",
    ),
    "export": (
        "placer export plan.json --to html -o plan.html",
        "placer export plan.json --to trace -o plan.trace.json",
        "placer export plan.json --to tensorboard -o logs",
        "placer export plan.json --to dot --nodes 60 --model model -o plan.dot",
    ),
    "diff": (
        "placer diff plan.json new.json --format markdown",
        "placer diff old_model new_model --batch-size 32",
    ),
    "strategies": ("placer strategies model --batch-size 256 --devices 4xT4",),
    "profile": ("placer profile model --batch-size 32 -o costs.json",),
    "calibrate": (
        "placer calibrate costs.json -o cpu.toml",
        "placer place model --batch-size 32 --devices cpu.toml --costs costs.json",
    ),
    "solve": (
        "placer solve problem.json --objective throughput --time-limit 60 -o solution.json",
        "placer solve problem.json --solver heft",
    ),
    "devices": ("placer devices --format json",),
}
"""By command."""


class HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions, and leaves lines of examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return super()._fill_text(text, width, indent)


def add_examples(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Gives every command that has examples an epilog with them."""
    for name, parser in commands.choices.items():
        parser.formatter_class = HelpFormatter
        lines = [f"  {line}" for line in EXAMPLES.get(name, ())]
        if lines:
            parser.epilog = "\n".join(["examples:", *lines, "", "exit codes: see placer --help"])
