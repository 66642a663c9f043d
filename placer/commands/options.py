"""Options that several commands share, and how they become the pipeline's."""

from __future__ import annotations

import argparse
from typing import Any, TypedDict

from placer.commands import option_values

FORMATS = ("text", "json")
TABLE_FORMATS = ("text", "json", "csv", "markdown")
PAGE_FORMATS = (*TABLE_FORMATS, "html")
GATES = ("fallback", "unmodelled", "unknown-shape")


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
    group.add_argument(
        "--batch-size",
        type=option_values.positives if sweeps else option_values.positive,
        metavar="N,..." if sweeps else "N",
        help="binds unknown leading dimensions of inputs"
        + ("; several sizes give a table and the largest that fits" if sweeps else ""),
    )
    group.add_argument(
        "--shape",
        action="append",
        default=[],
        type=option_values.shape,
        metavar="NAME:32x128",
        help="binds the shape of one input, or of any op (repeatable); a dimension may be ? (as "
        "declared) or a name: --shape ids:BxT --shape mask:BxT --dim B=8 --dim T=128",
    )
    group.add_argument(
        "--dim",
        action="append",
        default=[],
        type=option_values.dimension,
        metavar="T=128",
        help="the size of the dimensions with this name (repeatable)",
    )
    if costs:
        _add_cost_options(group)


def _add_cost_options(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--trip-count",
        type=option_values.count,
        metavar="N",
        help="iterations of loops whose number is not in the graph",
    )
    group.add_argument(
        "--costs",
        metavar="FILE",
        help="measured op times (placer profile writes them), or grappler: the times that "
        "TensorFlow's graph optimiser predicts",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds MODEL."""
    kinds = "SavedModel folder, or file of a GraphDef, a MetaGraphDef or Keras"
    parser.add_argument("model", metavar="MODEL", help=kinds)


def add_choice_options(parser: argparse._ActionsContainer) -> None:
    """Adds what chooses the program in a file."""
    parser.add_argument("--tag-set", metavar="TAGS", help="MetaGraph of a SavedModel: serve,gpu")
    parser.add_argument(
        "--signature",
        metavar="NAME",
        help="signature of a SavedModel, or a function by its path or name",
    )
    parser.add_argument(
        "--outputs",
        metavar="A,B",
        help="tensors or ops to run; else of a MetaGraphDef its train_op and losses, of a graph "
        "all sinks",
    )
    parser.add_argument(
        "--allow-unsafe-keras",
        action="store_true",
        help="load a Keras file although it runs code of its own (Lambda, custom classes)",
    )


def add_device_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Adds the devices and their caps."""
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--devices",
        required=required,
        metavar="SPEC",
        help="such as 2xA100-40GB,CPU:64GiB, or a cluster.toml (placer devices lists the models)",
    )
    group.add_argument(
        "--max-memory",
        action="append",
        default=[],
        metavar="GPU:0=8GiB,...",
        help="caps; 8GiB and 8GB differ, a plain integer is bytes",
    )
    group.add_argument("--reserve", metavar="1GiB+10%", help="memory kept free on each accelerator")


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds what is least, what a placement must respect, and how long to search."""
    group = parser.add_argument_group("the placement")
    group.add_argument(
        "--objective",
        choices=("transfer", "step-time", "throughput"),
        default="transfer",
        help="what is least: bytes sent, seconds of a step, or the busiest device's (transfer)",
    )
    add_placement_options(
        group, 30.0, "of the search (30); reading comes before it, predicting the plan after it"
    )


def add_placement_options(group: argparse._ActionsContainer, seconds: float, limited: str) -> None:
    """Adds what a placement must respect, and how long to search: ``seconds``, ``limited`` says of
    what."""
    group.add_argument(
        "--spill",
        choices=("auto", "never"),
        default="auto",
        help="may ops go to the host when the accelerators cannot hold everything (auto)",
    )
    for flag, what in (("--pin", "op names"), ("--pin-type", "op types")):
        group.add_argument(
            flag,
            action="append",
            default=[],
            type=option_values.pin,
            metavar="GLOB=GPU:0",
            help=f"{what} that sit on a device (repeatable)",
        )
    group.add_argument(
        "--keep-together",
        action="append",
        default=[],
        metavar="GLOB",
        help="ops that share one device (repeatable)",
    )
    group.add_argument(
        "--clear-devices", action="store_true", help="ignore device strings in the graph"
    )
    group.add_argument(
        "--colocate-gradients",
        action="store_true",
        help="every gradient op on the device of its forward op",
    )
    add_time_limit(group, seconds, limited)
    group.add_argument(
        "--seed", type=option_values.count, default=0, metavar="N", help="of the search (0)"
    )


def add_strategy_options(parser: argparse.ArgumentParser) -> None:
    """Adds ways to run the batch other than whole."""
    group = parser.add_argument_group("the batch in parts (inference)")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--strategy",
        type=option_values.strategy,
        metavar="NAME",
        help="micro-batches[:N] (parts take turns), towers[:N] (side by side, one per device), "
        "pipeline[:N] (parts follow each other through stages), hybrid[:N] (towers of several "
        "devices); placer strategies compares them",
    )
    which.add_argument(
        "--micro-batches",
        dest="strategy",
        type=lambda text: option_values.strategy(f"micro-batches:{text}"),
        metavar="N|auto",
        help="as --strategy micro-batches:N; auto: as few as fit the caps",
    )


def add_order(parser: argparse.ArgumentParser) -> None:
    """Adds the order that ops are held to."""
    parser.add_argument(
        "--order",
        choices=("free", "fit", "memory"),
        default="free",
        help="control edges that keep memory low: none, where the caps need them, or for the "
        "lowest peaks (free)",
    )


def add_time_limit(group: argparse._ActionsContainer, seconds: float, what: str) -> None:
    """Adds ``--time-limit``; ``what`` it bounds."""
    group.add_argument(
        "--time-limit", type=option_values.seconds, default=seconds, metavar="SECONDS", help=what
    )


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Adds limits that end the command with exit code 7."""
    group = parser.add_argument_group("gates (exit code 7)")
    group.add_argument(
        "--fail-over",
        action="append",
        default=[],
        metavar="GPU:0=9GiB,...",
        help="fail if the predicted peak of a device is higher; +5%% with --baseline: if a peak, "
        "the transfer or the step is that much more than there",
    )
    group.add_argument("--baseline", metavar="PLAN", help="the plan that --fail-over +5%% is about")
    add_fail_on(group)


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


def add_fallback(parser: argparse._ActionsContainer) -> None:
    """Adds ``--fallback``."""
    parser.add_argument(
        "--fallback",
        choices=("soft", "strict"),
        default="soft",
        help="may TensorFlow move an op whose device has no kernel for it (soft); strict ends with "
        "exit code 8 where one is",
    )


class ChoiceOptions(TypedDict):
    """What chooses the program in a file, as the pipeline names it."""

    tag_set: str | None
    signature: str | None
    outputs: tuple[str, ...] | None
    allow_unsafe_keras: bool


class BindingOptions(ChoiceOptions):
    """What binds its shapes, too."""

    batch_size: int | None
    shapes: dict[str, tuple[int | str | None, ...]] | None
    dims: dict[str, int] | None


def choice_options(arguments: argparse.Namespace) -> ChoiceOptions:
    """The options of :func:`add_choice_options` as the pipeline names them."""
    return {
        "tag_set": arguments.tag_set,
        "signature": arguments.signature,
        "outputs": tuple(option_values.split(arguments.outputs)) if arguments.outputs else None,
        "allow_unsafe_keras": arguments.allow_unsafe_keras,
    }


def program_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The options of :func:`add_model_options` as the pipeline names them."""
    return {
        **binding_options(arguments),
        "trip_count": arguments.trip_count,
        "costs": read_costs(arguments.costs),
    }


def binding_options(arguments: argparse.Namespace) -> BindingOptions:
    """What chooses and binds the program, as the pipeline names it."""
    return {
        **choice_options(arguments),
        "batch_size": arguments.batch_size,
        "shapes": option_values.unique(arguments.shape, "--shape") or None,
        "dims": option_values.unique(arguments.dim, "--dim") or None,
    }


def read_costs(path: str | None) -> Any:
    """The costs of ``--costs``, read before any work; ``None`` without it."""
    if path in (None, "grappler"):
        return path
    from placer.plan.measured_costs import MeasuredCosts

    return MeasuredCosts.load(path)


def cost_changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The costs of ``--costs`` in place of those that a plan was made with."""
    return {} if arguments.costs is None else {"costs": read_costs(arguments.costs)}


def device_options(arguments: argparse.Namespace) -> dict[str, str | None]:
    """The options of :func:`add_device_options`, without the devices themselves."""
    return {
        "max_memory": ",".join(arguments.max_memory) or None,
        "reserve": arguments.reserve,
    }


def search_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The options of :func:`add_search_options` as the pipeline names them."""
    return {
        "objective": arguments.objective,
        "spill": arguments.spill,
        "pins": option_values.unique(arguments.pin, "--pin"),
        "pin_types": option_values.unique(arguments.pin_type, "--pin-type"),
        "keep_together": tuple(arguments.keep_together),
        "clear_devices": arguments.clear_devices,
        "colocate_gradients": arguments.colocate_gradients,
        "time_limit": arguments.time_limit,
        "seed": arguments.seed,
        "strategy": getattr(arguments, "strategy", None),
    }
