"""Attention as text: what it says, that it fits the window, and what a stream that lacks signs or is gone gets."""

import io
import os
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.inspection.arrays import inspect_arrays
from npformer.inspection.columns import width
from npformer.inspection.comparison import compare
from npformer.inspection.terminal import show, text
from npformer.inspection.window import Window, grid

SOURCE, TARGET = list("我喜欢北京的春天和上海"), [*"去北京吧", "<eos>"]
HOSTILE = [
    "</script>",
    "\n",
    "",
    "\0",
    "\ud83d",
    "👨‍👩‍👧",
    "שלום",
    "\u202eabc",
    "\u0301",
    "x" * 300,
    "₂" * 99,
    b"\xff",
    "\x1b[31m",
    "春",
    "春",
]
CODE = re.compile("\x1b\\[[0-9;]*m")


def weights(*shape, seed=0, sharp=2):
    scores = sharp * np.random.default_rng(seed).normal(size=shape)
    P = np.exp(scores - scores.max(-1, keepdims=True))
    return P / P.sum(-1, keepdims=True)


def causal(*shape, seed=0):
    P = weights(*shape, seed=seed) * np.tri(*shape[-2:], shape[-1] - shape[-2])
    return P / P.sum(-1, keepdims=True)


def cities(seed=0, **options):
    P = weights(2, 3, 5, 11, seed=seed)
    return inspect_arrays(P, TARGET, SOURCE, title=f"cities {seed}", named_by="produces", **options)


def text_of(shown, columns=80, colour=False, blocks=True, **options):
    return text(shown, width=columns, colour=colour, blocks=blocks, **options)


def block(output, first):
    """The lines of the part of the text whose first line begins so."""
    part = next(part for part in output.split("\n\n") if part.startswith(first))
    return part.split("\n")


def shown_by(file, shown, **options):
    show(shown, file=file, **options)
    file.flush()
    return file.buffer.getvalue()


def stream(encoding, of=io.TextIOWrapper):
    return of(io.BytesIO(), encoding=encoding, newline="\n")


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _a_window_of_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


# What it says.


def test_it_says_what_is_shown_and_what_a_row_is():
    output = text_of(cities())
    assert output.startswith("cities 0\n")
    assert "counted from 0" in output
    assert "named by the token that its query\nproduces" in output
    assert block(output, "FINDINGS") == ["FINDINGS", "  none"]


def test_every_head_has_its_numbers():
    run = cities()
    lines = block(text_of(run), "CROSS, 6 heads")
    assert [line.split()[0] for line in lines[-6:]] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    for line, map in zip(lines[-6:], run.maps, strict=True):
        metrics = run.metrics(map)
        names = ["entropy", "confidence", "query_dependence", "sink", "distance"]
        assert line.split()[1:] == [f"{metrics[name]:.3f}" for name in names]


def test_the_map_has_a_cell_for_every_pair():
    P = np.zeros((1, 1, 2, 5))
    P[0, 0] = [[0.005, 0.015, 0.15, 0.23, 0.6], [0.32, 0.32, 0.3, 0.06, 0]]
    run = inspect_arrays(P, ["春天", "x"], ["a", "bc", "海", "d", "e"])
    output = text_of(run)
    assert block(output, "     a bc") == [
        "     a bc 海 d e",
        "春天 · ░░ ▒▒ ▒ █",
        "x    ▓ ▓▓ ▓▓ ░ ·",
        "  · under 0.01   ░ from 0.01   ▒ from 0.1   ▓ from 0.3   █ from 0.6",
    ]
    plain = text_of(run, blocks=False)
    assert block(plain, "     a bc")[1:3] == ["春天 . :: == = @", "x    # ## ## : ."]
    assert ". under 0.01   : from 0.01   = from 0.1   # from 0.3   @ from 0.6" in plain


def test_the_top_keys_are_numbers():
    run = cities()
    lines = block(text_of(run, kind="cross", layer=1, head=2), "What each query attends to most")
    P = run.find("cross", 1, 2).weights
    assert len(lines) == 1 + len(TARGET)
    for name, row, line in zip(TARGET, P, lines[1:], strict=True):
        best = np.argsort(-row)[:3]
        assert line.split() == [name, *(part for k in best for part in (SOURCE[k], f"{row[k]:.4f}"))]


def test_repeated_tokens_keep_their_numbers():
    long = "a-token-that-is-long"
    run = inspect_arrays(weights(1, 1, 3, 3), [long, "春", long], kind="encoder")
    output = text_of(run)
    assert "a-token-tha…" in output
    assert "a-token-th…₂" in output
    assert "a-token-..._2" not in output
    assert "a-token..._2" in text_of(run, blocks=False)


def test_tokens_that_are_cut_stay_different():
    tokens = ["internationalism", "internationally", "internationalism", "in", "internation…"]
    output = text_of(inspect_arrays(weights(1, 1, 5, 5), tokens, kind="encoder"))
    names = ["internation…", "internatio…2", "internatio…₂", "in", "internatio…3"]
    assert [line.split()[0] for line in block(output, "What each query attends to most")[1:]] == names
    columns = next(line.split() for line in output.split("\n") if line.startswith(" ") and "internation…" in line)
    assert columns == names[: len(columns)] != []
    assert "internat...2" in text_of(inspect_arrays(weights(1, 1, 5, 5), tokens, kind="encoder"), blocks=False)


def test_a_row_of_cells_that_just_fits_is_one_row():
    def rows(columns):
        return grid(Window(columns, False, True, "utf-8"), ["q"], ["abc", "de"], lambda i, j, n: "x" * n, 1)

    assert rows(8) == ["  abc de", "q xxx xx"]
    assert rows(7) == ["  abc", "q xxx", "", "  de", "q xx"]


def test_the_future_padding_and_a_row_that_sees_nothing():
    keep = np.array([False, True, True, True])
    P = causal(1, 1, 4, 4) * keep
    P[..., 1:, :] /= P[..., 1:, :].sum(-1, keepdims=True)
    output = text_of(inspect_arrays(P, list("abcd"), kind="decoder", keep=keep))
    lines = block(output, "  a b c d")
    assert lines[1] == "a x / / /"
    assert [line[:3] + re.sub("[^/]", "", line) for line in lines[2:5]] == ["b x//", "c x/", "d x"]
    assert "/ after the query" in output
    assert "x padding, or outside the window" in output
    assert "! weight" not in output
    assert "  a  sees no key" in output


def test_weight_where_none_may_be_is_the_fault_that_is_shown():
    P = causal(2, 2, 5, 5)
    P[1, 0] = weights(5, 5)
    output = text_of(inspect_arrays(P, list("abcde"), kind="decoder"))
    assert "  fault: decoder layer 1 head 0, mask leak" in output
    assert "DECODER, layer 1 head 0: shown because of the fault mask leak" in output
    assert "!" in block(output, "  a b c d e")[1]
    assert "! weight where none may be" in output
    assert "(hidden!)" in output
    assert re.search(r"^1\.0 .* mask leak$", output, re.M)


def test_without_a_fault_the_most_confident_head_is_shown():
    run = cities()
    best = max(run.maps, key=lambda map: run.metrics(map)["confidence"])
    assert f"CROSS, {best.name}: shown because of 6 heads it is the most confident" in text_of(run)


def test_many_findings_that_are_no_faults_are_counted():
    P = np.tile(np.eye(5), (25, 2, 1, 1))
    P[0] = weights(5, 5)
    output = text_of(inspect_arrays(P * 0.9 + 0.02, kind="encoder"))
    assert output.count("own token") == 20
    assert "  and 4 more, none of them a fault" in output


@pytest.mark.parametrize("asked", [{"layer": 1}, {"layer": 1, "head": 2}, {"kind": "cross", "layer": 1, "head": 2}])
def test_a_part_can_be_chosen(asked):
    output = text_of(cities(), **asked)
    assert "CROSS, layer 1 head" in output
    assert "\n0.0 " not in output


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"layer": 2}, "show: there is no head with layer=2; there are, by layer.head, cross 0.0, cross 0.1"),
        ({"kind": "decoder", "head": 1}, "no head with kind='decoder', head=1"),
        ({"kind": "cross", "layer": 1, "head": 3}, "cross layer 1 has the heads 0 … 2, not 3"),
    ],
)
def test_what_is_not_there(asked, said):
    for output in (text_of, show):
        with pytest.raises(ValueError, match=re.escape(said)):
            output(cities(), **asked)


def test_gradients():
    dP = np.random.default_rng(5).normal(size=(2, 3, 5, 11))
    run = cities(gradient=dP)
    lines = block(text_of(run, kind="cross", layer=0, head=1), "Where P·∂L/∂P is largest")
    P = run.find("cross", 0, 1).weights
    effect = P * dP[0, 1]
    q, k = np.unravel_index(abs(effect).argmax(), effect.shape)
    pair = f"{TARGET[q]} → {SOURCE[k]}   {effect[q, k]:+.4f}   P {P[q, k]:.4f}   ∂L/∂P {dP[0, 1, q, k]:+.4f}"
    assert lines[1] == "  " + pair.replace("-", "−")
    assert len(lines) == 6


def test_gradients_of_any_size():
    P = np.full((1, 1, 1, 2), 0.5)
    for size, first, second in (
        (1e-50, "+6.170e−51", "+1.234e−50"),
        (1e20, "+6.170e+19", "+1.234e+20"),
        (1, "+0.6170", "+1.2340"),
    ):
        run = inspect_arrays(P, ["q"], list("ab"), kind="cross", gradient=np.array([[[[1.234 * size, 0]]]]))
        assert f"  q → a   {first}   P 0.5000   ∂L/∂P {second}" in text_of(run)


def test_bytes_of_a_character_are_merged_and_it_is_said():
    tokens = ["a", *(bytes([byte]) for byte in "春".encode())]
    output = text_of(inspect_arrays(weights(1, 1, 4, 4), tokens, kind="encoder"))
    lines = block(output, "Bytes of one character are merged")
    assert "   a 春" in lines
    assert "Bytes" not in text_of(cities())


def test_a_map_that_is_too_large_is_not_drawn_but_its_numbers_are():
    tokens = [f"t{i}" for i in range(131)]
    output = text_of(inspect_arrays(causal(1, 1, 131, 131), tokens))
    assert "131 queries × 131 keys, is too large to be drawn here; to_html draws it." in " ".join(output.split())
    assert len(block(output, "What each query attends to most")) >= 132


# A comparison, and who attends.


def test_a_comparison():
    a, b = cities(0), cities(1)
    comparison = compare(a, b)
    output = text_of(comparison)
    most = comparison.changes[0]
    assert output.startswith("A: cities 0\nB: cities 1\n")
    assert f"CROSS, layer {most.layer} head {most.head}, B − A: shown because of 6 heads it has changed most" in output
    row = next(line for line in output.split("\n") if line.startswith(f"cross {most.layer}.{most.head} "))
    assert row.split()[2:5] == [f"{most.distance:.4f}", *(f"{value:.3f}" for value in most.metrics["entropy"])]
    P, Q = (run.find("cross", most.layer, most.head).weights for run in (a, b))
    q, k = np.unravel_index(abs(Q - P).argmax(), P.shape)
    change = f"{Q[q, k] - P[q, k]:+.4f}".replace("-", "−")
    assert block(output, "What has changed most")[1] == (
        f"  {TARGET[q]} → {SOURCE[k]}   {P[q, k]:.4f} → {Q[q, k]:.4f}   {change}"
    )


def test_the_signs_of_a_comparison():
    P, Q = np.array([[[[0.5, 0.3, 0.2]]]]), np.array([[[[0.505, 0.48, 0.015]]]])
    runs = [inspect_arrays(each, ["a"], ["x", "y", "天"], title="t") for each in (P, Q)]
    output = text_of(compare(*runs), columns=200)
    assert "a ·· +▒ −▒" in output
    assert "+█ from 0.6   −░ from 0.01" in output
    assert "a .. += -=" in text_of(compare(*runs), blocks=False)
    assert block(output, "What has changed most")[1] == "  a → 天   0.2000 → 0.0150   −0.1850"
    same = text_of(compare(runs[0], runs[0]))
    assert "a ·· ·· ··" in same
    assert "nowhere: all are 0" in same


def test_masks_that_differ_are_compared_where_either_sees():
    P = np.full((1, 1, 3, 3), 1 / 3)
    open_mask, causal_mask = np.ones((3, 3), bool), np.tri(3, dtype=bool)
    Q = causal(1, 1, 3, 3)
    runs = [inspect_arrays(W, list("abc"), kind="encoder", keep=keep) for W, keep in ((Q, causal_mask), (P, open_mask))]
    output = text_of(compare(*runs))
    assert "a −█ +▓ +▓" in output
    assert "weight where none may be" not in output


def test_a_part_of_a_comparison():
    output = text_of(compare(cities(0), cities(1)), kind="cross", layer=1, head=1)
    assert "MOST CHANGED, 1 of 1 head;" in output
    assert "\ncross 1.0 " not in output
    assert "CROSS, layer 1 head 1, B − A\n" in output


def test_who_attends():
    answer = cities().who_attends("北京", "上海", against="北京")
    output = text_of(answer)
    lines = output.split("\n")
    assert output.startswith(answer.title)
    first = answer.rows[0]
    row = next(line for line in lines if line.startswith(f"{first.layer}.{first.head} "))
    assert row.split()[1:3] == [f"{first.weight:.4f}", f"{first.against:.4f}"]
    assert " ".join(output.split()).endswith(answer.note)
    assert max(map(width, text_of(answer, columns=40).split("\n"))) <= 40


# That it fits.


def all_kinds():
    run = cities(gradient=np.ones((2, 3, 5, 11)))
    tokens = [HOSTILE[i % len(HOSTILE)] for i in range(17)]
    leaking = inspect_arrays(weights(2, 2, 17, 17), tokens, kind="decoder", title="title " * 30)
    return {
        "cross": run,
        "hostile": leaking,
        "one token": inspect_arrays(np.ones((1, 1, 1, 1)), ["春"]),
        "one query": inspect_arrays(weights(1, 2, 1, 7), ["a"]),
        "cached": inspect_arrays(causal(1, 2, 3, 7), list("abc"), list("tuvwabc"), kind="decoder"),
        "masked": inspect_arrays(np.zeros((1, 1, 3, 5)), list("abc"), list("vwxyz"), keep=np.zeros((3, 5), bool)),
        "comparison": compare(run, cities(1)),
        "who attends": run.who_attends("北京", "上海", against="北京"),
    }


SHOWN = all_kinds()


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("columns", [24, 40, 80, 200])
@pytest.mark.parametrize("name", SHOWN)
def test_no_line_is_wider_than_the_window(name, columns, blocks):
    output = text_of(SHOWN[name], columns, blocks=blocks)
    assert max(map(width, output.split("\n"))) <= columns
    assert not set(output) & {"\x1b", "\0", "\r", "\t", "\u202e"}
    output.encode()  # no lone surrogate


@pytest.mark.parametrize("name", SHOWN)
def test_colours_only_paint(name):
    plain, coloured = text_of(SHOWN[name]), text_of(SHOWN[name], colour=True)
    assert CODE.sub("", coloured) == plain
    assert (coloured != plain) == (name != "who attends")


def test_the_legend_has_the_colours_of_the_cells():
    output = text_of(cities(), colour=True)
    cell = re.search("\x1b\\[([0-9;]+)m██", output)
    assert f"\x1b[{cell[1]}m█\x1b[0m from 0.6" in output


def test_chinese_columns_line_up():
    output = text_of(cities(), columns=40, kind="cross", layer=0, head=0)
    map = block(output, " " * 6 + "我")
    for line in map[1:6]:
        assert width(line) == width(map[0]) == 38
    keys = [match.start() for match in re.finditer(r"\S", map[0])]
    for line in map[1:6]:
        places = [width(line[: match.start()]) for match in re.finditer(r"(?<= )(\S)\1", line)]
        assert places == [width(map[0][:start]) for start in keys]


def test_hebrew_is_isolated_where_the_window_has_all_signs():
    run = inspect_arrays(weights(1, 1, 2, 2), ["שלום", "a"], kind="encoder")
    assert "\u2068שלום\u2069" in text_of(run)
    assert "\u2068" not in text_of(run, blocks=False)


@given(st.integers(0, 999), st.integers(0, 5), st.integers(1, 6), st.integers(24, 60), st.booleans(), st.booleans())
def test_any_tokens_in_any_window(seed, T, S, columns, blocks, colour):
    rng = np.random.default_rng(seed)
    P = weights(1, 2, T, S, seed=seed) if T else np.zeros((1, 2, 0, S))
    queries, keys = ([HOSTILE[i] for i in rng.integers(0, len(HOSTILE), n)] for n in (T, S))
    run = inspect_arrays(P, queries, keys, kind="cross", keep=rng.random((T, S)) < 0.7)
    for encoding in ("utf-8", "cp1252"):
        output = text(run, width=columns, colour=colour, blocks=blocks, encoding=encoding)
        output.encode(encoding)
        assert max(map(width, CODE.sub("", output).split("\n"))) <= columns


# Streams.


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "gbk", "cp437", "shift_jis", "gb18030", "utf-8", "utf-16"])
def test_any_stream_can_be_printed_to(name, encoding):
    output = shown_by(stream(encoding), SHOWN[name]).decode(encoding)
    assert output.endswith("\n")
    assert ("░" in output) == (encoding in ("gb18030", "utf-8", "utf-16") and name != "who attends")


def test_what_gbk_gets():
    output = shown_by(stream("gbk"), cities()).decode("gbk")
    assert "我 喜 欢 北 京" in output
    assert "@ from 0.6" in output
    assert not set(output) & set("·→−…▓█₂")  # gbk has some of them, two columns wide


def test_what_cp1252_gets():
    output = shown_by(stream("cp1252"), inspect_arrays(weights(1, 1, 3, 3), ["春", "é", "春"])).decode("cp1252")
    assert "U+6625 é U+6625_2" in output


def test_a_pipe_has_no_colours():
    assert b"\x1b" not in shown_by(stream("utf-8"), cities())


def test_a_terminal_has_colours(monkeypatch):
    monkeypatch.setattr(os, "name", "posix")
    assert b"\x1b[38;5;" in shown_by(stream("utf-8", Terminal), cities())
    assert b"\x1b[38;5;" in shown_by(stream("cp1252", Terminal), cities())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colours(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert b"\x1b" not in shown_by(stream("utf-8", Terminal), cities())


def test_an_empty_no_color_says_nothing(monkeypatch):
    monkeypatch.setattr(os, "name", "posix")
    monkeypatch.setenv("NO_COLOR", "")
    assert b"\x1b" in shown_by(stream("utf-8", Terminal), cities())


def test_the_window_is_measured(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = shown_by(stream("utf-8"), cities()).decode().split("\n")
    assert 38 <= max(map(width, lines)) <= 40


def test_it_goes_to_stdout(capsys):
    show(cities(), layer=0)
    assert capsys.readouterr().out.startswith("cities 0\n")
    cities().show(layer=0)
    assert "CROSS, 3 heads" in capsys.readouterr().out


class Broken(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def closed():
    file = io.StringIO()
    file.close()
    return file


class Unknown(io.StringIO):
    encoding = "no such encoding"


@pytest.mark.parametrize("make", [Broken, closed, Unknown, io.StringIO, lambda: None])
def test_a_stream_that_is_gone_is_no_error(monkeypatch, make):
    monkeypatch.setattr(sys, "stdout", make())
    show(cities())
    monkeypatch.setattr(sys, "stdout", None)
    show(cities(), file=make())
