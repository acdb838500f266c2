"""`python -m gradcheck`, as a user types it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gradcheck.__main__ as command
from gradcheck.__main__ import main
from gradcheck.report import Report

ROOT = Path(__file__).parents[2]

OPS = """
import sys
import numpy as np

number = 3

def softmax(x, axis=-1, temper="warm"):
    if temper not in ("warm", "hot"):
        raise ValueError(f"no temper {temper!r}")
    e = np.exp(x - x.max(axis, keepdims=True))
    p = e / e.sum(axis, keepdims=True)
    return p, lambda dy: p * (dy - (p * dy).sum(axis, keepdims=True))

def half(x):
    p, backward = softmax(x)
    return p, lambda dy: p * dy

def blind(x):
    return np.linalg.norm(x, axis=-1), lambda dy: np.zeros_like(x)

def product(x, w):
    return x @ w

def product_backward(dy, x, w):
    return dy @ w.T, x.T @ dy

def product_mistaken(dy, x, w):
    return dy @ w.T, 2 * (x.T @ dy)

def nothing(x):
    pass

def raises(x):
    return x.mean_of_all

def raises_later(x):
    return x * x, lambda dy: dy.mean_of_all

def few_arguments(x):
    return x * x, softmax_of_three

def softmax_of_three(a, b, c):
    pass

def leaves(x):
    sys.exit(0)

def stopped_by_hand(x):
    raise KeyboardInterrupt

class Parameter:
    def __init__(self, value):
        self.value, self.grad = value, np.zeros_like(value)

class Scale:
    def __init__(self, slope):
        self.gamma, self.slope = Parameter(np.array([2.0, -3.0, 0.5])), slope

    def parameters(self):
        return {"gamma": self.gamma}

    def forward(self, x):
        gamma = self.gamma.value

        def backward(dy):
            self.gamma.grad += self.slope * (dy * x).sum(0)
            return dy * gamma

        return x * gamma, backward

layer, layer_mistaken = Scale(1), Scale(2)

class Holder:
    softmax = staticmethod(softmax)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current directory, with ops.py in it; what is imported from it is forgotten afterwards."""
    (tmp_path / "ops.py").write_text(OPS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def run(*arguments: str, stdout: Any = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "gradcheck", *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


def first_words(capsys) -> str:
    captured = capsys.readouterr()
    assert captured.err == ""
    return " ".join(captured.out.split()[:2])


RIGHT_AND_WRONG = [
    ("ops:softmax --shape 3,5", 0, "PASS softmax:"),
    ("ops.py:softmax --shape 3,5", 0, "PASS softmax:"),
    ("ops:Holder.softmax --shape 3,5", 0, "PASS softmax:"),
    ("ops:softmax --shape 3,5 --option axis=0 --option temper=hot", 0, "PASS softmax:"),
    ("ops:softmax --shape 3,5 --option temper='hot'", 0, "PASS softmax:"),
    ("ops:half --shape 3,5", 1, "FAIL half:"),
    ("ops:half --shape 3,5 --truth complex --rtol 1e-6 --seed 7", 1, "FAIL half:"),
    ("ops:softmax --shape 3,5 --truth difference", 0, "PASS softmax:"),
    ("ops:softmax --shape 3,5 --dtype float32", 0, "PASS softmax:"),
    ("ops:blind --shape 3,5", 1, "FAIL blind:"),
    ("ops:blind --shape 3,5 --truth complex", 3, "INCONCLUSIVE blind:"),
    ("ops:product ops:product_backward --shape 3,5 --shape 5,2", 0, "PASS product:"),
    ("ops.py:product ops:product_backward --shape 3,5 --shape 5,2", 0, "PASS product:"),
    ("ops:product ops:product_mistaken --shape 3,5 --shape 5,2", 1, "FAIL product:"),
    ("ops:layer --shape 5,3", 0, "PASS Scale:"),
    ("ops:layer_mistaken --shape 5,3", 1, "FAIL Scale:"),
]


@pytest.mark.parametrize(("line", "status", "words"), RIGHT_AND_WRONG)
def test_the_report_is_printed_and_the_verdict_is_the_exit_status(line, status, words, capsys):
    assert main(line.split()) == status
    assert first_words(capsys) == words


def test_a_file_anywhere_may_import_its_neighbours(folder, capsys):
    there = folder / "elsewhere" / "my ops"
    there.mkdir(parents=True)
    (there / "neighbour.py").write_text(OPS, encoding="utf-8")
    (there / "json.py").write_text("from neighbour import half, softmax\n", encoding="utf-8")
    assert main([f"{there}{os.sep}json.py:softmax", "--shape", "3,5"]) == 0
    assert first_words(capsys) == "PASS softmax:"
    assert main([str(Path("elsewhere", "my ops", "json.py:half")), "--shape", "3,5"]) == 1


def test_one_file_that_holds_both_functions_is_run_once(folder, capsys):
    (folder / "both.py").write_text(f"{OPS}\nprint('once')\n", encoding="utf-8")
    assert main(["both.py:product", "both.py:product_backward", "--shape", "3,5", "--shape", "5,2"]) == 0
    assert capsys.readouterr().out.count("once") == 1


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (["3,5", "5"], [(3, 5), (5,)]),
        (["scalar"], [()]),
        (["0,3", "1"], [(0, 3), (1,)]),
        ([" 3, 5"], [(3, 5)]),
    ],
)
def test_shapes_dtype_seed_and_options_reach_the_check(shapes, expected, monkeypatch):
    seen = []

    def check(op, *arrays, **options):
        seen.append((op.__name__, arrays, options))
        return Report("made up", "pass")

    monkeypatch.setattr(command, "check", check)
    given = [word for each in shapes for word in ("--shape", each)]
    line = "--dtype float32 --truth complex --rtol 1e-3 --seed 11 --option axis=0 --option sizes=[2,(3,None)] --option t=a"
    assert main(["ops:softmax", *given, *line.split()]) == 0
    assert main(["ops:softmax", *given, "--seed", "12"]) == 0
    (name, arrays, options), (_, others, defaults) = seen
    assert name == "softmax"
    assert [array.shape for array in arrays] == expected
    assert {array.dtype.name for array in arrays} == {"float32"}
    assert {array.dtype.name for array in others} == {"float64"}
    assert all(array.size == 0 or (array != other).all() for array, other in zip(arrays, others, strict=True))
    settings = {"truth": "complex", "rtol": 1e-3, "seed": 11}
    assert options == {**settings, "axis": 0, "sizes": [2, (3, None)], "t": "a"}
    assert defaults == {"truth": "auto", "rtol": None, "seed": 12}


def test_the_same_seed_prints_the_same_report(capsys):
    reports = []
    for seed in ("3", "3", "4"):
        main(["ops:softmax", "--shape", "3,5", "--seed", seed])
        reports.append(capsys.readouterr().out)
    assert reports[0] == reports[1] != reports[2]


WRONG_USAGE = [
    ("ops:softmax", "the following arguments are required: --shape"),
    ("--shape 3", "the following arguments are required: FUNCTION"),
    ("ops --shape 3", "a function is named as package.module:function or file.py:function, got 'ops'"),
    ("ops.py --shape 3", "a function is named as package.module:function or file.py:function, got 'ops.py'"),
    (":softmax --shape 3", "a function is named as package.module:function or file.py:function, got ':softmax'"),
    ("ops: --shape 3", "a function is named as package.module:function or file.py:function, got 'ops:'"),
    ("ops:soft-max --shape 3", "a function is named as package.module:function or file.py:function, got 'ops:soft-max'"),
    (".ops:softmax --shape 3", "a module's name is absolute, got '.ops'"),
    ("opps:softmax --shape 3", "there is no module opps, neither in this folder nor installed"),
    ("ops.deep:softmax --shape 3", "there is no module ops.deep, neither in this folder nor installed"),
    ("ops:softmx --shape 3", "ops has no softmx; it has softmax, half, "),
    ("ops.py:softmx --shape 3", "ops.py has no softmx; it has softmax, half, "),
    ("ops:Holder.softmx --shape 3", "ops has no Holder.softmx; it has softmax, half, "),
    ("ops:number --shape 3", "ops:number must be a function or a layer, got int"),
    ("ops:product ops:number --shape 3", "ops:number must be a function or a layer, got int"),
    ("ops:Scale --shape 3", "ops:Scale must be a function or a layer, got a class"),
    ("ops:nothing --shape 3", "nothing must return (y, backward), got NoneType"),
    ("ops:product --shape 3,5 --shape 5,2", "product must return (y, backward), got ndarray"),
    ("ops:product --shape 3,5", "product() missing 1 required positional argument: 'w'"),
    ("ops:softmax --shape 3 --option bias=1", "softmax() got an unexpected keyword argument 'bias'"),
    ("ops:softmax --shape 3,-5", "argument --shape: a shape is whole numbers such as 3,5, or the word scalar, got '3,-5'"),
    ("ops:softmax --shape 3x5", "argument --shape: a shape is whole numbers such as 3,5, or the word scalar, got '3x5'"),
    ("ops:softmax --shape=", "argument --shape: a shape is whole numbers such as 3,5, or the word scalar, got ''"),
    ("ops:softmax --shape 3,", "argument --shape: a shape is whole numbers such as 3,5, or the word scalar, got '3,'"),
    ("ops:softmax --shape 10000000000,10000000", "Unable to allocate"),
    ("ops:softmax --shape 10000000000000000000000", "Maximum allowed dimension exceeded"),
    ("ops:softmax --shape 3 --option axis", "argument --option: an option is NAME=VALUE, got 'axis'"),
    ("ops:softmax --shape 3 --option =0", "argument --option: an option is NAME=VALUE, got '=0'"),
    (
        "ops:softmax --shape 3 --option a=1-",
        "argument --option: the value of a must be written as in Python, got '1-'",
    ),
    ("ops:softmax --shape 3 --option a=true", "argument --option: the value of a must be written as in Python, got 'true'"),
    (
        "ops:softmax --shape 3 --option seed=1",
        "--option seed is an argument of check itself: bind it with functools.partial",
    ),
    ("ops:softmax --shape 3 --seed -1", "--seed must be at least 0, got -1"),
    ("ops:softmax --shape 3 --seed one", "argument --seed: invalid int value: 'one'"),
    ("ops:softmax --shape 3 --rtol 2", "rtol must be between 0 and 1, got 2.0"),
    ("ops:softmax --shape 3 --rtol nan", "rtol must be between 0 and 1, got nan"),
    ("ops:softmax --shape 3 --dtype int64", "argument --dtype: invalid choice: 'int64'"),
    ("ops:softmax --shape 3 --truth guess", "argument --truth: invalid choice: 'guess'"),
    ("ops:softmax --shape 3 --tru complex", "unrecognized arguments: --tru complex"),
]


@pytest.mark.parametrize(("line", "sentence"), WRONG_USAGE)
def test_wrong_usage_is_one_line_that_names_it_and_status_2(line, sentence, capsys):
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"python -m gradcheck: {sentence}")
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("\n")


def test_a_missing_file_is_named(folder, capsys):
    assert main(["opps.py:softmax", "--shape", "3"]) == 2
    assert capsys.readouterr().err == f"python -m gradcheck: there is no file {folder.resolve() / 'opps.py'}\n"


def test_without_arguments_the_usage_is_printed():
    ended = run()
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.decode().splitlines() == [
        "usage: python -m gradcheck FUNCTION [BACKWARD] --shape 3,5 [--shape 5 ...] [options]",
        "python -m gradcheck --help says more",
    ]


def test_the_help_fits_one_screen_and_says_what_each_exit_status_means():
    ended = run("--help", COLUMNS="80", PYTHONIOENCODING="ascii:strict")
    assert (ended.returncode, ended.stderr) == (0, b"")
    lines = ended.stdout.decode("ascii").splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines[1:])) < 80
    page = " ".join(" ".join(lines).split())
    assert "0 pass; 1 fail; 3 inconclusive; 2 no verdict" in page
    for name in ("shape", "option", "dtype", "truth", "rtol", "seed"):
        assert f" --{name} " in page


# What the user's own code raises.


@pytest.mark.parametrize(("name", "scope"), [("raises", "raises"), ("raises_later", "<lambda>")])
def test_an_exception_of_the_function_is_shown_from_its_own_first_line_on(name, scope, folder, capsys):
    assert main([f"ops.py:{name}", "--shape", "3"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    head, place, *_ = captured.err.splitlines()
    assert head == "Traceback (most recent call last):"
    assert place.startswith(f'  File "{folder.resolve() / "ops.py"}", line ')
    assert place.endswith(f", in {scope}")
    assert "\nAttributeError: 'numpy.ndarray' object has no attribute 'mean_of_all'\n" in captured.err


def test_a_call_that_never_reached_the_users_code_is_one_line_that_says_which(capsys):
    assert main(["ops:few_arguments", "--shape", "3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m gradcheck: softmax_of_three() missing 2 required positional arguments: 'b' and 'c' (")
    assert "backward" in line


@pytest.mark.parametrize(
    ("source", "line", "last"),
    [
        ("import a_module_that_nobody_has\n", 1, "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
        ("\nnumber = 1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("\n\ndef (:\n", 3, "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(0)\n", 2, "SystemExit: 0"),
    ],
)
@pytest.mark.parametrize("name", ["broken:f", "broken.py:f"])
def test_a_module_that_cannot_be_imported_shows_its_own_traceback(source, line, last, name, folder, capsys):
    (folder / "broken.py").write_text(source, encoding="utf-8")
    assert main([name, "--shape", "3"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    files = [text for text in lines if text.startswith("  File ")]
    assert len(files) == 1
    assert f'broken.py", line {line}' in files[0]
    assert lines[-1] == last


def test_a_function_that_ends_python_is_no_pass(capsys):
    assert main(["ops:leaves", "--shape", "3"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "SystemExit: 0"


def test_a_fault_of_gradcheck_itself_keeps_its_traceback(monkeypatch, capsys):
    monkeypatch.delattr("gradcheck.checker.Examination")
    assert main(["ops:softmax", "--shape", "3"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert any(line.endswith(", in examine") for line in lines)
    assert lines[-1].startswith("NameError: ")


# Consoles, pipes and disks.


def test_ctrl_c_is_one_line_and_130(capsys):
    assert main(["ops:stopped_by_hand", "--shape", "3"]) == 130
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "\npython -m gradcheck: interrupted\n")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_console_that_lacks_a_character_shows_the_rest(encoding):
    ended = run("ops:half", "--shape", "3,5", PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (1, b"")
    report = ended.stdout.decode(encoding)
    assert report.startswith("FAIL half:")
    assert ("×".encode(encoding, "replace").decode(encoding) + " bar ") in report


@pytest.mark.skipif(os.name == "nt", reason="no pipe of this kind")
@pytest.mark.parametrize(("function", "status"), [("softmax", 0), ("half", 1)])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_changes_nothing(function, status, unbuffered):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        ended = run(f"ops:{function}", "--shape", "3,5", stdout=pipe, PYTHONUNBUFFERED=unbuffered)
    assert (ended.returncode, ended.stderr) == (status, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
@pytest.mark.parametrize("arguments", [["ops:softmax", "--shape", "3,5"], ["--help"]])
def test_a_full_disk_is_named(arguments):
    with open("/dev/full", "wb") as disk:
        ended = run(*arguments, stdout=disk)
    assert (ended.returncode, ended.stderr) == (2, b"python -m gradcheck: No space left on device\n")
