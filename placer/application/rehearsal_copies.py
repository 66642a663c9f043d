"""Temporary copies of a SavedModel that run on the devices of this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from placer.application.saved_model import map_devices
from placer.extraction.signatures import choose_meta_graph
from placer.extraction.sources import main_file, read_source


def write_rehearsal_copy(
    source: Path, tags: tuple[str, ...], folder: Path, translate: Callable[[str], str]
) -> None:
    """Writes ``source`` into the new ``folder`` with every device string translated.

    The weights are linked, not copied.
    """
    saved_model = read_source(source)
    map_devices(choose_meta_graph(saved_model, source, ",".join(tags)), translate)
    write_linked_copy(source, saved_model, folder)


def write_linked_copy(source: Path, saved_model: Any, folder: Path) -> None:
    """Writes ``saved_model`` into the new ``folder`` beside links to all else that is in
    ``source``."""
    graph_file = main_file(source).name
    folder.mkdir()
    for entry in source.resolve().iterdir():
        if entry.name not in (graph_file, "fingerprint.pb"):
            (folder / entry.name).symlink_to(entry)
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())
