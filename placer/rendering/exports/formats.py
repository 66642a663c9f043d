"""The formats that ``placer export`` writes; the command, its help and its errors read them here.

A format is a function in a module of its own and one line below.  The module is imported when the
format is asked for, so that help is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from placer.plan.plan import Plan

_HERE = "placer.rendering.exports"


class ExportFormat(NamedTuple):
    """A format: ``what`` it is, for help, and its function as ``"module:function"``.

    The function makes the text of a file from the predicted step.  With ``collapses`` it also takes
    the most nodes to draw; with ``folder`` it takes a path and ``force`` and writes a folder; with
    ``whole_plan`` it takes the plan, which may have no placement.
    """

    what: str
    function: str
    collapses: bool = False
    folder: bool = False
    whole_plan: bool = False

    def write(self, plan: Plan, path: str, *, most_nodes: int, force: bool) -> None:
        """Writes ``plan``, its step predicted, to ``path``."""
        from pkgutil import resolve_name

        from placer.files import write_text

        function = resolve_name(self.function)
        drawn = plan if self.whole_plan or plan.step is None else plan.step()
        if self.folder:
            function(drawn, path, force=force)
        else:
            extra = (most_nodes,) if self.collapses else ()
            write_text(path, function(drawn, *extra), force=force)


_PAGE = "placer.rendering.html.page:render_page"
_LOG = "placer.application.measuring.event_files:write_event_file"

FORMATS = {
    "html": ExportFormat("a page for any browser", _PAGE, whole_plan=True),
    "trace": ExportFormat("a timeline for ui.perfetto.dev", f"{_HERE}.trace:trace_json"),
    "tensorboard": ExportFormat("a folder for tensorboard --logdir", _LOG, folder=True),
    "graphml": ExportFormat(
        "the graph with name scopes collapsed", f"{_HERE}.graphs:graphml", True
    ),
    "dot": ExportFormat("the same graph for Graphviz", f"{_HERE}.graphs:dot", True),
    "model-explorer": ExportFormat(
        "every op for Google's Model Explorer", f"{_HERE}.model_explorer:model_explorer"
    ),
    "model-explorer-data": ExportFormat(
        "op times, by which Model Explorer colors the ops", f"{_HERE}.model_explorer:node_data"
    ),
}
