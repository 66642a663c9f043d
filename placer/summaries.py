"""Results that a person reads: in Python what the command line prints."""

from __future__ import annotations

from typing import Any


class Summarised:
    """Gives a result :meth:`summary`."""

    __slots__ = ()

    def summary(self, *, width: int = 80) -> str:
        """The result as text of ``width`` columns."""
        from placer.rendering.summaries import summary_text

        return summary_text(self, width)

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:
        """What IPython shows."""
        printer.text(self.summary())
