"""How much a search may do, and where it writes what it finds."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long and how to search: until ``deadline`` (a time of ``time.time()``, so that what it
    takes to come this far counts), and ``work_limit`` cycles or deterministic seconds at most."""

    deadline: float
    seed: int
    workers: int
    work_limit: int | None = None

    @property
    def threads(self) -> int:
        """Of the heuristic searches."""
        return self.workers or os.cpu_count() or 1

    def until(self, share: float) -> float:
        """When that share of the time that is left will be over."""
        now = time.time()
        return now + (1.0 if self.work_limit is not None else share) * (self.deadline - now)


class ResultFile:
    """The best placement and bound so far, on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.content: dict[str, Any] = {
            "status": "UNKNOWN",
            "device_of": None,
            "lower_bound": None,
        }

    def update(self, **changes: Any) -> None:
        """Change entries of the result and replace the file in one step; a bound never falls."""
        with self.lock:
            known = self.content["lower_bound"]
            if known is not None and "lower_bound" in changes:
                changes["lower_bound"] = max(known, changes["lower_bound"] or 0)
            self.content.update(changes)
            draft = self.path.with_suffix(".tmp")
            draft.write_text(json.dumps(self.content))
            os.replace(draft, self.path)

    def keep(self, device_of: Sequence[int]) -> None:
        """A better placement was found."""
        self.update(status="FEASIBLE", device_of=list(device_of))
