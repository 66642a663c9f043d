"""The command line: every command with its options.  Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from placer import __version__
from placer.rendering.quantities import printable

DESCRIPTION = """\
Place TensorFlow programs on devices: find out where each op should run so that memory
fits and as little as possible is transferred, prove how good that is, apply it, and
check what really ran."""

EPILOGUE = """\
MODEL is a SavedModel folder, a GraphDef or MetaGraphDef in binary or text, a Keras
file (.keras, .h5), or a checkpoint with its .meta; also a remote path such as gs://...

exit codes:
  0  ok                                   5  proven infeasible
  1  unexpected error                     6  no solution in time
  2  wrong usage                          7  a gate tripped (--fail-above, --fail-on)
  3  model unreadable or unsupported      8  what ran is not what was planned
  4  a shape is unresolved              130  interrupted (Ctrl-C)
141  nobody reads what is printed       143  terminated (SIGTERM)"""


EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "auto": (
        "placer auto model --devices 2xT4 --batch-size 64 -o placed",
        "placer auto model --devices 2xT4 --batch-size 64 --for memory",
    ),
    "report": (
        "placer report model --batch-size 32",
        "placer report model --batch-size 1,8,32,128 --devices 1xT4",
        "placer report model --batch-size 32 --devices 2xT4 --fail-above 'GPU:*=14GiB'",
    ),
    "place": (
        "placer place model --batch-size 32 --devices 2xA100-40GB -o plan.json",
        "placer place model --batch-size 32 --devices 2xGPU:8GiB,CPU:64GiB --reserve 1GiB+10% "
        "--pin 'embeddings/*=CPU:0' -o plan.json",
        "placer place model --batch-size 32 --devices 4xT4 --objective step-time "
        "--baseline plan.json --fail-above +5%",
        "placer place model --devices 4xT4 --batch-size 256 --strategy replicas -o plan.json",
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
    "profile": (
        "placer profile model --batch-size 32 -o costs.json",
        "placer profile model --batch-size 32 --trace logs -o costs.json",
    ),
    "calibrate": (
        "placer calibrate costs.json -o cpu.toml",
        "placer place model --batch-size 32 --devices cpu.toml --costs costs.json",
    ),
    "solve": (
        "placer solve problem.json --objective throughput --time-limit 60 -o solution.json",
        "placer solve problem.json --solver heft",
    ),
    "simulate": (
        "placer simulate --devices 2xT4 -- python train.py --epochs 1",
        "placer simulate --devices GPU:8GiB --fail-above GPU:0=6GiB -- python serve.py",
    ),
    "devices": ("placer devices --format json",),
}
"""Every command in the order of the help, with what its own help shows last."""

_MODULE_OF = {"calibrate": "profile", "simulate": "devices"}
"""Where a command lies whose module has another name."""


class HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions, and leaves lines of examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line: the usage of some commands fills a screen."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {printable(message)} ({self.prog} --help lists the options)\n")


class _CommandParser(_Parser):
    """Takes options before, between and after the arguments, also where the last may be missing:
    ``placer apply MODEL -o OUT PLAN``."""

    _is_intermixed = False

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses with ``parse_known_intermixed_args``, which calls this method again.

        That takes the usage for one with ``%(prog)s`` in it, and some metavars have a percent sign.
        """
        if self._is_intermixed:
            return super().parse_known_args(args, namespace)
        if self.get_default("after_dashes") is not None and "--" in args:
            namespace = namespace or argparse.Namespace()
            at = args.index("--")
            args, namespace.after_dashes = args[:at], tuple(args[at + 1 :])
        self._is_intermixed = True
        self.usage = self.format_usage().removeprefix("usage: ").replace("%", "%%")
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed, self.usage = False, None


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of ``placer``; ``run`` of what it parses is the function of the command.

    Only the command that the first of ``words`` names is there, all if it names none.
    """
    parser: argparse.ArgumentParser = _Parser(
        prog="placer",
        description=DESCRIPTION,
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"placer {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_CommandParser)
    asked = [word for word in words[:1] if word in EXAMPLES] or EXAMPLES
    for name in dict.fromkeys(_MODULE_OF.get(name, name) for name in asked):
        import_module(f"placer.commands.{name}").add_command(commands)
    for name, command in commands.choices.items():
        command.formatter_class = HelpFormatter
        lines = ["examples:", *(f"  {line}" for line in EXAMPLES[name])]
        command.epilog = "\n".join([*lines, "", "exit codes: see placer --help"])
    return parser
