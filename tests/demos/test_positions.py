"""`python -m demos positions`: the same weights read more than they were trained on, and the table and the chart agree."""

import re
from functools import partial

import numpy as np
import pytest

from demos import positions
from demos.char_lm import python_topics
from demos.positions import CHART_HEIGHT, KINDS, LENGTH, TIMES, answer_to_one_more, at_length, print_chart, print_table
from npformer import GPT, GPTConfig
from npformer.text import CharacterTokenizer
from npformer.training import Trainer, TrainingConfig, held_out_loss

NUMBER = r"\d+\.\d+"


@pytest.fixture
def demo(run_here, monkeypatch):
    monkeypatch.setattr(positions, "N_HELD_OUT", LENGTH * TIMES[-1])
    return partial(run_here, positions.main)


@pytest.fixture
def new_model():
    def make(kind: str) -> GPT:
        config = GPTConfig(vocab_size=11, max_len=7, n_layers=2, n_heads=3, d_model=12, positions=kind, bias=False)
        return GPT(config, dtype=np.float64, seed=1)

    return make


def table_of(output: str) -> dict[str, dict[int, float]]:
    names, *rows = re.search(r"^ +1x.*\n(?:\w+ .*\n)+", output, re.MULTILINE)[0].splitlines()
    ends = [match.end() for match in re.finditer(r"\d+x", names)]
    losses = {}
    for row in rows:
        cells = list(re.finditer(rf"{NUMBER}|-", row))
        assert [cell.end() for cell in cells] == ends
        given = zip(TIMES, (cell[0] for cell in cells), strict=True)
        losses[row.split()[0]] = {times: float(cell) for times, cell in given if cell != "-"}
    return losses


def chart_of(output: str) -> tuple[list[float], dict[tuple[str, int], int]]:
    """What each line stands for, from the top, and the line on which a kind's sign stands for a length."""
    *lines, axis, names, _ = re.search(rf"(^ +{NUMBER} \|.*\n)+(.*\n?)+", output, re.MULTILINE)[0].splitlines()
    ends = [match.end() for match in re.finditer(r"\d+x", names)]
    assert len({line.index("|") for line in lines} | {axis.index("+")}) == 1
    assert len(axis) == ends[-1]
    places = {}
    for i, line in enumerate(lines):
        assert line == line.rstrip()
        for signs in re.finditer(r"\w+", line.partition("|")[2]):
            times = TIMES[ends.index(line.index("|") + 1 + signs.end())]
            for sign in signs[0]:
                assert (sign, times) not in places
                places[sign, times] = i
    return [float(line.split()[0]) for line in lines], places


def test_a_run_shows_four_kinds_at_eight_lengths(demo):
    status, output, errors = demo("--steps", "3")
    assert (status, errors) == (0, "")
    text, name = python_topics()
    assert output.startswith(f"text        {name}; learnt in windows of 32 characters, then read in up to 256\n")
    assert re.findall(r"^training +(\w+)$", output, re.MULTILINE) == list(KINDS)
    assert [line.split()[1] for line in re.findall("^step .*$", output, re.MULTILINE)] == 4 * ["1", "2", "3"]
    losses = table_of(output)
    assert {kind: list(by_times) for kind, by_times in losses.items()} == {
        kind: [1] if kind == "learned" else list(TIMES) for kind in KINDS
    }
    refusal = re.search(r"^learned +refuses 33 characters: (.*)$", output, re.MULTILINE)[1]
    assert re.search(r"\b32\b.*\b33\b", refusal)
    _, places = chart_of(output)
    assert set(places) == {(KINDS[kind], times) for kind, by_times in losses.items() for times in by_times}
    assert output.endswith(", ".join(f"{sign} {kind}" for kind, sign in KINDS.items()) + "\n")

    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    n_held_out = -(-len(ids) // 10)
    training = TrainingConfig(n_steps=3, batch_size=16, n_warmup=0, learning_rate=3e-3, seed=0)
    model = GPT(GPTConfig(tokenizer.vocab_size, 32, n_layers=2, n_heads=4, d_model=64, positions="alibi", bias=False))
    Trainer(model, ids[:-n_held_out], training).run()
    for times in (1, 3, 8):
        expected = held_out_loss(at_length(model, 32 * times), ids[-n_held_out:][:257])
        assert losses["alibi"][times] == pytest.approx(expected, abs=6e-4)


def test_the_same_seed_is_the_same_run_and_another_is_not(demo):
    first, again, other = (table_of(demo("--steps", "2", "--seed", seed)[1]) for seed in "112")
    assert first == again != other


@pytest.mark.parametrize("kind", ["sinusoidal", "rotary", "alibi"])
def test_a_longer_model_has_the_same_weights_and_says_the_same(new_model, kind):
    model = new_model(kind)
    longer = at_length(model, 29)
    assert (longer.config.max_len, model.config.max_len) == (29, 7)
    for name, parameter in model.parameters().items():
        assert np.array_equal(longer.parameters()[name].value, parameter.value)
        assert not np.shares_memory(longer.parameters()[name].value, parameter.value)
    ids = np.random.default_rng(0).integers(11, size=(2, 29))
    logits = longer(ids)
    np.testing.assert_allclose(logits[:, :7], model(ids[:, :7]), rtol=0, atol=1e-12)
    assert logits.shape == (2, 29, 11)


def test_a_learned_table_has_an_end(new_model):
    model = new_model("learned")
    assert model(np.zeros((1, 7), np.int64)).shape == (1, 7, 11)
    assert re.search(r"\b7\b.*\b8\b", answer_to_one_more(model))


def test_a_model_that_took_more_would_not_be_said_to_refuse(new_model):
    class Endless:
        config = new_model("learned").config

        def __call__(self, ids):
            return ids

    assert answer_to_one_more(Endless()) == "it does not"


LOSSES = {
    "learned": {1: 2.0},
    "sinusoidal": {times: 2.0 + 0.5 * (times - 1) for times in TIMES},
    "rotary": {times: 2.1 + 0.1 * times**0.5 for times in TIMES},
    "alibi": {times: 2.0 for times in TIMES},
}


def test_the_table_has_every_number_in_its_column(capsys):
    print_table(LOSSES)
    for kind, by_times in table_of(capsys.readouterr().out).items():
        assert by_times == pytest.approx(LOSSES[kind], abs=6e-4)


@pytest.mark.parametrize("losses", [LOSSES, {kind: {1: 3.0} for kind in KINDS}], ids=["many", "all alike"])
def test_the_chart_has_every_loss_on_the_nearest_line(losses, capsys):
    print_chart(losses)
    lines, places = chart_of(capsys.readouterr().out)
    assert len(lines) == CHART_HEIGHT
    assert lines == sorted(lines, reverse=True)
    between = (lines[0] - lines[-1]) / (CHART_HEIGHT - 1)
    assert len(places) == sum(map(len, losses.values()))
    for kind, by_times in losses.items():
        for times, loss in by_times.items():
            assert abs(lines[places[KINDS[kind], times]] - loss) <= between / 2 + 0.006
    assert 0 in places.values() or len(set(places.values())) == 1
    assert CHART_HEIGHT - 1 in places.values()


def test_every_kind_has_a_sign_of_its_own():
    assert len(set(KINDS.values())) == len(KINDS)
    assert all(len(sign) == 1 for sign in KINDS.values())


def test_ctrl_c_is_one_line_and_status_130(demo, interrupt_each_step):
    interrupt_each_step(positions)
    status, output, errors = demo("--steps", "3")
    assert (status, errors) == (130, "\npositions: interrupted\n")
    assert len(re.findall("^step ", output, re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--steps", "0"], "argument --steps: must be in 1 … 2147483647, got 0"),
        (["--steps", "1e3"], "argument --steps: must be an integer, got '1e3'"),
        (["--seed", "-1"], "argument --seed: must be in 0 … 2147483647, got -1"),
        (["--see", "1"], "unrecognized arguments: --see 1"),
        (["rotary"], "unrecognized arguments: rotary"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(demo, arguments, sentence):
    assert demo(*arguments) == (2, "", f"python -m demos positions: {sentence}\n")


def test_help_says_in_a_line_each_what_there_is(demo):
    status, output, _ = demo("--help")
    assert status == 0
    assert positions.__doc__ in " ".join(output.split())
    assert "  --steps N   of each model (default: 1000)\n" in output
    assert "  --seed N    for everything random (default: 0)\n" in output
