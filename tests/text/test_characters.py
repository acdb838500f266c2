"""The character tokenizer: every text comes back as it was, and what is not in the vocabulary is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.text import CharacterTokenizer

# Everything Python's texts may hold: Chinese, emoji, combining marks, NUL, halves of surrogate pairs.
anything = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("a\n\0中é\u0301👍🏽\ufe0f\ud83d\ude00\U0010ffff"), min_size=1
)


@given(text=anything)
def test_a_text_comes_back_as_it_was(text):
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64
    assert ids.shape == (len(text),)
    assert tokenizer.decode(ids) == text
    assert [tokenizer.characters[i] for i in ids] == list(text)
    assert tokenizer.characters == "".join(sorted(set(text)))
    assert tokenizer.vocab_size == len(set(text))


@given(text=anything, other=anything)
def test_it_knows_what_it_does_not_know(text, other):
    tokenizer = CharacterTokenizer.from_text(text)
    unknown = [character for character in other if character not in text]
    if not unknown:
        assert tokenizer.decode(tokenizer.encode(other)) == other
    else:
        with pytest.raises(ValueError, match=rf"the first at position {other.index(unknown[0])}: "):
            tokenizer.encode(other)


def test_the_ids_are_the_places_in_the_order_given():
    tokenizer = CharacterTokenizer("zβa中")
    assert tokenizer.encode("az中β").tolist() == [2, 0, 3, 1]
    assert tokenizer.decode(np.array([3, 3, 0], np.uint8)) == "中中z"
    assert tokenizer.decode(np.array(1)) == "β"


def test_nothing_is_encoded_and_decoded_as_nothing():
    tokenizer = CharacterTokenizer("a")
    ids = tokenizer.encode("")
    assert ids.dtype == np.int64
    assert ids.shape == (0,)
    assert tokenizer.decode(ids) == ""


def test_a_combining_character_is_a_character():
    tokenizer = CharacterTokenizer.from_text("e\u0301é")
    assert tokenizer.vocab_size == 3
    assert tokenizer.encode("e\u0301").shape == (2,)


def test_two_halves_of_a_surrogate_pair_do_not_become_one_character():
    text = "\ud83d\ude00"
    tokenizer = CharacterTokenizer.from_text(text)
    assert tokenizer.vocab_size == 2
    assert tokenizer.decode(tokenizer.encode(text)) == text
    with pytest.raises(ValueError, match="outside the vocabulary"):
        tokenizer.encode("😀")


def test_unknown_characters_are_listed_each_once_in_the_order_of_the_text():
    tokenizer = CharacterTokenizer("abc \n")
    with pytest.raises(ValueError) as error:
        tokenizer.encode("ab\r\ncaféff中\u0301\ufe0f\ud800f👍")
    assert str(error.value) == (
        "CharacterTokenizer.encode: text has characters outside the vocabulary, the first at position 2: "
        r"'\r', 'f', 'é', '中', '\u0301', '\ufe0f', '\ud800', '👍'"
    )


@pytest.mark.parametrize(("count", "end"), [(9, "'8'"), (10, "'9'"), (11, "'9' and 1 more"), (36, "'9' and 26 more")])
def test_ten_unknown_characters_are_listed_and_the_others_counted(count, end):
    with pytest.raises(ValueError, match=f"{end}$") as error:
        CharacterTokenizer("-").encode("0123456789abcdefghijklmnopqrstuvwxyz"[:count] * 2)
    assert str(error.value).count("', '") == min(count, 10) - 1


def test_beyond_the_last_character_of_the_vocabulary_is_outside_too():
    tokenizer = CharacterTokenizer("ac")
    for character in ("\0", "b", "d", "e", "\U0010ffff"):
        with pytest.raises(ValueError, match="the first at position 1"):
            tokenizer.encode("a" + character)
    assert CharacterTokenizer("\U0010ffff").encode("\U0010ffff").tolist() == [0]


def test_tokenizers_are_equal_if_their_ids_mean_the_same():
    assert CharacterTokenizer("abc") == CharacterTokenizer.from_text("cabbac")
    assert hash(CharacterTokenizer("abc")) == hash(CharacterTokenizer("abc"))
    assert CharacterTokenizer("abc") != CharacterTokenizer("acb")
    assert CharacterTokenizer("abc") != "abc"


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: CharacterTokenizer(""), ValueError, "CharacterTokenizer: characters must not be empty"),
        (lambda: CharacterTokenizer("a中b中"), ValueError, "CharacterTokenizer: characters must all differ, but '中' is"),
        (lambda: CharacterTokenizer(["a"]), TypeError, "CharacterTokenizer: characters must be a str, got list"),
        (lambda: CharacterTokenizer.from_text(""), ValueError, "CharacterTokenizer.from_text: text must not be empty"),
        (
            lambda: CharacterTokenizer.from_text(b"a"),
            TypeError,
            "CharacterTokenizer.from_text: text must be a str, got bytes",
        ),
        (
            lambda: CharacterTokenizer("a").encode(b"a"),
            TypeError,
            "CharacterTokenizer.encode: text must be a str, got bytes",
        ),
        (
            lambda: CharacterTokenizer("a").decode([0]),
            TypeError,
            "CharacterTokenizer.decode: ids must be an array of integers",
        ),
        (lambda: CharacterTokenizer("a").decode(np.zeros(2)), TypeError, "CharacterTokenizer.decode: ids must be an array"),
        (lambda: CharacterTokenizer("abc").decode(np.array([0, 3])), ValueError, "CharacterTokenizer.decode: ids[1] is 3"),
        (lambda: CharacterTokenizer("abc").decode(np.array([-1])), ValueError, "CharacterTokenizer.decode: ids[0] is -1"),
        (
            lambda: CharacterTokenizer("a").decode(np.zeros((2, 3), int)),
            ValueError,
            "CharacterTokenizer.decode: ids must have one",
        ),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, error, sentence):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(sentence)
