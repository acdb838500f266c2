"""The dialogues of the cities: one right answer each, places that are right, and nothing of what is tested in training."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from demos.cities.dialogues import (
    ALPHABET,
    BEGIN,
    CITIES,
    END,
    HELD_OUT,
    QUESTIONS,
    SEASONS,
    STATEMENTS,
    STORY,
    VOCAB_SIZE,
    compose,
    decode,
    dialogues,
    encode,
    encode_sources,
    encode_targets,
)

N = 4001


@pytest.fixture(scope="module")
def training():
    return dialogues(N, np.random.default_rng(1))


@pytest.fixture(scope="module")
def held_out():
    return dialogues(N, np.random.default_rng(2), held_out=True)


def words_of(text, words):
    return [word for word in words if word in text]


def read(source):
    """The city that a reader finds, who knows cities and seasons and that a sentence names them pair by pair."""
    statement, question = source.split("。")
    found = [(statement.index(word), word) for word in words_of(statement, CITIES + SEASONS)]
    words = [word for _, word in sorted(found)]
    (season,) = words_of(question, SEASONS)
    pair = words.index(season) // 2
    (city,) = set(words[2 * pair : 2 * pair + 2]) - {season}
    return city


def test_the_story_is_among_those_held_out():
    assert (STORY.source, STORY.target) == ("我喜欢北京的春天和上海的秋天。春天我该去哪里？", "春天你该去北京。")
    assert (STORY.asked, STORY.answer, STORY.others) == ("春天", "北京", ("上海",))
    assert ("北京", "春天") in HELD_OUT
    assert [list(STORY.places(word)) for word in ("北京", "春天", "上海", "秋天")] == [[3, 4], [6, 7], [9, 10], [12, 13]]
    assert list(STORY.answer_places) == [5, 6]


def test_no_city_meets_a_season_in_training_from_which_it_is_held_out(training):
    for dialogue in training:
        met = product(words_of(dialogue.source, CITIES), words_of(dialogue.source, SEASONS))
        assert HELD_OUT.isdisjoint(met), dialogue.source


def test_held_out_dialogues_ask_for_what_is_held_out(held_out):
    asked = Counter((dialogue.answer, dialogue.asked) for dialogue in held_out)
    assert set(asked) == HELD_OUT
    assert max(asked.values()) < 2 * min(asked.values())


def test_training_and_held_out_share_no_source(training, held_out):
    assert not {dialogue.source for dialogue in training} & {dialogue.source for dialogue in held_out}


def test_every_word_and_phrase_of_the_held_out_is_learnt(training):
    text = "".join(dialogue.source for dialogue in training)
    assert words_of(text, CITIES + SEASONS) == [*CITIES, *SEASONS]
    asked = {(dialogue.answer, dialogue.asked) for dialogue in training}
    assert asked == set(product(CITIES, SEASONS)) - HELD_OUT
    assert len({city for city, _ in HELD_OUT}) == len(HELD_OUT)
    assert {season for _, season in HELD_OUT} == set(SEASONS)


def test_cities_and_seasons_of_a_dialogue_all_differ(training, held_out):
    for dialogue in training + held_out:
        cities = {dialogue.answer, *dialogue.others}
        assert set(words_of(dialogue.statement, CITIES)) == cities, dialogue
        assert len(words_of(dialogue.statement, SEASONS)) == len(cities) == 1 + len(dialogue.others) in (2, 3)


def test_the_answer_is_the_one_that_a_reader_finds(training, held_out):
    for dialogue in [STORY, *training, *held_out]:
        assert read(dialogue.source) == dialogue.answer, dialogue
        assert words_of(dialogue.target, CITIES) == [dialogue.answer]
        assert words_of(dialogue.target, SEASONS) == words_of(dialogue.question, SEASONS) == [dialogue.asked]
        assert dialogue.target.index(dialogue.asked) < dialogue.target.index(dialogue.answer)


def test_a_source_has_one_target():
    asked = {question: answer for question, answer in QUESTIONS}
    assert len(asked) == len(QUESTIONS)
    kinds = {letter: "城" for letter in "ABC"} | {letter: "季" for letter in "abc"}
    assert len({statement.format(**kinds) for statement in STATEMENTS}) == len(STATEMENTS)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_places_are_right_wherever_a_word_stands(statement):
    n_pairs = 3 if "C" in statement else 2
    for shift in range(len(CITIES)):
        cities = [CITIES[(shift + 5 * i) % len(CITIES)] for i in range(n_pairs)]
        pairs = list(zip(cities, np.roll(SEASONS, shift)[:n_pairs].tolist(), strict=True))
        for asked, question in product(range(n_pairs), QUESTIONS):
            dialogue = compose(statement, question, pairs, asked)
            assert (dialogue.answer, dialogue.asked) == pairs[asked]
            assert [*dialogue.others] == cities[:asked] + cities[asked + 1 :]
            for word in sum(pairs, ()):
                assert "".join(dialogue.source[i] for i in dialogue.places(word)) == word
                assert dialogue.statement.count(word) == 1
            assert "".join(dialogue.target[i] for i in dialogue.answer_places) == dialogue.answer
            assert not words_of(dialogue.question, CITIES)
            assert set(dialogue.source + dialogue.target) <= set(ALPHABET)


def test_a_word_that_is_not_there_has_no_place():
    with pytest.raises(ValueError, match="substring not found"):
        STORY.places("广州")


def test_the_alphabet_is_what_the_dialogues_are_written_in(training, held_out):
    assert set(ALPHABET) == set("".join(dialogue.source + dialogue.target for dialogue in training + held_out))
    assert (BEGIN, END, VOCAB_SIZE) == (len(ALPHABET), len(ALPHABET) + 1, len(ALPHABET) + 2)


def test_sources_are_short_enough_to_learn_fast(training, held_out):
    assert max(len(dialogue.source) for dialogue in training + held_out) <= 36


def test_hardly_any_dialogue_comes_twice_and_every_phrase_comes(training, held_out):
    for drawn in (training, held_out):
        assert len({dialogue.source for dialogue in drawn}) > 0.9 * N
        blanks = dict.fromkeys(CITIES, "城") | dict.fromkeys(SEASONS, "季")
        forms = Counter()
        for dialogue in drawn:
            text = dialogue.source
            for word, blank in blanks.items():
                text = text.replace(word, blank)
            forms[text] += 1
        assert len(forms) == len(STATEMENTS) * len(QUESTIONS)
        before = (
            [dialogue.places(city)[0] < dialogue.places(dialogue.answer)[0] for city in dialogue.others]
            for dialogue in drawn
        )
        asked = Counter(map(sum, before))
        assert set(asked) == {0, 1, 2}
        assert abs(asked[0] - asked[1]) < 0.1 * N


@pytest.mark.parametrize("held_out", [False, True])
def test_dialogues_follow_from_the_generator_alone(held_out):
    first, again, other = (dialogues(7, np.random.default_rng(seed), held_out) for seed in (3, 3, 4))
    assert first == again != other
    rng = np.random.default_rng(3)
    assert [dialogue for n in (2, 0, 5) for dialogue in dialogues(n, rng, held_out)] == first


def test_encoded_and_decoded_again_they_are_the_same(training):
    batch = training[:31]
    source, source_keep, target, target_keep = encode(batch)
    assert source.shape == source_keep.shape == (31, max(len(dialogue.source) for dialogue in batch))
    assert target.shape == target_keep.shape == (31, max(len(dialogue.target) for dialogue in batch) + 2)
    for i, dialogue in enumerate(batch):
        assert decode(source[i, source_keep[i]]) == dialogue.source
        assert decode(target[i]) == decode(target[i, target_keep[i]]) == dialogue.target
        assert source_keep[i].sum() == len(dialogue.source)
        assert (source_keep[i].argmin() or source.shape[1]) == len(dialogue.source)
        assert (target[i, 0], target[i, len(dialogue.target) + 1]) == (BEGIN, END)
        assert target_keep[i].sum() == len(dialogue.target) + 2
        assert not source[i, ~source_keep[i]].any() and not target[i, ~target_keep[i]].any()
        place = dialogue.answer_places
        assert decode(target[i, 1:][place.start : place.stop]) == dialogue.answer


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([BEGIN], ""),
        ([END], ""),
        ([BEGIN, END, 3], ""),
        ([5, 3], ALPHABET[5] + ALPHABET[3]),
        ([BEGIN, 5, END, END, 3], ALPHABET[5]),
    ],
)
def test_what_a_decoder_wrote_is_read_up_to_its_end(ids, text):
    assert decode(np.array(ids, int)) == text


@pytest.mark.parametrize("encode_texts", [encode_sources, encode_targets])
def test_what_is_not_in_the_alphabet_is_refused(encode_texts):
    with pytest.raises(ValueError, match="'东'"):
        encode_texts([STORY.source, "我喜欢东京的春天。"])


def test_what_is_held_out_would_be_noticed_in_training(monkeypatch):
    """The proof that the tests above can fail: the generator without its rule."""
    monkeypatch.setitem(dialogues.__globals__, "HELD_OUT", frozenset())
    free = dialogues(N, np.random.default_rng(1))
    with pytest.raises(AssertionError):
        test_no_city_meets_a_season_in_training_from_which_it_is_held_out(free)
