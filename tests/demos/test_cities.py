"""`python -m demos cities`: it learns, every damage is what its sentence says, and what is shown is what the model does."""

import html
import io
import os
import re
import signal
import subprocess
import sys
import webbrowser
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import gradcheck
from demos import cities
from demos.by_hand.tables import WIDTH, width
from demos.cities import looking, training
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
from demos.cities.looking import N_TEXTS, NAMES, asked_of, judged, most_changed, read
from demos.cities.training import CONFIG, LONGEST_ANSWER, PEAK, answers, train
from npformer import EncoderDecoder, generate
from npformer.functional import softmax
from npformer.inspection import compare
from npformer.inspection.diagnosis import summary
from npformer.layers import Linear, RotaryPositions
from seeing import seen_by

ROOT = Path(__file__).parents[2]
BY_NAME = {damage.name: damage for damage in DAMAGES}
N_ENCODER_LAYERS, N_DECODER_LAYERS = 3, 2
D_HEAD = 8  # 6 heads of it are more than d_model
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
    layers = {"n_encoder_layers": N_ENCODER_LAYERS, "n_decoder_layers": N_DECODER_LAYERS}
    config = replace(CONFIG, **layers, d_model=36, d_head=D_HEAD, d_ff=20, max_len=40)
    model = EncoderDecoder(config, dtype=np.float64, seed=4)
    vary(model, 5)
    return model


@pytest.fixture
def small(monkeypatch):
    """Sizes at which a run takes a moment."""
    monkeypatch.setattr(cities, "CONFIG", replace(CONFIG, d_model=24, d_head=4, d_ff=16))
    monkeypatch.setattr(cities, "N_HELD_OUT", 5)
    monkeypatch.setattr(training, "BATCH_SIZE", 4)


@pytest.fixture(scope="module")
def lessons():
    """A small model that has learnt to write answers, mostly wrong ones, and its steps."""
    model = EncoderDecoder(replace(CONFIG, n_decoder_layers=2, d_model=48, d_head=8, d_ff=32), dtype=np.float64, seed=2)
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
    K = D_HEAD
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
    H, K = 6, D_HEAD
    source, _, target, _ = encode([dialogue])
    step = dialogue.answer_places[0]
    words = (dialogue.answer, dialogue.others[0])
    places = [list(dialogue.places(word)) for word in words]

    def run(zeroed=None):
        """The weights (layers, H, S) at the step and P of each id, with the output of one head zeroed if it is given."""
        memory, x, weights = model.encode(source), model.decoder.embedding(target[:, :-1]), []
        for number, layer in enumerate(model.decoder.layers):
            x = layer.attention(x, causal=True)
            cross = layer.cross_attention.layer
            q, k, v = cross.query(x)[0], cross.key(memory)[0], cross.value(memory)[0]
            outs = []
            for h in range(H):
                part = slice(h * K, (h + 1) * K)
                P = np.exp(q[:, part] @ k[:, part].T / np.sqrt(K))
                P /= P.sum(1, keepdims=True)
                weights.append(P[step])
                outs.append(np.zeros_like(P @ v[:, part]) if (number, h) == zeroed else P @ v[:, part])
            x = layer.cross_attention.norm(x + cross.output(np.concatenate(outs, 1)[None]))
            x = layer.feed_forward(x)
        odds = np.exp(model.output(x)[0, step])
        return np.array(weights).reshape(len(model.decoder.layers), H, -1), odds / odds.sum()

    id = encode_sources([dialogue.answer[0]])[0][0, 0]
    weights, P = run()
    seen = asked_of(read(model, dialogue, "by hand"), dialogue)
    assert (seen.query, seen.key, seen.against) == (dialogue.answer[0], *words)
    assert seen.kind == "cross"
    assert seen.probability == pytest.approx(P[id], rel=1e-10)
    assert sorted((row.layer, row.head) for row in seen.rows) == [(i, h) for i in range(N_DECODER_LAYERS) for h in range(H)]
    assert [row.weight for row in seen.rows] == sorted((row.weight for row in seen.rows), reverse=True)
    for row in seen.rows:
        of_head = weights[row.layer, row.head]
        expected = [of_head[each].sum() for each in places]
        np.testing.assert_allclose([row.weight, row.against], expected, rtol=1e-10)
        assert row.probability == pytest.approx(run((row.layer, row.head))[1][id], rel=1e-9)
        assert row.rank == 1 + (of_head > of_head[places[0]].max()).sum()


def test_the_names_are_those_of_the_ids():
    source, _, target, _ = encode([STORY])
    assert "".join(NAMES[id] for id in source[0]) == STORY.source
    assert [NAMES[id] for id in target[0]] == ["<begin>", *STORY.target, "<end>"]
    assert len(set(NAMES)) == len(NAMES) == CONFIG.vocab_size


def test_what_is_read_is_named_as_the_model_meets_it(model):
    recording = read(model, STORY, "the title")
    assert recording.title == "the title"
    assert recording.kinds == ("encoder", "decoder", "cross")
    cross = recording.find("cross", 1, 4)
    assert "".join(cross.key_tokens) == STORY.source
    assert cross.query_tokens[:-1] == (*STORY.target, "<end>")
    assert recording.find("decoder", 0, 0).key_tokens == ("<begin>", *STORY.target, "<end>")
    seen = attended(model)
    np.testing.assert_allclose(cross.weights, seen[-1][4], rtol=1e-10)


def test_a_model_is_judged_by_the_mean_over_more_texts_than_the_story(model, monkeypatch):
    held_out = dialogues(N_TEXTS + 5, np.random.default_rng(0), held_out=True)
    seen = read(hurt(model, "no scale"), STORY, "bad")
    others = [read(seen.model, dialogue, "other") for dialogue in held_out[: N_TEXTS - 1]]
    good = read(model, STORY, "good")
    found = judged(seen.model, seen, held_out, good)
    assert [str(f) for f in found] == [str(f) for f in seen.diagnose(reference=good, also=others)]
    assert [str(f) for f in found] != [str(f) for f in seen.diagnose(reference=good)]
    assert {f.label for f in found} - {f.label for f in judged(seen.model, seen, held_out)} == {"changed"}
    monkeypatch.setattr(
        looking, "read", lambda model, dialogue, title: texts.append(dialogue) or read(model, dialogue, title)
    )
    texts = []
    judged(seen.model, seen, held_out)
    assert texts == held_out[: N_TEXTS - 1]


def test_the_head_that_differs_most_is_found_by_its_weights_in_one_row(model):
    good = read(model, STORY, "good")
    found = set()
    for name in BY_NAME:
        bad = read(hurt(model, name), STORY, name)
        for row in (0, STORY.answer_places[0]):
            heads = [(map.layer, map.head) for map in good.of_kind("cross")]
            changes = [
                abs(bad.find("cross", *head).weights - good.find("cross", *head).weights)[row].sum() for head in heads
            ]
            found.add(most_changed(good, bad, row))
            assert most_changed(good, bad, row) == heads[int(np.argmax(changes))]
    assert HEAD in found and len(found) > 2


# The command.


@pytest.fixture
def demo(run_here, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return partial(run_here, cities.main)


def timeless(output):
    return re.sub(r"[\d,]+ tokens/s  \S+ left|in \d+:\d\d", "", output)


def blocks(output):
    """What is printed of the trained model and of each damaged one: {name: lines}."""
    return {block[:15].strip(): block.splitlines() for block in output.split("\n\n")[1:-1]}


def story_of(seen):
    return [f"  {line}" for line in str(asked_of(seen, STORY)).splitlines()[:-1]]


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
    good = read(model, STORY, "good")
    busiest = asked_of(good, STORY).rows[0]
    found = blocks(output)
    assert list(found) == ["trained", *BY_NAME]
    for name, lines in found.items():
        each = model if name == "trained" else hurt(model, name, (busiest.layer, busiest.head))
        said = answers(each, held_out)
        wrong = [(dialogue, answer) for dialogue, answer in zip(held_out, said, strict=True) if answer != dialogue.target]
        seen = good if name == "trained" else read(each, STORY, name)
        assert lines[0][15:] == ("nothing is wrong with it" if name == "trained" else BY_NAME[name].sentence)
        assert lines[1] == f"  right     {100 * (5 - len(wrong)) / 5:.1f}% of 5 held out"
        assert lines[2:4] == [
            f"  wrong     {d.source} {answer or '(nothing)'} (right: {d.target})" for d, answer in wrong[:2]
        ]
        assert lines[4] == f"  story     {answers(each, [STORY])[0] or '(nothing)'}"
        assert lines[5:13] == story_of(seen)
        findings = judged(each, seen, held_out, None if name == "trained" else good)
        striking = [f for f in findings if f.is_fault or f.label in ("uniform", "changed")]
        said = [line for line in lines[13:] if not line.startswith(" " * 12)]  # and what is folded
        assert max(map(width, lines[13:]), default=0) <= WIDTH
        assert {line.partition(":")[0] for line in said} <= {f"  seen      {str(f).partition(':')[0]}" for f in striking}
        labels = [(finding.kind, finding.layer, finding.label) for finding in striking]
        assert len(said) == len(set(labels))
    assert found["frozen head"][13:][0].startswith(f"  seen      cross layer 0 head {busiest.head}, uniform: ")
    assert any(", mask leak: " in line for line in found["wrong mask"])


def test_the_numbers_stand_under_their_names(demo):
    for lines in blocks(demo("--steps", "1")[1]).values():
        names, *rows = lines[6:13]
        ends = [width(names[: match.end()]) for match in re.finditer(r"layer|head|on ..|rank|uniform|without it", names)]
        assert len(ends) == 7
        for row in rows:
            assert [width(row[: match.end()]) for match in re.finditer(r"\d+ of \d+|\S+", row)] == ends


def test_the_same_seed_is_the_same_run_and_another_is_not(demo):
    runs = [(timeless(demo("--steps", "3", "--seed", seed)[1]), Path("cities.html").read_bytes()) for seed in "112"]
    assert runs[0] == runs[1]
    assert blocks(runs[0][0])["trained"] != blocks(runs[2][0])["trained"]
    assert runs[0][1] != runs[2][1]


def test_where_all_is_right_nothing_wrong_is_shown(model, monkeypatch, capsys):
    monkeypatch.setattr(cities, "answers", lambda model, asked: [dialogue.target for dialogue in asked])
    held_out = dialogues(7, np.random.default_rng(0), held_out=True)
    seen = read(model, STORY, "good")
    findings = seen.diagnose()
    assert cities.report("good", "as it should be", model, seen, findings, held_out) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [
        "good           as it should be",
        "  right     100.0% of 7 held out",
        f"  story     {STORY.target}",
    ]
    assert lines[4 : 6 + N_DECODER_LAYERS * 6] == story_of(seen)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_console_without_chinese_says_so_and_names_the_cities_in_latin_letters(demo, monkeypatch, encoding):
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
    assert output.count('  who attends to "Beijing" while "Bei" is said (cross attention); P(Bei) = 0.') == 1 + len(DAMAGES)
    for lines in blocks(output).values():
        title = next(i for i, line in enumerate(lines) if line.startswith("  who attends"))
        assert re.split(" {2,}", lines[title + 1].strip())[2:4] == ["on Beijing", "on Shanghai"]
        assert len(set(map(len, lines[title + 1 : title + 8]))) == 1
    assert " -> " in output
    assert STORY.source in Path("cities.html").read_text(encoding="utf-8")


def test_a_console_of_gbk_shows_the_cities_as_they_are(demo, monkeypatch):
    console = io.TextIOWrapper(io.BytesIO(), encoding="gbk")
    monkeypatch.setattr(sys, "stdout", console)
    assert cities.main(["--steps", "1"]) == 0
    output = console.buffer.getvalue().decode("gbk")
    assert "note" not in output
    assert output.count('  who attends to "北京" while "北" is said') == 1 + len(DAMAGES)


def test_a_console_that_has_chinese_is_told_nothing(demo):
    output = demo("--steps", "1")[1]
    assert "note" not in output
    assert "?" not in output


# The page.


def page_text(path):
    """What a reader of the page meets without scripts, its tags as blanks."""
    page = Path(path).read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL))


def test_the_page_is_where_it_was_wanted_and_the_last_lines_say_so(demo, tmp_path):
    (tmp_path / "故 事").mkdir()
    where = os.path.join("故 事", "page 1.html")
    status, output, errors = demo("--steps", "2", "--page", where)
    assert (status, errors) == (0, "")
    address = (tmp_path / where).as_uri()
    assert output.endswith(f"\n\npage        {where}\n            {address}\n")
    assert address.endswith("/%E6%95%85%20%E4%BA%8B/page%201.html")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == ["故 事/page 1.html"]


def test_the_page_tells_the_story(demo):
    demo("--steps", "3", "--seed", "1")
    page = page_text("cities.html")
    assert f"Asked: {STORY.source} Right: {STORY.target}" in page
    model = EncoderDecoder(cities.CONFIG, seed=1)
    train(model, 3, np.random.default_rng([1, 0]), peak=PEAK, n_warmup=0)
    good = read(model, STORY, "trained")
    asked = asked_of(good, STORY)
    held_out = dialogues(5, np.random.default_rng([1, 1]), held_out=True)
    places = [page.index(asked.title)]
    for row, cells in zip(asked.rows, asked.cells(), strict=True):
        places.append(page.index(f" layer {row.layer} head {row.head} ", places[-1]))
        assert re.findall(r"\S+", page[places[-1] :])[4:6] == list(cells[2:4])
    for name, damage in BY_NAME.items():
        heading = f"The damage: {damage.sentence}. "
        assert page.count(heading) == 1
        assert page[: page.index(heading)].split()[-len(name.split()) :] == name.capitalize().split()
        places.append(page.index(heading))
        bad = read(hurt(model, name, (asked.rows[0].layer, asked.rows[0].head)), STORY, name)
        assert f"it says: {answers(bad.model, [STORY])[0] or '(nothing)'} Of those held out" in page[places[-1] :]
        places.append(page.index(asked_of(bad, STORY).title, places[-1]))
        for _, sentence in summary(judged(bad.model, bad, held_out, good)):
            assert sentence in page[places[-1] :]
        places.append(page.index(compare(good, bad).title, places[-1]))
    places += [page.index(title, places[-1]) for title in ("Loss", "Gradient norm", "Learning rate")]
    assert places == sorted(places)
    assert good.loss_name == "" and "−ln P(北)" in Path("cities.html").read_text(encoding="utf-8")


def test_the_curves_are_those_of_this_training(demo, monkeypatch):
    charts = []

    def drawn(runs):
        charts.append(runs)
        return []

    monkeypatch.setattr(cities, "training_charts", drawn)
    demo("--steps", "3", "--seed", "1")
    steps = []
    model = EncoderDecoder(cities.CONFIG, seed=1)
    train(model, 3, np.random.default_rng([1, 0]), peak=PEAK, n_warmup=0, report=steps.append)
    assert charts == [{"training": steps}]


@pytest.mark.parametrize("finds_one", [True, False])
def test_a_browser_opens_the_page_if_that_is_wanted_and_there_is_one(demo, monkeypatch, tmp_path, finds_one):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or finds_one)
    status, output, errors = demo("--steps", "1", "--open")
    assert status == 0
    assert opened == [(tmp_path / "cities.html").as_uri()]
    assert output.endswith(f"{opened[0]}\n")
    assert errors == ("" if finds_one else "note        no browser was found that could open it\n")


def test_no_browser_opens_a_page_that_nobody_wants(demo, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda address: pytest.fail("opened"))
    assert demo("--steps", "1")[0] == 0


@pytest.mark.parametrize(
    ("place", "why"),
    [("", "Is a directory"), (".", "Is a directory"), ("missing/x.html", "No such file or directory")],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_learnt(demo, monkeypatch, tmp_path, place, why):
    monkeypatch.setattr(cities, "train", lambda *_, **__: pytest.fail("trained"))
    assert demo("--page", place) == (2, "", f"cities: {place or repr('')}: {why}\n")
    assert list(tmp_path.iterdir()) == []


def test_an_old_page_stays_until_the_new_one_is_whole(demo, monkeypatch, tmp_path, interrupt_each_step):
    Path("cities.html").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(cities, "compare", lambda *_: signal.raise_signal(signal.SIGINT))
        assert demo("--steps", "1")[0] == 130
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("cities.html", "old")]
    assert demo("--steps", "1")[0] == 0
    assert Path("cities.html").stat().st_size > 100_000


# What ends a run.


def test_ctrl_c_is_one_line_and_status_130(demo, interrupt_each_step):
    interrupt_each_step(cities)
    status, output, errors = demo("--steps", "3")
    assert (status, errors) == (130, "\ncities: interrupted\n")
    assert len(re.findall("^step ", output, re.MULTILINE)) == 1


def test_a_reader_that_has_gone_ends_the_demo_without_a_word(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-W", "error", "-m", "demos", "cities", "--steps", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False)
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
        (["--page"], "argument --page: expected one argument"),
        (["北京"], "unrecognized arguments: 北京"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(demo, arguments, sentence):
    assert demo(*arguments) == (2, "", f"python -m demos cities: {sentence}\n")


def test_help_says_in_a_line_each_what_there_is(demo):
    status, output, _ = demo("--help")
    assert status == 0
    assert cities.__doc__.partition("\n")[0] in " ".join(output.split())
    assert f"  --steps N    of training (default: {cities.N_STEPS})\n" in output
    assert "  --seed N     for everything random (default: 0)\n" in output
    assert "  --page FILE  the page to write (default: cities.html)\n" in output
    assert "  --open       open the page in the browser\n" in output


def test_the_story_is_told_in_words_that_have_a_meaning_for_every_console():
    assert set(cities.MEANING) == {STORY.answer, *STORY.others, STORY.answer[0]}
    assert all(meaning.isascii() for meaning in cities.MEANING.values())
    assert set(SEASONS).isdisjoint(cities.MEANING)


# What the page promises, of models that were trained as the demo trains them.


def trained(seed):
    model = EncoderDecoder(CONFIG, seed=seed)
    train(model, cities.N_STEPS, np.random.default_rng([seed, 0]), peak=PEAK, n_warmup=training.N_WARMUP)
    return model


class Seed:
    """A model that has learnt, what it reads in the story, and the same of each damage."""

    def __init__(self, number):
        self.model = trained(number)
        self.held_out = dialogues(cities.N_HELD_OUT, np.random.default_rng([number, 1]), held_out=True)
        self.good = read(self.model, STORY, "trained")
        self.story = asked_of(self.good, STORY)
        self.busiest = self.story.rows[0].layer, self.story.rows[0].head
        self.models = {name: hurt(self.model, name, self.busiest) for name in BY_NAME}
        self.bad = {name: read(model, STORY, name) for name, model in self.models.items()}
        self.findings = {name: judged(self.models[name], self.bad[name], self.held_out, self.good) for name in BY_NAME}
        self.findings["trained"] = judged(self.model, self.good, self.held_out)

    def right(self, model):
        return np.mean(
            [said == each.target for said, each in zip(answers(model, self.held_out), self.held_out, strict=True)]
        )

    def labelled(self, label, name):
        """The heads of the trained model, or of a damaged one, that have a label."""
        return {(found.kind, found.layer, found.head) for found in self.findings[name] if found.label == label}


@pytest.fixture(scope="module", params=range(10), ids="seed {}".format)
def seed(request):
    return Seed(request.param)


@pytest.mark.long
def test_a_good_model_answers_and_has_no_fault(seed):
    assert seed.right(seed.model) > 0.9  # 0.946 was the least of ten seeds
    assert answers(seed.model, [STORY]) == [STORY.target]
    assert [finding.sentence for finding in seed.findings["trained"] if finding.is_fault] == []


@pytest.mark.long
def test_a_good_model_looks_at_the_right_city_while_it_says_it(seed):
    first = seed.story.rows[0]
    assert first.weight > 0.5 > first.against
    assert seed.story.probability > 0.9
    source, source_keep, target, target_keep = encode([STORY])
    logits = seed.model(source, target[:, :-1], source_keep, target_keep[:, :-1])
    P, _ = softmax(logits[0, STORY.answer_places[0]])
    assert seed.story.probability == pytest.approx(float(P[encode_sources([STORY.answer])[0][0, 0]]), rel=1e-3)


@pytest.mark.long
def test_without_scale_a_layer_is_collapsed(seed):
    assert {(kind, head) for kind, _, head in seed.labelled("collapsed", "no scale")} >= {("decoder", None)}


@pytest.mark.long
def test_without_positions_heads_look_elsewhere_and_at_the_other_city(seed):
    comparison = compare(seed.good, seed.bad["no positions"])
    moved = [abs(b - a) for change in comparison.changes for a, b in [change.metrics["distance"]] if change.kind == "cross"]
    assert max(moved) > 0.5  # 0.74 was the least of ten seeds
    assert len(seed.labelled("changed", "no positions")) >= 12
    without = asked_of(seed.bad["no positions"], STORY)
    before, after = ({(row.layer, row.head): row.against for row in answer.rows} for answer in (seed.story, without))
    more = [after[head] - before[head] for head in before]
    assert max(more) > 0.25  # 0.318 was the least
    assert sum(more) > 0.5
    assert seed.right(seed.models["no positions"]) < 0.5


@pytest.mark.long
def test_with_the_wrong_mask_every_head_of_the_decoder_leaks_and_no_other(seed):
    assert seed.labelled("mask leak", "wrong mask") == {("decoder", 0, head) for head in range(CONFIG.n_heads)}
    assert seed.right(seed.models["wrong mask"]) < 0.5


@pytest.mark.long
def test_a_frozen_head_is_uniform_and_has_changed_and_no_other(seed):
    head = {("cross", *seed.busiest)}
    assert seed.labelled("uniform", "frozen head") - seed.labelled("uniform", "trained") == head
    assert seed.labelled("changed", "frozen head") == head


@pytest.mark.long
def test_after_wild_learning_it_is_said_of_every_head_how_it_has_changed(seed):
    changed = [finding for finding in seed.findings["wild learning"] if finding.label == "changed"]
    assert len(changed) >= 20  # of 24
    assert all(re.search(r"entropy \d\.\d\d → \d\.\d\d, mean distance ", finding.evidence) for finding in changed)
    assert seed.right(seed.models["wild learning"]) < 0.5
