"""Options that several commands share, and how they become the pipeline's."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import Any

from placer.commands import option_values
from placer.errors import UsageError
from placer.graph.program_source import Access

FORMATS = ("text", "json")
TABLE_FORMATS = ("text", "json", "csv", "markdown")
PAGE_FORMATS = (*TABLE_FORMATS, "html")
GATES = ("fallback", "unmodelled", "unknown-shape", "offload")

_GATE_HELP = {
    "fallback": "fallback (TensorFlow moves an op to another device)",
    "unmodelled": "unmodelled (an op type has no cost rule)",
    "unknown-shape": "unknown-shape (the size of a tensor is unknown)",
    "offload": "offload (ops on the CPU that a GPU could run)",
}

_WITHOUT_DEVICES = (
    "Also place the model on these devices: 2xA100-40GB,CPU:64GiB, or a cluster.toml [default: "
    "none; memory and times are those of one A100-40GB]"
)

_TABLE = """
--tag-set TAGS        Choose the MetaGraph of a SavedModel by its tags, such as serve,gpu
--signature NAME      Choose a signature or a function of a SavedModel by its name
--outputs A,B         Fetch these tensors or run these ops [default: the signature's outputs; for a
                      bare graph they are inferred, see placer report]
--allow-unsafe        Load and run a file that runs Python code of its own (a Keras Lambda,
                      PyFunc), writes files, opens connections, or reads files outside its folder
--follow-links        Follow links that lead out of the model's folder, as in caches of downloaded
                      models
--batch-size N        Set the unknown leading dimensions of inputs
--shape NAME=32x128 * Set the shape of one input or op (repeatable); a dimension may be ? (as
                      declared) or a name: --shape ids=BxT --shape mask=BxT --dim B=8 --dim T=128
--ragged NAME=32x50 *  Set the size of a ragged or sparse input: 32 rows with 50 values each on
                      average. 32x50x4: each of these 50 is itself a row of 4 values. ?x50: as many
                      rows as the batch has
--dim T=128 *         Set the size of the dimensions with this name (repeatable)
--red-zones off       Predict for a run with TF_DISABLE_RZ_CHECK=1, whose first step takes less
                      memory [default: on]
--trip-count N        Assume N iterations for each loop whose iteration count is not in the graph
--costs FILE          Use measured op times (placer profile writes them)
--model MODEL         Path to the model, if it moved since the plan was made

--devices SPEC        Devices to place on: 2xA100-40GB,CPU:64GiB, or a cluster.toml (placer devices
                      lists the GPU types) [default: local, this machine's GPUs]. Host memory is
                      checked if SPEC names a CPU, or if this machine has the GPUs
--max-memory GPU:0=8GiB,... *  Limit the memory of devices; GPU=8GiB limits every GPU, CPU=64GiB
                      the host
--reserve 1GiB+10%    Keep this much memory free on each accelerator (10%%: of its limit)
--objective {transfer,step-time,throughput}  Minimize the bytes sent between devices (transfer), the
                      time of a step, or the load of the busiest device (throughput) [default:
                      transfer]
--offload auto|never  Offload ops to the CPU when they don't fit on the GPUs, or never [default:
                      auto]
--pin GLOB=GPU:0 *    Pin the ops whose name matches GLOB to a device; * also matches /; if two
                      globs match an op, the later one counts (repeatable)
--pin-type GLOB=GPU:0 *  Pin the ops whose type matches GLOB, such as MatMul, to a device
                      (repeatable)
--keep-together GLOB *  Keep the ops whose name matches GLOB on one device (repeatable)
--clear-devices       Ignore the device strings in the graph
--colocate-gradients  Put every gradient op on the device of its forward op
--keep-colocation     Follow the colocation hints (_class) of the graph, which TensorFlow does not
                      need
--split-tables NAME=4,...  Split variables by rows into so many parts, which may be on different
                      devices; auto: split those that no accelerator can hold [default: never]
--seed N              Seed of the search [default: 0]
--order {free,fit,memory}  Add control dependencies to reduce peak memory: never (free), only if
                      needed to fit (fit), or as far as possible (memory) [default: free]
--fit MEANS           Make a training step fit before ops are offloaded: auto, or some of release
                      (free gradients early), order (add control dependencies), recompute
                      (compute activations again in the backward pass) and swap (keep them on the
                      host until then), as in release,swap
--max-slowdown 30%    Reject what --fit does if a step becomes longer by more than this [default: no
                      limit]
--strategy NAME       Run the batch in micro-batches[:N] (in turn), replicas[:N] (side by side, one
                      per device), pipeline[:N] (micro-batches through stages) or hybrid[:N]
                      (replicas that each span several devices); placer auto --dry-run compares
                      them
--micro-batches N|auto  Short for --strategy micro-batches:N; auto: as few as fit

--for {throughput,latency,memory}  Choose the most samples per second (throughput), the shortest
                      step (latency), or the simplest strategy that fits (memory) [default:
                      throughput]
--margin 10%          Treat strategies within this share of the fastest as equally fast [default:
                      10%%]
--inexact             Also allow strategies that change results: batch normalization sees parts of
                      the batch, as under MirroredStrategy

--fail-above GPU:0=9GiB,... *  Fail if a device requires more memory than this. With --baseline,
                      +5%% fails if required memory, bytes sent or step time grew by more than 5%%
--baseline PLAN       Plan to compare with, of the same model, batch and devices
--fallback {soft,strict}  Let TensorFlow move ops whose device has no kernel for them, or fail with
                      exit code 8 [default: soft]

--clear               Undo a placement: remove all device strings, and the control dependencies that
                      a plan added; takes no PLAN
--drop-unused         Leave out variables that no signature and no saved function uses
--on-cpu-devices      Write CPU devices in place of the accelerators (GPU:0 becomes CPU:1)
--inputs FILE         Read arrays by input name from an .npz, TFRecord or JSON lines file [default:
                      random numbers, and abc for text]
--on-hardware         Fail if a device is absent instead of running on CPU devices
--optimized           Leave TensorFlow's graph optimization on [default: off, to compare every op of
                      the plan]
--cluster cluster.toml  Run on the servers that its [[task]] tables name
--memory              Run ten steps on simulated GPUs with the plan's memory limits (needs a C
                      compiler)
--record FILE         Write a copy of PLAN that lists the ops that TensorFlow moved
--trace DIR           Read the times from a trace of TensorFlow's profiler and run nothing (a log
                      folder with plugins/profile, or an *.xplane.pb file)
--steps N             Measure this many steps [default: 20]
--threads N           Give each op this many threads [default: 1]
--onednn              Leave oneDNN on, which fuses ops
--solver NAME         Search with this method: cp-sat, or a heuristic of placer compare such as heft
                      (docs/glossary.md explains them) [default: cp-sat]
--workers N           Threads of the search [default: one per core]
--work-limit N        Stop each search after N units of work, so that results repeat; 20 is usual
                      (the time limit still holds)
"""
"""Options with what stands for their value (``{...}``: one of these, by default the first; with a
``*`` a list, as often as it is given; without one it is a switch) and their help."""

_ROW = re.compile(r"^(--\S+)(?: (\S+))?( \*)? +(.*(?:\n .*)*)", re.MULTILINE)
_OPTIONS = {flag: row for flag, *row in _ROW.findall(_TABLE)}

CHOICE = ("tag_set", "signature", "outputs")
PROGRAM = (*CHOICE, "batch_size", "shape", "ragged", "dim", "trip_count", "red_zones", "costs")
"""Options of a model: what chooses the program in it, and what binds its sizes too."""

IN_FILES = {*_OPTIONS, "--time-limit", "--fail-on", "--format", "--color"} - {
    *("--allow-unsafe", "--follow-links")
}
"""Options that a file may set: a model that comes with one does not allow itself anything."""


def add(group: argparse._ActionsContainer, *flags: str, **settings: Any) -> None:
    """Adds options of the table, with ``settings`` of argparse that are not in it."""
    for flag in flags:
        shown, several, what = _OPTIONS[flag]
        found: dict[str, Any] = {"help": what}
        if not shown:
            found["action"] = "store_true"
        elif shown.startswith("{"):
            found["choices"] = shown.strip("{}").split(",")
            found["default"] = found["choices"][0]
        else:
            found["metavar"] = shown
            found |= {"action": "append", "default": []} if several else {}
        group.add_argument(flag, **{**found, **settings})


def add_model_options(
    parser: argparse.ArgumentParser, *, costs: bool = True, sweeps: bool = False
) -> None:
    """Adds MODEL and what chooses and binds the program in it; with ``costs`` what it costs, with
    ``sweeps`` several batch sizes."""
    add_model(parser)
    group = parser.add_argument_group("model options")
    add_program_options(group, costs=costs, sweeps=sweeps)


def add_program_options(
    group: argparse._ActionsContainer, *, costs: bool = True, sweeps: bool = False
) -> None:
    """Adds what chooses and binds the program in a model."""
    add_choice_options(group)
    if sweeps:
        help_text = "Set the unknown leading dimensions of inputs; several sizes give a table and "
        help_text += "the largest that fits"
        add(group, "--batch-size", type=option_values.positives, metavar="N,...", help=help_text)
    else:
        add(group, "--batch-size", type=option_values.batch_size)
    add(group, "--shape", type=option_values.shape)
    add(group, "--ragged", type=option_values.lengths)
    add(group, "--dim", type=option_values.dimension)
    if costs:
        add(group, "--trip-count", type=option_values.count)
        add(group, "--red-zones", choices=("on", "off"))
        add(group, "--costs")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds MODEL."""
    kinds = "SavedModel folder, GraphDef, MetaGraphDef or Keras file, or checkpoint with its .meta"
    parser.add_argument("model", metavar="MODEL", help=kinds)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Adds PLAN and where its model and costs are now."""
    parser.add_argument("plan", metavar="PLAN", help="Plan that placer place wrote")
    add(parser, "--model")
    add(parser, "--costs")
    add_access_options(parser)


def add_choice_options(parser: argparse._ActionsContainer) -> None:
    """Adds what chooses the program in a file."""
    add(parser, "--tag-set", "--signature")
    add(parser, "--outputs", type=option_values.names)
    add_access_options(parser)


def add_access_options(parser: argparse._ActionsContainer) -> None:
    """Adds what a file may do."""
    add(parser, "--allow-unsafe", "--follow-links")
    add_old_name(parser, "--allow-unsafe-keras", "allow_unsafe", action="store_true")


def add_old_name(parser: argparse._ActionsContainer, flag: str, dest: str, **settings: Any) -> None:
    """Adds a name that an option had before; no help shows it."""
    parser.add_argument(
        flag, dest=dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **settings
    )


def add_device_options(parser: argparse.ArgumentParser, default: str | None = "local") -> None:
    """Adds the devices and their limits."""
    group = parser.add_argument_group("devices")
    alone = {} if default else {"help": _WITHOUT_DEVICES}
    add(group, "--devices", default=default, **alone)
    add(group, "--max-memory", "--reserve")


def add_search_options(
    parser: argparse.ArgumentParser, never: str = "", limited: str = "the search"
) -> None:
    """Adds what is least, what a placement must respect, and how long to search (the time limit is
    of what is ``limited``); nothing is offloaded by default with the options named in ``never``."""
    group = parser.add_argument_group("placement")
    add(group, "--objective")
    add_placement_options(group, 30.0, f"{limited}; reading and predicting come on top", never)


def add_placement_options(
    group: argparse._ActionsContainer, seconds: float, limited: str, never: str = ""
) -> None:
    """Adds what a placement must respect, and how long to search: so many ``seconds`` of what is
    ``limited``; ``never`` as in :func:`add_search_options`."""
    about = _OPTIONS["--offload"][-1].removesuffix("]") + (
        f"; never with {never}]" if never else "]"
    )
    add(group, "--offload", choices=("auto", "never"), help=about)
    add_old_name(group, "--spill", "offload", choices=("auto", "never"))
    add(group, "--pin", "--pin-type", type=option_values.pin)
    add(group, "--keep-together", "--clear-devices", "--colocate-gradients", "--keep-colocation")
    add_time_limit(group, seconds, limited)
    add(group, "--work-limit", type=option_values.positive)
    add(group, "--seed", type=option_values.count, default=0)
    add(group, "--solver", default="cp-sat")


def add_strategy_options(parser: argparse.ArgumentParser) -> None:
    """Adds strategies to run the batch other than whole."""
    group = parser.add_argument_group("batch in parts (inference)")
    which = group.add_mutually_exclusive_group()
    add(which, "--strategy", type=option_values.strategy)
    add(
        which,
        "--micro-batches",
        dest="strategy",
        type=option_values.micro_batches,
    )


def add_time_limit(
    group: argparse._ActionsContainer, seconds: float | None, what: str, default: str = ""
) -> None:
    """Adds ``--time-limit`` of ``what``."""
    group.add_argument(
        "--time-limit",
        type=option_values.seconds,
        default=seconds,
        metavar="SECONDS",
        help=f"Time limit of {what} [default: {default or format(seconds, 'g')}]",
    )


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Adds limits that end the command with exit code 7."""
    group = parser.add_argument_group("gates: limits that end the command with exit code 7")
    add_fail_above(group)
    add(group, "--baseline")
    add_fail_on(group)


def add_fail_above(parser: argparse._ActionsContainer, **settings: Any) -> None:
    """Adds ``--fail-above``."""
    add(parser, "--fail-above", **settings)
    add_old_name(parser, "--fail-over", "fail_above", action="append")


def add_fail_on(parser: argparse._ActionsContainer, gates: tuple[str, ...] = GATES) -> None:
    """Adds ``--fail-on`` with the gates that the command knows."""

    def parse(text: str) -> tuple[str, ...]:
        names = option_values.split(text)
        wrong = [name for name in names if name not in gates] or ([] if names else [text])
        if wrong:
            known = "one of " * (len(gates) > 1) + ", ".join(gates)
            raise argparse.ArgumentTypeError(f"must be {known}, got {wrong[0]!r}")
        return tuple(names)

    shown = ", ".join(_GATE_HELP.get(gate, gate) for gate in gates)
    parser.add_argument(
        "--fail-on",
        type=parse,
        default=(),
        metavar="GATE,...",
        help=f"Fail if the result has one of these: {shown}",
    )


def add_output_options(
    parser: argparse.ArgumentParser,
    output_help: str = "",
    *,
    required: bool = False,
    formats: tuple[str, ...] = FORMATS,
) -> None:
    """Adds the format, verbosity, and with ``output_help`` the file to write."""
    group = parser.add_argument_group("output")
    add_format(group, formats)
    if output_help:
        add_output(group, output_help, required=required)
    add_verbosity(group)


def add_format(group: argparse._ActionsContainer, formats: tuple[str, ...]) -> None:
    """Adds ``--format``."""
    about = "Output format [default: text]"
    group.add_argument("--format", choices=formats, default="text", help=about)


def add_output(
    parser: argparse._ActionsContainer, what: str, *, required: bool = True, name: str = "FILE"
) -> None:
    """Adds ``-o`` and ``--force``."""
    parser.add_argument(
        "-o",
        "--output",
        type=option_values.file_name,
        required=required,
        metavar=name,
        help=what,
    )
    parser.add_argument("--force", action="store_true", help=f"Overwrite {name}")


def add_verbosity(parser: argparse._ActionsContainer) -> None:
    """Adds ``-q``, ``-v`` and ``--color``."""
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-q", "--quiet", action="store_true", help="Hide progress and warnings")
    loudness.add_argument(
        "-v", "--verbose", action="count", default=0, help="Print more to stderr (-vv: everything)"
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="Use colors [default: auto, on a terminal]",
    )


def refuse(arguments: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raises ``UsageError`` for the first of these options that is on the command line; in a file
    of options, which is for several commands, it may stand."""
    for name in names:
        if name in getattr(arguments, "typed", ()):
            raise UsageError(f"--{name.replace('_', '-')} {why}")


class ChoiceOptions(Access):
    """Options that choose the program in a file, as the pipeline names them."""

    tag_set: str | None
    signature: str | None
    outputs: tuple[str, ...] | None


class BindingOptions(ChoiceOptions):
    """Those, and options that bind its shapes."""

    batch_size: int | None
    shapes: dict[str, tuple[int | str | None, ...]] | None
    ragged: dict[str, tuple[int | str | None, ...]] | None
    dims: dict[str, int] | None


def choice_options(arguments: argparse.Namespace) -> ChoiceOptions:
    """The options of :func:`add_choice_options` as the pipeline names them."""
    return {
        "tag_set": arguments.tag_set,
        "signature": arguments.signature,
        "outputs": arguments.outputs,
        **access_options(arguments),
    }


def program_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of :func:`add_model_options` as the pipeline names them."""
    return {
        **binding_options(arguments),
        "trip_count": arguments.trip_count,
        "red_zones": {"on": True, "off": False}.get(arguments.red_zones),
        "costs": read_costs(arguments.costs),
    }


def binding_options(arguments: argparse.Namespace) -> BindingOptions:
    """Returns the options that choose and bind the program, as the pipeline names them."""
    return {
        **choice_options(arguments),
        "batch_size": arguments.batch_size,
        "shapes": option_values.unique(arguments.shape, "--shape") or None,
        "ragged": option_values.unique(arguments.ragged, "--ragged") or None,
        "dims": option_values.unique(arguments.dim, "--dim") or None,
    }


def read_costs(path: str | None) -> str | None:
    """The path of ``--costs``, which plans keep; what is no file of costs is refused before any
    work."""
    if path is not None:
        from placer.plan.measured_costs import MeasuredCosts

        MeasuredCosts.load(path)
    return path


def plan_changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of :func:`add_plan` that differ from what a plan was made with."""
    costs = {} if arguments.costs is None else {"costs": read_costs(arguments.costs)}
    return {**costs, **access_options(arguments)}


def access_options(arguments: argparse.Namespace) -> Access:
    """The options of :func:`add_access_options` as the pipeline names them."""
    return {"allow_unsafe": arguments.allow_unsafe, "follow_links": arguments.follow_links}


def device_options(arguments: argparse.Namespace) -> dict[str, str | None]:
    """The options of :func:`add_device_options`, without the devices themselves."""
    return {
        "max_memory": ",".join(arguments.max_memory) or None,
        "reserve": arguments.reserve,
    }


def search_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The options of :func:`add_search_options` as the pipeline names them.

    Raises ``UsageError`` for those of one solver beside another (``--fit`` and ``auto`` search on).
    """
    if arguments.solver != "cp-sat" and not (getattr(arguments, "fit", "") or "for" in arguments):
        why = f"has no effect on {arguments.solver}: leave it out"
        refuse(arguments, ("seed", "work_limit"), why)
    offload = {"offload": arguments.offload} if arguments.offload else {}
    return {
        **offload,
        "objective": arguments.objective,
        "pins": option_values.unique(arguments.pin, "--pin"),
        "pin_types": option_values.unique(arguments.pin_type, "--pin-type"),
        "keep_together": tuple(arguments.keep_together),
        "clear_devices": arguments.clear_devices,
        "colocate_gradients": arguments.colocate_gradients,
        "keep_colocation": arguments.keep_colocation,
        "time_limit": arguments.time_limit,
        "work_limit": arguments.work_limit,
        "seed": arguments.seed,
        "solver": arguments.solver,
        "strategy": getattr(arguments, "strategy", None),
    }


def all_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every option of a placement as the pipeline names it, the devices aside."""
    return {
        **program_options(arguments),
        **device_options(arguments),
        **search_options(arguments),
    }
