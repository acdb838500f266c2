"""The progress line: written over in a terminal, a plain line now and then in a pipe."""

import io
import os
import re
import select
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from demos import progress
from demos.progress import N_LINES, Progress, clock
from npformer.training import Step

try:
    import fcntl
    import pty
    import termios
except ImportError:  # Windows
    pty = None

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"step +[\d]+ of \d+  loss \d+\.\d{3}  [\d,]+ tokens/s  (\d+:)?\d+:\d\d left *")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (0.4, "0:00"),
        (9, "0:09"),
        (59.4, "0:59"),
        (59.6, "1:00"),
        (187, "3:07"),
        (3599.4, "59:59"),
        (3599.6, "1:00:00"),
        (3787, "1:03:07"),
        (400_000, "111:06:40"),
    ],
)
def test_a_clock_shows_minutes_and_from_an_hour_on_hours(seconds, text):
    assert clock(seconds) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def shown(monkeypatch, stream, n_steps, *, seconds=1.0, columns=80, n_done=0, losses=None, close=True) -> str:
    """What is written while each step takes so many seconds; `columns` may be a list, a width for each step."""
    time = Clock()
    monkeypatch.setattr(progress, "time", time)
    monkeypatch.setattr(sys, "stdout", stream)
    widths = columns if isinstance(columns, list) else [columns] * n_steps
    line = Progress(n_steps, 10, n_done)
    for number in range(n_done + 1, n_steps + 1):
        time.now += seconds
        size = os.terminal_size((widths[number - 1], 24))
        monkeypatch.setattr(shutil, "get_terminal_size", lambda size=size: size)
        line(Step(number, losses[number - 1] if losses else 2.0, 1.0, 1e-3))
    if close:
        line.close()
    return stream.getvalue()


def test_a_terminal_sees_one_line_that_is_written_over(monkeypatch):
    output = shown(monkeypatch, Terminal(), 5)
    assert output.startswith("\r")
    assert output.endswith("\n")
    assert output.count("\n") == 1
    lines = output.removesuffix("\n").split("\r")[1:]
    assert len(lines) == 5
    assert all(LINE.fullmatch(line) for line in lines)


def test_a_pipe_sees_a_plain_line_now_and_then(monkeypatch):
    output = shown(monkeypatch, io.StringIO(), 1000)
    assert "\r" not in output
    assert [int(line.split()[1]) for line in output.splitlines()] == list(range(100, 1001, 100))
    assert all(LINE.fullmatch(line) for line in output.splitlines())


@pytest.mark.parametrize("n_steps", [1, 7, 10, 19, 20, 25, 999])
def test_a_pipe_sees_no_more_than_twice_as_many_lines_and_always_the_last(monkeypatch, n_steps):
    lines = shown(monkeypatch, io.StringIO(), n_steps).splitlines()
    assert 1 <= len(lines) < 2 * N_LINES + 1
    assert lines[-1].startswith(f"step {n_steps} of {n_steps} ")
    assert lines[-1].endswith(" 0:00 left")


def test_the_rate_and_the_time_left_are_those_of_the_steps_so_far(monkeypatch):
    lines = shown(monkeypatch, io.StringIO(), 10, seconds=30).splitlines()
    assert "  0 tokens/s  4:30 left" in lines[0]
    fast = shown(monkeypatch, io.StringIO(), 10, seconds=0.001).splitlines()
    assert "  10,000 tokens/s  0:00 left" in fast[4]


def test_after_a_resumption_only_the_new_steps_count(monkeypatch):
    lines = shown(monkeypatch, io.StringIO(), 1000, seconds=1.0, n_done=880).splitlines()
    assert lines[0] == "step  900 of 1000  loss 2.000  10 tokens/s  1:40 left"


def test_the_loss_is_a_mean_of_the_last_steps(monkeypatch):
    lines = shown(monkeypatch, io.StringIO(), 200, losses=[9.0] * 130 + [1.0] * 20 + [3.0] * 50).splitlines()
    assert [line.split()[5] for line in lines if line.startswith(("step 100", "step 160", "step 200"))] == [
        "9.000",
        f"{(20 * 9 + 20 * 1 + 10 * 3) / 50:.3f}",
        "3.000",
    ]


def test_a_terminal_is_not_written_to_more_often_than_one_can_read(monkeypatch):
    output = shown(monkeypatch, Terminal(), 1000, seconds=0.01)
    assert 40 < output.count("\r") < 60
    assert "step 1000 of 1000" in output.split("\r")[-1]


@pytest.mark.parametrize("columns", [1, 2, 20, 40, 60, 80, 200])
def test_the_line_is_never_wider_than_the_terminal(monkeypatch, columns):
    output = shown(monkeypatch, Terminal(), 12, columns=columns)
    assert all(len(line) < columns for line in output.removesuffix("\n").split("\r"))
    assert output.endswith("\n")


def test_the_line_fits_a_terminal_that_becomes_narrower(monkeypatch):
    widths = [80, 80, 30, 30, 10, 80]
    lines = shown(monkeypatch, Terminal(), 6, columns=widths).removesuffix("\n").split("\r")[1:]
    assert all(len(line) < width for line, width in zip(lines, widths, strict=True))


def test_a_shorter_line_wipes_out_the_longer_one_before(monkeypatch):
    lines = shown(monkeypatch, Terminal(), 2, losses=[12345.0, 1.0]).removesuffix("\n").split("\r")[1:]
    assert len(lines[1]) >= len(lines[0])


def test_nothing_is_written_where_there_was_no_step(monkeypatch):
    assert shown(monkeypatch, Terminal(), 5, n_done=5) == ""


def test_the_line_is_closed_once(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    line = Progress(5, 10)
    line(Step(1, 2.0, 1.0, 1e-3))
    line.close()
    line.close()
    assert terminal.getvalue().count("\n") == 1


def test_without_any_output_training_goes_on(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    line = Progress(5, 10)
    line(Step(1, 2.0, 1.0, 1e-3))
    line.close()


# A real terminal.

needs_terminal = pytest.mark.skipif(pty is None, reason="this system has no pseudo-terminals")

TINY = ["--n-layers", "1", "--n-heads", "2", "--d-model", "8", "--max-len", "8", "--batch-size", "4", "--length", "9"]
TEXT = "the cat sat on the mat, and the dog sat by the cat. " * 12
IN_A_TERMINAL = """
import fcntl, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches this process
import gradcheck
from demos.char_lm import main
from npformer.training import Trainer
step = Trainer.step
def spoilt(self):
    if self.n_done == 3:
        self.flat.values[0] = float("nan")
    return step(self)
if sys.argv[1] == "spoilt":
    Trainer.step = spoilt
if sys.argv[1] == "checking":
    gradcheck.check_layer = lambda *_: signal.pause()  # a check that takes long
sys.exit(main(sys.argv[2:]))
"""


def in_terminal(folder: Path, how: str, *arguments: str, columns: int = 80, interrupt_at: bytes = b"") -> tuple[int, str]:
    """Status and output; Ctrl-C is typed as soon as `interrupt_at` can be read."""
    (folder / "t.txt").write_text(TEXT, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") and name != "COLUMNS"}
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, how, "--text", "t.txt", *TINY, *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as process:
        os.close(slave)
        output = b""
        while select.select([master], [], [], 60)[0]:
            try:
                part = os.read(master, 65536)
            except OSError:  # how Linux says that the other side is closed
                break
            if not part:
                break
            output += part
            if interrupt_at and interrupt_at in output:
                os.write(master, b"\x03")
                interrupt_at = b""
        os.close(master)
        return process.wait(), output.decode()


def progress_of(output: str) -> tuple[list[str], str]:
    """What the line showed, and what came after it."""
    first, *shown = output.split("\rstep ")
    last, newline, after = shown[-1].partition("\r\n")
    assert newline
    return [*shown[:-1], last], after


@needs_terminal
@pytest.mark.parametrize("columns", [80, 33])
def test_a_run_in_a_terminal_writes_one_line_over(tmp_path, columns):
    status, output = in_terminal(tmp_path, "whole", "--steps", "6", columns=columns)
    assert status == 0
    lines, after = progress_of(output)
    assert lines[-1].startswith("6 of 6  loss ")
    assert all(len(f"step {line}") < columns for line in lines)
    assert after.startswith("trained     6 steps")


@needs_terminal
def test_an_interrupted_line_ends_with_a_newline(tmp_path):
    status, output = in_terminal(tmp_path, "whole", "--steps", "1000000", interrupt_at=b"\rstep ")
    assert status == 130
    _, after = progress_of(output)
    assert re.match(r"stopped     after step [1-9]\d* of 1000000, which char_lm\.npz holds\r\nto go on    ", after)
    assert "Traceback" not in output


@needs_terminal
def test_an_error_comes_on_a_line_of_its_own(tmp_path):
    status, output = in_terminal(tmp_path, "spoilt", "--steps", "6")
    assert status == 2
    _, after = progress_of(output)
    assert after.startswith("char_lm: step 4: not finite is the parameter ")
    assert after.count("\n") == 1


@needs_terminal
def test_ctrl_c_while_the_gradients_are_checked_is_a_plain_ending(tmp_path):
    status, output = in_terminal(tmp_path, "checking", "--steps", "6", interrupt_at=b"model ")
    assert status == 130
    assert output.endswith("\r\nchar_lm: interrupted; the checkpoint written last is whole\r\n")
    assert "Traceback" not in output
