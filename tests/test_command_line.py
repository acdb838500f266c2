"""What every command does alike: one sentence, the exit status, any terminal."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npformer.command_line import Parser, run_command, sentence

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
