"""`python -m npformer check` and `python -m npformer mutants`, as a user types them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npformer import functional
from npformer.__main__ import SHOWN_FAULTS, main
from npformer.oracle import mutation, self_check
from npformer.oracle.mutation import Survey
from npformer.oracle.self_check import CATALOGUE

ROOT = Path(__file__).parents[1]
COLUMNS = ["operation", "shapes tried", "worst error/bar", "verdict", "seconds"]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def npformer(*arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "npformer", *arguments]
    return subprocess.run(command, env=environment(**more), capture_output=True, check=False)


def lines(output: bytes) -> list[str]:
    return output.decode().splitlines()


def test_the_table_has_a_row_of_five_columns_for_an_operation_that_is_right():
    run = npformer("check", "rms_norm", "--seeds", "3")
    assert (run.returncode, run.stderr) == (0, b"")
    head, row, empty, summary = lines(run.stdout)
    assert re.split(r"\s{2,}", head) == COLUMNS
    name, shapes, worst, verdict, seconds = row.split()
    assert (name, shapes, verdict) == ("rms_norm", "3", "pass")
    assert 0 < float(worst) < 1
    assert re.fullmatch(r"\d+\.\d", seconds)
    assert len(row) == len(head)
    assert (empty, summary) == ("", "1 operation, 3 random cases of each: all right")


def test_operations_are_checked_in_the_order_in_which_they_were_named():
    run = npformer("check", "tanh", "relu", "alibi_slopes", "--seeds", "1")
    assert (run.returncode, run.stderr) == (0, b"")
    assert [line.split()[0] for line in lines(run.stdout)[1:4]] == ["tanh", "relu", "alibi_slopes"]


def test_without_a_name_every_operation_is_checked(capsys):
    assert main(["check", "--seeds", "1"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in output[1 : len(CATALOGUE) + 1]] == list(CATALOGUE)
    assert output[-1] == f"{len(CATALOGUE)} operations, 1 random cases of each: all right"


def test_more_seeds_than_one_task_has_are_shared_out_and_all_counted():
    run = npformer("check", "sinusoidal_positions", "--seeds", str(self_check.SEEDS_A_TASK + 1))
    assert (run.returncode, run.stderr) == (0, b"")
    assert lines(run.stdout)[1].split()[:2] == ["sinusoidal_positions", "9"]  # three lengths of three widths


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("check", "--help")])
def test_help_is_printed_and_nothing_else_is_done(arguments):
    run = npformer(*arguments)
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.startswith(b"usage: python -m npformer")
    assert b"check" in run.stdout
    assert (b"--seeds N" in run.stdout) == ("check" in arguments)


WRONG_USAGE = [
    ((), "python -m npformer: the following arguments are required: command"),
    (("chekc",), "python -m npformer: argument command: invalid choice: 'chekc'"),
    (("--seeds", "3"), "python -m npformer: "),
    (("check", "--sedes", "3"), "python -m npformer: unrecognized arguments: --sedes"),
    (("check", "relu", "-x"), "python -m npformer: unrecognized arguments: -x"),
    (("check", "--two\nlines"), "python -m npformer: unrecognized arguments: --two lines"),
    (("check", "norm"), "python -m npformer check: no operation or layer is called 'norm'; there are linear, relu,"),
    (("check", "relu", "norm", "room"), "python -m npformer check: no operation or layer is called 'norm'; there are"),
    (("check", "two\nlines"), r"python -m npformer check: no operation or layer is called 'two\nlines'; there are linear,"),
    (("check", ""), "python -m npformer check: no operation or layer is called ''; there are linear,"),
    (("check", "--seeds"), "python -m npformer check: argument --seeds: expected one argument"),
    (("check", "--seeds", "many"), "python -m npformer check: argument --seeds: invalid int value: 'many'"),
    (("check", "--seeds", "2.5"), "python -m npformer check: argument --seeds: invalid int value: '2.5'"),
    (("check", "--seeds", ""), "python -m npformer check: argument --seeds: invalid int value: ''"),
    (("check", "--seeds", "0"), "python -m npformer check: --seeds must be at least 1, got 0"),
    (("check", "relu", "--seeds", "-3"), "python -m npformer check: --seeds must be at least 1, got -3"),
    (("mutants", "norm"), "python -m npformer mutants: no operation or layer is called 'norm'; there are linear, relu,"),
    (("mutants", "relu", "--seeds", "0"), "python -m npformer mutants: --seeds must be at least 1, got 0"),
    (("mutants", "relu", "alibi_bias"), "python -m npformer mutants: alibi_bias has no backward that could be got wrong"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG_USAGE)
def test_wrong_usage_is_one_line_that_names_it_and_status_2(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    assert captured.err.startswith(sentence)
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("\n")


@pytest.mark.parametrize("arguments", [(), ("chekc",), ("check", "norm"), ("check", "--seeds", "0"), ("check", "--sedes")])
def test_wrong_usage_reaches_the_shell_without_a_traceback(arguments):
    run = npformer(*arguments)
    assert (run.returncode, run.stdout) == (2, b"")
    assert len(lines(run.stderr)) == 1
    assert lines(run.stderr)[0].startswith("python -m npformer")


# Consoles, pipes and disks.

FAULT = "σ(−x) ≠ ½ at T × S — ∞"  # with characters that many consoles lack


def command_that_finds(*faults: str) -> list[str]:
    """The command with a check that comes to these faults in one operation, and to no operation where there are none."""
    outcomes = f"[self_check.Outcome('relu', faults={list(faults)!a})]" if faults else "[]"
    program = (
        "import sys; from npformer import __main__; from npformer.oracle import self_check; "
        f"self_check.check_all = lambda names, n_seeds: {outcomes}; "
        "sys.exit(__main__.main(['check', 'relu']))"
    )
    return ["-c", program]


ENCODINGS = ["ascii", "cp1252", "gbk", "latin-1", "utf-8"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_console_that_lacks_a_character_shows_the_rest(encoding):
    command = [sys.executable, *command_that_finds(FAULT)]
    run = subprocess.run(command, env=environment(PYTHONIOENCODING=encoding), capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (1, b"")
    fault = run.stdout.decode(encoding).splitlines()[-1]
    assert fault == FAULT.encode(encoding, "replace").decode(encoding)
    assert " at T " in fault


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_name_that_the_console_cannot_show_is_refused_like_any_other(encoding):
    run = npformer("check", "σ-ñ-层", PYTHONIOENCODING=encoding, PYTHONUTF8="1")
    assert (run.returncode, run.stdout) == (2, b"")
    sentence = run.stderr.decode(encoding)
    assert sentence.startswith("python -m npformer check: no operation or layer is called '")
    assert sentence.count("\n") == 1
    assert npformer("--help", PYTHONIOENCODING=encoding).returncode == 0


def run_into(stdout: int, command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, env=environment(), stdout=stdout, stderr=subprocess.PIPE, check=False)


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "npformer", "check", "relu", "--seeds", "1"],
        ["-m", "npformer", "--help"],
        ["-m", "npformer", "check", "--help"],
        command_that_finds(FAULT),
        command_that_finds(),
    ],
    ids=["a check", "help", "help for check", "a check with faults", "a check whose last line is the first to go out"],
)
def test_a_reader_that_has_gone_ends_the_command_without_a_word(arguments, closed_pipe):
    run = run_into(closed_pipe, [sys.executable, *arguments])
    assert (run.returncode, run.stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_one_line_and_status_2():
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        run = run_into(full, [sys.executable, "-m", "npformer", "check", "relu", "--seeds", "1"])
    finally:
        os.close(full)
    assert run.returncode == 2
    assert re.fullmatch(r"npformer check: .*No space left on device\n", run.stderr.decode())


def test_an_interruption_is_one_line_and_what_was_checked_stays(monkeypatch, capsys):
    def interrupted(names, n_seeds):
        yield self_check.Outcome(names[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(self_check, "check_all", interrupted)
    assert main(["check", "relu", "tanh"]) == 130
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].split()[0] == "relu"
    assert captured.err.strip() == "npformer check: interrupted; what stands above was checked"


# A wrong operation.


def doubled_gradient(x):
    y, backward = functional.tanh(x)
    return y, lambda dy: 2 * backward(dy)


def off_by_a_thousandth(x):
    y, backward = functional.tanh(x)
    return y * 1.001, backward


def without_the_last_column(x):
    y, backward = functional.tanh(x)
    nothing = np.zeros((*x.shape[:-1], min(1, x.shape[-1])), x.dtype)
    return y[..., :-1], lambda dy: backward(np.concatenate([dy, nothing], -1))


def in_double(x):
    y, backward = functional.tanh(x.astype(np.float64))
    return y, lambda dy: backward(dy.astype(np.float64))


def check_wrong(monkeypatch, capsys, function, n_seeds: int) -> tuple[int, str]:
    function.__name__ = "tanh"
    monkeypatch.setitem(CATALOGUE, "tanh", replace(CATALOGUE["tanh"], function=function))
    status = main(["check", "relu", "tanh", "--seeds", str(n_seeds)])
    captured = capsys.readouterr()
    assert captured.err == ""
    return status, captured.out


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (doubled_gradient, "the gradient of x"),
        (off_by_a_thousandth, "the value at"),
        (without_the_last_column, "the value has the shape"),
        (in_double, "is float64 for float32"),
    ],
)
def test_a_wrong_operation_fails_in_the_table_and_says_what_is_wrong(function, words, monkeypatch, capsys):
    status, output = check_wrong(monkeypatch, capsys, function, n_seeds=2)
    assert status == 1
    table, summary, *faults = re.split(r"\n\n", output.strip())
    right, wrong = table.splitlines()[1:]
    assert re.match(r"relu .* pass ", right)
    assert re.match(r"tanh .* FAIL \(\d+\) ", wrong)
    assert summary == "2 operations, 2 random cases of each: FAULTS FOUND"
    assert any(words in fault for fault in faults)
    assert all(re.match(r"seed [01]: tanh\(x \(", fault) for fault in faults)


def test_of_many_faults_the_first_are_shown_and_all_are_counted(monkeypatch, capsys):
    status, output = check_wrong(monkeypatch, capsys, off_by_a_thousandth, n_seeds=5)
    assert status == 1
    count = int(re.search(r"FAIL \((\d+)\)", output)[1])
    assert count >= 5
    assert output.count("\nseed ") == SHOWN_FAULTS


def test_the_seed_in_a_fault_draws_the_case_again(monkeypatch, capsys):
    _, output = check_wrong(monkeypatch, capsys, doubled_gradient, n_seeds=1)
    fault = output.split("\n\n", 2)[2].strip()
    (again,) = self_check.check_all(["tanh"], 1)
    assert fault.startswith(again.faults[0].strip())


# Mutants.


def test_the_mutants_of_an_operation_are_counted_in_a_table():
    run = npformer("mutants", "relu", "split_heads", "--seeds", "5")
    assert (run.returncode, run.stderr) == (0, b"")
    head, *rows, empty, summary = lines(run.stdout)
    assert head.split() == ["operation", "mutants", "killed", "equivalent", "survivors", "seconds"]
    assert [row.split()[0] for row in rows] == ["relu", "split_heads"]
    for row in rows:
        n_mutants, n_killed, n_equivalent, n_survivors = map(int, row.split()[1:5])
        assert n_mutants == n_killed > 5
        assert n_equivalent == n_survivors == 0
        assert len(row) == len(head)
    assert (empty, summary) == ("", "2 operations, 5 random cases of each: every mutant is killed or equivalent")


def test_without_a_name_all_that_have_a_gradient_are_got_wrong(monkeypatch, capsys):
    def surveyed(names, n_cases):
        assert n_cases == 60
        return [Survey(name, 3, 2, 1, [], [], 0.5) for name in names]

    monkeypatch.setattr(mutation, "survey_all", surveyed)
    assert main(["mutants"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:-2]]
    assert names == [name for name in CATALOGUE if CATALOGUE[name].differentiable]


def test_survivors_and_stale_entries_are_printed_in_full_and_are_status_1(monkeypatch, capsys):
    survivor = mutation.mutants_of("relu")[0]
    survey = Survey("relu", 3, 1, 1, [survivor], ["listed as equivalent, but killed: line 3"], 0.5)
    monkeypatch.setattr(mutation, "survey_all", lambda names, n_cases: [survey])
    assert main(["mutants", "relu"]) == 1
    _, summary, *faults = capsys.readouterr().out.strip().split("\n\n")
    assert summary.endswith(": FAULTS FOUND")
    assert faults == [f"relu survives: {survivor}", "relu listed as equivalent, but killed: line 3"]
