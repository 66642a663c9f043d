"""The command line: every command with its options.  Nothing heavy is imported here."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from textwrap import wrap
from typing import Any, NoReturn

from placer import __version__
from placer.commands.configuration import default_words, is_given
from placer.commands.options import IN_FILES
from placer.commands.terminal import continued
from placer.errors import near_names
from placer.rendering.quantities import printable

HELP = """\
Fit a TensorFlow program onto the devices you have.

usage: placer COMMAND [OPTIONS]

Place a model
  report      Show what a model takes: parameters, peak memory, hotspots
  place       Choose a device for every op: few copies, within memory limits
  auto        Compare all strategies, build the fastest that fits, and verify it
  apply       Write the placed program
  verify      Run the placed program once and compare it with its plan
Understand a plan
  explain     Show why an op is where it is, or why nothing fits
  compare     Compare with TensorFlow's default and other placement methods
  diff        Compare two plans or two models
  export      Write a plan for a browser, Perfetto, TensorBoard or Graphviz
Devices and measurements
  devices     List this machine's devices and the GPU types that placer knows
  simulate    Run any TensorFlow script on simulated GPUs
  profile     Measure op times
  calibrate   Fit a device description to measured op times
Research
  solve       Solve a placement problem without TensorFlow
This installation
  doctor      Show versions, devices and what will not work here
  completion  Print a script that completes commands and options in your shell

options:
  -h, --help     Show this message; for a command, -h shows the common options
  -V, --version  Show the version
"""

EPILOGUE = """
MODEL is a SavedModel folder, a GraphDef or MetaGraphDef in binary or text, a
Keras file (.keras, .h5), or a checkpoint with its .meta; also a remote path
such as gs://...
docs/glossary.md explains the words of help and results.

exit codes:
  0  ok                                   5  nothing fits (proven)
  1  unexpected error                     6  no plan found in time; placer auto:
  2  wrong usage                             no strategy fits
  3  model unreadable or unsupported      7  a gate tripped (--fail-above ...)
  4  unresolved shape                     8  the run differs from the plan
141  output pipe closed (as by head)    130  interrupted (Ctrl-C)
                                        143  terminated (SIGTERM)
"""

COMMON = {
    *("-h", "--devices", "--max-memory", "--batch-size", "--signature", "--objective", "--offload"),
    *("--pin", "--fit", "--strategy", "--for", "--time-limit", "--fail-above", "-o", "--format"),
}
"""Options that ``-h`` shows of a command that has many."""

FEW = 16
"""Options that ``-h`` shows all of."""

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
    "doctor": ("placer doctor",),
    "completion": ("placer completion bash", "placer completion zsh"),
}
"""Every command, with the examples of its help."""

_MODULE_OF = {
    "calibrate": "profile",
    "completion": "doctor",
    "compare": "diff",
    "simulate": "devices",
}
"""Where a command lies whose module has another name."""


class HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions, and leaves lines of examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        is_kept = text.startswith("examples:")
        return text if is_kept else super()._fill_text(text, width, indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


class _Help(argparse.Action):
    """Prints the help: with ``-h`` without what few need."""

    def __call__(self, parser: Any, *_: Any) -> None:
        """Prints and ends; the option is the last argument."""
        sys.stdout.write(parser.format_short_help() if _[-1] == "-h" else parser.format_help())
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Prints what is wrong in one line: the usage of some commands fills a screen.

    ``missing`` are required options that are not there.
    """

    missing: tuple[str, ...] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(add_help=False, allow_abbrev=False, **settings)
        self._negative_number_matcher = re.compile(r"-\d")  # a value such as -5% is not an option
        about = "Show the common options (-h) or all (--help)"
        self.add_argument("-h", "--help", action=_Help, dest=argparse.SUPPRESS, nargs=0, help=about)

    def error(self, message: str) -> NoReturn:
        """Ends with a line on what is wrong, and all that is missing together."""
        if message.startswith(_MISSING):
            rest = [each for each in message.removeprefix(_MISSING).split(", ") if each]
            message = f"give {' and '.join([*rest, *self.missing])}"
        message = printable(message.removeprefix("argument "))
        one, excludes, other = message.partition(": not allowed with argument ")
        if excludes:
            message = f"{_long(one)} and {_long(other)} exclude each other: leave out one of them"
        flag, is_bare, _ = message.partition(": expected one argument")
        if is_bare:
            flag = _long(flag)
            example = self._option_string_actions[flag].metavar
            message = f"{flag} needs a value, as in {flag} {example}"
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def format_short_help(self) -> str:
        """Returns the help with the :data:`COMMON` options, if there are more than a few."""
        found = [each for each in self._actions if each.help != argparse.SUPPRESS]
        options = [each for each in found if each.option_strings and not each.required]
        rare = [each for each in options if not COMMON.intersection(each.option_strings)]
        if len(found) <= FEW:
            return self.format_help()
        for each in rare:
            each.help = argparse.SUPPRESS
        return f"{self.format_help()}{self.prog} --help shows {len(rare)} more options\n"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(each) for each in action.choices]
            near = near_names(str(value), known, most=1)
            text = f"must be one of {', '.join(known)}, got {value!r}{near}"
            raise argparse.ArgumentError(action, text)


class _MainParser(_Parser):
    """Knows the commands in groups, which argparse does not have."""

    def format_help(self) -> str:
        return HELP + EPILOGUE

    def format_short_help(self) -> str:
        return HELP


class _CommandParser(_Parser):
    """Takes options before, between and after the arguments, also where the last may be missing:
    ``placer apply MODEL -o OUT PLAN``."""

    _is_intermixed = False

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses with ``parse_known_intermixed_args``, which calls this method again.

        An option that there is not is told first, then all that is missing together.
        """
        if self._is_intermixed:
            return super().parse_known_args(args, namespace)
        if self.get_default("after_dashes") is not None and "--" in args:
            namespace = argparse.Namespace()
            at = args.index("--")
            args, namespace.after_dashes = args[:at], tuple(args[at + 1 :])
        self._require_known(args)
        namespace = namespace or argparse.Namespace()
        namespace.typed = {each.dest for each in self._actions if is_given(each, args)}
        args = [*self._words_of_file(args), *args]
        needed = [each for each in self._actions if each.required and each.option_strings]
        missing = [each for each in needed if not is_given(each, args)]
        self.missing = tuple(f"{each.option_strings[-1]} {each.metavar}" for each in missing)
        self._is_intermixed = True
        for each in missing:
            each.required = False
        try:
            found, others = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed = False
            for each in missing:
                each.required = True
        if missing:
            self.error(_MISSING)
        if others:
            dashed = self.get_default("after_dashes") is not None
            hint = "; write -- before a command" * dashed
            self.error(f"there is one argument too many: {others[0]!r}{hint}")
        return found, others

    def _words_of_file(self, words: Sequence[str]) -> list[str]:
        """Returns the options that ``words`` do not give and a file sets."""
        given = {each.dest for each in self._actions if is_given(each, words)}
        flags = [
            flag for flag, each in self._option_string_actions.items() if each.dest not in given
        ]
        return default_words(flags, IN_FILES)

    def _require_known(self, words: Sequence[str]) -> None:
        """Ends for an option that there is not, with one that is like it."""
        known, command = self._option_string_actions, ""
        for before, word in zip(["", *words], words, strict=False):
            flag = word.partition("=")[0]
            if self.get_default("after_dashes") is not None and not (
                command or word.startswith("-") or before.startswith("-")
            ):
                command = word
            if command and flag[:1] == "-" and flag not in ("--", *known):
                self.error(f"write -- before the command: -- {command} ...")
            if flag[:1] == "-" and flag[1:].isalpha() and len(flag) == 2 and flag not in known:
                like = " or ".join(name for name in known if name.startswith(f"-{flag}"))
                self.error(f"there is no option {flag}{like and f'; did you mean {like}?'}")
            if flag.startswith("--") and flag not in ("--", *known):
                shown = [n for n in known if len(n) > 2 and known[n].help != argparse.SUPPRESS]
                meant = "--devices" if flag.startswith("--gpu") else flag.replace("_", "-")
                self.error(f"there is no option {flag}{near_names(meant, shown, 0.65, most=1)}")


def _long(flags: str) -> str:
    """Returns the long one of the ``flags`` that argparse names together."""
    return flags.split("/")[-1]


_MISSING = "the following arguments are required: "
"""How argparse begins what it says of missing arguments."""


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of ``placer``; ``run`` of what it parses is the function of the command.

    Only the command that the first of ``words`` names is there, all if it names none.
    """
    parser: argparse.ArgumentParser = _MainParser(prog="placer")
    parser.add_argument("-V", "--version", action="version", version=f"placer {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_CommandParser)
    first = words[0] if words else ""
    if words and first not in (*EXAMPLES, *parser._option_string_actions):
        if first.startswith("-"):
            near = near_names(first, parser._option_string_actions, 0.65, most=1)
            parser.error(f"there is no option {first!r}{near or '; options follow a command'}")
        parser.error(f"there is no command {first!r}{near_names(first, EXAMPLES, most=1)}")
    asked = [word for word in words[:1] if word in EXAMPLES] or ([] if words else EXAMPLES)
    for name in dict.fromkeys(_MODULE_OF.get(name, name) for name in asked):
        import_module(f"placer.commands.{name}").add_command(commands)
    for name, command in commands.choices.items():
        if sum(each.help != argparse.SUPPRESS for each in command._actions) <= FEW:
            command._option_string_actions["-h"].help = "Show this message"
        command.formatter_class = HelpFormatter
        command.usage = command.usage or _usage(name, command)
        lines = ["examples:", *(f"  {continued(line)}" for line in EXAMPLES[name])]
        command.epilog = "\n".join(lines)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Returns what a command line asks for; ``help COMMAND`` is ``COMMAND --help``."""
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words[:1] == ["strategies"]:  # as it was called before
        words = ["auto", "--dry-run", *words[1:]]
    return build_parser(words).parse_args(words)


def _usage(name: str, command: argparse.ArgumentParser) -> str:
    """Returns the usage of a command, with what it needs."""
    needed = [each for each in command._actions if each.required and each.option_strings]
    words = [f"{each.option_strings[0]} {each.metavar}" for each in needed]
    for each in command._get_positional_actions():
        metavar = f"{each.metavar}" + ("..." if each.nargs == "+" else "")
        words.append(metavar if each.required else f"[{metavar}]")
    return " ".join(["placer", name, "[OPTIONS]", *words])
