"""Weights from elsewhere: what is taken, and what is wrong with the rest, in one sentence that says how to mend it."""

import re

import numpy as np
import pytest

from npformer.inspection import inspect_arrays

L, H, T, S = 3, 2, 5, 7
RNG = np.random.default_rng(0)


def softmax(scores):
    P = np.exp(scores - scores.max(-1, keepdims=True))
    return P / P.sum(-1, keepdims=True)


def given(*shape):
    return softmax(3 * RNG.standard_normal(shape))


WEIGHTS, SQUARE = given(L, H, T, S), given(L, H, T, T)
CAUSAL = softmax(np.where(np.tri(T, dtype=bool), RNG.standard_normal((L, H, T, T)), -np.inf))


def changed(at, value):
    weights = WEIGHTS.copy()
    weights[at] = value
    return weights


# What is taken.


@pytest.mark.parametrize(
    "weights",
    [
        WEIGHTS,
        list(WEIGHTS),
        tuple(WEIGHTS),
        [layer[None] for layer in WEIGHTS],
        WEIGHTS.tolist(),
        np.asfortranarray(WEIGHTS),
        WEIGHTS[:, :, ::-1][:, :, ::-1],
    ],
)
def test_the_forms(weights):
    inspection = inspect_arrays(weights, list("abcde"), list("tuvwxyz"), title="mine", named_by="produces")
    assert (inspection.title, inspection.kinds, len(inspection.maps)) == ("mine", ("cross",), L * H)
    for map in inspection.maps:
        np.testing.assert_array_equal(map.weights, WEIGHTS[map.layer, map.head])
        assert (map.query_tokens, map.key_tokens, map.named_by) == (tuple("abcde"), tuple("tuvwxyz"), "produces")
        assert map.keep.all()
        assert map.gradient is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_low_precision(dtype):
    weights = softmax(RNG.standard_normal((1, 2, 9, 1999)).astype(np.float32)).astype(dtype)
    map = inspect_arrays(weights).maps[0]
    assert map.weights.dtype == np.float64
    np.testing.assert_array_equal(map.weights, weights[0, 0])


def test_float16_computed_in_float16():
    scores = RNG.standard_normal((1, 2, 9, 301)).astype(np.float16)
    assert len(inspect_arrays(softmax(scores)).maps) == 2


def test_one_hot_integers_and_booleans():
    for dtype in (bool, np.int64, np.uint8):
        assert inspect_arrays(np.eye(T, dtype=dtype)[None, None]).maps[0].weights.sum() == T


def test_the_caller_may_use_his_array_again():
    weights = SQUARE.copy()
    inspection = inspect_arrays(weights)
    weights[...] = 0
    np.testing.assert_array_equal(inspection.maps[0].weights, SQUARE[0, 0])


def test_read_only_arrays_stay_as_they_are():
    weights = SQUARE.copy()
    weights.flags.writeable = False
    inspect_arrays(weights).diagnose()


def test_the_kind_unless_it_is_given():
    assert inspect_arrays(WEIGHTS).kinds == ("cross",)
    assert inspect_arrays(SQUARE).kinds == ("encoder",)
    assert inspect_arrays(CAUSAL).kinds == ("decoder",)
    assert inspect_arrays(np.concatenate([CAUSAL, SQUARE[:1]])).kinds == ("encoder",)
    assert inspect_arrays(np.ones((1, 1, 1, 1))).kinds == ("encoder",)
    assert inspect_arrays(SQUARE, kind="decoder").find("decoder", 0, 0).weights[0, 1] > 0
    assert {f.label for f in inspect_arrays(SQUARE, kind="decoder").diagnose()} >= {"mask leak"}


def test_names_unless_they_are_given():
    map = inspect_arrays(WEIGHTS).maps[0]
    assert (map.query_tokens, map.key_tokens) == (tuple("01234"), tuple("0123456"))
    map = inspect_arrays(SQUARE, list("abcde")).maps[0]
    assert map.query_tokens == map.key_tokens == tuple("abcde")
    map = inspect_arrays(WEIGHTS, key_tokens=np.array(list("tuvwxyz"))).maps[0]
    assert map.key_tokens == tuple("tuvwxyz")
    assert all(type(token) is str for token in map.key_tokens)


def test_tokens_of_bytes():
    tokens = [b"\xe6", b"\x98", b"\xa5", b"a", b"\xff"]
    map = inspect_arrays(SQUARE, tokens).maps[0]
    assert map.query_tokens == tuple(tokens)
    assert "→" in map.sentence(0, 4)


def test_rows_that_are_fully_masked():
    weights = WEIGHTS.copy()
    weights[:, :, 2] = 0
    keep = np.ones((T, S), bool)
    keep[2] = False
    inspection = inspect_arrays(weights, keep=keep)
    assert inspection.maps[0].n_visible.tolist() == [S, S, 0, S, S]
    assert not [f for f in inspection.diagnose() if f.is_fault]
    assert not inspect_arrays(np.zeros((1, 1, T, S)), keep=np.zeros(S, bool)).diagnose()


@pytest.mark.parametrize("shape", [(S,), (T, S), (L, H, T, S)])
def test_the_forms_of_a_mask(shape):
    keep = RNG.random(shape) < 0.7
    inspection = inspect_arrays(WEIGHTS, keep=keep)
    whole = np.broadcast_to(keep, WEIGHTS.shape)
    for map in inspection.maps:
        np.testing.assert_array_equal(map.keep, whole[map.layer, map.head])
    causal = inspect_arrays(given(1, 1, T, S), kind="decoder", keep=whole[0, 0]).maps[0].keep
    np.testing.assert_array_equal(causal, whole[0, 0] & np.tri(T, S, S - T, dtype=bool))


def test_gradients():
    gradient = RNG.standard_normal(WEIGHTS.shape)
    for form in (gradient, list(gradient), [layer[None] for layer in gradient]):
        for map in inspect_arrays(WEIGHTS, gradient=form).maps:
            np.testing.assert_array_equal(map.gradient, gradient[map.layer, map.head])


@pytest.mark.parametrize("shape", [(1, 1, 0, 0), (1, 2, 0, 5), (1, 2, 3, 0), (2, 1, 1, 1), (1, 1, 1, 5)])
def test_empty_and_single(shape):
    inspection = inspect_arrays(np.full(shape, 1 / max(shape[3], 1)))
    assert inspection.maps[0].weights.shape == shape[2:]
    inspection.diagnose()


# What is not.

HERE = "inspect_arrays: cross layer 1 head 0: "
WRONG = [
    (changed((1, 0, 2, 3), np.nan), {}, HERE + "the weight of query 2 on key 3 is NaN: find where"),
    (changed((1, 0, 2, 3), -0.1), {}, HERE + "the weight of query 2 on key 3 is -0.1: give weights after the softmax"),
    (changed((1, 0, 2, 3), -np.inf), {}, HERE + "the weight of query 2 on key 3 is -inf: give weights after the softmax"),
    (changed((1, 0, 2, 3), np.inf), {}, HERE + "the weights of query 2 sum to inf and not to 1"),
    (changed((1, 0), WEIGHTS[1, 0] / 2), {}, HERE + "the weights of query 0 sum to 0.5 and not to 1 (or 0, fully masked)"),
    (changed((1, 0, 2), WEIGHTS[1, 0, 2] * 1.02), {}, "query 2 sum to 1.02 and not to 1"),
    (WEIGHTS * np.where(RNG.random(WEIGHTS.shape) < 0.1, 0, 1 / 0.9), {}, "the softmax and before dropout"),
    (WEIGHTS.swapaxes(2, 3), {}, "cross layer 0 head 0: the weights of query 0 sum to"),
    (WEIGHTS.swapaxes(2, 3), {}, "its columns do: swap the last two axes"),
    (SQUARE.swapaxes(2, 3), {}, "its columns do: swap the last two axes"),
    (CAUSAL.swapaxes(2, 3), {}, "its columns do: swap the last two axes"),
    (
        WEIGHTS.swapaxes(2, 3),
        {"query_tokens": list("abcde"), "key_tokens": list("tuvwxyz")},
        "layer 0 head 0 is 7 × 5, but there are 5 query_tokens and 7 key_tokens: swap the last two axes",
    ),
    (WEIGHTS, {"query_tokens": list("abcdef")}, "layer 0 head 0 has 5 queries, but there are 6 query_tokens: give one"),
    (WEIGHTS, {"key_tokens": list("abcde")}, "layer 0 head 0 has 7 keys, but there are 5 key_tokens: give one"),
    (SQUARE, {"query_tokens": list("abcd")}, "layer 0 head 0 has 5 queries, but there are 4 query_tokens"),
    (WEIGHTS, {"query_tokens": "abcde"}, "query_tokens must be a list of strings, one for each token, got str"),
    (WEIGHTS, {"query_tokens": 5}, "query_tokens must be a list of strings, one for each token, got int"),
    (WEIGHTS, {"query_tokens": [1, 2, 3, 4, 5]}, "query_tokens must be strings or bytes, but number 0 is int"),
    (WEIGHTS, {"key_tokens": [*"tuvwxy", None]}, "key_tokens must be strings or bytes, but number 6 is NoneType"),
    (np.broadcast_to(np.float16(0), (1, 1, 10_000, 10_000)), {}, "layer 0 head 0 are of 10000 queries and 10000 keys"),
    (np.broadcast_to(np.float16(0), (1, 1, 3, 4097)), {}, "give a part, such as weights[:, :, :4096, :4096]"),
    (WEIGHTS[0], {}, "weights must be (L, H, T, S), or a list of (H, T, S) for each layer, got the shape (2, 5, 7)"),
    (WEIGHTS[None], {}, "got the shape (1, 3, 2, 5, 7)"),
    ([WEIGHTS[0, 0]], {}, "weights of layer 0 must have the axes (H, T, S), got the shape (5, 7)"),
    ([WEIGHTS[:1], WEIGHTS[:2]], {}, "weights of layer 1 has 2 sequences, (2, 2, 5, 7): give one of them"),
    ([WEIGHTS[0], WEIGHTS[0, :, :4]], {}, "weights of layer 1 is (2, 4, 7), but of layer 0 (2, 5, 7): not one run"),
    ([], {}, "weights hold no layer"),
    (WEIGHTS[:0], {}, "weights hold no layer"),
    (WEIGHTS[:, :0], {}, "weights hold no head"),
    (WEIGHTS.astype(object), {}, "weights must be real numbers, got an array of object"),
    ([WEIGHTS[0], WEIGHTS[1].astype(complex)], {}, "weights of layer 1 must be real numbers, got an array of complex128"),
    (None, {}, "weights must be real numbers, got an array of object"),
    ("weights", {}, "weights must be real numbers"),
    ([[[1.0], [1.0, 0.0]]], {}, "weights of layer 0 is no NumPy array and does not become one"),
    (WEIGHTS, {"kind": "self"}, "kind must be one of encoder, decoder, cross, got 'self'"),
    (WEIGHTS, {"named_by": "token"}, "named_by must be one of reads, produces, got 'token'"),
    (
        given(L, H, S, T),
        {"kind": "decoder"},
        "layer 0 head 0 has 7 queries, which are no decoder's 5 keys: give the kind cross",
    ),
    (given(L, H, S, T), {"kind": "encoder"}, "which are no encoder's 5 keys: give the kind cross"),
    (WEIGHTS, {"keep": np.ones((T, S), int)}, "keep must be a boolean array, True where a query may attend, got"),
    (WEIGHTS, {"keep": np.zeros((T, S))}, "keep must be a boolean array"),
    (WEIGHTS, {"keep": np.ones((2, S), bool)}, "keep must have the shape (7,), (5, 7) or that of weights, got (2, 7)"),
    (WEIGHTS, {"keep": np.ones((1, 1, T, S), bool)}, "or that of weights, got (1, 1, 5, 7)"),
    (WEIGHTS, {"gradient": WEIGHTS[:2]}, "gradient has the shapes [(2, 5, 7), (2, 5, 7)], not those of weights"),
    (WEIGHTS, {"gradient": WEIGHTS[0]}, "gradient must be (L, H, T, S)"),
    (WEIGHTS, {"gradient": changed((1, 0, 2, 3), np.nan)}, HERE + "the gradient of query 2 on key 3 is nan: find where"),
    (WEIGHTS, {"gradient": changed((1, 0, 2, 3), np.inf)}, HERE + "the gradient of query 2 on key 3 is inf: find where"),
]


@pytest.mark.parametrize(("weights", "options", "said"), WRONG, ids=[said for _, _, said in WRONG])
def test_what_is_wrong_is_said_in_one_sentence(weights, options, said):
    with pytest.raises((ValueError, TypeError), match=re.escape(said)) as caught:
        inspect_arrays(weights, **options)
    assert str(caught.value).startswith("inspect_arrays: ")
    assert "\n" not in str(caught.value)


def test_what_lies_elsewhere():
    class OnADevice:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("can't convert a device tensor to numpy. Use .cpu() first")

    with pytest.raises(TypeError, match=r"weights is no NumPy array and does not become one: can't .* Use \.cpu\(\) first"):
        inspect_arrays(OnADevice())


def test_a_transposed_map_with_a_query_that_was_masked():
    weights = WEIGHTS.copy()
    weights[:, :, 2] = 0
    with pytest.raises(ValueError, match="swap the last two axes"):
        inspect_arrays(weights.swapaxes(2, 3))
