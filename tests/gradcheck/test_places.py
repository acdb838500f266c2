"""Where wrong entries lie, in words."""

import numpy as np
import pytest

from gradcheck.places import ordinal, whereabouts


def wrong_at(shape, *places):
    wrong = np.zeros(shape, bool)
    for place in places:
        wrong[place] = True
    return wrong


ROW = np.s_[3]
COLUMN = np.s_[:, 2]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (wrong_at((5, 7)), "nowhere"),
        (wrong_at((5, 0)), "nowhere"),
        (wrong_at((5, 7), ...), "everywhere"),
        (wrong_at((), ()), "everywhere"),
        (wrong_at((5, 7), (1, 6)), "at [1, 6]"),
        (wrong_at(5, 4), "at [4]"),
        (wrong_at((5, 7), ROW), "in row 3"),
        (wrong_at((5, 7), COLUMN), "in column 2"),
        (wrong_at((2, 5, 3, 7), np.s_[:, 2]), "at index 2 of axis 1"),
        (wrong_at((2, 5, 3, 7), np.s_[1, 2]), "at index 1 of axis 0 and at index 2 of axis 1"),
        (wrong_at((3, 9), np.s_[:, 5:]), "in the last 4 of 9 along axis 1"),
        (wrong_at((9, 3), np.s_[:4]), "in the first 4 of 9 along axis 0"),
        (wrong_at(9, np.s_[5:]), "in the last 4 of 9"),
        (wrong_at((9, 7), np.s_[2:5, 1:4]), "at the indices 2 to 4 along axis 0 and at the indices 1 to 3 along axis 1"),
        (wrong_at((3, 8), np.s_[:, 1::2]), "at every 2nd index from 1 along axis 1"),
        (wrong_at((3, 8), np.s_[:, ::3]), "at every 3rd index from 0 along axis 1"),
        (wrong_at((3, 8), np.s_[:, [0, 1, 5]]), "at the indices 0, 1, 5 along axis 1"),
        (wrong_at((2, 12), np.s_[:, [0, 1, 3, 4, 6, 9]]), "at 6 of 12 indices along axis 1"),
        (~wrong_at((5, 7), ROW), "everywhere but in row 3"),
        (~wrong_at((5, 7), (1, 6)), "everywhere but at [1, 6]"),
        (wrong_at((7, 5), ROW, COLUMN), "in scattered places"),
        (
            wrong_at((7, 5), (1, 0), (1, 3), (2, 4)),
            "in scattered places at the indices 1 to 2 along axis 0 and at the indices 0, 3, 4 along axis 1",
        ),
        (np.triu(np.ones((2, 5, 5), bool), 1), "above the diagonal of the last two axes"),
        (np.triu(np.ones((5, 5), bool)), "on and above the diagonal of the last two axes"),
        (np.tril(np.ones((2, 5, 5), bool), -1), "below the diagonal of the last two axes"),
        (np.tril(np.ones((5, 5), bool)), "on and below the diagonal of the last two axes"),
        (np.eye(5, dtype=bool), "on the diagonal of the last two axes"),
    ],
)
def test_whereabouts(wrong, words):
    assert whereabouts(wrong) == words


def test_ordinals():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 13, 21, 112)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "13th",
        "21st",
        "112th",
    ]
