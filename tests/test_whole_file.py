"""Files that are whole or not there: what is refused before anything is done. The rest is in test_archive.py."""

import errno
import os
from pathlib import Path

import pytest

from npformer.whole_file import check_writable, write_whole
from permissions import needs_permissions

not_on_windows = pytest.mark.skipif(os.name == "nt", reason="POSIX names and devices")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "sub").mkdir()
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("path", ["new", "old", os.path.join("sub", "new"), os.path.join("sub", "..", "old"), "新 1.html"])
@pytest.mark.parametrize("convert", [str, Path])
def test_what_can_be_written_passes_and_nothing_is_done(folder, path, convert):
    before = files(folder)
    check_writable(convert(path))
    assert files(folder) == before
    write_whole(convert(path), lambda file: file.write(b"new"))
    assert Path(path).read_bytes() == b"new"


REFUSED = [
    ("", errno.EISDIR),
    ("sub", errno.EISDIR),
    (os.path.join("missing", "x"), errno.ENOENT),
    pytest.param(os.path.join("old", "x"), errno.ENOTDIR, marks=not_on_windows),
    pytest.param(os.devnull, errno.EINVAL, marks=not_on_windows),
    pytest.param("x" * 999, errno.ENAMETOOLONG, marks=not_on_windows),
    pytest.param(os.path.join("circle", "x"), errno.ELOOP, marks=not_on_windows),
    pytest.param("circle", errno.ELOOP, marks=not_on_windows),
]


@pytest.mark.parametrize(("path", "number"), REFUSED, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("do", [check_writable, lambda path: write_whole(path, lambda file: pytest.fail("written"))])
def test_what_cannot_be_written_is_refused_with_the_path_that_was_given(folder, path, number, do):
    if os.name != "nt":
        (folder / "circle").symlink_to("circle")
    before = sorted(os.listdir())
    with pytest.raises(OSError) as raised:
        do(path)
    assert (raised.value.errno, raised.value.strerror, raised.value.filename) == (number, os.strerror(number), path)
    assert sorted(os.listdir()) == before
    assert Path("old").read_bytes() == b"old"


@needs_permissions
def test_what_may_not_be_written_is_refused(folder):
    (folder / "old").chmod(0o400)
    with pytest.raises(PermissionError, match="old"):
        check_writable("old")
    (folder / "sub").chmod(0o500)
    with pytest.raises(PermissionError, match="new"):
        check_writable(os.path.join("sub", "new"))
    (folder / "sub").chmod(0o000)
    with pytest.raises(PermissionError, match="new"):
        check_writable(os.path.join("sub", "new"))
    (folder / "sub").chmod(0o700)


@not_on_windows
def test_a_link_is_what_it_points_to(folder):
    (folder / "to new").symlink_to(os.path.join("sub", "new"))
    (folder / "to nowhere").symlink_to(os.path.join("missing", "new"))
    (folder / "to sub").symlink_to("sub")
    check_writable("to new")
    with pytest.raises(FileNotFoundError):
        check_writable("to nowhere")
    with pytest.raises(IsADirectoryError):
        check_writable("to sub")
