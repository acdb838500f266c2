"""Cross-entropy: sums and counts that may be added over batches, rows that are ignored, logits that are extreme."""

import math

import numpy as np
import pytest

from npformer.functional import cross_entropy, log_softmax

SMOOTHINGS = [0.0, 0.1, 0.9]


def run(logits, targets, dtotal=1.0, **options):
    """total, count and dlogits."""
    (total, count), backward = cross_entropy(np.asarray(logits), np.asarray(targets), **options)
    return total, count, backward(dtotal)


def draw_rows(rng, shape=(3, 5), V=7, ignored=None):
    logits, targets = 3 * rng.standard_normal((*shape, V)), rng.integers(V, size=shape)
    if ignored is not None:
        targets = np.where(rng.random(shape) < 0.4, ignored, targets)
        assert 0 < np.count_nonzero(targets == ignored) < targets.size
    return logits, targets


def assert_close(actual, expected, tolerance=1e-13):
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max(initial=0))


# Values known by hand


def test_a_wrong_and_confident_logit_costs_its_distance():
    """log(softmax) would be log(0)."""
    total, count, dlogits = run([[0.0, 1000.0, 0.0]], [0])
    assert (total, count) == (1000.0, 1)
    np.testing.assert_array_equal(dlogits, [[-1, 1, 0]])
    total, _, dlogits = run([[-1e4, 1e4, 0.0]], [0], label_smoothing=0.3)
    np.testing.assert_allclose(total, 0.7 * 2e4 + 0.1 * (2e4 + 0 + 1e4), rtol=1e-15)
    np.testing.assert_allclose(dlogits, [[-0.8, 0.9, -0.1]], rtol=1e-14)


def test_a_loss_that_is_nearly_zero_keeps_its_digits():
    total, _, dlogits = run([[50.0, 0.0]], [0])
    np.testing.assert_allclose(total, math.exp(-50), rtol=1e-14)
    np.testing.assert_allclose(dlogits, [[-math.exp(-50), math.exp(-50)]], rtol=1e-14)


def test_a_target_is_found_by_its_position_and_not_by_its_value():
    total, _, dlogits = run([[2.0, 2.0]], [1], dtotal=4.0)
    np.testing.assert_allclose(total, math.log(2), rtol=1e-15)
    np.testing.assert_allclose(dlogits, [[2, -2]], rtol=1e-15)


def test_a_logit_of_minus_infinity_costs_nothing_unless_it_is_the_target():
    total, count, dlogits = run([[-np.inf, 0.0, 0.0]], [1])
    np.testing.assert_allclose(total, math.log(2), rtol=1e-15)
    np.testing.assert_allclose(dlogits, [[0, -0.5, 0.5]], rtol=1e-15)
    total, count, dlogits = run([[-np.inf, 0.0, 0.0]], [0])
    assert (total, count) == (np.inf, 1)
    np.testing.assert_allclose(dlogits, [[-1, 0.5, 0.5]], rtol=1e-15)
    for smoothing in (0.2, 0.9):
        assert run([[-np.inf, 0.0]], [0], label_smoothing=smoothing)[0] == np.inf
        assert run([[-np.inf, 0.0]], [1], label_smoothing=smoothing)[0] == np.inf


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_large_logits_are_finite_and_right(dtype):
    logits = np.array([[1e4, -1e4, 1e4], [-1e4, -1e4, -1e4]], dtype)
    (total, _), backward = cross_entropy(logits, np.array([0, 2]))
    np.testing.assert_allclose(total, math.log(2) + math.log(3), rtol=1e-3 if dtype == np.float16 else 1e-6)
    assert total.dtype == dtype
    tolerance = 2 * np.finfo(dtype).eps
    np.testing.assert_allclose(backward(1.0), [[-0.5, 0, 0.5], [1 / 3, 1 / 3, -2 / 3]], atol=tolerance)


def test_the_count_is_an_integer_and_the_total_an_array_without_axes():
    logits, targets = draw_rows(np.random.default_rng(0), ignored=-1)
    (total, count), _ = cross_entropy(logits, targets, ignore_id=-1)
    assert type(count) is int
    assert isinstance(total, np.ndarray)
    assert total.shape == ()


# Sums over rows


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_micro_batches_add_up_to_the_batch(smoothing):
    """Totals, counts, and the gradient of the mean, each micro-batch divided by the count of the whole batch."""
    rng = np.random.default_rng(0)
    logits, targets = draw_rows(rng, (11, 5), ignored=-1)
    options = {"ignore_id": -1, "label_smoothing": smoothing}
    count = np.count_nonzero(targets != -1)
    whole = run(logits, targets, 1 / count, **options)
    parts = [run(logits[p], targets[p], 1 / count, **options) for p in (slice(0, 2), slice(2, 3), slice(3, 11))]
    totals, counts, gradients = zip(*parts, strict=True)
    assert_close(sum(totals), whole[0])
    assert sum(counts) == whole[1] == count
    np.testing.assert_array_equal(np.concatenate(gradients), whole[2])


def test_the_mean_over_batches_is_no_mean_of_means():
    """Two tokens of loss 1 and eight of loss 4: 3.4, not 2.5."""

    def batch(loss, n):
        """The wrong one of two logits, so far below the other that the loss is as asked."""
        return np.tile([0.0, math.log(math.expm1(loss))], (n, 1)), np.zeros(n, np.int64)

    first, second = run(*batch(1, 2)), run(*batch(4, 8))
    np.testing.assert_allclose((first[0] + second[0]) / (first[1] + second[1]), 3.4, rtol=1e-14)
    np.testing.assert_allclose((first[0] / first[1] + second[0] / second[1]) / 2, 2.5, rtol=1e-14)


def test_neither_the_sum_nor_its_gradient_is_divided_by_the_batch():
    """Five rows repeated cost what each costs alone, and have its gradient."""
    rng = np.random.default_rng(0)
    logits, targets = draw_rows(rng, (1,))
    alone = run(logits, targets, -2.7)
    five = run(np.repeat(logits, 5, axis=0), np.repeat(targets, 5), -2.7)
    assert_close(five[0], 5 * alone[0])
    assert five[1] == 5
    assert_close(five[2], np.repeat(alone[2], 5, axis=0))


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_it_is_the_negative_log_softmax_at_the_target_mixed_with_its_mean(smoothing):
    rng = np.random.default_rng(0)
    logits, targets = draw_rows(rng)
    log_p, log_p_backward = log_softmax(logits)
    q = (1 - smoothing) * np.eye(7)[targets] + smoothing / 7
    total, count, dlogits = run(logits, targets, 1.7, label_smoothing=smoothing)
    assert_close(total, -(q * log_p).sum())
    assert count == 15
    assert_close(dlogits, log_p_backward(-1.7 * q))


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("c", [1.0, -1e4, 1e6])
def test_a_number_added_to_all_logits_of_a_row_changes_not_one_bit(smoothing, c):
    rng = np.random.default_rng(0)
    logits, targets = draw_rows(rng)
    logits = np.round(256 * logits) / 256
    shift = c * np.arange(1, 6)[:, None]
    one, other = (run(x, targets, 1.7, label_smoothing=smoothing) for x in (logits + shift, logits))
    for got, known in zip(one, other, strict=True):
        np.testing.assert_array_equal(got, known)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_gradient_of_a_row_adds_up_to_nothing(smoothing):
    logits, targets = draw_rows(np.random.default_rng(0))
    dlogits = run(logits, targets, label_smoothing=smoothing)[2]
    assert np.abs(dlogits.sum(-1)).max() < 1e-14
    assert np.abs(dlogits).max() > 0.1


# Rows that are ignored


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("ignored", [-1, -100, 3, 999])
def test_ignored_rows_may_as_well_not_be_there(smoothing, ignored):
    """Also under label smoothing, and whether the id lies inside the vocabulary or outside."""
    rng = np.random.default_rng(0)
    logits, targets = draw_rows(rng, ignored=ignored)
    kept = targets != ignored
    total, count, dlogits = run(logits, targets, 1.7, ignore_id=ignored, label_smoothing=smoothing)
    expected = run(logits[kept], targets[kept], 1.7, label_smoothing=smoothing)
    assert_close(total, expected[0])
    assert count == expected[1] == np.count_nonzero(kept)
    np.testing.assert_array_equal(dlogits[kept], expected[2])
    assert not dlogits[~kept].any()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30])
def test_ignored_rows_are_not_read(poison):
    rng = np.random.default_rng(0)
    logits, targets = draw_rows(rng, ignored=-1)
    expected = run(logits, targets, ignore_id=-1, label_smoothing=0.1)
    logits[targets == -1] = poison
    for got, known in zip(run(logits, targets, ignore_id=-1, label_smoothing=0.1), expected, strict=True):
        np.testing.assert_array_equal(got, known)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("shape", [(3, 5), (0, 5), (2, 0), ()])
def test_where_all_rows_are_ignored_total_count_and_gradient_are_zero(smoothing, shape):
    logits = np.random.default_rng(0).standard_normal((*shape, 7))
    total, count, dlogits = run(logits, np.full(shape, -1), ignore_id=-1, label_smoothing=smoothing)
    assert total == 0
    assert count == 0
    assert dlogits.shape == logits.shape
    assert not dlogits.any()


def test_a_nan_in_a_row_that_counts_reaches_the_total_and_spoils_no_other_gradient():
    logits, targets = draw_rows(np.random.default_rng(0))
    expected = run(logits, targets)[2]
    logits[1, 2, 3] = np.nan
    total, _, dlogits = run(logits, targets)
    assert np.isnan(total)
    assert np.isnan(dlogits[1, 2]).all()
    dlogits[1, 2] = expected[1, 2]
    np.testing.assert_array_equal(dlogits, expected)


# Targets


@pytest.mark.parametrize("wrong", [7, -1, 100])
def test_a_target_outside_the_vocabulary_is_refused_with_its_place(wrong):
    logits, targets = draw_rows(np.random.default_rng(0))
    targets[2, 1] = wrong
    with pytest.raises(ValueError, match=rf"^cross_entropy: targets\[2, 1\] is {wrong}.*6"):
        run(logits, targets)
    with pytest.raises(ValueError, match=rf"^cross_entropy: targets\[2, 1\] is {wrong}.*6"):
        run(logits, targets, ignore_id=-100)


def test_integers_of_any_width_are_targets():
    logits, targets = draw_rows(np.random.default_rng(0))
    expected = run(logits, targets)
    for dtype in (np.uint8, np.int16, np.int32, np.uint64):
        for got, known in zip(run(logits, targets.astype(dtype), ignore_id=-1), expected, strict=True):
            np.testing.assert_array_equal(got, known)
