"""What a map says of its pairs, and which maps an inspection finds."""

import numpy as np
import pytest

from npformer.inspection import inspect_arrays

WEIGHTS = np.array([[0.5, 0.25, 0.25, 0], [0.1, 0.2, 0.4, 0.3], [0.25, 0.25, 0.25, 0.25]])


def one(weights=WEIGHTS, queries="abc", keys="wxyz", **options):
    return inspect_arrays(weights[None, None], list(queries), list(keys), **options).maps[0]


@pytest.mark.parametrize(
    ("q", "k", "said"),
    [
        (0, 0, "a → w = 0.5000 (rank 1 of 4, uniform 0.2500)"),
        (0, 2, "a → y = 0.2500 (rank 2 of 4, uniform 0.2500)"),  # as good as x
        (0, 3, "a → z = 0.0000 (rank 4 of 4, uniform 0.2500)"),
        (1, 0, "b → w = 0.1000 (rank 4 of 4, uniform 0.2500)"),
        (2, 3, "c → z = 0.2500 (rank 1 of 4, uniform 0.2500)"),
    ],
)
def test_a_sentence(q, k, said):
    assert one().sentence(q, k) == f"layer 0 head 0 · {said}"


def test_a_rank_is_among_the_keys_that_can_be_seen():
    keep = np.array([True, False, True, True])
    assert one(keep=keep).sentence(1, 0).endswith("b → w = 0.1000 (rank 3 of 3, uniform 0.3333)")
    assert one(keep=keep).sentence(1, 1).endswith("b → x = 0.2000 (hidden: padding or outside the window)")


def test_a_key_after_the_query():
    map = inspect_arrays(np.eye(3)[None, None], list("我喜我"), kind="decoder").maps[0]
    assert map.sentence(1, 2) == "layer 0 head 0 · 喜 → 我₂ = 0.0000 (hidden: after the query)"
    assert map.sentence(2, 0) == "layer 0 head 0 · 我₂ → 我 = 0.0000 (rank 2 of 3, uniform 0.3333)"


def test_what_may_be_seen():
    map = one(np.eye(4)[1:], kind="decoder", keep=np.array([True, False, True, True]))
    np.testing.assert_array_equal(map.positions, [1, 2, 3])
    np.testing.assert_array_equal(map.keep, [[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]])
    np.testing.assert_array_equal(map.future, [[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(map.n_visible, [1, 2, 3])
    for kind in ("encoder", "cross"):
        assert not one(np.eye(4)[1:], kind=kind).future.any()
    np.testing.assert_array_equal(one().positions, [0, 1, 2])


def test_heads_are_found_by_place():
    rng = np.random.default_rng(0)
    layers = []
    for H in (2, 1, 3):
        layers.append(rng.random((H, 3, 3)))
        layers[-1] /= layers[-1].sum(-1, keepdims=True)
    inspection = inspect_arrays(layers, kind="encoder")
    assert [map.place for map in inspection.maps] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 2, 0), (0, 2, 1), (0, 2, 2)]
    np.testing.assert_array_equal(inspection.find("encoder", 2, 1).weights, layers[2][1])
    for place, text in (
        (("decoder", 0, 0), "kind must be one of encoder, got 'decoder'"),
        (("encoder", 3, 0), "encoder attention has the layers 0 … 2, not 3"),
        (("encoder", 0, 2), "encoder layer 0 has the heads 0 … 1, not 2"),
        (("encoder", -1, 0), "not -1"),
    ):
        with pytest.raises(ValueError, match=text):
            inspection.find(*place)
