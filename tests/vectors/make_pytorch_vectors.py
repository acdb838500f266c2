"""Ask PyTorch for the value and the gradients of every operation of npformer.functional, and keep its answers.

    pip install torch==2.13.0
    python tests/vectors/make_pytorch_vectors.py [PATH]          (PATH: pytorch.npz beside this file)

npformer does not need PyTorch, and neither do its tests: tests/test_pytorch_vectors.py reads the answers kept here.

Each member of the archive is one case, a single structured record (no pickle):

    record["options"]      JSON text: npformer's options; "rng_seed": n stands for rng=numpy.random.default_rng(n)
    record["given"]        npformer's array arguments, by name
    record["output"]       y0, y1, …: what the operation returns
    record["cotangent"]    dy0, dy1, …: one for each floating output
    record["gradient"]     one for each floating argument, by its name, in the order of npformer's signature

The member "made_with" is JSON text that records the versions and the seed. Each case has a generator of its own, seeded
with SEED and the case's name, so a new case leaves the others as they are. On one machine the file comes out the same
to the last byte; another processor may round the last digit of an output otherwise.
"""

import json
import math
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

SEED = 20240611


# What PyTorch says, under npformer's signatures. Where PyTorch has the operation, it is called; else it is composed of
# PyTorch's primitives, and autograd differentiates it.


def linear(x, weight, bias=None):
    return functional.linear(x, weight.mT, bias)


def layer_norm(x, gamma, beta, eps=1e-5):
    return functional.layer_norm(x, gamma.shape, gamma, beta, eps)


def rms_norm(x, gamma, eps=1e-6):
    return functional.rms_norm(x, gamma.shape, gamma, eps)


def softmax(x, axis=-1):
    return functional.softmax(x, axis)


def log_softmax(x, axis=-1):
    return functional.log_softmax(x, axis)


def embedding(ids, table, padding_id=None):
    return functional.embedding(ids, table, padding_idx=padding_id)


def dropout(x, p, rng):
    return x * kept(x.shape, p, rng) / (1 - p)


def kept(shape, p, rng):
    """The entries that dropout leaves: npformer's rule, so that the same generator leaves the same ones."""
    return torch.from_numpy(rng.random(tuple(shape), dtype=np.float32) >= p)


def split_heads(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(-2, -3)  # (B,T,H·K) → (B,H,T,K)


def merge_heads(x):
    return x.transpose(-2, -3).flatten(-2)  # (B,H,T,K) → (B,T,H·K)


def rotary(x, positions, base=10000.0, layout="half"):
    """Each pair is a complex number, and its turn a product with e^(i·angle)."""
    half = x.shape[-1] // 2
    angles = positions[..., None] * base ** (-torch.arange(half, dtype=torch.float64) / half)  # (…,T) → (…,T,K/2)
    pairs = x.unflatten(-1, (half, 2)) if layout == "interleaved" else x.unflatten(-1, (2, half)).mT  # (…,T,K/2,2)
    turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles)
    turned = torch.view_as_real(turned)  # (…,T,K/2,2)
    return (turned if layout == "interleaved" else turned.mT).flatten(-2)


def sinusoidal_positions(length, d_model, base=10000.0):
    column = torch.arange(d_model)
    pair = (column // 2).double()  # columns 2i and 2i + 1 share an angle
    angles = torch.arange(length)[:, None] / base ** (2 * pair / d_model)  # (T,D)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos())


def alibi_slopes(n_heads):
    """Press et al. 2022: 2^(−8/H), its square, …; for other H those of the power of two below, and more between."""
    power = 2 ** int(math.log2(n_heads))
    slopes = 2.0 ** (-8.0 / power * torch.arange(1, power + 1, dtype=torch.float64))
    between = 2.0 ** (-4.0 / power * torch.arange(1, 2 * power + 1, 2, dtype=torch.float64))
    return torch.cat([slopes, between[: n_heads - power]])


def alibi_bias(n_heads, T, S, offset=0):
    distance = (torch.arange(T)[:, None] + offset - torch.arange(S)).abs()  # (T,S)
    return -alibi_slopes(n_heads)[None, :, None, None] * distance  # (1,H,T,S)


def cross_entropy(logits, targets, ignore_id=None, label_smoothing=0.0):
    counted = torch.ones_like(targets, dtype=torch.bool) if ignore_id is None else targets != ignore_id
    total = functional.cross_entropy(
        logits.flatten(0, -2),
        targets.flatten(),
        ignore_index=-100 if ignore_id is None else ignore_id,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return total, counted.sum()


def causal_offset(causal):
    """How far ahead of itself a query may see; None: anywhere. True is 0, although it is an int in Python."""
    if isinstance(causal, bool):
        return 0 if causal else None
    return causal


def allowed_pairs(query, key, keep, bias, causal, window):
    """Which query may see which key, broadcastable to (B,H,T,S). No row may be empty: PyTorch answers that with NaN."""
    T, S = query.shape[-2], key.shape[-2]
    offset = causal_offset(causal)
    reach = torch.arange(S) - torch.arange(T)[:, None] - (offset or 0)  # (T,S): how far the key lies ahead
    allowed = torch.ones(T, S, dtype=torch.bool) if keep is None else keep
    if offset is not None:
        allowed = allowed & (reach <= 0)
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window - 1, 0)
        allowed = allowed & (reach >= -left) & (reach <= right)
    seen = allowed if bias is None else allowed & (bias > -math.inf)
    if not seen.any(-1).all():
        raise ValueError("a query of this case sees no key")
    return allowed


def attention_weights(
    query, key, *, keep=None, bias=None, causal=None, window=None, scale=None, softcap=None, dropout=0.0, rng=None
):
    """Line by line from primitives. The weights are those before dropout."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)  # (B,G,S,K) → (B,H,S,K)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)  # (B,H,T,S)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    return scores.masked_fill(~allowed_pairs(query, key, keep, bias, causal, window), -math.inf).softmax(-1)


def composed_attention(query, key, value, *, dropout=0.0, rng=None, **options):
    weights = attention_weights(query, key, **options)
    if dropout:
        weights = weights * kept(weights.shape, dropout, rng) / (1 - dropout)
    return weights @ value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)  # (B,H,T,W)


def attention(query, key, value, *, keep=None, bias=None, causal=None, window=None, scale=None):
    """PyTorch's own attention. Two options it has not: softcap, and a dropout whose mask can be replayed."""
    options = {"scale": scale, "enable_gqa": query.shape[1] != key.shape[1]}
    if causal_offset(causal) == 0 and keep is None and bias is None and window is None:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, **options)
    allowed = allowed_pairs(query, key, keep, bias, causal, window)
    mask = allowed if bias is None else torch.where(allowed, bias, -math.inf)
    return functional.scaled_dot_product_attention(query, key, value, mask, **options)


OPERATIONS = {
    "linear": linear,
    "relu": lambda x: functional.relu(x),
    "gelu": lambda x: functional.gelu(x),
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": lambda x: functional.silu(x),
    "sigmoid": lambda x: torch.sigmoid(x),
    "tanh": lambda x: torch.tanh(x),
    "softmax": softmax,
    "log_softmax": log_softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "embedding": embedding,
    "dropout": dropout,
    "split_heads": split_heads,
    "merge_heads": merge_heads,
    "attention": attention,
    "attention_weights": attention_weights,
    "rotary": rotary,
    "sinusoidal_positions": sinusoidal_positions,
    "alibi_slopes": alibi_slopes,
    "alibi_bias": alibi_bias,
    "cross_entropy": cross_entropy,
}


# How arrays are drawn. Each of these returns a function of the case's generator.


def normal(*shape, scale=1.0, mean=0.0):
    """Normal, with twelve binary digits after the point: exact as short decimal text, and half the size on disk."""
    return lambda rng: np.asarray(mean + np.round(scale * rng.standard_normal(shape) * 2**12) / 2**12)


def normal_with_minus_infinity(*shape):
    """A third of the entries is −inf, and the first of each row is not."""

    def draw(rng):
        x = normal(*shape)(rng)
        x[..., 1:][rng.random(x[..., 1:].shape) < 1 / 3] = -np.inf
        return x

    return draw


def integers(low, high, *shape):
    return lambda rng: rng.integers(low, high, shape)


def labels(vocab_size, *shape, ignored):
    """Targets, of which about a third is the `ignored` one."""
    return lambda rng: np.where(rng.random(shape) < 1 / 3, ignored, rng.integers(0, vocab_size, shape))


def mask(*shape):
    """Half of the pairs are kept, and the first key and the one opposite the query always."""

    def draw(rng):
        keep = rng.random(shape) < 1 / 2
        rows = np.arange(shape[-2])
        keep[..., rows, rows % shape[-1]] = True
        keep[..., 0] = True
        return keep

    return draw


def exactly(values, dtype=np.float64):
    return lambda rng: np.array(values, dtype)


def heads(B, H, G, T, S, K, W):
    """A query, and keys and values that may be fewer heads: G of them, each shared by H/G of the query's."""
    return {"query": normal(B, H, T, K), "key": normal(B, G, S, K), "value": normal(B, G, S, W)}


def query_and_key(B, H, G, T, S, K):
    return {"query": normal(B, H, T, K), "key": normal(B, G, S, K)}


ACTIVATION_CASES = {
    f"{activation}/{name}": {"x": draw}
    for activation in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")
    for name, draw in {
        "rank 1": normal(13),
        "rank 2": normal(5, 7),
        "rank 3": normal(2, 3, 7),
        "five times as wide": normal(3, 11, scale=5.0),
        "at and around zero": exactly([-(2.0**-20), 0.0, 2.0**-20]),
    }.items()
}

SOFTMAX_CASES = {
    f"{operation}/{name}": case
    for operation in ("softmax", "log_softmax")
    for name, case in {
        "rank 1": {"x": normal(7)},
        "rank 2": {"x": normal(3, 11)},
        "axis 0": {"x": normal(5, 3), "axis": 0},
        "axis 1 of 3": {"x": normal(2, 7, 3), "axis": 1},
        "axis -2 of 4": {"x": normal(2, 3, 5, 4), "axis": -2},
        "five times as wide": {"x": normal(3, 7, scale=5.0)},
        "rows with minus infinity": {"x": normal_with_minus_infinity(5, 7)},
        "logits of 10000": {"x": exactly([[1e4, 1e4 - 1, -1e4], [-1e4, -1e4 + 2, -1e4 + 1]])},
        "mean of a million": {"x": normal(3, 5, mean=1e6)},
    }.items()
}

NORM_CASES = {
    "layer_norm/rank 1": {"x": normal(7), "gamma": normal(7), "beta": normal(7)},
    "layer_norm/rank 2": {"x": normal(3, 11), "gamma": normal(11), "beta": normal(11)},
    "layer_norm/rank 3, eps 1e-3": {"x": normal(2, 5, 7), "gamma": normal(7), "beta": normal(7), "eps": 1e-3},
    "layer_norm/rank 4, eps 1e-12": {"x": normal(2, 3, 4, 5), "gamma": normal(5), "beta": normal(5), "eps": 1e-12},
    "layer_norm/eps 0.5": {"x": normal(7, 5), "gamma": normal(5), "beta": normal(5), "eps": 0.5},
    "rms_norm/rank 1": {"x": normal(7), "gamma": normal(7)},
    "rms_norm/rank 2": {"x": normal(3, 11), "gamma": normal(11)},
    "rms_norm/rank 3, eps 1e-3": {"x": normal(2, 5, 7), "gamma": normal(7), "eps": 1e-3},
    "rms_norm/rank 4, eps 1e-12": {"x": normal(2, 3, 4, 5), "gamma": normal(5), "eps": 1e-12},
    "rms_norm/eps 0.5": {"x": normal(7, 5), "gamma": normal(5), "eps": 0.5},
}

SIMPLE_CASES = {
    "linear/rank 2": {"x": normal(3, 5), "weight": normal(5, 7)},
    "linear/rank 2, bias": {"x": normal(5, 3), "weight": normal(3, 11), "bias": normal(11)},
    "linear/rank 3": {"x": normal(2, 5, 7), "weight": normal(7, 3)},
    "linear/rank 3, bias": {"x": normal(2, 3, 7), "weight": normal(7, 5), "bias": normal(5)},
    "linear/rank 4, bias": {"x": normal(2, 5, 3, 4), "weight": normal(4, 7), "bias": normal(7)},
    "linear/rank 1, bias": {"x": normal(7), "weight": normal(7, 5), "bias": normal(5)},
    "embedding/rank 1": {"ids": integers(0, 7, 5), "table": normal(7, 3)},
    "embedding/repeated ids": {"ids": exactly([1, 1, 2, 4, 1], np.int64), "table": normal(5, 3)},
    "embedding/rank 2": {"ids": integers(0, 5, 3, 7), "table": normal(5, 4)},
    "embedding/padding first": {"ids": integers(0, 3, 2, 7), "table": normal(3, 5), "padding_id": 0},
    "embedding/padding last, rank 3": {"ids": integers(2, 5, 2, 3, 5), "table": normal(5, 7), "padding_id": 4},
    "dropout/p 0.1": {"x": normal(5, 11), "p": 0.1, "rng_seed": 1},
    "dropout/p 0.5": {"x": normal(2, 3, 7), "p": 0.5, "rng_seed": 2},
    "dropout/p 0.9": {"x": normal(2, 3, 4, 5), "p": 0.9, "rng_seed": 3},
    "dropout/p 0": {"x": normal(3, 7), "p": 0.0, "rng_seed": 4},
    "dropout/x with zeros": {"x": exactly([[0.0, 0.0, 0.0, 1.5], [2.0, 0.0, -3.0, 0.0]]), "p": 0.5, "rng_seed": 5},
    "split_heads/3 heads of 5": {"x": normal(2, 7, 15), "n_heads": 3},
    "split_heads/5 heads of 3": {"x": normal(2, 7, 15), "n_heads": 5},
    "split_heads/1 head": {"x": normal(3, 5, 7), "n_heads": 1},
    "merge_heads/3 heads of 5": {"x": normal(2, 3, 7, 5)},
    "merge_heads/5 heads of 3": {"x": normal(2, 5, 7, 3)},
    "merge_heads/1 head": {"x": normal(3, 1, 5, 7)},
}

POSITION_CASES = {
    "rotary/half": {"x": normal(2, 3, 5, 4), "positions": exactly(range(5), np.int64)},
    "rotary/interleaved": {"x": normal(2, 3, 5, 4), "positions": exactly(range(5), np.int64), "layout": "interleaved"},
    "rotary/half, far and out of order": {"x": normal(3, 2, 5, 8), "positions": integers(0, 2000, 5), "layout": "half"},
    "rotary/interleaved, far and out of order": {
        "x": normal(3, 2, 5, 8),
        "positions": integers(0, 2000, 5),
        "layout": "interleaved",
    },
    "rotary/half, base 500": {"x": normal(2, 3, 7, 4), "positions": integers(0, 50, 7), "base": 500.0},
    "rotary/interleaved, base 500": {
        "x": normal(2, 3, 7, 4),
        "positions": integers(0, 50, 7),
        "base": 500.0,
        "layout": "interleaved",
    },
    "rotary/half, positions (B,1,T)": {"x": normal(3, 2, 5, 4), "positions": integers(0, 30, 3, 1, 5)},
    "rotary/interleaved, rank 2": {"x": normal(7, 6), "positions": integers(0, 30, 7), "layout": "interleaved"},
    "sinusoidal_positions/even": {"length": 7, "d_model": 6},
    "sinusoidal_positions/odd": {"length": 11, "d_model": 5},
    "sinusoidal_positions/base 500": {"length": 5, "d_model": 7, "base": 500.0},
    "alibi_slopes/8 heads": {"n_heads": 8},
    "alibi_slopes/1 head": {"n_heads": 1},
    "alibi_slopes/11 heads": {"n_heads": 11},
    "alibi_bias/8 heads": {"n_heads": 8, "T": 3, "S": 3},
    "alibi_bias/5 heads, offset": {"n_heads": 5, "T": 3, "S": 7, "offset": 4},
}

LOSS_CASES = {
    "cross_entropy/rank 2": {"logits": normal(5, 7), "targets": integers(0, 7, 5)},
    "cross_entropy/rank 3": {"logits": normal(2, 3, 5), "targets": integers(0, 5, 2, 3)},
    "cross_entropy/ignored -100": {
        "logits": normal(2, 7, 5),
        "targets": labels(5, 2, 7, ignored=-100),
        "ignore_id": -100,
    },
    "cross_entropy/ignored 2": {"logits": normal(11, 5), "targets": labels(5, 11, ignored=2), "ignore_id": 2},
    "cross_entropy/smoothed": {"logits": normal(3, 5, 7), "targets": integers(0, 7, 3, 5), "label_smoothing": 0.1},
    "cross_entropy/smoothed, ignored 0": {
        "logits": normal(3, 7, 5),
        "targets": labels(5, 3, 7, ignored=0),
        "ignore_id": 0,
        "label_smoothing": 0.3,
    },
    "cross_entropy/all ignored": {
        "logits": normal(3, 5),
        "targets": exactly([-1, -1, -1], np.int64),
        "ignore_id": -1,
        "label_smoothing": 0.1,
    },
    "cross_entropy/mean of a million": {"logits": normal(3, 5, mean=1e6), "targets": integers(0, 5, 3)},
    "cross_entropy/confident and wrong": {
        "logits": exactly([[0.0, 1000.0, 0.0], [0.0, 3.0, 3.0]]),
        "targets": exactly([0, 2], np.int64),
    },
}

ATTENTION_CASES = {
    "attention/plain": {**heads(2, 3, 3, 5, 7, 4, 4)},
    "attention/wide values": {**heads(2, 3, 1, 7, 5, 4, 6)},
    "attention/keep (T,S)": {**heads(3, 2, 2, 5, 7, 4, 4), "keep": mask(5, 7)},
    "attention/keep (B,1,1,S)": {**heads(2, 3, 1, 5, 7, 4, 6), "keep": mask(2, 1, 1, 7)},
    "attention/keep (B,H,T,S), scale": {**heads(2, 3, 1, 5, 7, 4, 6), "keep": mask(2, 3, 5, 7), "scale": 0.3},
    "attention/bias (T,S)": {**heads(2, 3, 3, 5, 7, 4, 4), "bias": normal(5, 7)},
    "attention/bias (1,H,T,S), keep (B,1,T,S)": {
        **heads(3, 2, 2, 7, 5, 4, 6),
        "keep": mask(3, 1, 7, 5),
        "bias": normal(1, 2, 7, 5),
    },
    "attention/bias with minus infinity (B,1,1,S)": {
        **heads(3, 2, 1, 5, 7, 4, 4),
        "bias": normal_with_minus_infinity(3, 1, 1, 7),
    },
    "attention/bias (B,1,T,S), softcap": {**heads(2, 3, 3, 5, 7, 4, 4), "bias": normal(2, 1, 5, 7), "softcap": 1.5},
    "attention/causal True": {**heads(2, 3, 3, 5, 5, 4, 4), "causal": True},
    "attention/causal 0": {**heads(3, 2, 2, 5, 7, 4, 4), "causal": 0},
    "attention/causal 1": {**heads(3, 2, 1, 5, 5, 4, 4), "causal": 1},
    "attention/causal S-T": {**heads(2, 3, 3, 5, 7, 4, 6), "causal": 2},
    "attention/causal False, window (2, 1)": {**heads(2, 3, 1, 5, 7, 4, 4), "causal": False, "window": (2, 1)},
    "attention/causal 2, window 3": {**heads(3, 2, 1, 5, 7, 4, 4), "causal": 2, "window": 3},
    "attention/causal 3, window (4, 1), softcap": {
        **heads(2, 3, 1, 5, 7, 4, 6),
        "causal": 3,
        "window": (4, 1),
        "softcap": 2.0,
    },
    "attention/softcap, scale": {**heads(3, 2, 1, 7, 5, 4, 4), "softcap": 0.7, "scale": 0.9},
    "attention/grouped 6 to 3, causal": {**heads(2, 6, 3, 4, 5, 3, 3), "causal": 1},
    "attention/grouped 4 to 2, keep, bias": {
        **heads(3, 4, 2, 5, 7, 2, 6),
        "keep": mask(5, 7),
        "bias": normal(1, 4, 1, 7),
    },
    "attention/grouped 3 to 1, softcap, window": {**heads(2, 3, 1, 5, 7, 4, 6), "softcap": 1.1, "window": (3, 2)},
    "attention/dropout": {**heads(2, 3, 3, 5, 7, 4, 4), "dropout": 0.3, "rng_seed": 6},
    "attention/dropout, grouped, keep, causal, bias, softcap, scale, window": {
        **heads(3, 4, 2, 5, 7, 2, 6),
        "keep": mask(1, 4, 5, 7),
        "bias": normal(3, 1, 5, 7),
        "causal": 2,
        "window": (6, 0),
        "scale": 0.8,
        "softcap": 2.5,
        "dropout": 0.5,
        "rng_seed": 7,
    },
    "attention_weights/plain": {**query_and_key(2, 3, 3, 5, 7, 4)},
    "attention_weights/keep": {**query_and_key(2, 3, 3, 7, 5, 4), "keep": mask(2, 1, 7, 5)},
    "attention_weights/bias, scale": {**query_and_key(3, 2, 2, 5, 7, 4), "bias": normal(1, 2, 5, 7), "scale": 0.3},
    "attention_weights/causal True, softcap": {**query_and_key(2, 3, 3, 5, 5, 4), "causal": True, "softcap": 1.5},
    "attention_weights/grouped 4 to 2, causal 2, window 3": {
        **query_and_key(3, 4, 2, 5, 7, 2),
        "causal": 2,
        "window": 3,
    },
    "attention_weights/everything": {
        **query_and_key(3, 4, 2, 5, 7, 2),
        "keep": mask(5, 7),
        "bias": normal_with_minus_infinity(3, 1, 1, 7),
        "causal": 2,
        "window": (6, 0),
        "scale": 0.8,
        "softcap": 2.5,
    },
}

CASES = {
    **SIMPLE_CASES,
    **ACTIVATION_CASES,
    **SOFTMAX_CASES,
    **NORM_CASES,
    **ATTENTION_CASES,
    **POSITION_CASES,
    **LOSS_CASES,
}


def answer(operation, given, options, cotangents):
    """What PyTorch answers: the outputs as a tuple, and the gradients by the names of the floating arguments."""
    tensors = {name: torch.from_numpy(array.copy()) for name, array in given.items()}
    floating = {name: tensor.requires_grad_() for name, tensor in tensors.items() if tensor.is_floating_point()}
    options = dict(options)
    if "rng_seed" in options:
        options["rng"] = np.random.default_rng(options.pop("rng_seed"))
    outputs = operation(**tensors, **options)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    values = tuple(y.detach().numpy() for y in outputs)
    if not floating:
        return values, {}
    differentiable = [y for y in outputs if y.is_floating_point()]
    dys = [torch.from_numpy(dy) for dy in cotangents([y.shape for y in differentiable])]
    gradients = torch.autograd.grad(differentiable, list(floating.values()), dys)
    return values, {name: gradient.numpy() for name, gradient in zip(floating, gradients, strict=True)}


def record(name):
    """Draw one case, ask PyTorch, and put the question and the answer into one structured record."""
    operation_name = name.split("/")[0]
    rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    given = {argument: draw(rng) for argument, draw in CASES[name].items() if callable(draw)}
    options = {option: value for option, value in CASES[name].items() if not callable(value)}
    drawn = []

    def cotangents(shapes):
        if not drawn:
            drawn.extend(normal(*shape)(rng) for shape in shapes)
        return drawn

    if operation_name == "attention":
        outputs, gradients = answer(composed_attention, given, options, cotangents)
        if "softcap" not in options and "dropout" not in options:
            composed = (outputs, gradients)
            outputs, gradients = answer(attention, given, options, cotangents)
            require_agreement(name, composed, (outputs, gradients))
    else:
        outputs, gradients = answer(OPERATIONS[operation_name], given, options, cotangents)

    if any(np.isnan(array).any() for array in (*outputs, *gradients.values())):
        raise ValueError(f"{name}: PyTorch answered NaN")
    groups = {
        "given": given,
        "output": {f"y{i}": y for i, y in enumerate(outputs)},
        "cotangent": {f"dy{i}": dy for i, dy in enumerate(drawn)},
        "gradient": gradients,
    }
    return pack(json.dumps(options), {group: arrays for group, arrays in groups.items() if arrays})


def require_agreement(name, composed, native):
    """PyTorch's attention and the one composed here must say the same, or one of the two misreads an option."""
    for ours, theirs in zip((*composed[0], *composed[1].values()), (*native[0], *native[1].values()), strict=True):
        if ours.shape != theirs.shape or np.abs(ours - theirs).max() > 1e-13 * np.abs(theirs).max():
            raise ValueError(f"{name}: scaled_dot_product_attention and the composed attention disagree")


def pack(options, groups):
    """One structured value, whose fields are the options and the groups of arrays."""
    text = np.array(options.encode())
    fields = [("options", text.dtype)]
    for group, arrays in groups.items():
        fields.append((group, [(name, array.dtype, array.shape) for name, array in arrays.items()]))
    packed = np.zeros((), fields)
    packed["options"] = text
    for group, arrays in groups.items():
        for name, array in arrays.items():
            if array.dtype not in (np.float64, np.int64, np.bool_):
                raise TypeError(f"{group} {name} is {array.dtype}")
            packed[group][name] = array
    return packed


def main():
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("pytorch.npz")
    torch.set_num_threads(1)  # sums in one order
    torch.use_deterministic_algorithms(True)
    made_with = {"torch": torch.__version__, "numpy": np.__version__, "seed": SEED}
    records = {name: record(name) for name in CASES}
    np.savez_compressed(path, made_with=np.array(json.dumps(made_with).encode()), **records)
    print(f"{path}: {len(records)} cases, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
