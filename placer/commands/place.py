"""``placer place``: solve, and write the plan."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from placer.commands import option_values, options
from placer.commands.terminal import progress, require_writable, show_saved
from placer.errors import InfeasibleError, NoSolutionError, UsageError

if TYPE_CHECKING:
    from placer.plan.plan import Plan


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "place",
        description="Choose a device for every op so that few bytes are copied between devices and "
        "every memory limit holds.  Prints a summary (with --format json the plan) and writes the "
        "plan to -o.  If nothing fits, the plan explains why.",
    )
    options.add_device_options(parser)
    options.add_search_options(parser, never="--strategy or --micro-batches")
    group = parser.add_argument_group("saving memory")
    options.add(group, "--order", "--fit", "--max-slowdown")
    options.add(group, "--split-tables", type=option_values.splits, default="never")
    options.add_old_name(parser, "--optimised", "optimised", action="store_true")
    options.add_strategy_options(parser)
    options.add_gate_options(parser)
    options.add_output_options(
        parser,
        "Write the plan here [default: print its summary only]",
        formats=options.PAGE_FORMATS,
    )
    options.add_model_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Places the model, writes and prints the plan.

    Raises ``UsageError`` for an existing file, ``InfeasibleError`` or ``NoSolutionError`` after
    the plan is written, ``GateError`` if a gate tripped, and what the pipeline raises.
    """
    from placer.extraction.process.child_process import start_reader_ahead

    require_writable(arguments)
    if (arguments.output or "").lower().endswith((".html", ".htm")):
        plan = os.path.splitext(arguments.output)[0] + ".json"
        raise UsageError(
            f"-o {arguments.output}: place writes the plan, which is JSON. For the page: placer "
            f"place {arguments.model} ... -o {plan}, then placer export {plan} --to html -o "
            f"{arguments.output}"
        )
    if arguments.fit is not None and not arguments.fit.strip():
        raise UsageError(
            "--fit is empty; give auto, or a list of release, order, recompute and swap"
        )
    if hasattr(arguments, "optimised"):
        raise UsageError(
            "place --optimised was removed: placer verify MODEL PLAN --memory runs the placed "
            "program with TensorFlow's graph optimization on simulated GPUs"
        )
    start_reader_ahead()  # what follows takes a while to load, while the reading process starts
    from dataclasses import replace

    from placer.commands import gates
    from placer.pipeline.pipeline import place
    from placer.rendering.text.plan_text import stages_text

    limits = gates.read_gates(arguments)
    wanted = {
        **options.all_options(arguments),
        "order": arguments.order,
        "fit": arguments.fit or "",
        "max_slowdown": arguments.max_slowdown,
        "split_tables": arguments.split_tables,
    }
    with progress(f"placing {arguments.model}", arguments):
        plan = place(arguments.model, arguments.devices, **wanted)
        if limits.baseline:
            gates.require_like(limits.baseline, plan, arguments.baseline)
        if limits.are_asked:
            codes = gates.count_codes(plan)
            again = partial(gates.predict_baseline, arguments, wanted)
            plan = replace(plan, gate=gates.judge(limits, plan, plan.unmodelled, codes, again))
    if arguments.output:
        plan.save(arguments.output, force=arguments.force)
    following = f"placer apply {arguments.model} {arguments.output} -o PLACED" if plan.fits else ""
    if plan.conflict and not plan.conflict.fixes:
        following = f"placer explain {arguments.output} --time-limit 300"  # for a change that fits
    show_saved(plan, arguments, "Plan", following)
    if arguments.verbose:
        sys.stderr.write(stages_text(plan.solver))
    require_placement(plan)
    gates.require(plan.gate)


def require_placement(plan: Plan) -> None:
    """Raises ``InfeasibleError`` if no placement fits, ``NoSolutionError`` if none was found, and
    with ``--fit`` if none fits without."""
    if plan.solver.status == "INFEASIBLE":
        raise InfeasibleError("no placement fits (proven)", plan.conflict)
    if plan.placement and not plan.fits:
        from placer.problem.limits import overruns
        from placer.rendering.text.answers import fix_words

        over = "; ".join(overruns(plan.devices, plan.over_bytes))
        raise NoSolutionError(
            "no placement within the memory limits was found, though there may be one: in the best "
            f"one found, {over}.{fix_words(plan).rstrip('.')}"
        )
    if plan.proof:
        raise NoSolutionError(
            "no placement was found that fits with --fit, and none fits without it (proven)"
        )
    if not plan.placement and (method := plan.request.get("solver")):
        raise NoSolutionError(
            f"{method} found no placement, which does not prove that there is none: raise limits, "
            "or leave out --solver"
        )
    if not plan.placement:
        raise NoSolutionError(
            f"no placement was found in {plan.solver.seconds:.0f} s, and none is proven "
            "impossible: give more time with --time-limit, or more memory"
        )
