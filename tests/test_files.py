"""Files and folders appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from placer.errors import PlacerError, UsageError
from placer.files import check_apart, check_writable, replaced, write_text


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path):
    """When the block that writes fails, the file is as it was."""
    path = tmp_path / "result"
    write_text(path, "old")

    def write_half() -> None:
        with replaced(path, force=True) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    """With force a folder is replaced by the new one, and nothing of the old one is left in it."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "stale").write_text("old")
    (path / "graph").write_text("old")
    with replaced(path, force=True) as temporary:
        temporary.mkdir()
        (temporary / "graph").write_text("new")
    assert [found.read_text() for found in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("there", "new", "told"),
    [("folder", "folder", "other things, such as thesis"), ("file", "folder", "is a file")],
)
def test_force_is_for_the_like(tmp_path, there, new, told):
    """A wrong name costs nobody a folder of other things, or a file for a folder."""
    path = tmp_path / "model"
    if there == "folder":
        path.mkdir()
        (path / "thesis").write_text("all of it")
    else:
        path.write_text("all of it")

    def write() -> None:
        with replaced(path, force=True) as temporary:
            temporary.mkdir()
            (temporary / "graph").write_text("new")

    with pytest.raises(UsageError, match=told):
        write()
    left = path / "thesis" if there == "folder" else path
    assert left.read_text() == "all of it"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_replaces_no_folder_and_no_device(tmp_path):
    """With force or without."""
    (tmp_path / "reports").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for force in (False, True):
        with pytest.raises(UsageError, match="is a folder: give the name of a file"):
            check_writable(tmp_path / "reports", force=force)
        with pytest.raises(UsageError, match="is a device or a pipe"):
            check_writable(tmp_path / "pipe", force=force)


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path):
    """As a shell's redirection does it."""
    (tmp_path / "kept").mkdir()
    target, link = tmp_path / "kept" / "plan.json", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new", force=True)
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_what_is_read_is_never_replaced(tmp_path):
    """Neither it, nor a part of it, nor a folder that holds it; a new name in it may be written."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "saved_model.pb").touch()
    for out, told in (
        (model, "model is the input, so it cannot be the output"),
        (model / "saved_model.pb", "is part of"),
        (tmp_path, "holds"),
    ):
        with pytest.raises(UsageError, match=told):
            check_apart(out, model)
    check_apart(model / "plan.json", model)
    check_apart(tmp_path / "placed", model)


def test_nothing_is_overwritten_unasked(tmp_path):
    """Files, folders and dangling links count as existing; a missing folder is named."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"):
        check_writable(tmp_path / "link")
    with pytest.raises(UsageError, match=r"the folder .*absent does not exist"):
        check_writable(tmp_path / "absent" / "plan.json", force=True)
    check_writable(tmp_path / "new")


def test_a_full_disk_leaves_nothing_and_says_what_to_do(tmp_path):
    """A file that grows too large for its limit, as on a full disk: one message, no litter."""
    import resource
    import signal

    path = tmp_path / "model"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def write_much() -> None:
        with replaced(path) as temporary:
            temporary.write_bytes(b"x" * 100_000)

    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        with pytest.raises(PlacerError, match="free space"):
            write_much()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_between_the_two_steps_loses_no_folder(tmp_path, monkeypatch):
    """Ctrl-C after the old folder has made room and before the new one is there."""
    path = tmp_path / "replaced"
    path.mkdir()
    (path / "graph").write_text("old")
    monkeypatch.setattr(Path, "replace", _interrupt)

    def write() -> None:
        with replaced(path, force=True) as temporary:
            temporary.mkdir()
            (temporary / "graph").write_text("new")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert (path / "graph").read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    write()
    assert (path / "graph").read_text() == "new"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_clearing_up_leaves_no_litter(tmp_path, monkeypatch):
    """Ctrl-C just after the file is there: it stays, and the folder beside it goes."""
    remove, calls = shutil.rmtree, []

    def interrupted(*arguments: object, **options: object) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(*arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "plan.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_what_another_wrote_meanwhile_is_kept(tmp_path):
    """Without force, also if it was not there when the work began."""
    path = tmp_path / "plan.json"

    def write_too() -> None:
        with replaced(path) as temporary:
            temporary.write_text("mine")
            path.write_text("another's")

    with pytest.raises(UsageError, match="meanwhile, and is kept"):
        write_too()
    assert path.read_text() == "another's"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_of_one_folder_wait_for_one_another(tmp_path):
    """Eight at once, many times, with force: all succeed, and one of them is there as a whole."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "a").write_text("old")
    failures = []

    def write(name: str) -> None:
        try:
            for _ in range(40):
                with replaced(path, force=True) as temporary:
                    temporary.mkdir()
                    for file in "ab":
                        (temporary / file).write_text(name)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (path / "a").read_text() == (path / "b").read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path):
    """And one that is longer is the caller's fault."""
    write_text(tmp_path / ("n" * 255), "new")
    with pytest.raises(UsageError, match="too long for a name"):
        check_writable(tmp_path / ("n" * 256))


def test_a_name_that_is_no_utf_8_is_written_in_numbers(tmp_path):
    """As Python hands on the name of a file with such bytes."""
    write_text(tmp_path / "page.html", "model \udcff")
    assert (tmp_path / "page.html").read_text() == "model \\udcff"
