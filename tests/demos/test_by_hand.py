"""`python -m demos by_hand`: what is shown is what npformer computes, and what is wrong is seen."""

import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from demos.by_hand import experiments, head, main, one_head, one_operation, pairs, quoting, tables, terminal
from demos.by_hand.head import LINES, Head, rows_of
from npformer.catalogue import OPERATIONS
from npformer.functional import attention, attention_weights, softmax

ROOT = Path(__file__).parents[2]
WORDS = list(one_head.WORDS)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?|-?inf")
WITH_GRADIENTS = [name for name, operation in OPERATIONS.items() if operation.differentiable]
TABLES = [name for name in OPERATIONS if name not in WITH_GRADIENTS]


@pytest.fixture
def demo(run_here):
    return partial(run_here, main)


@pytest.fixture
def damage(monkeypatch):
    """Lines of npformer read differently: one text in its files replaced by another."""
    text_of = quoting.text_of

    def put(right: str, wrong: str) -> None:
        def damaged(module):
            return text_of(module).replace(right, wrong)

        monkeypatch.setattr(quoting, "text_of", damaged)

    return put


def as_process(*arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_"))}
    command = [sys.executable, "-W", "error", "-m", "demos", "by_hand", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**environment, **more}, capture_output=True, input=b"", check=False)


def shown_pairs(output: str) -> list[tuple[list[str], list[str]]]:
    """The numbers left and right of each | in a table."""
    rows = [line.split("  |  ") for line in output.splitlines() if line.count("  |  ") == 1]
    found = [(NUMBER.findall(left), NUMBER.findall(right)) for left, right in rows if "by gradcheck" not in right]
    return [(left, right) for left, right in found if right]


# One head.


def random_head(T: int = 5, K: int = 3, V: int = 2) -> Head:
    rng = np.random.default_rng(0)
    return Head(*(rng.standard_normal((T, width)) for width in (K, K, V, V)))


@pytest.mark.parametrize("own", [True, False])
def test_the_steps_end_at_attentions_own_output_and_gradients(own):
    one = Head(one_head.QUERY, one_head.KEY, one_head.VALUE, one_head.DY) if own else random_head()
    y, backward = attention(one.query, one.key, one.value, causal=True)
    P, _ = attention_weights(one.query, one.key, causal=True)
    s = one.scores(one.query, one.key)
    np.testing.assert_allclose(rows_of(one.weights(s)), rows_of(P), rtol=0, atol=1e-15)
    np.testing.assert_allclose(rows_of(one.output(one.weights(s), one.value)), rows_of(y), rtol=0, atol=1e-15)
    gradients = one.backward()
    for name, expected in zip(("dq", "dk", "dv"), backward(one.dy), strict=True):
        np.testing.assert_allclose(gradients[name], rows_of(expected), rtol=0, atol=1e-15)


def test_the_gradients_between_are_those_of_the_operations_between():
    one = random_head()
    P, weights_backward = softmax(one.hidden(one.scores(one.query, one.key)))
    dP = one.dy[:, :, None] @ one.value[:, :, None].swapaxes(-1, -2)
    np.testing.assert_allclose(one.backward()["dP"], rows_of(dP), rtol=0, atol=1e-15)
    np.testing.assert_allclose(one.backward()["ds"], rows_of(weights_backward(dP)), rtol=0, atol=1e-15)


def test_gradcheck_finds_every_gradient_of_a_head():
    one = random_head()
    computed, found = one.backward(), one.found()
    assert list(computed) == list(found) == ["dv", "dP", "ds", "dq", "dk"]
    for name in computed:
        assert np.abs(computed[name]).max() > 0.01
        np.testing.assert_allclose(found[name], computed[name], rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", LINES)
def test_every_line_that_is_shown_is_in_its_file(name):
    line = quoting.line_of(*LINES[name])
    text = Path(line.module.__file__).read_text(encoding="utf-8").splitlines()[line.number - 1]
    assert text.strip().startswith(line.code)


def test_a_line_that_is_gone_or_there_twice_is_named(damage, demo):
    damage("dP = ", "dweights = ")
    expected = "by_hand: npformer/functional/attention.py has 0 lines that begin with 'dP = ', and not one\n"
    assert demo() == (2, "", expected)
    damage("dv = ", "dP = ")
    with pytest.raises(ValueError, match="has 2 lines that begin"):
        quoting.line_of(attention, "dP = ")


def test_the_walk_shows_every_step_line_and_word(demo):
    status, output, errors = demo()
    assert (status, errors) == (0, "")
    titles = re.findall(r"^(\d+)\. ", output, re.MULTILINE)
    assert titles == [str(number) for number in range(1, 11)]
    assert output.index("FORWARD") < output.index("\n1. ") < output.index("BACKWARD") < output.index("\n6. ")
    shown = set(LINES) - {"k", "v", "blank"}  # which only rename axes, or concern a row without keys
    for name in shown:
        line = quoting.line_of(*LINES[name])
        assert f"{line.number:>8}  {line.code}\n" in output
        assert f"    {quoting.place_of(line.module)}\n" in output
    for word, meaning in one_head.WORDS.items():
        assert f"{word} ({meaning})" in output
        assert len(re.findall(rf"^{word} ", output, re.MULTILINE)) >= 10
    assert "Every number agrees, 60 of 60; the largest difference is " in output
    assert "differ by at most 0." in output
    assert output.index("dk by gradcheck") < output.index("EXPERIMENT 1") < output.index("EXPERIMENT 2")


def test_the_numbers_shown_are_those_computed(demo):
    output = demo()[1]
    compared = shown_pairs(output)
    assert sum(len(left) for left, _ in compared) == 60
    assert all(left == right for left, right in compared)
    one = Head(one_head.QUERY, one_head.KEY, one_head.VALUE, one_head.DY)
    expected = np.concatenate([array.ravel() for array in one.backward().values()])
    np.testing.assert_allclose([float(number) for left, _ in compared for number in left], expected, rtol=0, atol=5.1e-5)
    y = rows_of(attention(one.query, one.key, one.value, causal=True)[0])
    rows = output.split("\ny\n")[1].splitlines()[:4]
    np.testing.assert_allclose([[float(n) for n in NUMBER.findall(row)] for row in rows], y, rtol=0, atol=5.1e-5)


@pytest.mark.parametrize(
    ("right", "wrong", "names"),
    [
        ("y * (dy - (dy * y).sum(axis, keepdims=True))", "y * (dy - dy.sum(axis, keepdims=True))", "ds, dq, dk"),
        ("dq = scale * sum_visible(ds", "dq = sum_visible(ds", "dq"),
        ("dk = sum_visible(ds.swapaxes(-1, -2), q", "dk = sum_visible(ds, q", "dk"),
        ("dP = (dy @ v.swapaxes(-1, -2)) * m", "dP = (dy @ v.swapaxes(-1, -2)) * 1.001", "dP, ds, dq, dk"),
        ("dv = sum_visible((P * m).swapaxes(-1, -2)", "dv = sum_visible((P * m)", "dv"),
    ],
)
def test_a_damaged_backward_disagrees_and_is_shown(damage, demo, right, wrong, names):
    damage(right, wrong)
    status, output, _ = demo()
    assert status == 1
    assert wrong in output
    assert f"numbers disagree, marked with ! ({names});" in " ".join(output.split())
    marked = re.findall(r"\d!", output)
    assert f"{len(marked)} of 60 numbers disagree" in output


def test_a_damaged_forward_disagrees_as_well(damage, demo):
    damage("s = q @ k.swapaxes(-1, -2)", "s = q @ k.swapaxes(-1, -2) * 1.001")
    status, output, _ = demo()
    assert status == 1
    assert "numbers disagree" in output


def test_not_a_number_disagrees_and_rounding_does_not():
    for computed, found, right in [(np.nan, np.nan, False), (1.0, 1 + 1e-11, False), (1.0, 1 + 1e-14, True)]:
        pair = pairs.Pair("dx", np.array([[computed]]), np.array([[found]]))
        assert pair.right == right
        assert ("!" in str(pair)) != right


# Any operation.


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_every_operation_is_walked(demo, name):
    status, output, errors = demo("--op", name)
    assert (status, errors) == (0, "")
    module = quoting.module_of(OPERATIONS[name].function)
    assert output.startswith(f"{name.upper()}, BY HAND (npformer/functional/{name}.py)\n\n")
    assert " ".join(module.__doc__.split()) in " ".join(output.split())
    source = quoting.text_of(module).splitlines()
    quoted = dict(re.findall(r"^ {0,3}(\d+)  (.*?)(?:  # .*)?$", output.partition("A SMALL CASE")[0], re.MULTILINE))
    assert len(quoted) >= 4
    for number, code in quoted.items():
        assert source[int(number) - 1].strip().startswith(code.strip())
    assert any(code.startswith("def backward(d") for code in quoted.values())
    compared = shown_pairs(output)
    case = one_operation.small_case(OPERATIONS[name])
    assert sum(len(left) for left, _ in compared) == sum(array.size for array in case.arrays.values()) >= 4
    assert all(left == right for left, right in compared)
    assert "\nEvery number agrees, " in output
    assert f"    PASS {name}: " in output
    assert max(map(tables.width, output.splitlines())) <= tables.WIDTH
    assert output.encode("ascii", "plain").count(b"?") <= 1  # nearly all signs have letters for a narrow console


def test_a_small_case_is_the_same_every_time_and_has_one_decimal():
    for name in WITH_GRADIENTS:
        case, again = (one_operation.small_case(OPERATIONS[name]) for _ in range(2))
        for array, other in zip(case.arrays.values(), again.arrays.values(), strict=True):
            assert np.array_equal(array, other)
            assert np.array_equal(array.round(1), array)
            assert array.size <= one_operation.MOST_ENTRIES


@pytest.mark.parametrize("name", TABLES)
def test_a_constant_table_is_a_sentence(demo, name):
    status, output, errors = demo("--op", name)
    assert (status, errors) == (0, "")
    assert f"\n{name} makes a constant table: no array goes in, so there is no gradient to walk.\n" in output
    assert "gradcheck" not in output


def test_a_wrong_operation_fails(demo, monkeypatch):
    def wrong_tanh(x):
        y = np.tanh(x)
        return y, lambda dy: dy * (1 - y)

    wrong_tanh.__module__, wrong_tanh.__name__ = OPERATIONS["tanh"].function.__module__, "tanh"
    monkeypatch.setitem(OPERATIONS, "tanh", replace(OPERATIONS["tanh"], function=wrong_tanh))
    status, output, _ = demo("--op", "tanh")
    assert status == 1
    assert "numbers disagree, marked with ! (dx);" in output
    assert "    FAIL tanh: " in output


@pytest.mark.parametrize("name", ["soft_max", "Softmax", "", "two\nlines", "softmax "])
def test_an_unknown_operation_is_one_sentence_with_all_names(demo, name):
    status, output, errors = demo("--op", name)
    assert (status, output) == (2, "")
    assert errors == f"by_hand: there is no operation {name!r}; there are {', '.join(OPERATIONS)}\n"


# The experiments.


def test_without_the_division_the_gradient_through_softmax_fades_with_d():
    apart = [experiments.fading(d, 1.0) for d in experiments.WIDTHS]
    scaled = [experiments.fading(d, d**-0.5) for d in experiments.WIDTHS]
    spreads, largest, slopes = zip(*apart, strict=True)
    assert np.allclose(spreads, np.sqrt(experiments.WIDTHS), rtol=0.05)
    assert list(largest) == sorted(largest) and largest[-1] > 0.9
    assert list(slopes) == sorted(slopes, reverse=True) and slopes[-1] < slopes[0] / 10
    spreads, largest, slopes = zip(*scaled, strict=True)
    assert np.allclose(spreads, 1, rtol=0.05)
    assert max(slopes) < 1.05 * min(slopes)
    assert max(largest) < 0.3


def test_the_slopes_are_those_of_softmax():
    d, scale = 16, 0.7
    rng = np.random.default_rng(3)
    query, key = (
        rng.standard_normal((experiments.N_DRAWS, 1, d)),
        rng.standard_normal((experiments.N_DRAWS, experiments.N_KEYS, d)),
    )
    P = attention_weights(query[:, None], key[:, None], scale=scale)[0][:, 0, 0]
    slopes = P[:, :, None] * (np.eye(experiments.N_KEYS) - P[:, None])
    _, largest, slope = experiments.fading(d, scale, seed=3)
    assert largest == pytest.approx(P.max(-1).mean(), rel=1e-12)
    assert slope == pytest.approx(np.abs(slopes).mean(), rel=1e-12)


def test_only_positions_tell_the_two_sentences_apart():
    orders = (0, 1, 2), (2, 1, 0)
    alone = [experiments.outputs(order, with_positions=False) for order in orders]
    placed = [experiments.outputs(order, with_positions=True) for order in orders]
    np.testing.assert_allclose(alone[0], alone[1], rtol=0, atol=1e-15)
    assert np.abs(placed[0] - placed[1]).max(-1).min() > 0.1  # every word
    assert np.abs(alone[0][0] - alone[0][2]).max() > 0.1  # and the words are not all alike


def test_the_experiments_print_what_they_found():
    text = experiments.scaling()
    for d in experiments.WIDTHS:
        expected = [f"{number:.4f}" for scale in (1.0, d**-0.5) for number in experiments.fading(d, scale)]
        assert re.search(rf"^d = {d}\b.*$", text, re.MULTILINE)[0].split()[3:] == expected
    text = experiments.word_order(WORDS)
    halves = [block.splitlines() for block in text.split("\n\n") if "differs by at most" in block]
    assert [float(lines[0].split()[-1].rstrip(":")) < 1e-15 for lines in halves] == [True, False]
    for lines, same in zip(halves, (True, False), strict=True):
        rows = [re.split(" {4,}(?=[^- 0-9])", line) for line in lines[2:]]
        assert [left == right.rstrip() for left, right in rows] == [same] * 3
    assert "我喜欢北京 (I like Beijing)" in text and "北京喜欢我 (Beijing likes me)" in text


# Tables and terminals.


def test_a_chinese_character_takes_two_columns():
    assert [tables.width(text) for text in ("", "a", "我", "喜欢 x", "dP", "e\u0301", "√")] == [0, 1, 2, 6, 2, 1, 1]
    lines = tables.table("t", [["1.0", "-2.0"], ["3.0", "4.0"]], ["我", "喜欢"], ["北京", "x"])
    assert lines == ["t               ", "        我  喜欢", "北京   1.0  -2.0", "x      3.0   4.0"]
    assert len({tables.width(line) for line in lines}) == 1


def test_numbers_have_the_decimals_they_need():
    assert tables.numbers(np.array([[1.0, -0.0, -np.inf]])) == [["1", "0", "-inf"]]
    assert tables.numbers(np.array([[0.5, 2.0]])) == [["0.5", "2.0"]]
    assert tables.numbers(np.array([[1 / 3, -1e-9]])) == [["0.3333", "0.0000"]]
    assert tables.numbers(np.array([[True, False]])) == [["True", "False"]]


def test_tables_that_do_not_fit_stand_below_one_another():
    wide, narrow = ["x" * 60], ["y" * 30]
    assert tables.beside(wide, narrow, between="|") == "x" * 60 + "|" + "y" * 30
    assert tables.beside(wide, wide, between="|") == "x" * 60 + "\n\n" + "x" * 60


@pytest.mark.parametrize("words", [[], ["喜欢" * 11, "我"] * 9])
def test_prose_keeps_to_the_width(words):
    lines = tables.prose(" ".join(words), "  ").splitlines()
    assert all(tables.width(line) <= tables.WIDTH for line in lines)
    assert " ".join(lines).split() == words


def test_the_walk_keeps_to_the_width_and_its_columns_are_straight(demo):
    output = demo()[1]
    assert max(map(tables.width, output.splitlines())) <= tables.WIDTH
    for block in re.findall(r"^d\w by the backward.*\n(?:.+\n)+", output, re.MULTILINE):
        places = {tables.width(line.partition("  |  ")[0]) for line in block.splitlines()}
        assert len(places) == 1
    rows = output.split("\ns\n")[1].splitlines()[:5]
    assert len({tables.width(row) for row in rows}) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONIOENCODING": "gbk"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_console_that_lacks_the_characters_shows_others(more):
    run = as_process(**more)
    assert (run.returncode, run.stderr) == (0, b"")
    output = run.stdout.decode(more.get("PYTHONIOENCODING", "ascii"))
    assert "?" not in output.replace("answer query i?", "")
    assert "Every number agrees, 60 of 60" in output
    assert "1/√2" in output if more.get("PYTHONIOENCODING") == "gbk" else "1/sqrt 2" in output
    words = WORDS if more.get("PYTHONIOENCODING") == "gbk" else list(one_head.WORDS.values())
    rows = output.split("\ns\n")[1].splitlines()[:5]
    assert rows[0].split() == words == [row.split()[0] for row in rows[1:]]
    assert len({tables.width(row) for row in rows}) == 1


# Step by step.


class Reader(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_step_is_refused(demo, monkeypatch):
    message = "python -m demos by_hand: --step waits for a key, and the standard input is not a terminal; leave --step out\n"
    for stream in (io.StringIO("\n" * 99), None):
        monkeypatch.setattr(sys, "stdin", stream)
        assert demo("--step") == (2, "", message)
    run = as_process("--step")
    assert (run.returncode, run.stdout, run.stderr.decode().splitlines()) == (2, b"", [message.strip()])


def test_enter_goes_on_to_the_end(demo, monkeypatch):
    whole = demo("--op", "softmax")[1]
    n_steps = len(one_operation.walk("softmax")[0])
    monkeypatch.setattr(sys, "stdin", Reader("\n" * (n_steps - 1)))
    assert demo("--step", "--op", "softmax") == (0, whole, "Enter goes on, q ends: " * (n_steps - 1))


@pytest.mark.parametrize(
    ("keys", "n_shown", "more"), [("\n\nq\n", 3, ""), ("Quit\n", 1, ""), ("\n", 2, "\n"), ("", 1, "\n")]
)
def test_q_ends_and_so_does_the_end_of_the_input(demo, monkeypatch, keys, n_shown, more):
    monkeypatch.setattr(sys, "stdin", Reader(keys))
    status, output, errors = demo("--step", "--op", "softmax")
    steps, _ = one_operation.walk("softmax")
    assert (status, output) == (0, "".join(f"{step}\n\n" for step in steps[:n_shown]))
    assert errors == "Enter goes on, q ends: " * n_shown + more


def test_an_interrupt_while_waiting_is_one_line_and_status_130(demo, monkeypatch):
    class Interrupted(Reader):
        def readline(self, *_) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    status, output, errors = demo("--step")
    assert (status, errors) == (130, "Enter goes on, q ends: \nby_hand: interrupted\n")
    assert output.startswith("ONE ATTENTION HEAD, BY HAND\n")


@pytest.mark.parametrize("arguments", [["--opp", "softmax"], ["softmax"], ["--op"], ["--step=1"]])
def test_wrong_usage_is_one_line_and_status_2(demo, arguments):
    status, output, errors = demo(*arguments)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("python -m demos by_hand: ")


def test_every_letter_of_the_narrow_console_is_ascii():
    assert all(letters.isascii() and not sign.isascii() for sign, letters in terminal.PLAIN.items())
    assert head.LINES.keys() >= {"q", "s", "P", "y", "dv", "dP", "ds", "dq", "dk"}
