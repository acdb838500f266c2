"""`python -m demos cities`: it learns, every damage is what its sentence says, and what is shown is what the model does."""

import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import gradcheck
from demos import cities
from demos.by_hand.tables import width
from demos.cities import training
from demos.cities.damages import DAMAGES, N_WILD_STEPS, TIMES_FASTER, Damage, Times, attentions, damaged
from demos.cities.dialogues import (
    BEGIN,
    CITIES,
    END,
    HELD_OUT,
    QUESTIONS,
    SEASONS,
    STATEMENTS,
    STORY,
    compose,
    decode,
    dialogues,
    encode,
    encode_sources,
)
from demos.cities.looking import look
from demos.cities.training import CONFIG, LONGEST_ANSWER, PEAK, answers, train
from npformer import EncoderDecoder, generate
from npformer.functional import softmax
from npformer.layers import Linear, RotaryPositions
from npformer.observing import seen_by

ROOT = Path(__file__).parents[2]
BY_NAME = {damage.name: damage for damage in DAMAGES}
N_ENCODER_LAYERS, N_DECODER_LAYERS = 3, 2
HEAD = (1, 4)  # of the model below
THREE = compose(STATEMENTS[8], QUESTIONS[4], [("青岛", "夏天"), ("哈尔滨", "冬天"), ("三亚", "秋天")], 1)


def vary(model: EncoderDecoder, seed: int) -> None:
    """No offset is 0 and no gain 1, as after training."""
    rng = np.random.default_rng(seed)
    for parameter in model.parameters().values():
        if parameter.value.ndim == 1:
            parameter.value[...] += 0.3 * rng.standard_normal(parameter.value.shape)


@pytest.fixture
def model():
    config = replace(
        CONFIG, n_encoder_layers=N_ENCODER_LAYERS, n_decoder_layers=N_DECODER_LAYERS, d_model=36, d_ff=20, max_len=40
    )
    model = EncoderDecoder(config, dtype=np.float64, seed=4)
    vary(model, 5)
    return model


@pytest.fixture
def small(monkeypatch):
    """Sizes at which a run takes a moment."""
    monkeypatch.setattr(cities, "CONFIG", replace(CONFIG, d_model=24, d_ff=16))
    monkeypatch.setattr(cities, "N_HELD_OUT", 5)
    monkeypatch.setattr(training, "BATCH_SIZE", 4)


@pytest.fixture(scope="module")
def lessons():
    """A small model that has learnt to write answers, mostly wrong ones, and its steps."""
    model = EncoderDecoder(replace(CONFIG, n_decoder_layers=2, d_model=48, d_ff=32), dtype=np.float64, seed=2)
    steps = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BATCH_SIZE", 12)
        train(model, 100, np.random.default_rng(3), peak=PEAK, n_warmup=10, report=steps.append)
    return model, steps


def hurt(model, name, head=HEAD):
    return damaged(model, BY_NAME[name], head)


def attended(model, dialogue=STORY):
    """The weights P (H,T,S) of every attention: the encoder's, then self- and cross-attention of each decoder layer."""
    source, source_keep, target, target_keep = encode([dialogue])
    seen = []
    with seen_by(seen.append):
        model(source, target, source_keep, target_keep)
    assert len(seen) == model.config.n_encoder_layers + 2 * model.config.n_decoder_layers
    return [P[0] for P in seen]


# Learning.


def test_thirty_steps_lower_the_loss(lessons):
    losses = [step.loss for step in lessons[1]]
    assert np.mean(losses[25:30]) < 0.6 * losses[0]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[25:30])


def test_each_step_is_told_once_and_after_the_parameters_have_changed(model, small):
    source, source_keep, target, target_keep = encode(dialogues(4, np.random.default_rng(0)))
    (_, count), backward = model.loss(source, target, source_keep, target_keep)
    backward(1 / count)
    gradients = np.concatenate([parameter.grad.ravel() for parameter in model.parameters().values()])
    told = []

    def state():
        return {name: parameter.value.copy() for name, parameter in model.parameters().items()}

    values = [state()]

    def report(step):
        values.append(state())
        told.append(step)

    train(model, 4, np.random.default_rng(0), peak=1e-2, n_warmup=2, report=report)
    assert [step.number for step in told] == [1, 2, 3, 4]
    rates = [step.learning_rate for step in told]
    assert 0 < rates[0] < rates[1] < rates[2] == 1e-2 > rates[3] >= 1e-4
    assert told[0].gradient_norm == pytest.approx(np.sqrt((gradients**2).sum()))
    for name in (name for name in values[0] if name.endswith("norm.gamma")):
        change = abs(values[1][name] - values[0][name])  # Adam's first, the same for every gradient that is not tiny
        assert np.median(change) == pytest.approx(rates[0], rel=0.01), name
    assert all((a[name] != b[name]).any() for a, b in pairwise(values) for name in a if not name.endswith("key.bias"))


def test_what_is_learnt_follows_from_the_generator_alone(small):
    def learnt(seed):
        model = EncoderDecoder(cities.CONFIG)
        train(model, 3, np.random.default_rng(seed), peak=PEAK, n_warmup=0)
        return np.concatenate([parameter.value.ravel() for parameter in model.parameters().values()])

    assert np.array_equal(learnt(1), learnt(1))
    assert not np.array_equal(learnt(1), learnt(2))


def test_nothing_that_is_held_out_is_learnt(model, monkeypatch):
    drawn = []

    def recorded(n, rng):
        drawn.extend(dialogues(n, rng))
        return drawn[-n:]

    monkeypatch.setattr(training, "dialogues", recorded)
    train(model, 2, np.random.default_rng(0), peak=PEAK, n_warmup=0)
    assert len(drawn) == 2 * training.BATCH_SIZE
    assert HELD_OUT.isdisjoint((dialogue.answer, dialogue.asked) for dialogue in drawn)


def greedy(model, source):
    """One dialogue alone, and the whole of it computed anew for every character."""
    source, _ = encode_sources([source])
    ids = [BEGIN]
    while len(ids) <= LONGEST_ANSWER and ids[-1] != END:
        ids.append(int(model(source, np.array([ids]))[0, -1].argmax()))
    return decode(np.array(ids))


@pytest.mark.parametrize("name", ["trained", *BY_NAME])
def test_an_answer_is_the_likeliest_character_at_every_step(lessons, name, small):
    asked = [STORY, THREE, *dialogues(5, np.random.default_rng(8), held_out=True)]
    assert len({len(dialogue.source) for dialogue in asked}) > 2  # so that most have padding
    model = lessons[0] if name == "trained" else hurt(lessons[0], name)
    said = answers(model, asked)
    assert said == [greedy(model, dialogue.source) for dialogue in asked]
    source, source_keep, _, _ = encode(asked)
    begin = np.full((len(asked), 1), BEGIN)  # what is put into a model to damage it counts with a cache, too
    ids = generate(model, begin, LONGEST_ANSWER, source=source, source_keep=source_keep, temperature=0, end_id=END)
    assert said == [decode(row) for row in ids]
    if name == "trained":
        assert all(any(city in answer for city in CITIES) for answer in said)
        assert len(set(said)) > 2


def test_a_begin_that_a_model_writes_in_the_middle_is_shown_and_makes_no_answer_right():
    begin, *ids, end = encode([STORY])[2][0].tolist()
    assert decode(np.array([begin, *ids, end])) == STORY.target
    assert decode(np.array([*ids[:2], BEGIN, BEGIN, *ids[2:], end])) == "春天||你该去北京。"
    assert decode(np.array([BEGIN, BEGIN, *ids, BEGIN, end])) == "|春天你该去北京。|"


# Damages.


@pytest.mark.parametrize("name", BY_NAME)
def test_a_damage_leaves_the_model_itself_as_it_was(model, name, small):
    source, source_keep, target, target_keep = encode([STORY, THREE])

    def state():
        layers = [(name, type(layer)) for name, layer in model.sublayers()]
        values = [parameter.value.tobytes() for parameter in model.parameters().values()]
        return layers, values, model(source, target, source_keep, target_keep).tobytes()

    before = state()
    other = hurt(model, name)
    assert state() == before
    assert other.dtype == model.dtype
    assert not np.allclose(other(source, target, source_keep, target_keep), model(source, target, source_keep, target_keep))
    for mine, given in zip(other.parameters().values(), model.parameters().values(), strict=True):
        assert not np.shares_memory(mine.value, given.value)


def test_a_copy_without_damage_is_the_same_model(model):
    copy = damaged(model, Damage("none", "", lambda model, head: None), HEAD)
    for mine, given in zip(attended(copy), attended(model), strict=True):
        assert np.array_equal(mine, given)


def test_every_attention_is_found_once(model):
    found = attentions(model)
    assert len(found) == len(set(map(id, found))) == N_ENCODER_LAYERS + 2 * N_DECODER_LAYERS


def test_without_scale_every_score_is_larger_by_the_root_of_the_width(model):
    K = 36 // 6
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((1, 5, 36)), rng.standard_normal((1, 7, 36))
    for mine, given in zip(attentions(hurt(model, "no scale")), attentions(model), strict=True):
        seen = []
        with seen_by(seen.append):
            mine(x, memory)
            given(x, memory)
        expected, _ = softmax(np.sqrt(K) * np.log(seen[1]))
        np.testing.assert_allclose(seen[0], expected, rtol=1e-10)
        assert abs(seen[0] - seen[1]).max() > 0.01


def test_a_multiplied_layer_has_a_backward():
    layer = Linear(5, 3, dtype=np.float64, rng=np.random.default_rng(0))
    gradcheck.check_layer(Times(-2.5, layer), np.random.default_rng(1).standard_normal((2, 7, 5))).assert_ok()


def test_without_positions_a_source_is_a_heap_of_characters(model):
    source, _ = encode_sources([STORY.source])
    order = np.random.default_rng(0).permutation(source.shape[1])
    other = hurt(model, "no positions")
    np.testing.assert_allclose(other.encode(source[:, order]), other.encode(source)[:, order], rtol=0, atol=1e-12)
    assert abs(model.encode(source[:, order]) - model.encode(source)[:, order]).max() > 0.01
    kinds = [type(attention.positions) for attention in attentions(model)]
    assert kinds == N_ENCODER_LAYERS * [RotaryPositions] + N_DECODER_LAYERS * [RotaryPositions, type(None)]
    assert {attention.positions for attention in attentions(other)} == {None}


def test_the_wrong_mask_shows_what_comes_after_and_nothing_else(model):
    mine, given = attended(hurt(model, "wrong mask")), attended(model)
    T = given[N_ENCODER_LAYERS].shape[1]
    after = np.triu(np.ones((T, T), bool), 1)
    for i in range(N_ENCODER_LAYERS, len(mine), 2):
        assert (mine[i][:, after] > 0).all() and not mine[i][:, ~after].any()
        assert (given[i][:, ~after] > 0).all() and not given[i][:, after].any()
        np.testing.assert_allclose(mine[i].sum(-1)[:, :-1], 1, rtol=1e-12)
    for i in range(N_ENCODER_LAYERS):
        assert np.array_equal(mine[i], given[i])


def test_a_frozen_head_looks_at_all_alike_and_the_others_as_before(model):
    mine, given = attended(hurt(model, "frozen head")), attended(model)
    number, h = HEAD
    frozen = N_ENCODER_LAYERS + 2 * number + 1
    np.testing.assert_allclose(mine[frozen][h], 1 / len(STORY.source), rtol=1e-12)
    assert abs(given[frozen][h] - 1 / len(STORY.source)).max() > 0.01
    np.testing.assert_allclose(np.delete(mine[frozen], h, 0), np.delete(given[frozen], h, 0), rtol=1e-12)
    for i in range(frozen):
        assert np.array_equal(mine[i], given[i])


def test_wild_learning_is_so_many_steps_more_at_so_many_times_the_rate(model, small, monkeypatch):
    steps = []
    monkeypatch.setattr("demos.cities.damages.train", partial(train, report=steps.append))
    other = hurt(model, "wild learning")
    assert len(steps) == N_WILD_STEPS
    assert steps[0].learning_rate == pytest.approx(TIMES_FASTER * PEAK)
    for name, parameter in other.parameters().items():
        if not name.endswith("key.bias"):  # whose gradient is 0
            assert abs(parameter.value - model.parameters()[name].value).max() > TIMES_FASTER * PEAK / 2, name
    assert f"{N_WILD_STEPS} more steps at {TIMES_FASTER} times" in BY_NAME["wild learning"].sentence


# Looking.


@pytest.mark.parametrize("dialogue", [STORY, THREE], ids=["two cities", "three"])
def test_what_a_head_looks_at_is_what_one_computes_by_hand(model, dialogue):
    H, K = 6, 36 // 6
    source, _, target, _ = encode([dialogue])
    step = dialogue.target.index(dialogue.answer)
    memory = model.encode(source)
    x = model.decoder.embedding(target[:, :-1])
    expected = []
    for layer in model.decoder.layers:
        x = layer.attention(x, causal=True)
        cross = layer.cross_attention.layer
        q, k = cross.query(x)[0, step], cross.key(memory)[0]  # (H·K,), (S,H·K)
        of_heads = []
        for h in range(H):
            part = slice(h * K, (h + 1) * K)
            weights = np.exp(k[:, part] @ q[part] / np.sqrt(K))
            weights /= weights.sum()
            starts = [dialogue.statement.index(word) for word in (dialogue.answer, *dialogue.others)]
            ends = [start + len(word) for start, word in zip(starts, (dialogue.answer, *dialogue.others), strict=True)]
            of_heads.append([weights[start:end].sum() for start, end in zip(starts, ends, strict=True)])
        expected.append(of_heads)
        x = layer.feed_forward(layer.cross_attention(x, memory))
    odds = np.exp(model.output(x)[0, step])
    firsts = [encode_sources([word])[0][0, 0] for word in (dialogue.answer, *dialogue.others)]

    seen = look(model, dialogue)
    assert seen.words == (dialogue.answer, *dialogue.others)
    assert seen.weights.shape == (N_DECODER_LAYERS, H, len(seen.words))
    np.testing.assert_allclose(seen.weights, expected, rtol=1e-10)
    np.testing.assert_allclose(seen.probabilities, odds[firsts] / odds.sum(), rtol=1e-10)


# The command.


@pytest.fixture
def demo(run_here, small):
    return partial(run_here, cities.main)


def timeless(output):
    return re.sub(r"[\d,]+ tokens/s  \S+ left|in \d+:\d\d", "", output)


def blocks(output):
    """What is printed of the trained model and of each damaged one: {name: lines}."""
    return {block[:15].strip(): block.splitlines() for block in output.split("\n\n")[1:]}


def shown(lines):
    """The weights (words, heads) and the probabilities (words,) of a block, as text."""
    rows = [re.findall(r"\d\.\d{3}", line) for line in lines if line.startswith("    weight on ")]
    return [row[:-1] for row in rows], [row[-1] for row in rows]


def test_a_run_shows_the_story_the_learning_and_every_damage(demo):
    status, output, errors = demo("--steps", "3", "--seed", "1")
    assert (status, errors) == (0, "")
    head = output.split("\n\n")[0].splitlines()
    model = EncoderDecoder(cities.CONFIG, seed=1)
    n = sum(parameter.value.size for parameter in model.parameters().values())
    assert head[:3] == [
        "asked       我喜欢北京的春天和上海的秋天。春天我该去哪里？",
        "right       春天你该去北京。",
        f"model       2 encoder layers, 1 decoder layer, 6 heads, d_model 24: {n:,} parameters",
    ]
    assert [re.match(r"step (\d) of 3  loss \d\.\d{3}  ", line)[1] for line in head[3:6]] == ["1", "2", "3"]
    assert re.fullmatch(r"trained     3 steps in \d+:\d\d", head[6])
    assert head[7] == "held out    dialogues about a city and a season that never met in training"

    train(model, 3, np.random.default_rng([1, 0]), peak=PEAK, n_warmup=0)
    held_out = dialogues(5, np.random.default_rng([1, 1]), held_out=True)
    best = int(look(model, STORY).weights[0, :, 0].argmax())
    found = blocks(output)
    assert list(found) == ["trained", *BY_NAME]
    for name, lines in found.items():
        each = model if name == "trained" else hurt(model, name, (0, best))
        said = answers(each, held_out)
        wrong = [(dialogue, answer) for dialogue, answer in zip(held_out, said, strict=True) if answer != dialogue.target]
        seen = look(each, STORY)
        assert lines[0][15:] == ("nothing is wrong with it" if name == "trained" else BY_NAME[name].sentence)
        assert lines[1] == f"  right     {100 * (5 - len(wrong)) / 5:.1f}% of 5 held out"
        assert lines[2:4] == [
            f"  wrong     {d.source} {answer or '(nothing)'} (right: {d.target})" for d, answer in wrong[:2]
        ]
        assert lines[4] == f"  story     {answers(each, [STORY])[0] or '(nothing)'}"
        assert re.findall(r"\S+", lines[5])[-8:] == ["layer.head", *(f"1.{h}" for h in range(1, 7)), "P(city)"]
        assert [line[14:16] for line in lines[6:]] == ["北京", "上海"]
        weights, probabilities = shown(lines)
        assert weights == [[f"{weight:.3f}" for weight in row] for row in seen.weights[0].T]
        assert probabilities == [f"{P:.3f}" for P in seen.probabilities]
    uniform = f"{2 / len(STORY.source):.3f}"
    assert [row[best] for row in shown(found["frozen head"])[0]] == [uniform, uniform]


def test_the_numbers_stand_under_their_names(demo):
    for lines in blocks(demo("--steps", "1")[1]).values():
        names, *rows = lines[-3:]
        ends = [width(names[: match.end()]) for match in re.finditer(r"\d\.\d|P\(city\)", names)]
        assert len(ends) == 7
        for row in rows:
            assert [width(row[: match.end()]) for match in re.finditer(r"\d\.\d{3}", row)] == ends


def test_the_same_seed_is_the_same_run_and_another_is_not(demo):
    first, again, other = (timeless(demo("--steps", "3", "--seed", seed)[1]) for seed in "112")
    assert first == again
    assert blocks(first)["trained"] != blocks(other)["trained"]


def test_where_all_is_right_nothing_wrong_is_shown(model, monkeypatch, capsys):
    monkeypatch.setattr(cities, "answers", lambda model, asked: [dialogue.target for dialogue in asked])
    held_out = dialogues(7, np.random.default_rng(0), held_out=True)
    seen = cities.report("good", "as it should be", model, held_out)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [
        "good           as it should be",
        "  right     100.0% of 7 held out",
        f"  story     {STORY.target}",
    ]
    layers = [f"{layer}.{head}" for layer in (1, 2) for head in range(1, 7)]
    assert re.findall(r"\d\.\d", lines[4]) == layers
    weights, _ = shown(lines)
    assert weights[0] == [f"{weight:.3f}" for weight in seen.weights[:, :, 0].ravel()]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_console_without_chinese_says_so_and_names_the_cities_in_latin_letters(small, monkeypatch, encoding):
    console = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", console)
    assert cities.main(["--steps", "1"]) == 0
    output = console.buffer.getvalue().decode(encoding).replace("\r\n", "\n")
    first, *lines = output.splitlines()
    assert (
        first == "note        this console cannot show Chinese, and ? stands for it; set PYTHONIOENCODING=utf-8 to have it"
    )
    assert "asked       ?????" in lines[0]
    assert "the scores of attention are not divided by sqrt d" in output
    assert output.count("  where Beijing is due: layer.head") == 1 + len(DAMAGES)
    for lines in blocks(output).values():
        assert [line.split()[2] for line in lines[-2:]] == ["Beijing", "Shanghai"]
        assert len(set(map(len, lines[-3:]))) == 1


def test_a_console_that_has_chinese_is_told_nothing(demo):
    output = demo("--steps", "1")[1]
    assert "note" not in output
    assert "?" not in output


def test_ctrl_c_is_one_line_and_status_130(demo, interrupt_each_step):
    interrupt_each_step(cities)
    status, output, errors = demo("--steps", "3")
    assert (status, errors) == (130, "\ncities: interrupted\n")
    assert len(re.findall("^step ", output, re.MULTILINE)) == 1


def test_a_reader_that_has_gone_ends_the_demo_without_a_word():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-W", "error", "-m", "demos", "cities", "--steps", "2"]
    run = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--steps", "0"], "argument --steps: must be in 1 … 2147483647, got 0"),
        (["--steps", "many"], "argument --steps: must be an integer, got 'many'"),
        (["--steps"], "argument --steps: expected one argument"),
        (["--step", "3"], "unrecognized arguments: --step 3"),
        (["--seed", "-1"], "argument --seed: must be in 0 … 2147483647, got -1"),
        (["--seed", "2.5"], "argument --seed: must be an integer, got '2.5'"),
        (["北京"], "unrecognized arguments: 北京"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(demo, arguments, sentence):
    assert demo(*arguments) == (2, "", f"python -m demos cities: {sentence}\n")


def test_help_says_in_a_line_each_what_there_is(demo):
    status, output, _ = demo("--help")
    assert status == 0
    assert cities.__doc__.partition("\n")[0] in " ".join(output.split())
    assert "  --steps N   of training (default: 1000)\n" in output
    assert "  --seed N    for everything random (default: 0)\n" in output


def test_the_story_is_told_in_words_that_have_a_meaning_for_every_console():
    assert tuple(cities.MEANING) == (STORY.answer, *STORY.others)
    assert all(meaning.isascii() for meaning in cities.MEANING.values())
    assert set(SEASONS).isdisjoint(cities.MEANING)


@pytest.mark.long
def test_it_learns_to_answer_and_without_positions_looks_at_the_wrong_city():
    """The demo's own run, with its default seed and steps."""
    model = EncoderDecoder(CONFIG, seed=0)
    train(model, cities.N_STEPS, np.random.default_rng([0, 0]), peak=PEAK, n_warmup=training.N_WARMUP)
    held_out = dialogues(1000, np.random.default_rng([0, 1]), held_out=True)

    def right(model):
        return np.mean([answer == each.target for answer, each in zip(answers(model, held_out), held_out, strict=True)])

    assert right(model) > 0.99
    seen = look(model, STORY)
    assert answers(model, [STORY]) == [STORY.target]
    assert seen.probabilities[0] > 0.9
    for name in ("no positions", "wrong mask", "wild learning"):
        assert right(hurt(model, name, (0, 0))) < 0.5, name
    of_the_wrong_city = look(hurt(model, "no positions", (0, 0)), STORY).weights[..., 1]
    assert of_the_wrong_city.max() > seen.weights[..., 1].max() + 0.2
    assert of_the_wrong_city.sum() > seen.weights[..., 1].sum() + 0.5
