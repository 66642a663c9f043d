"""Methods that people call on results: the one place where a record reaches up to what draws it
and runs it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from placer.argument_types import checked
from placer.files import write_text

if TYPE_CHECKING:
    from types import ModuleType

    from networkx import MultiDiGraph


def interactive() -> ModuleType:
    """:mod:`placer.interactive`, imported when a method is called."""
    from placer import interactive as found

    return found


class Summarised:
    """Gives a result :meth:`summary`, which shells and notebooks show."""

    __slots__ = ()

    @checked
    def summary(self, width: int = 80) -> str:
        """The result as text of ``width`` columns."""
        text: str = interactive().render_result(self, "text", width=width)
        return text

    def __repr__(self) -> str:
        return self.summary()

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:
        """Prints the summary in IPython."""
        printer.text(self.summary())

    def _repr_markdown_(self) -> str:
        """Returns the summary for a notebook."""
        text: str = interactive().render_result(self, "markdown", width=110)
        return text


class Drawn(Summarised):
    """Gives a result :meth:`to_html`."""

    __slots__ = ()

    @checked
    def to_html(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes one HTML file that needs nothing else to ``path``.

        A plan out of a file shows what the file holds; ``placer export --to html`` reads the model
        again.  Raises ``UsageError`` if the file exists and ``force`` is false.
        """
        write_text(path, interactive().render_page(self), force=force)


class Page(Drawn):
    """Gives a result :meth:`networkx`, and has a notebook show its page."""

    __slots__ = ()

    def networkx(self, source: Any = None) -> MultiDiGraph[str]:
        """The flat graph with costs and devices; see
        :func:`placer.rendering.exports.networkx_graph.networkx_graph`.

        A plan out of a file predicts its step again, from ``source`` or the model that it names.
        Raises ``UsageError`` if there is no placement, or ``source`` is another model.
        """
        graph: MultiDiGraph[str] = interactive().networkx_of(self, source)
        return graph

    def _repr_html_(self) -> str:
        """Returns the page for a notebook."""
        html: str = interactive().in_notebook(self)
        return html
