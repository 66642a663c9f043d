"""The formats that ``placer export`` writes; the command, its help and its errors come from here.

A format is a function in a module of its own and one line below.  The module is imported when the
format is asked for, so help stays quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from placer.plan.plan import Plan


class ExportFormat(NamedTuple):
    """A format: ``what`` it gives, in the words of the help, and its function as
    ``"module:function"``.

    The function takes the predicted step and gives the text of the file.  With ``collapses`` it
    takes the most nodes to draw, too; with ``folder`` it takes a path and ``force``, and writes the
    folder itself; with ``whole_plan`` it takes the plan, which may have no placement.
    """

    what: str
    function: str
    collapses: bool = False
    folder: bool = False
    whole_plan: bool = False

    def write(self, plan: Plan, path: str, *, most_nodes: int, force: bool) -> None:
        """Writes ``plan``, whose step is predicted, to ``path``."""
        from placer.files import write_text

        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        if self.whole_plan:
            write_text(path, function(plan), force=force)
            return
        assert plan.step is not None
        step = plan.step()
        if self.folder:
            function(step, path, force=force)
        else:
            extra = (most_nodes,) if self.collapses else ()
            write_text(path, function(step, *extra), force=force)


_HERE = "placer.rendering.exports"
_EVENT_FILES = "placer.application.measuring.event_files"

FORMATS: Mapping[str, ExportFormat] = {
    "html": ExportFormat(
        "one page for any browser", "placer.rendering.html.page:render_page", whole_plan=True
    ),
    "trace": ExportFormat("ui.perfetto.dev", f"{_HERE}.trace:trace_json"),
    "tensorboard": ExportFormat(
        "a folder for tensorboard --logdir", f"{_EVENT_FILES}:write_event_file", folder=True
    ),
    "graphml": ExportFormat(
        "the graph, its scopes collapsed", f"{_HERE}.graphs:graphml", collapses=True
    ),
    "dot": ExportFormat("the same for Graphviz", f"{_HERE}.graphs:dot", collapses=True),
    "model-explorer": ExportFormat(
        "the graph with every op", f"{_HERE}.model_explorer:model_explorer"
    ),
    "model-explorer-data": ExportFormat("node data for it", f"{_HERE}.model_explorer:node_data"),
}
