"""``placer export``: a plan for other tools."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from placer.commands import option_values, options

if TYPE_CHECKING:
    import argparse

    from placer.plan.plan import Plan

KINDS = (
    "html",
    "trace",
    "tensorboard",
    "graphml",
    "dot",
    "model-explorer",
    "model-explorer-data",
)

MOST_NODES = 300
"""Nodes of a graph file that a person can still look at."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "export",
        help="a plan for other tools: HTML, Perfetto, TensorBoard, GraphML, DOT",
        description="Write what PLAN predicts in a format of another tool.  The model is read "
        "again, from where it was unless --model says otherwise; its fingerprint must be the "
        "plan's.  html: one page for any browser; trace: ui.perfetto.dev; tensorboard: a folder "
        "for tensorboard --logdir; graphml, dot: the graph, its scopes collapsed; model-explorer: "
        "the graph with every op; model-explorer-data: node data for it.",
    )
    parser.add_argument("plan", metavar="PLAN", help="plan.json of placer place")
    parser.add_argument("--to", required=True, choices=KINDS, help="the format")
    options.add_output(parser, "the file (tensorboard: folder)")
    parser.add_argument("--model", metavar="MODEL", help="the model, if it is not where it was")
    parser.add_argument("--costs", metavar="FILE", help="measured op times, as for placer place")
    parser.add_argument(
        "--nodes",
        type=option_values.positive,
        default=MOST_NODES,
        metavar="N",
        help=f"nodes of graphml and dot at most ({MOST_NODES})",
    )
    options.add_verbosity(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Writes the file and says so.

    Raises ``UsageError`` for an existing file, a plan that is none, without a placement or of
    another model.
    """
    from placer.commands.terminal import progress
    from placer.errors import UsageError
    from placer.files import check_writable
    from placer.plan.plan import Plan

    check_writable(
        arguments.output, force=arguments.force, may_be_folder=arguments.to == "tensorboard"
    )
    plan = Plan.load(arguments.plan)
    if not plan.placement and arguments.to != "html":
        raise UsageError(
            f"{arguments.plan} has no placement ({plan.solver.status}): there is nothing to "
            f"draw as {arguments.to}; --to html and placer explain show why"
        )
    with progress(f"exporting {arguments.plan}", arguments):
        _export(plan, arguments)
    if not arguments.quiet:
        sys.stdout.write(f"{arguments.to} written to {arguments.output}\n")


def _export(plan: Plan, arguments: argparse.Namespace) -> None:
    """Reads the model again and writes the file."""
    from placer.files import write_text
    from placer.questions.saved_plans import with_step

    if plan.placement:
        plan = with_step(plan, arguments.model, **options.cost_changes(arguments))
    if arguments.to == "html":
        plan.to_html(arguments.output, force=arguments.force)
        return
    assert plan.step is not None
    step = plan.step()
    if arguments.to == "tensorboard":
        from placer.application.measuring.event_files import write_event_file

        write_event_file(step, arguments.output, force=arguments.force)
        return
    from placer.rendering.exports import graphs, model_explorer, trace

    writers = {
        "trace": lambda: trace.trace_json(step),
        "graphml": lambda: graphs.graphml(step, arguments.nodes),
        "dot": lambda: graphs.dot(step, arguments.nodes),
        "model-explorer": lambda: model_explorer.model_explorer(step),
        "model-explorer-data": lambda: model_explorer.node_data(step),
    }
    write_text(arguments.output, writers[arguments.to](), force=arguments.force)
