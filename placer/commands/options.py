"""Options that several commands share, and how they become the pipeline's."""

from __future__ import annotations

import argparse
import re
from typing import Any

from placer.commands import option_values
from placer.graph.program_source import Access

FORMATS = ("text", "json")
TABLE_FORMATS = ("text", "json", "csv", "markdown")
PAGE_FORMATS = (*TABLE_FORMATS, "html")
GATES = ("fallback", "unmodelled", "unknown-shape", "offload")

_TABLE = """
--tag-set TAGS        MetaGraph of a SavedModel: serve,gpu
--signature NAME      signature of a SavedModel, or a function by its path or name
--outputs A,B         tensors or ops to run; else of a MetaGraphDef its train_op and losses, of a
                      graph its sinks (but not gradients, summaries and assigns: the report lists
                      both)
--allow-unsafe        load and run a file although it runs Python code of its own (a Keras Lambda,
                      PyFunc), writes files, opens connections, or reads files outside its folder
--follow-links        follow links that lead out of the model's folder (caches lay models out so)
--batch-size N        binds unknown leading dimensions of inputs
--shape NAME:32x128 * binds the shape of one input, or of any op (repeatable); a dimension may be
                      ? (as declared) or a name: --shape ids:BxT --shape mask:BxT --dim B=8 --dim
                      T=128
--ragged NAME=32x50 *  rows and mean length of the rows of a ragged input (x50x4 for rows of rows),
                      rows and mean non-zeros of a row of a sparse one; ?x50: as many rows as the
                      batch
--dim T=128 *         the size of the dimensions with this name (repeatable)
--red-zones off       TF_DISABLE_RZ_CHECK=1 will be set where the program runs: the first step of
                      convolutions takes less ("on": as TensorFlow comes, the default of files)
--trip-count N        iterations of loops whose number is not in the graph
--costs FILE          measured op times (placer profile writes them)
--model MODEL         the model, if it is not where it was

--devices SPEC        such as 2xA100-40GB,CPU:64GiB, or a cluster.toml (placer devices lists the
                      models); without a CPU the host of this machine, or as large as needed where
                      the devices are not this machine's
--max-memory GPU:0=8GiB,... *  caps; 8GiB and 8GB differ, a plain integer is bytes
--reserve 1GiB+10%    memory kept free on each accelerator
--objective {transfer,step-time,throughput}  what is least: bytes sent, seconds of a step, or the
                      busiest device's (transfer)
--offload auto|never  may ops be on the host that an accelerator could run (auto; never where the
                      largest batch or the fewest micro-batches are asked for)
--pin GLOB=GPU:0 *    op names that sit on a device (repeatable)
--pin-type GLOB=GPU:0 *  op types that sit on a device (repeatable)
--keep-together GLOB *  ops that share one device (repeatable)
--clear-devices       ignore device strings in the graph
--colocate-gradients  every gradient op on the device of its forward op
--keep-colocation     the graph's colocation hints (_class) are law
--split-tables NAME=4,...  variables whose rows are split into parts, each on a device of its own;
                      auto: those that no accelerator can hold (never)
--seed N              of the search (0)
--order {free,fit,memory}  control edges that keep memory low: none, where the caps need them, or
                      for the lowest peaks (free)
--fit MEANS           what may be done to a training step that does not fit, before ops go to the
                      host: some of release,order,recompute,swap, or auto
--max-slowdown 30%    how much longer a step may take for that
--strategy NAME  micro-batches[:N] (parts take turns), replicas[:N] (side by side, one per
                      device), pipeline[:N] (parts follow each other through stages), hybrid[:N]
                      (replicas of several devices); placer auto --dry-run compares them
--micro-batches N|auto  as --strategy micro-batches:N; auto: as few as fit the caps

--for {throughput,latency,memory}  the most samples per second, the shortest step, or the simplest
                      way that fits (throughput)
--margin SHARE        ways whose steps are within it of the fastest are equal (0.1)
--inexact             parts of the batch may have batch statistics of their own

--fail-above GPU:0=9GiB,... *  fail if a device requires more memory; +5%% with --baseline: if the
                      required memory, what a step sends or its time is that much more than there
--baseline PLAN  the plan that --fail-above +5%% is about
--fallback {soft,strict}  may TensorFlow move an op whose device has no kernel for it (soft);
                      strict ends with exit code 8 where one is

--clear               take all devices and a plan's control edges out instead of writing a plan's
--drop-unused         leave out the variables that no signature and no saved function uses
--rehearse            write logical CPU devices in place of the accelerators (GPU:0 becomes CPU:1)
--inputs FILE         arrays by input name in an .npz, TFRecord, JSON lines (else generated)
--on-hardware         no rehearsal: fail if a device is absent
--optimised           leave TensorFlow's graph optimisation on (off by default, so that every op of
                      the plan is there to be compared)
--cluster cluster.toml  run on the servers that its [[task]] tables name
--memory              does it fit: load the placed program and run ten steps on simulated GPUs
                      limited to the plan's caps (needs a C compiler)
--record FILE         write PLAN with the ops that TensorFlow moved, as warnings 'fallback'
--trace DIR           run nothing: take the times out of what TensorFlow's profiler wrote (a log
                      folder with plugins/profile, or an *.xplane.pb file)
--steps N             measured steps (20)
--threads N           threads of one op (1)
--onednn              leave oneDNN on, which fuses some ops away
--solver NAME         cp-sat or a baseline such as heft
--workers N           threads of the search (0: one per core)
--work-limit N        steps of each search in place of seconds: the same request gives the same
                      answer every time, unless the time limit comes first
"""
"""Options with what stands for their value (``{...}``: one of these, by default the first; with a
``*`` a list, as often as it is given; without one it is a switch) and their help."""

_ROW = re.compile(r"^(--\S+)(?: (\S+))?( \*)? +(.*(?:\n .*)*)", re.MULTILINE)
_OPTIONS = {flag: row for flag, *row in _ROW.findall(_TABLE)}


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
    group = parser.add_argument_group("what is analysed")
    add_program_options(group, costs=costs, sweeps=sweeps)


def add_program_options(
    group: argparse._ActionsContainer, *, costs: bool = True, sweeps: bool = False
) -> None:
    """Adds what chooses and binds the program in a model."""
    add_choice_options(group)
    if sweeps:
        more = "; several sizes give a table and the largest that fits"
        help_text = "binds unknown leading dimensions of inputs" + more
        add(group, "--batch-size", type=option_values.positives, metavar="N,...", help=help_text)
    else:
        add(group, "--batch-size", type=option_values.positive)
    add(group, "--shape", type=option_values.shape)
    add(group, "--ragged", type=option_values.lengths)
    add(group, "--dim", type=option_values.dimension)
    if costs:
        add(group, "--trip-count", type=option_values.count)
        add(group, "--red-zones", choices=("on", "off"))
        add(group, "--costs")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds MODEL."""
    kinds = "SavedModel folder, or file of a GraphDef, a MetaGraphDef or Keras"
    parser.add_argument("model", metavar="MODEL", help=kinds)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Adds PLAN and where its model and costs are now."""
    parser.add_argument("plan", metavar="PLAN", help="plan.json of placer place")
    add(parser, "--model")
    add(parser, "--costs", help="measured op times, as for placer place")
    add_access_options(parser)


def add_choice_options(parser: argparse._ActionsContainer) -> None:
    """Adds what chooses the program in a file."""
    add(parser, "--tag-set", "--signature", "--outputs")
    add_access_options(parser)


def add_access_options(parser: argparse._ActionsContainer) -> None:
    """Adds what a file may do."""
    add(parser, "--allow-unsafe", "--follow-links")
    _add_old_name(parser, "--allow-unsafe-keras", "allow_unsafe", action="store_true")


def _add_old_name(
    parser: argparse._ActionsContainer, flag: str, dest: str, **settings: Any
) -> None:
    """Adds a name that an option had before; no help shows it."""
    parser.add_argument(
        flag, dest=dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **settings
    )


def add_device_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Adds the devices and their caps."""
    group = parser.add_argument_group("devices")
    add(group, "--devices", required=required)
    add(group, "--max-memory", "--reserve")


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds what is least, what a placement must respect, and how long to search."""
    group = parser.add_argument_group("the placement")
    add(group, "--objective")
    add_placement_options(
        group, 30.0, "of the search (30); reading comes before it, predicting the plan after it"
    )


def add_placement_options(group: argparse._ActionsContainer, seconds: float, limited: str) -> None:
    """Adds what a placement must respect, and how long to search: ``seconds``, ``limited`` says of
    what."""
    add(group, "--offload", choices=("auto", "never"))
    _add_old_name(group, "--spill", "offload", choices=("auto", "never"))
    add(group, "--pin", "--pin-type", type=option_values.pin)
    add(group, "--keep-together", "--clear-devices", "--colocate-gradients", "--keep-colocation")
    add_time_limit(group, seconds, limited)
    add(group, "--work-limit", type=option_values.positive)
    add(group, "--seed", type=option_values.count, default=0)
    add(group, "--solver", default="cp-sat")


def add_strategy_options(parser: argparse.ArgumentParser) -> None:
    """Adds ways to run the batch other than whole."""
    group = parser.add_argument_group("the batch in parts (inference)")
    which = group.add_mutually_exclusive_group()
    add(which, "--strategy", type=option_values.strategy)
    add(
        which,
        "--micro-batches",
        dest="strategy",
        type=lambda text: option_values.strategy(f"micro-batches:{text}"),
    )


def add_time_limit(group: argparse._ActionsContainer, seconds: float, what: str) -> None:
    """Adds ``--time-limit``; ``what`` it bounds."""
    group.add_argument(
        "--time-limit", type=option_values.seconds, default=seconds, metavar="SECONDS", help=what
    )


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Adds limits that end the command with exit code 7."""
    group = parser.add_argument_group("gates (exit code 7)")
    add_fail_above(group)
    add(group, "--baseline")
    add_fail_on(group)


def add_fail_above(parser: argparse._ActionsContainer, **settings: Any) -> None:
    """Adds ``--fail-above``."""
    add(parser, "--fail-above", **settings)
    _add_old_name(parser, "--fail-over", "fail_above", action="append")


def add_fail_on(parser: argparse._ActionsContainer, gates: tuple[str, ...] = GATES) -> None:
    """Adds ``--fail-on`` with the gates that the command knows."""

    def parse(text: str) -> tuple[str, ...]:
        names = option_values.split(text)
        wrong = [name for name in names if name not in gates] or ([] if names else [text])
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is no gate; known: {', '.join(gates)}")
        return tuple(names)

    parser.add_argument(
        "--fail-on",
        type=parse,
        default=(),
        metavar="GATE,...",
        help=f"fail if there is one of these: {', '.join(gates)}",
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
    group.add_argument(
        "--format", choices=formats, default="text", help="of what is printed (text)"
    )
    if output_help:
        add_output(group, output_help, required=required)
    add_verbosity(group)


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
    parser.add_argument("--force", action="store_true", help=f"overwrite {name}")


def add_verbosity(parser: argparse._ActionsContainer) -> None:
    """Adds ``-q`` and ``-v``."""
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-q", "--quiet", action="store_true", help="no progress, no warnings")
    loudness.add_argument(
        "-v", "--verbose", action="count", default=0, help="more on stderr (-vv: everything)"
    )


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
        "outputs": tuple(option_values.split(arguments.outputs)) if arguments.outputs else None,
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


def read_costs(path: str | None) -> Any:
    """The costs of ``--costs``, read before any work; ``None`` without it."""
    if path is None:
        return None
    from placer.plan.measured_costs import MeasuredCosts

    return MeasuredCosts.load(path)


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
    """The options of :func:`add_search_options` as the pipeline names them."""
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
