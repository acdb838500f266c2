"""`python -m demos cache`: every kind at every length, and the numbers are those of its own columns."""

import re
import signal
from functools import partial

import numpy as np
import pytest

from demos import cache
from demos.cache import KINDS, MEANING, N_TIMED, WINDOW, seconds_a_token
from npformer import GPT

WITHOUT, WITHIN = 0.02, 0.0016  # seconds


@pytest.fixture
def demo(run_here):
    return partial(run_here, cache.main)


@pytest.fixture
def measured(monkeypatch):
    """No time is taken: what is timed is run once and returned."""
    results = []

    def fake(step):
        results.append(step())
        return WITHOUT if len(results) % 2 else WITHIN

    monkeypatch.setattr(cache, "seconds_a_token", fake)
    return results


def rows_of(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if " tokens/s" in line]


def nbytes_of(kind: str, slots: int) -> int:
    n_kv_heads = 2 if kind == "grouped" else 8
    return 2 * 4 * n_kv_heads * slots * 16 * 4  # keys and values, layers, heads, slots, d_head, bytes of float32


def test_a_run_shows_every_kind_at_every_length(demo):
    status, output, errors = demo("--longest", "70")
    assert (status, errors) == (0, "")
    assert output.startswith(
        "one stream, 4 layers, d_model 128, rotary positions, float32; untrained, which takes as long\n\n"
    )
    rows = rows_of(output)
    assert [row[:2] for row in rows] == [[kind, length] for kind in KINDS for length in ("64", "70")]
    assert all(float(number.replace(",", "")) > 0 for row in rows for number in (row[2], row[4], row[-1]))
    for kind, meaning in MEANING.items():
        assert f"\n{kind:10}{meaning}\n" in output


def test_the_numbers_are_right_and_stand_under_their_names(demo, measured):
    _, output, _ = demo("--longest", "150")
    lines = output.splitlines()
    names = ("context", "without cache", "with cache", "times", "bytes kept", "a token")
    ends = [lines[2].index(name) + len(name) for name in names]
    rows = rows_of(output)
    assert [row[:2] for row in rows] == [[kind, length] for kind in KINDS for length in ("64", "128", "150")]
    for row, line in zip(rows, lines[3:12], strict=True):
        kind, length = row[0], int(row[1])
        kept = nbytes_of(kind, WINDOW if kind == "windowed" else length)
        assert row[2:] == ["50", "tokens/s", "625", "tokens/s", "12x", f"{kept:,}", f"{kept / length:,.0f}"]
        found = [match.end() for match in re.finditer(r"\d+x|tokens/s|[\d,]+(?! tokens/s)(?=$| +\S)", line[10:])]
        assert [10 + end for end in found] == ends


def test_what_is_timed_is_the_whole_pass_and_one_step(demo, measured):
    demo("--longest", "67")
    assert [result.shape for result in measured] == 3 * [
        (1, length, 100) if whole else (1, 100) for length in (64, 67) for whole in (1, 0)
    ]
    for whole in measured[::2]:
        assert np.isfinite(whole).all()


@pytest.mark.parametrize(
    ("longest", "lengths"), [("1", [1]), ("63", [63]), ("64", [64]), ("65", [64, 65]), ("300", [64, 128, 256, 300])]
)
def test_the_context_doubles_up_to_the_longest(demo, measured, longest, lengths, monkeypatch):
    monkeypatch.setattr(cache, "KINDS", {"full": {}})
    rows = rows_of(demo("--longest", longest)[1])
    assert [int(row[1]) for row in rows] == lengths


def test_the_kinds_are_what_their_lines_say():
    assert list(KINDS) == list(MEANING)
    assert MEANING["windowed"] == f"each token sees the last {KINDS['windowed']['window']}"
    assert MEANING["grouped"].endswith(f"keys and values of {KINDS['grouped']['n_kv_heads']}")


@pytest.mark.parametrize(("seconds", "n"), [(0, 2), (1e9, N_TIMED)])
def test_a_number_takes_few_steps_where_they_are_slow_and_never_more_than_there_is_room_for(monkeypatch, seconds, n):
    monkeypatch.setattr(cache, "SECONDS", seconds)
    called = []
    assert seconds_a_token(lambda: called.append(1)) >= 0
    assert len(called) == n


def test_a_number_is_the_median_without_the_first(monkeypatch):
    clock = iter([0, *(tick for took in (7, 1, 3) for tick in (0, took, 0)), 10**9])
    monkeypatch.setattr(cache.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(cache, "N_TIMED", 4)
    assert seconds_a_token(lambda: None) == 3


def test_ctrl_c_is_one_line_and_status_130(demo, monkeypatch):
    forward = GPT.forward

    def interrupted(self, ids, *arguments, **options):
        if ids.shape[1] == 70:
            signal.raise_signal(signal.SIGINT)
        return forward(self, ids, *arguments, **options)

    monkeypatch.setattr(GPT, "forward", interrupted)
    status, output, errors = demo("--longest", "70")
    assert (status, errors) == (130, "\ncache: interrupted\n")
    assert [row[:2] for row in rows_of(output)] == [["full", "64"]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--longest", "0"], "argument --longest: must be in 1 … 2147483647, got 0"),
        (["--longest", str(2**31)], "argument --longest: must be in 1 … 2147483647, got 2147483648"),
        (["--longest", "1,024"], "argument --longest: must be an integer, got '1,024'"),
        (["--long", "70"], "unrecognized arguments: --long 70"),
        (["70"], "unrecognized arguments: 70"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(demo, arguments, sentence):
    assert demo(*arguments) == (2, "", f"python -m demos cache: {sentence}\n")


def test_help_says_in_a_line_each_what_there_is(demo):
    status, output, _ = demo("--help")
    assert status == 0
    assert cache.__doc__ in " ".join(output.split())
    assert "  --longest N  the longest context (default: 1024 tokens)\n" in output
