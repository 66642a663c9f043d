"""``placer profile``: how long the ops of a model take here; ``placer calibrate``: what a device
reaches, out of such times."""

from __future__ import annotations

import argparse
from dataclasses import replace

from placer.commands import option_values, options
from placer.commands.terminal import progress, require_writable, show_saved
from placer.errors import UsageError
from placer.files import write_text

_STEPS, _THREADS = 20, 1


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds both commands to the parser."""
    _add_profile(commands)
    _add_calibrate(commands)


def _add_profile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "profile",
        description="Run the ops of MODEL on this machine's CPU, with random inputs and weights, "
        "and write how long each op took (the median of the steps).  report and place take the "
        "file with --costs; calibrate makes a device description from it.  With --trace nothing "
        "runs: the times come from a trace of TensorFlow's profiler, and its memory is shown "
        "beside the predicted peak.",
    )
    group = parser.add_argument_group("run")
    options.add(group, "--steps", type=option_values.positive)
    options.add(group, "--threads", type=option_values.positive)
    options.add(group, "--onednn")
    options.add_time_limit(group, 600.0, "all steps")
    options.add(parser.add_argument_group("trace of a run elsewhere"), "--trace")
    options.add_output_options(parser, "Write the costs here", required=True)
    options.add_model_options(parser, costs=False)
    parser.set_defaults(run=run_profile)


def _add_calibrate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "calibrate",
        description="Estimate from costs files of placer profile how fast this machine's CPU runs "
        "each kind of op, and write that as a cluster.toml for --devices.  The models are read "
        "again from where they were measured.",
    )
    parser.add_argument("costs", nargs="+", metavar="COSTS", help="Costs that placer profile wrote")
    help_text = "Also measure the time that Keras adds to each step; placer auto counts it"
    parser.add_argument("--keras", action="store_true", help=help_text)
    options.add_output_options(parser, "Write the device description here", required=True)
    parser.set_defaults(run=run_calibrate)


def _refuse_measuring_options(arguments: argparse.Namespace) -> None:
    """Raises ``UsageError`` for options of a run here beside a trace of a run elsewhere."""
    given = {
        "--steps": arguments.steps is not None,
        "--threads": arguments.threads is not None,
        "--onednn": arguments.onednn,
    }
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"--trace runs nothing; leave out {name}")


def run_profile(arguments: argparse.Namespace) -> None:
    """Measures or reads a trace, writes the costs and prints the most expensive ops.

    Raises ``UsageError`` for an existing file, ``ModelError`` if the model does not run here or
    the trace cannot be read.
    """
    require_writable(arguments)
    if arguments.trace is not None:
        _refuse_measuring_options(arguments)
        from placer.questions.traces import profile_trace

        with progress(f"reading {arguments.trace}", arguments):
            found = profile_trace(
                arguments.model,
                arguments.trace,
                **options.binding_options(arguments),
                time_limit=arguments.time_limit,
            )
    else:
        from placer.application.measuring.profiling import profile

        with progress(f"measuring {arguments.model}", arguments):
            found = profile(
                arguments.model,
                **options.binding_options(arguments),
                steps=arguments.steps or _STEPS,
                threads=arguments.threads or _THREADS,
                onednn=arguments.onednn,
                time_limit_seconds=arguments.time_limit,
            )
    found.save(arguments.output, force=arguments.force)
    show_saved(found, arguments, "Costs")


def run_calibrate(arguments: argparse.Namespace) -> None:
    """Fits a device to the costs files, writes it and prints how well it fits.

    Raises ``UsageError`` for files that do not belong together or whose models have changed.
    """
    if not arguments.output.endswith(".toml"):
        raise UsageError(
            f"--output {arguments.output}: --devices reads a cluster file by its name, which must "
            "end in .toml: choose such a name"
        )
    require_writable(arguments)
    from cost_models.cluster_files import cluster_toml
    from cost_models.devices import Cluster
    from placer.plan.measured_costs import MeasuredCosts
    from placer.questions.calibration import calibrate

    costs = [MeasuredCosts.load(path) for path in arguments.costs]
    with progress(f"fitting {len(costs)} files", arguments):
        found = calibrate(costs)
        if arguments.keras:
            from placer.application.measuring.keras_steps import measure_keras_seconds

            device = replace(found.device, keras_seconds=measure_keras_seconds())
            found = replace(found, device=device)
    text = cluster_toml(Cluster(devices=(found.device,)))
    write_text(arguments.output, found.heading + text, force=arguments.force)
    show_saved(found, arguments, "Device description")
