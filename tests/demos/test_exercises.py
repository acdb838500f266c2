"""`python -m demos exercises`: what the file of an exercise holds and does not hold, and what is said of a student's."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import gradcheck
from demos.exercises import cases, command, grading
from demos.exercises.writing import EXERCISES, HARDER, SPEAKS_OF_GRADIENTS, source_of, without_answer, written_out
from npformer.catalogue import OPERATIONS
from permissions import needs_permissions

ROOT = Path(__file__).parents[2]
STUB = "raise NotImplementedError"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The student's folder; the working folder holds it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "exercises"


@pytest.fixture
def exercises(run_here):
    return partial(run_here, command.main)


@pytest.fixture
def hand_in(folder, exercises):
    """Puts a file in the folder and has it graded."""

    def run(name: str, text: str) -> tuple[int, str, str]:
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        return exercises(name)

    return run


@pytest.fixture
def _few(monkeypatch):
    """Few cases are tried, where a test is about something else."""
    monkeypatch.setattr(grading, "trials", lambda name: cases.trials(name)[:1] + cases.trials(name)[-2:])


def backwards(tree: ast.AST) -> list[ast.FunctionDef]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "backward"]
    return sorted(found, key=lambda node: node.lineno)


def bodies(source: str) -> list[str]:
    """The lines of every backward, with their indentation."""
    lines = source.splitlines()
    return ["\n".join(lines[node.body[0].lineno - 1 : node.end_lineno]) for node in backwards(ast.parse(source))]


def answered(name: str, *answers: str) -> str:
    """An exercise with these bodies in place of its stubs, or npformer's own, and what else those need."""
    text = written_out(name)
    original = source_of(name).read_text(encoding="utf-8")
    for answer in answers or bodies(original):
        text = text.replace(f"        {STUB}", answer.rstrip(), 1)
    lines, tree = original.splitlines(), ast.parse(original)
    held = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    helpers = [
        "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name not in held
    ]
    return "\n\n".join(["\n".join(imports), text, *helpers])


def softmax(body: str) -> str:
    return answered("softmax", f"        {body}")


def simple_statements(tree: ast.AST) -> set[str]:
    kinds = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, kinds)}


def test_every_operation_with_a_gradient_is_an_exercise_the_hardest_last():
    assert sorted(EXERCISES) == sorted(name for name, operation in OPERATIONS.items() if operation.differentiable)
    assert tuple(EXERCISES[: len(HARDER)]) == HARDER


@pytest.mark.parametrize("name", EXERCISES)
def test_a_file_lacks_the_answer_and_nothing_else(name):
    text = written_out(name)
    original = source_of(name).read_text(encoding="utf-8")
    tree, original_tree = ast.parse(text), ast.parse(original)
    answer = set().union(*(simple_statements(node) for node in backwards(original_tree)))
    assert not answer & simple_statements(tree)
    assert text.count(STUB) == len(backwards(original_tree)) == len(backwards(tree)) > 0
    docstring = ast.get_docstring(tree)
    assert not SPEAKS_OF_GRADIENTS.search(docstring.partition("The backward is left out")[0])
    assert not re.search(r"\b(d[xyzγ]|dlogits|dtable)\b|∂", docstring)
    assert docstring.splitlines()[0] == ast.get_docstring(original_tree).splitlines()[0]
    assert max(map(len, text.splitlines())) <= 125

    def forward(tree):
        [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
        return [ast.unparse(node) for node in function.body if getattr(node, "name", "") != "backward"]

    assert forward(tree) == forward(original_tree)
    assert written_out(name) == text


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_from_its_writing_to_its_solution(name, folder, exercises, hand_in, _few):
    path = os.path.join("exercises", f"{name}.py")
    status, out, errors = exercises(name)
    assert (status, errors) == (0, "")
    assert out.startswith(f"{name}: {path} is written.")
    assert f"python -m demos exercises {name}\n" in out
    text = (folder / f"{name}.py").read_text(encoding="utf-8")
    first = text[: text.index(STUB)].count("\n") + 1
    assert exercises(name) == (1, f"{name}: not written yet: {path}, line {first}\n", "")
    assert (folder / f"{name}.py").read_text(encoding="utf-8") == text
    status, out, errors = hand_in(name, answered(name))
    assert (status, errors) == (0, "")
    assert out.startswith(f"{name}: solved.")
    assert f"{name}.py\n" in out


@pytest.mark.long
@pytest.mark.parametrize("name", EXERCISES)
def test_npformers_own_backward_is_right_in_all_cases(name, hand_in):
    status, out, _ = hand_in(name, answered(name))
    assert (status, out.partition(".")[0]) == (0, f"{name}: solved")


@pytest.mark.parametrize("name", EXERCISES)
def test_zeros_and_doubled_gradients_are_not_right(name, hand_in, monkeypatch):
    plain = cases.trials(name)[:1]
    monkeypatch.setattr(grading, "trials", lambda name: plain)
    right = answered(name)
    for factor in ("0", "2", "1.00001"):
        wrong = f"""{right}

_right = {name}


def {name}(*args, **options):
    y, backward = _right(*args, **options)

    def wrong(dy):
        gradients = backward(dy)
        return tuple({factor} * each for each in gradients) if isinstance(gradients, tuple) else {factor} * gradients

    return y, wrong
"""
        status, out, errors = hand_in(name, wrong)
        assert (status, errors) == (1, "")
        assert out.startswith(f"{name}: not yet: wrong in the plainest case, ")
        assert " and should be " in out


IN_OTHER_WORDS = {
    "relu": "return dy * (x > 0)",
    "sigmoid": "return dy * y * (1 - y)",
    "tanh": "return dy * (1 - y**2)",
    "silu": "return dy * gate * (1 + x * (1 - gate))",
    "softmax": "return y * dy - y * (y * dy).sum(axis, keepdims=True)",
    "log_softmax": "p = np.exp(y)\n        total = p.sum(axis, keepdims=True)\n"
    "        return dy - p / np.where(total == 0, 1, total) * dy.sum(axis, keepdims=True)",
    "embedding": "dtable = np.zeros_like(table)\n        np.add.at(dtable, ids, dy)\n"
    "        if padding_id is not None:\n            dtable[padding_id] = 0\n        return dtable",
    "cross_entropy": "q = np.full(z.shape, label_smoothing / logits.shape[-1], z.dtype)\n"
    "        q[row, target] += 1 - label_smoothing\n        dlogits = np.zeros_like(logits)\n"
    "        dlogits[counted] = dtotal * (np.exp(log_softmax) - q)\n        return dlogits",
    "layer_norm": "rows = tuple(range(x.ndim - 1))\n        dn, D = dy * gamma, x.shape[-1]\n"
    "        dx = r / D * (D * dn - dn.sum(-1, keepdims=True) - n * (dn * n).sum(-1, keepdims=True))\n"
    "        return dx, (dy * n).sum(axis=rows), dy.sum(axis=rows)",
    "linear": "dy2, x2 = dy.reshape(-1, weight.shape[1]), x.reshape(-1, weight.shape[0])\n"
    "        gradients = [dy @ weight.T, np.einsum('ni,no->io', x2, dy2), dy2.sum(axis=0)]\n"
    "        return tuple(gradients[: 2 if bias is None else 3])",
    "split_heads": "return np.concatenate([dy[:, h] for h in range(n_heads)], axis=-1)",
    "rotary": "a, b = dy[..., first], dy[..., second]\n        dx = np.empty_like(dy)\n"
    "        dx[..., first] = a * cos + b * sin\n        dx[..., second] = b * cos - a * sin\n        return dx",
}


@pytest.mark.long
@pytest.mark.parametrize("name", IN_OTHER_WORDS)
def test_a_right_answer_in_other_words_is_right(name, hand_in):
    status, out, _ = hand_in(name, answered(name, f"        {IN_OTHER_WORDS[name]}"))
    assert (status, out.partition(".")[0]) == (0, f"{name}: solved"), out


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("relu", "return np.where(x.real >= 0, dy, 0)", "wrong where some numbers are equal or 0"),
        ("relu", "return dy * (y > 0).astype(np.float64)", "wrong in float32"),
        ("softmax", "return y * (dy - (dy * y).sum(-1, keepdims=True))", "axis="),
        ("softmax", "return y * (dy - (dy * y).sum())", "wrong in the plainest case, x (3, 3)"),
        ("layer_norm", "g = gamma * dy\n        return g, dy * n, dy", "wrong in the plainest case"),
        ("dropout", "return dy * (y != 0) / (1 - p)", "wrong where some numbers are equal or 0"),
        ("embedding", "dtable = np.zeros_like(table)\n        dtable[ids] += dy\n        return dtable", "ids int64"),
        ("cross_entropy", "return dtotal * (np.exp(log_softmax))", "wrong in the plainest case"),
        ("linear", "return (dy @ weight.T).reshape(x.shape), rows.T @ dy.reshape(y.shape)", "wrong with a bias"),
        ("tanh", "dy *= 1 - y * y\n        return dy", "the backward overwrites dy"),
        ("sigmoid", "return [dy * y * (1 - y), dy]", "2 gradient(s) for 1 floating"),
        ("sigmoid", "pass", "backward returns nothing"),
        ("sigmoid", "return dy.sum()", "shape ()"),
    ],
)
def test_what_is_wrong_is_said_in_words(name, body, words, hand_in):
    status, out, errors = hand_in(name, answered(name, f"        {body}"))
    assert (status, errors) == (1, "")
    assert out.startswith(f"{name}: not yet: ")
    assert words in out
    assert "Traceback" not in out


@pytest.mark.parametrize(
    ("name", "body", "hint", "answer"),
    [
        ("softmax", "return y * dy", "the gradient of x lacks a term", "times"),
        ("sigmoid", "return dy * y", "the gradient of x lacks a factor", "1 −"),
    ],
)
def test_a_hint_is_not_the_answer(name, body, hint, answer, hand_in):
    out = hand_in(name, answered(name, f"        {body}"))[1]
    assert hint in out
    assert answer not in out


def test_the_diagnosis_is_handed_on(hand_in, monkeypatch):
    report = gradcheck.Report("softmax", "fail", diagnosis=["it is twice too large"])
    monkeypatch.setattr(gradcheck, "check", lambda *_, **__: report)
    assert hand_in("softmax", softmax("return dy"))[1].endswith("\n  it is twice too large\n")


@pytest.mark.parametrize(
    ("body", "words", "line"),
    [
        ("return y * (dy - s)", "NameError: name 's' is not defined", "return y * (dy - s)"),
        ("return y @ np.zeros((7, 7))", "ValueError: matmul", "return y @ np.zeros((7, 7))"),
        ("return backward(dy)", "RecursionError: ", "return backward(dy)"),
        ("exit(3)", "SystemExit: 3", "exit(3)"),
        ("return y[0, 0, 0, 0]", "IndexError: too many", "return y[0, 0, 0, 0]"),
    ],
)
def test_an_exception_has_its_line_and_no_traceback(body, words, line, hand_in):
    text = softmax(body)
    number = text[: text.index(f"        {body}")].count("\n") + 1
    status, out, errors = hand_in("softmax", text)
    assert (status, errors) == (1, "")
    assert f"  {os.path.join('exercises', 'softmax.py')}, line {number}: {words}" in out
    assert out.endswith(f"\n    {line}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def softmax(x:\n    pass\n", ", line 1: SyntaxError: "),
        (
            "import numpy as np\n\nimport nmupy\n",
            ", line 3: ModuleNotFoundError: No module named 'nmupy'\n    import nmupy\n",
        ),
        ("1 / 0\n", ", line 1: ZeroDivisionError: division by zero\n    1 / 0\n"),
        ("raise SystemExit(5)\n", ", line 1: SystemExit: 5\n"),
        ("", " has no function softmax any more\n"),
        ("softmax = 3\n", " has no function softmax any more\n"),
        ("a = '\0'\n", "null bytes"),
        ("def softmax(x, axis=-1):\n    return x\n", "softmax must return y and backward, and returns ndarray\n"),
        ("def softmax(x, axis=-1):\n    pass\n", "softmax must return y and backward, and returns NoneType\n"),
        ("def softmax(x, axis=-1):\n    return x, 3\n", "softmax must return y and backward, and returns tuple\n"),
        ("def softmax():\n    pass\n", "TypeError: softmax() got an unexpected keyword argument 'x'\n"),
    ],
)
def test_a_broken_file_is_a_sentence(text, words, hand_in):
    status, out, errors = hand_in("softmax", text)
    assert (status, errors) == (1, "")
    assert words in out
    assert out.startswith("softmax: ")
    assert out.count("\n") <= 3


def test_bytes_that_are_no_text_are_a_sentence(folder, exercises):
    folder.mkdir()
    (folder / "relu.py").write_bytes(b"a = '\xff\xfe'\n")
    status, out, errors = exercises("relu")
    assert (status, errors) == (1, "")
    assert "SyntaxError: " in out


def test_a_file_may_print_and_its_own_frames_only_are_shown(hand_in):
    status, out, _ = hand_in("softmax", "print('hello')\n" + answered("softmax"))
    assert (status, out.splitlines()[0]) == (0, "hello")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("y = e / np.where", "y = 2 * e / np.where"), ("return y, backward", "return y.sum(axis), backward")],
)
def test_another_forward_is_noticed(right, wrong, hand_in):
    text = answered("softmax")
    assert text.count(right) == 1
    status, out, _ = hand_in("softmax", text.replace(right, wrong))
    assert status == 1
    assert "the forward does not compute what npformer's does" in out


def test_the_same_forward_in_other_words_is_fine(hand_in):
    text = answered("softmax").replace("y = e / np.where(blank, 1, total)", "y = e * (1 / np.where(blank, 1, total))")
    assert hand_in("softmax", text)[0] == 0


def test_a_forward_that_casts_to_float64_is_not_called_solved(hand_in):
    text = answered("relu").replace("off = x.real <= 0", "x = np.asarray(x.real, float)\n    off = x <= 0")
    status, out, _ = hand_in("relu", text)
    assert status == 1
    assert "in float32" in out and "the forward does not compute" in out


def test_the_list_marks_what_is_begun_and_what_is_solved(folder, exercises, hand_in, _few):
    def marks():
        status, out, errors = exercises()
        assert (status, errors) == (0, "")
        head, empty, *listed, _, end = out.splitlines()
        assert head.startswith("python -m demos exercises NAME ")
        assert [next(word for word in line.split() if word in EXERCISES) for line in listed] == EXERCISES
        return {name: line.split()[0] for name, line in zip(EXERCISES, listed, strict=True)}, end

    found, end = marks()
    assert not folder.exists()
    assert found == {name: name for name in EXERCISES}
    assert end.startswith(f"0 of {len(EXERCISES)} solved in exercises;")
    exercises("linear")
    assert hand_in("relu", answered("relu"))[1].endswith("  Next: python -m demos exercises linear\n")
    found, end = marks()
    assert (found["relu"], found["linear"]) == ("solved", "begun")
    assert end.startswith("1 of ")
    with open(folder / "relu.py", "a", encoding="utf-8") as file:
        file.write("\n")
    assert marks()[0]["relu"] == "begun"
    for damaged in ("{", "[]", json.dumps({"relu": 3, "../relu": ""})):
        (folder / command.RECORD).write_text(damaged, encoding="utf-8")
        assert marks()[0]["relu"] == "begun"
        assert exercises("relu")[0] == 0
        assert marks()[0]["relu"] == "solved"
    assert sorted(os.listdir(folder)) == [command.RECORD, "linear.py", "relu.py"]


def test_another_folder_stands_in_what_to_type_next(exercises, tmp_path):
    status, out, _ = exercises("relu", "--folder", "my own/files")
    assert status == 0
    assert "python -m demos exercises relu --folder 'my own/files'\n" in out
    assert (tmp_path / "my own" / "files" / "relu.py").read_text(encoding="utf-8") == written_out("relu")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sofmax"], "exercises: there is no exercise 'sofmax'; there are relu, linear, "),
        (["softmax.py"], "exercises: there is no exercise 'softmax.py'; there are "),
        (["alibi_bias"], "exercises: there is no exercise 'alibi_bias'; there are "),
        (["../softmax"], "exercises: there is no exercise '../softmax'; there are "),
        (["two\nlines"], r"exercises: there is no exercise 'two\nlines'; there are "),
        ([""], "exercises: there is no exercise ''; there are "),
        (["relu", "tanh"], "python -m demos exercises: unrecognized arguments: tanh"),
        (["--folder", ""], "python -m demos exercises: argument --folder: must not be empty"),
        (["--nothing"], "python -m demos exercises: unrecognized arguments: --nothing"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(arguments, words, exercises, folder):
    status, out, errors = exercises(*arguments)
    assert (status, out) == (2, "")
    assert errors.startswith(words)
    assert errors.count("\n") == 1
    assert not folder.exists()


def test_a_folder_that_is_a_file_is_refused(exercises, tmp_path):
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    status, out, errors = exercises("relu", "--folder", "taken")
    assert (status, out) == (2, "")
    assert errors.startswith("exercises: taken")
    assert errors.count("\n") == 1
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "mine"


@needs_permissions
def test_an_unwritable_folder_is_refused_and_its_files_are_graded(exercises, hand_in, folder):
    assert hand_in("relu", answered("relu"))[0] == 0
    (folder / command.RECORD).unlink()
    folder.chmod(0o500)
    try:
        status, out, errors = exercises("linear")
        assert (status, out) == (2, "")
        assert errors == f"exercises: {os.path.join('exercises', 'linear.py')}: Permission denied\n"
        assert exercises("relu")[0] == 0
    finally:
        folder.chmod(0o700)


def test_what_stands_in_the_way_is_never_replaced(exercises, folder):
    folder.mkdir()
    (folder / "relu.py").mkdir()
    assert exercises("relu")[0] == 2
    assert (folder / "relu.py").is_dir()


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_a_link_to_nothing_is_left_alone(exercises, folder):
    folder.mkdir()
    (folder / "relu.py").symlink_to(folder / "gone.py")
    status, _, errors = exercises("relu")
    assert (status, errors.count("\n")) == (2, 1)
    assert not (folder / "gone.py").exists()


def test_a_file_that_appears_meanwhile_is_not_overwritten(exercises, folder, monkeypatch):
    def slow(name):
        folder.mkdir()
        (folder / "relu.py").write_text("mine", encoding="utf-8")
        return "ours"

    monkeypatch.setattr(command, "written_out", slow)
    assert exercises("relu")[0] == 2
    assert (folder / "relu.py").read_text(encoding="utf-8") == "mine"


def test_a_file_that_cannot_be_written_whole_is_not_left_in_part(exercises, folder, monkeypatch):
    monkeypatch.setattr(command, "written_out", lambda name: "a\ud800")
    assert exercises("relu")[0] == 2
    assert os.listdir(folder) == []


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_endless_loop_is_ended_by_ctrl_c_in_one_line(folder):
    folder.mkdir()
    text = softmax("print('looping', flush=True)\n        while True:\n            pass")
    (folder / "softmax.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-W", "error", "-m", "demos", "exercises", "softmax", "--folder", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    try:
        assert process.stdout.readline() == "looping\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, errors) == (130, "", "\nexercises: interrupted\n")


WITH_SAVED_LINES = '''"""Doubles.

    y = 2·x          dy/dx = 2

The slope of it is 2, says this paragraph.

This one stays.

Backward. It is 2.

Source: somebody.
"""

import math
import os

import numpy as np

FACTOR = 2
SLOPE = 3


@operation(x="...")
def double(x, flag=None):
    """Doubles `x`."""
    # The answer is here.
    saved = FACTOR * x  # for the backward
    table = np.zeros(3)
    table[0] = slope_of(saved)
    a, b = x, x
    if flag:
        saved = saved + 1
        if x is None:
            saved = 3
    if flag is None:
        a = 2 * x
    else:
        saved = 4

    def only_for_backward(dy):
        return table * dy

    y = FACTOR * a  # (B,T) → (B,T)

    def backward(dy):
        # Its secret.
        return only_for_backward(dy) * SLOPE * math.pi

    return y, backward


def slope_of(x):
    return 2
'''


def test_lines_that_only_a_backward_needs_are_left_out():
    text = without_answer(WITH_SAVED_LINES, "double", {"x": "dx (...)"})
    head, _, rest = text.partition('"""\n\n')
    assert head.startswith('"""Doubles.\n\n    y = 2·x\n\nThis one stays.\n\nSource: somebody.\n\nThe backward is left out.')
    before, _, after = rest.partition("        # dy says")
    assert before == (
        "import numpy as np\n\nFACTOR = 2\n\n\n"
        '@operation(x="...")\ndef double(x, flag=None):\n    """Doubles `x`."""\n    a, b = x, x\n'
        "    if flag is None:\n        a = 2 * x\n"
        "    else:\n        pass\n\n    y = FACTOR * a  # (B,T) → (B,T)\n\n    def backward(dy):\n"
    )
    assert after.endswith(f"        {STUB}\n\n    return y, backward\n")
    for word in ("saved", "table", "secret", "slope", "SLOPE", "math"):
        assert word not in text


def test_cases_are_many_different_and_the_same_every_time():
    for name in EXERCISES:
        tried = cases.trials(name)
        assert [cases.contents(each.case) for each in tried] == [cases.contents(each.case) for each in cases.trials(name)]
        assert len({cases.contents(each.case) for each in tried}) > 0.8 * len(tried) > 15
        assert [str(each) for each in tried] == [str(each) for each in cases.trials(name)]
        for option in OPERATIONS[name].options:
            assert option == "rng" or any(option in each.case.options for each in tried), (name, option)
