"""What every command does alike: one sentence, the exit status, any terminal."""

import errno
import io
import os
import subprocess
import sys
import webbrowser
from pathlib import Path

import numpy as np
import pytest

from npformer.command_line import Parser, announce_page, run_command, sentence

ROOT = Path(__file__).parents[1]


def raising(error: BaseException):
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize("status", [0, 1, 2, 130])
def test_the_status_of_the_command_is_handed_on(status):
    assert run_command("title", lambda: status, "interrupted") == status


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("steps must be\n  at least 1"), "steps must be at least 1"),
        (ArithmeticError("step 3: not finite"), "step 3: not finite"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a b.npz"), "a b.npz: No such file or directory"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", ""), "'': No such file or directory"),
        (OSError("no number"), "no number"),
        (MemoryError("of no use to anybody"), "not enough memory"),
        (np.linalg.LinAlgError("singular"), "singular"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), "'utf-8' codec can't encode character"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_status_2(error, text, capsys):
    assert run_command("title", raising(error), "interrupted") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"title: {text}")
    assert captured.err.count("\n") == 1


def test_a_stream_that_is_no_file_does_not_hide_the_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # as in a notebook: it has no file number
    assert run_command("title", raising(OSError(errno.ENOSPC, "No space left on device")), "interrupted") == 2
    assert capsys.readouterr().err == "title: No space left on device\n"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EINVAL])
def test_a_reader_that_has_gone_is_status_1_without_a_word(number, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert run_command("title", raising(OSError(number, os.strerror(number))), "interrupted") == 1
    assert capsys.readouterr().err == ""


def test_ctrl_c_is_a_line_of_its_own_and_status_130(capsys):
    assert run_command("title", raising(KeyboardInterrupt()), "interrupted; all is well") == 130
    assert capsys.readouterr().err == "\ntitle: interrupted; all is well\n"


@pytest.mark.parametrize("error", [TypeError, KeyError, IndexError, AssertionError])
def test_a_mistake_of_ours_keeps_its_traceback(error):
    with pytest.raises(error):
        run_command("title", raising(error("ours")), "interrupted")


def test_a_file_is_named_with_what_is_wrong_with_it():
    assert sentence(PermissionError(errno.EACCES, "Permission denied", "x.npz")) == "x.npz: Permission denied"
    assert sentence(OSError(errno.ENOSPC, "No space left on device")) == "No space left on device"
    assert sentence(ValueError(" two\n\tlines ")) == "two lines"


def test_wrong_usage_is_one_line_with_the_name_of_the_command(capsys):
    parser = Parser(prog="python -m something")
    with pytest.raises(SystemExit) as ended:
        parser.error("two\nlines")
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", "python -m something: two lines\n")


# Pages.


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("page.html", "/page.html"),
        (os.path.join("a b", "..", "千 #1?.html"), "/%E5%8D%83%20%231%3F.html"),
    ],
)
def test_a_page_is_named_by_its_path_and_its_address(path, end, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(webbrowser, "open", lambda address: pytest.fail("opened"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    announce_page(path, open_it=False)
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"page        {path}"
    assert second == f"            {tmp_path.as_uri()}{end}"


def test_the_address_of_a_link_is_that_of_the_file(tmp_path, monkeypatch, capsys):
    (tmp_path / "real.html").write_text("")
    try:
        (tmp_path / "link.html").symlink_to("real.html")
    except OSError:
        pytest.skip("this system lets nobody make links")
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    announce_page(str(tmp_path / "link.html"), open_it=True)
    assert opened == [(tmp_path / "real.html").as_uri()]
    assert capsys.readouterr().err == ""


def test_it_is_said_where_no_browser_could_open_a_page(monkeypatch, capsys):
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    announce_page("x.html", open_it=True)
    assert capsys.readouterr().err == "note        no browser was found that could open it\n"


# Other terminals and none.

PROGRAM = """
import os, sys
from npformer.command_line import run_command
def command():
    print("\\u03c3 and x")
    raise ValueError("the text lacks '\\u03c3'")
for closed in {closed}:
    setattr(sys, closed, None)
sys.exit(run_command("title", command, "interrupted"))
"""


def run(closed: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    program = PROGRAM.format(closed=closed)
    environment = {**kept, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize(
    "more", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_a_console_of_ascii_shows_the_rest_and_an_error_by_numbers(more):
    """A question mark in an error would hide the very character that it is about."""
    ended = run(**more)
    assert ended.returncode == 2
    assert ended.stdout.split()[-2:] == [b"and", b"x"]
    assert ended.stderr.splitlines() == [rb"title: the text lacks '\u03c3'"]


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_a_closed_stream_changes_no_status(closed):
    ended = run(closed)
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stdout + ended.stderr
