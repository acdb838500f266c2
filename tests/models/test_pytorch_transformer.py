"""The encoder–decoder, the encoder and multi-head attention against PyTorch's: values and every gradient, in float64.

Questions and answers lie in vectors/pytorch_transformer.npz; vectors/make_pytorch_transformer.py made them and says how.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from npformer.layers import MultiHeadAttention
from npformer.models import Encoder, EncoderConfig, EncoderDecoder, TransformerConfig

RELATIVE = 1e-12  # of the largest entry


def read_vectors():
    path = Path(__file__).parents[1] / "vectors" / "pytorch_transformer.npz"
    with np.load(path, max_header_size=100_000) as archive:  # the headers name every parameter
        return {name: archive[name] for name in archive.files}


VECTORS = read_vectors()


def group(name, part):
    record = VECTORS[name][part]
    return {key: record[key] for key in record.dtype.names}


def encoder_decoder(config, weights, given):
    model = weighted(EncoderDecoder(TransformerConfig(**config), dtype=np.float64), weights)
    dlogits = given.pop("dlogits")
    logits, logits_backward = model.forward(**given)
    (total, count), loss_backward = model.loss(**given)
    keep = given.get("target_keep", np.ones(given["target"].shape, bool))
    assert count == keep[:, 1:].sum()
    assert logits_backward(dlogits) is None
    assert loss_backward(1.0) is None
    logits = np.where(keep[..., None], logits, 0)  # where the target is hidden they are those of features that are 0
    return model, {"logits": logits, "total": total, "memory": model.encode(given["source"], given.get("source_keep"))}


def encoder(config, weights, given):
    model = weighted(Encoder(EncoderConfig(**config), dtype=np.float64), weights)
    dfeatures, ids = given.pop("dfeatures"), given.pop("ids")
    features, backward = model.forward(ids, **given)
    assert backward(dfeatures) is None
    return model, {"features": features}


def attention(config, weights, given):
    causal = config.pop("causal")
    layer = weighted(MultiHeadAttention(**config, dtype=np.float64, rng=np.random.default_rng(0)), weights)
    keep = given["keep"][:, None, None, :] if "keep" in given else None  # (B,S) → (B,1,1,S)
    y, backward = layer.forward(given["x"], given.get("memory"), keep=keep, causal=causal)
    if "memory" not in given:
        return layer, {"y": y, "dx": backward(given["dy"])}
    dx, dmemory = backward(given["dy"])
    return layer, {"y": y, "dx": dx, "dmemory": dmemory}


def weighted(layer, weights):
    parameters = layer.parameters()
    assert sorted(parameters) == sorted(weights)
    for name, parameter in parameters.items():
        assert parameter.value.shape == weights[name].shape, name
        parameter.value[...] = weights[name]
    return layer


@cache
def ours(name):
    ask = {"encoder_decoder": encoder_decoder, "encoder": encoder, "attention": attention}[name.split("/")[0]]
    config = json.loads(VECTORS[name]["config"].item())
    layer, answers = ask(config, group(name, "weights"), group(name, "given"))
    return answers | {key: parameter.grad for key, parameter in layer.parameters().items()}


def pytorchs(name):
    return group(name, "answers") | group(name, "gradients")


def agree(key, actual, expected):
    """A bias of all keys moves no softmax: its gradient is truly 0, and what is left is rounding."""
    within = 1e-13 if key.endswith("key.bias") else RELATIVE * abs(expected).max()
    return np.shape(actual) == expected.shape and actual.dtype == expected.dtype and (abs(actual - expected) <= within).all()


@pytest.mark.parametrize("name", VECTORS)
def test_values_and_gradients_are_pytorchs(name):
    actual, expected = ours(name), pytorchs(name)
    assert sorted(actual) == sorted(expected)
    assert [key for key in expected if not agree(key, actual[key], expected[key])] == []


@pytest.mark.parametrize("name", VECTORS)
def test_one_entry_that_is_slightly_wrong_is_refused(name):
    rng = np.random.default_rng(0)
    for key, right in pytorchs(name).items():
        assert agree(key, right, right)
        for off in (max(1e-11 * abs(right).max(), 3e-13 if key.endswith("key.bias") else 0), np.nan):
            wrong = np.array(right)
            wrong[tuple(rng.integers(size) for size in wrong.shape)] += off
            assert not agree(key, wrong, right), key
