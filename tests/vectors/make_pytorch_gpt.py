"""Ask PyTorch for the logits, the loss and every gradient of whole GPTs, and keep its answers.

    pip install torch==2.13.0
    python tests/vectors/make_pytorch_gpt.py [PATH]          (PATH: pytorch_gpt.npz beside this file)

The models are written here from torch.nn.functional, apart from npformer. Each member CASE/config is JSON text, the
arguments of npformer's GPTConfig. CASE/ids, CASE/targets (−1 is not counted), CASE/dlogits and CASE/weights/NAME went in;
CASE/logits, CASE/total and CASE/gradients/NAME came out, where the gradients are those of total + Σ dlogits·logits.
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

SEED = 20261129
COMMON = {"vocab_size": 11, "max_len": 7, "n_layers": 2, "n_heads": 2, "d_model": 6, "d_ff": 10}
CASES = {
    "gpt2": {},
    "nanogpt": {"bias": False},
    "gpt1": {"activation": "gelu", "norm_placement": "post", "tied": False},
    "llama": {
        "activation": "swiglu",
        "norm": "rms_norm",
        "positions": "rotary",
        "n_heads": 4,
        "d_head": 4,
        "n_kv_heads": 2,
        "tied": False,
        "bias": False,
    },
    "bloom": {"positions": "alibi", "n_heads": 3, "d_head": 2},
    "relu": {"activation": "relu", "positions": "none"},
    "sinusoidal": {"activation": "silu", "positions": "sinusoidal"},
}
ACTIVATIONS = {
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


def shapes(c):
    """Every weight by npformer's name, in npformer's layout (in, out)."""
    D, H, F = c["d_model"], c["n_heads"], c["d_ff"]
    K = c.get("d_head", D // H)
    G = c.get("n_kv_heads", H)
    named = {"embedding.table": (c["vocab_size"], D)}
    if c.get("positions", "learned") == "learned":
        named["positions.table"] = (c["max_len"], D)

    def map_of(name, d_in, d_out):
        named[f"{name}.weight"] = (d_in, d_out)
        if c.get("bias", True):
            named[f"{name}.bias"] = (d_out,)

    def norm_of(name):
        named[f"{name}.gamma"] = (D,)
        if c.get("norm") != "rms_norm" and c.get("bias", True):
            named[f"{name}.beta"] = (D,)

    for i in range(c["n_layers"]):
        attention, feed_forward = f"layers.{i}.attention", f"layers.{i}.feed_forward"
        for part, width in (("query", H * K), ("key", G * K), ("value", G * K)):
            map_of(f"{attention}.{part}", D, width)
        map_of(f"{attention}.output", H * K, D)
        norm_of(f"{attention}.norm")
        if c.get("activation") == "swiglu":
            map_of(f"{feed_forward}.gate", D, F)
        map_of(f"{feed_forward}.widen", D, F)
        map_of(f"{feed_forward}.narrow", F, D)
        norm_of(f"{feed_forward}.norm")
    if c.get("norm_placement", "pre") == "pre":
        norm_of("final_norm")
    if not c.get("tied", True):
        named["output.weight"] = (D, c["vocab_size"])
    return named


def logits_of(c, w, ids):
    B, T = ids.shape
    D, H = c["d_model"], c["n_heads"]
    K = c.get("d_head", D // H)
    G = c.get("n_kv_heads", H)
    positions = c.get("positions", "learned")

    def linear(name, x):
        return functional.linear(x, w[f"{name}.weight"].mT, w.get(f"{name}.bias"))

    def norm(name, x):
        if c.get("norm") == "rms_norm":
            return functional.rms_norm(x, (D,), w[f"{name}.gamma"], 1e-6)
        return functional.layer_norm(x, (D,), w[f"{name}.gamma"], w.get(f"{name}.beta"), 1e-5)

    def turned(x):
        """As complex numbers: feature i and i + K/2 are one, turned by multiplying with exp(i·angle)."""
        angles = torch.arange(T, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, K, 2, dtype=torch.float64) / K)
        z = torch.complex(x[..., : K // 2], x[..., K // 2 :]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([z.real, z.imag], -1)

    def attention(name, x):
        q = linear(f"{name}.query", x).view(B, T, H, K).transpose(1, 2)
        k = linear(f"{name}.key", x).view(B, T, G, K).transpose(1, 2)
        v = linear(f"{name}.value", x).view(B, T, G, K).transpose(1, 2)
        if positions == "rotary":
            q, k = turned(q), turned(k)
        mask = torch.full((H, T, T), -torch.inf, dtype=torch.float64).triu(1)
        if positions == "alibi":
            slopes = [0.0625, 0.00390625, 0.25] if H == 3 else None
            distance = torch.arange(T)[:, None] - torch.arange(T)
            mask = mask - torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=G != H)
        return linear(f"{name}.output", y.transpose(1, 2).reshape(B, T, H * K))

    def feed_forward(name, x):
        if c.get("activation") == "swiglu":
            return linear(f"{name}.narrow", functional.silu(linear(f"{name}.gate", x)) * linear(f"{name}.widen", x))
        return linear(f"{name}.narrow", ACTIVATIONS[c.get("activation", "gelu_tanh")](linear(f"{name}.widen", x)))

    x = w["embedding.table"][ids]
    if positions == "learned":
        x = x + w["positions.table"][:T]
    elif positions == "sinusoidal":
        angles = torch.arange(T, dtype=torch.float64)[:, None] / 10000.0 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
        x = D**0.5 * x + torch.stack([angles.sin(), angles.cos()], -1).reshape(T, D)
    for i in range(c["n_layers"]):
        for part, name in ((attention, f"layers.{i}.attention"), (feed_forward, f"layers.{i}.feed_forward")):
            if c.get("norm_placement", "pre") == "pre":
                x = x + part(name, norm(f"{name}.norm", x))
            else:
                x = norm(f"{name}.norm", x + part(name, x))
    if c.get("norm_placement", "pre") == "pre":
        x = norm("final_norm", x)
    return x @ w["embedding.table"].mT if c.get("tied", True) else linear("output", x)


def answers(name, config):
    rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    weights = {
        key: rng.normal(size=shape) / (shape[0] ** 0.5 if len(shape) == 2 else 1) for key, shape in shapes(config).items()
    }
    ids, targets = rng.integers(config["vocab_size"], size=(2, 3, 5))
    targets[rng.random(targets.shape) < 0.2] = -1
    dlogits = rng.normal(size=(*ids.shape, config["vocab_size"]))
    w = {key: torch.tensor(value, requires_grad=True) for key, value in weights.items()}
    logits = logits_of(config, w, torch.tensor(ids))
    total = functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten(), ignore_index=-1, reduction="sum")
    (total + (logits * torch.tensor(dlogits)).sum()).backward()
    yield "config", np.frombuffer(json.dumps(config).encode(), np.uint8)
    yield from {"ids": ids, "targets": targets, "dlogits": dlogits}.items()
    yield "logits", logits.detach().numpy()
    yield "total", total.detach().numpy()
    for key, value in weights.items():
        yield f"weights/{key}", value
        yield f"gradients/{key}", w[key].grad.numpy()


def main():
    path = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "pytorch_gpt.npz")
    arrays = {f"{name}/{key}": value for name, more in CASES.items() for key, value in answers(name, COMMON | more)}
    np.savez_compressed(path, **arrays)
    print(f"{path}: {len(CASES)} models, {path.stat().st_size:,} bytes, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
