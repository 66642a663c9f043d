"""Files and folders appear whole or not at all."""

from __future__ import annotations

import pytest

from placer.errors import PlacerError, UsageError
from placer.files import check_writable, replaced, write_text


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
    with replaced(path, force=True) as temporary:
        temporary.mkdir()
        (temporary / "fresh").write_text("new")
    assert [found.name for found in path.iterdir()] == ["fresh"]
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_overwritten_unasked(tmp_path):
    """Files, folders and dangling links count as existing; a missing folder is named."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"):
        check_writable(tmp_path / "link")
    with pytest.raises(UsageError, match=r"folder of .* does not exist"):
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
