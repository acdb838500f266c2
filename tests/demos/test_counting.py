"""What counting gets on a text, against counts in dictionaries, gram by gram."""

import math
import pydoc_data.topics
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demos.char_lm import python_topics
from demos.counting import ADDED, n_gram_loss


def counted_by_hand(train: list[int], held_out: list[int], vocab_size: int, n: int) -> float:
    grams = Counter(tuple(train[i : i + n]) for i in range(len(train) - n + 1))
    contexts = Counter(tuple(train[i : i + n - 1]) for i in range(len(train) - n + 1))
    losses = []
    for i in range(len(held_out) - n + 1):
        gram = tuple(held_out[i : i + n])
        losses.append(-math.log((grams[gram] + ADDED) / (contexts[gram[:-1]] + ADDED * vocab_size)))
    return sum(losses) / len(losses)


@st.composite
def texts(draw):
    """Training part and held-out part; the second may hold what the first does not."""
    vocab_size = draw(st.sampled_from([1, 2, 3, 7, 4999, 30011]))
    used = draw(st.sampled_from([1, 2, 5, 4999]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    ids = rng.integers(vocab_size, size=used)  # few of many, so that grams come back
    n = draw(st.integers(1, 6))
    train, held_out = (ids[rng.integers(used, size=draw(st.integers(low, 97)))] for low in (0, n))
    return train, held_out, vocab_size, n


@given(texts())
def test_the_loss_is_that_of_counts_in_dictionaries(case):
    train, held_out, vocab_size, n = case
    expected = counted_by_hand(train.tolist(), held_out.tolist(), vocab_size, n)
    assert n_gram_loss(train, held_out, vocab_size, n) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_gram_across_the_border_of_the_two_parts_is_not_counted():
    train, held_out = np.array([0, 1]), np.array([0, 1, 1])
    assert n_gram_loss(train, held_out, 2, 2) == pytest.approx(-(math.log(1.1 / 1.2) + math.log(0.1 / 0.2)) / 2)


def test_many_thousand_characters_that_all_differ_do_not_run_into_one_another():
    train = np.arange(60_000)
    loss = n_gram_loss(train, train[-6000:], 60_000, 5)  # 60000⁵ is beyond 64 bits
    assert loss == pytest.approx(-math.log((1 + ADDED) / (1 + ADDED * 60_000)))


def test_what_is_certain_costs_nothing_and_not_minus_nothing():
    assert str(n_gram_loss(np.zeros(50, int), np.zeros(7, int), 1, 3)) == "0.0"


@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_held_out_part_without_a_single_gram_is_refused(length):
    with pytest.raises(ValueError, match=f"^n_gram_loss: held_out must hold at least n = 3 ids, got {length}$"):
        n_gram_loss(np.zeros(50, int), np.zeros(length, int), 1, 3)


def test_the_default_text_is_pythons_topics_in_the_order_of_their_keys():
    text, name = python_topics()
    topics = pydoc_data.topics.topics
    assert name == "Python's documentation topics"
    assert text.startswith(f"{topics[min(topics)]}\n\n")
    assert len(text) == sum(map(len, topics.values())) + 2 * (len(topics) - 1)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="each Python has its own documentation")
def test_the_losses_of_the_default_text_are_those_known():
    text, _ = python_topics()
    ids = np.unique(np.frombuffer(text.encode("utf-32-le"), "<u4"), return_inverse=True)[1]
    train, held_out = ids[: -(len(ids) // 10)], ids[-(len(ids) // 10) :]
    losses = [n_gram_loss(train, held_out, int(ids.max()) + 1, n) for n in range(1, 6)]
    assert [f"{loss:.3f}" for loss in losses] == ["3.238", "2.316", "1.730", "1.508", "1.615"]
