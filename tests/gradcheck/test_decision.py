"""The decision, by small cases worked out by hand: bars and errors are powers of two, so that equality is exact."""

import numpy as np
import pytest

from gradcheck.decision import MARGIN, RESOLUTION, bar_of, distance, judge, largest, over

INF, NAN = float("inf"), float("nan")


def a(*numbers):
    return np.array(numbers, float)


# The bar.


@pytest.mark.parametrize(
    ("truth", "moved", "rounding", "rtol", "bar"),
    [
        (a(2.0, -4.0), 0.0, 0.0, 2.0**-10, 2.0**-8),  # rtol times the largest size
        (a(2.0, 1.0), 2.0**-20, 0.0, 0.0, 30 * 2.0**-20),
        (a(2.0, 1.0), 0.0, 2.0**-20, 0.0, 30 * 2.0**-20),
        (a(2.0, 1.0), 2.0**-20, 2.0**-21, 0.0, 45 * 2.0**-20),
        (a(2.0, 1.0), a(0.0, -(2.0**-20)), 0.0, 0.0, 30 * 2.0**-20),  # the largest w of all entries
        (a(8.0), 2.0**-20, 2.0**-20, 2.0**-10, 2.0**-7 + 60 * 2.0**-20),
        (a(0.0, 0.0), 0.0, 0.0, 1.0, 0.0),
        (a(), 0.0, 2.0**-20, 1.0, 30 * 2.0**-20),
        (a(), a(), 0.0, 1.0, 0.0),
        (a(NAN, 4.0, INF), 0.0, 0.0, 0.25, 1.0),  # the largest that is a number
        (a(1.0), INF, 0.0, 0.25, INF),
        (a(1.0), NAN, 0.0, 0.25, INF),
        (a(1.0), a(0.0, NAN), 0.0, 0.25, INF),
        (a(1.0), 0.0, NAN, 0.25, INF),
    ],
)
def test_the_bar(truth, moved, rounding, rtol, bar):
    assert bar_of(truth, moved, rounding, rtol) == bar


def test_the_constants():
    assert MARGIN == 30
    assert RESOLUTION == 1e-6


# The judgement.

BAR = 2.0**-24  # below RESOLUTION of a block whose largest entry is 1
UP = np.nextafter(1.0, 2.0) - 1.0


def test_equality_with_the_bar_is_agreement():
    judgement = judge(a(1.0 + BAR, 0.5), a(1.0, 0.5), BAR)
    assert (judgement.verdict, judgement.n_wrong, judgement.ratio, judgement.index) == ("pass", 0, 1.0, (0,))
    judgement = judge(a(1.0 - BAR, 0.5), a(1.0, 0.5), BAR)
    assert (judgement.verdict, judgement.n_wrong, judgement.ratio) == ("pass", 0, 1.0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_next_number_beyond_the_bar_is_wrong(sign):
    judgement = judge(a(1.0 + sign * BAR + sign * UP, 0.5), a(1.0, 0.5), BAR)
    assert (judgement.verdict, judgement.n_wrong, judgement.index) == ("fail", 1, (0,))
    assert judgement.ratio > 1


def test_every_wrong_entry_is_counted_and_the_worst_is_named():
    truth = np.arange(1.0, 7.0).reshape(2, 3)
    actual = truth + np.array([[0.0, 1.0, 0.0], [-3.0, 0.0, 2.0]])
    judgement = judge(actual, truth, 2.0**-22)
    assert (judgement.verdict, judgement.n_wrong, judgement.index) == ("fail", 3, (1, 0))
    assert judgement.ratio == 3 * 2.0**22


def test_the_first_of_equally_wrong_entries_is_named():
    assert judge(a(0.0, 2.0, 2.0), a(0.0, 1.0, 1.0), BAR).index == (1,)


@pytest.mark.parametrize(
    ("actual", "truth"),
    [(NAN, 1.0), (1.0, NAN), (NAN, NAN), (INF, 1.0), (1.0, INF), (INF, INF), (-INF, INF), (INF, NAN), (-INF, -INF)],
)
@pytest.mark.parametrize("bar", [0.0, BAR, 1e300, INF])
def test_what_is_not_a_number_is_wrong_on_either_side_and_on_both(actual, truth, bar):
    judgement = judge(a(1.0, actual), a(1.0, truth), bar)
    assert (judgement.verdict, judgement.n_wrong, judgement.index, judgement.ratio) == ("fail", 1, (1,), INF)


def test_an_empty_block_passes():
    judgement = judge(np.zeros((0, 3)), np.zeros((0, 3)), 0.0)
    assert (judgement.verdict, judgement.n_wrong, judgement.index, judgement.ratio, judgement.power) == (
        "pass",
        0,
        (),
        0.0,
        0.0,
    )


def test_a_block_without_axes():
    judgement = judge(np.array(3.0), np.array(1.0), BAR)
    assert (judgement.verdict, judgement.n_wrong, judgement.index) == ("fail", 1, ())


def test_a_bar_of_zero_demands_equality():
    assert judge(a(1.0, 2.0), a(1.0, 2.0), 0.0).verdict == "pass"
    assert judge(a(0.0, -0.0), a(0.0, 0.0), 0.0).verdict == "pass"
    judgement = judge(a(1.0 + UP, 2.0), a(1.0, 2.0), 0.0)
    assert (judgement.verdict, judgement.ratio) == ("fail", INF)
    assert judge(a(5e-324), a(0.0), 0.0).verdict == "fail"


# Agreement that proves nothing.


def test_a_bar_of_a_millionth_of_the_block_still_proves_something():
    judgement = judge(a(4.0), a(4.0), 4.0 * RESOLUTION)
    assert (judgement.verdict, judgement.power) == ("pass", RESOLUTION)


def test_a_wider_bar_is_inconclusive():
    judgement = judge(a(4.0), a(4.0), 4.0 * np.nextafter(RESOLUTION, 1))
    assert (judgement.verdict, judgement.n_wrong) == ("inconclusive", 0)
    assert judgement.power > RESOLUTION


def test_the_power_is_that_of_the_largest_entry():
    assert judge(a(0.5, -8.0), a(0.5, -8.0), 2.0**-20).power == 2.0**-23


def test_a_wrong_block_fails_however_wide_the_bar():
    judgement = judge(a(4.0), a(1.0), 0.5)
    assert (judgement.verdict, judgement.power) == ("fail", 0.5)


def test_the_resolution_may_be_another():
    assert judge(a(1.0), a(1.0), 0.5, resolution=0.5).verdict == "pass"
    assert judge(a(1.0), a(1.0), 0.5, resolution=0.25).verdict == "inconclusive"


def test_a_block_within_its_bar_is_zero_to_rounding():
    judgement = judge(a(BAR, -BAR), a(-BAR, BAR / 2), 2 * BAR, natural=1.0)
    assert (judgement.verdict, judgement.is_zero, judgement.power) == ("pass", True, 2 * BAR)
    assert judge(a(0.0), a(BAR), BAR).is_zero
    assert not judge(a(0.0), a(BAR + BAR * UP), BAR).is_zero


def test_a_zero_block_is_measured_against_its_natural_size():
    """Where nothing could be seen, a zero backward must not pass as zero to rounding."""
    assert judge(a(0.0), a(1.0), 2.0, natural=1.0).verdict == "inconclusive"
    assert judge(a(0.0), a(1.0), 2.0, natural=2.0 / RESOLUTION).verdict == "pass"
    assert judge(a(0.0), a(1.0), 2.0, natural=1.9 / RESOLUTION).verdict == "inconclusive"
    assert judge(a(0.0), a(0.0), 2.0, natural=0.0).verdict == "inconclusive"
    assert judge(a(0.0), a(0.0), 0.0, natural=0.0).verdict == "pass"
    assert judge(a(0.0), a(1.0), INF, natural=1e300).verdict == "inconclusive"


def test_the_natural_size_matters_to_zero_blocks_alone():
    assert judge(a(1.0), a(1.0), BAR, natural=0.0) == judge(a(1.0), a(1.0), BAR, natural=1e9)


def test_the_arrays_are_left_alone():
    actual, truth = a(1.0, NAN, 3.0), a(1.0, 2.0, INF)
    for array in (actual, truth):
        array.flags.writeable = False
    assert judge(actual, truth, BAR) == judge(actual, truth, BAR)


# Their parts.


@pytest.mark.parametrize(
    ("part", "whole", "ratio"),
    [
        (1.0, 2.0, 0.5),
        (0.0, 0.0, 0.0),
        (0.0, 2.0, 0.0),
        (1.0, 0.0, INF),
        (1.0, INF, 0.0),
        (INF, 2.0, INF),
        (INF, INF, INF),
        (NAN, 1.0, INF),
    ],
)
def test_over(part, whole, ratio):
    assert over(part, whole) == ratio


def test_distance_and_largest():
    assert distance(a(1.0, NAN, -INF, 3.0, 1e308), a(2.5, 0.0, -INF, NAN, -1e308)).tolist() == [1.5, INF, INF, INF, INF]
    assert largest(a(1.0, -3.0, NAN, INF)) == 3.0
    assert largest(a(NAN)) == largest(a()) == 0.0
