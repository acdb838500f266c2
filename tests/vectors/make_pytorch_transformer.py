"""Ask PyTorch's Transformer, its encoder and its multi-head attention for values and every gradient, and keep the answers.

    pip install torch==2.13.0
    python tests/vectors/make_pytorch_transformer.py [PATH]          (PATH: pytorch_transformer.npz beside this file)

Each member of the archive is one case, a single structured record (no pickle), called encoder_decoder/NAME, encoder/NAME
or attention/NAME:

    record["config"]       JSON text: the arguments of npformer's TransformerConfig, EncoderConfig or MultiHeadAttention
    record["weights"]      by npformer's names and in its layout: (in, out), query, key and value apart
    record["given"]        what went in, by npformer's names; dlogits, dfeatures or dy is the cotangent, 0 in hidden rows
    record["answers"]      what came out; hidden rows are 0
    record["gradients"]    by parameter, of Σ cotangent·output, to which an encoder_decoder's total loss is added

The modules are PyTorch's own, with tables before them and logits after. They stay in training mode, without dropout:
in evaluation PyTorch takes another path, with nested tensors.
"""

import json
import re
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SEED = 20261203
B, S, T = 3, 5, 7
NOT_COUNTED = -1

# A case's padding is the side on which its rows are filled up, or None. A target's side is always the right one: a row that
# begins with hidden tokens and sees nothing later has no key to attend to, and PyTorch answers NaN.

ENCODER_DECODER = {
    "vocab_size": 11,
    "source_vocab_size": 11,
    "max_len": 9,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "n_heads": 2,
    "d_model": 6,
    "d_ff": 10,
    "activation": "relu",
    "norm_placement": "post",
    "final_norms": False,
    "positions": "sinusoidal",
    "scale_embeddings": True,
    "shared_embeddings": False,
    "tied": True,
    "output_bias": False,
    "bias": True,
    "eps": 1e-5,
    "label_smoothing": 0.0,
}
ENCODER_DECODERS = {  # padding, and what differs from the above
    "vaswani": ("right", {"shared_embeddings": True, "label_smoothing": 0.1}),
    "post": (None, {"final_norms": True, "positions": "none", "source_vocab_size": 13, "tied": False, "output_bias": True}),
    "pre": (
        "right",
        {
            "norm_placement": "pre",
            "final_norms": True,
            "positions": "learned",
            "scale_embeddings": False,
            "source_vocab_size": 13,
            "activation": "gelu",
            "output_bias": True,
            "eps": 1e-3,
        },
    ),
    "pre_without_final_norms": (
        None,
        {"norm_placement": "pre", "shared_embeddings": True, "tied": False, "n_decoder_layers": 1, "label_smoothing": 0.2},
    ),
    "post_without_bias": (
        "left",
        {"bias": False, "positions": "learned", "activation": "gelu", "tied": False, "output_bias": True},
    ),
    "pre_without_bias": (
        "left",
        {"bias": False, "norm_placement": "pre", "final_norms": True, "source_vocab_size": 13, "label_smoothing": 0.05},
    ),
    "deep": (
        None,
        {
            "n_decoder_layers": 3,
            "n_heads": 4,
            "d_model": 8,
            "activation": "gelu",
            "positions": "none",
            "scale_embeddings": False,
            "source_vocab_size": 7,
        },
    ),
    "deep_pre": (
        "right",
        {
            "n_decoder_layers": 3,
            "norm_placement": "pre",
            "final_norms": True,
            "positions": "learned",
            "shared_embeddings": True,
            "tied": False,
            "label_smoothing": 0.1,
        },
    ),
}

ENCODER = {
    "vocab_size": 11,
    "max_len": 9,
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 6,
    "d_ff": 10,
    "activation": "gelu",
    "norm_placement": "post",
    "final_norm": False,
    "positions": "learned",
    "n_token_types": None,
    "bias": True,
    "eps": 1e-5,
}
ENCODERS = {
    "post": ("right", {"n_token_types": 2}),
    "post_with_final_norm": (None, {"final_norm": True, "bias": False, "n_heads": 4, "d_model": 8, "n_token_types": 3}),
    "pre": ("left", {"norm_placement": "pre", "final_norm": True, "activation": "relu", "positions": "sinusoidal"}),
    "pre_without_final_norm": ("right", {"norm_placement": "pre", "positions": "none", "bias": False, "eps": 1e-3}),
}

ATTENTION = {"d_model": 6, "n_heads": 2, "bias": True}
ATTENTIONS = {  # padding of the keys, memory or none, causal, and what differs from the above
    "self": (None, False, None, {}),
    "self_causal": (None, False, True, {"n_heads": 3, "bias": False}),
    "self_padded": ("left", False, None, {}),
    "self_causal_padded": ("right", False, True, {"n_heads": 4, "d_model": 8}),
    "cross": (None, True, None, {"bias": False}),
    "cross_padded": ("right", True, None, {"n_heads": 1}),
    "cross_causal": (None, True, 1, {}),
    "cross_causal_padded": ("right", True, 0, {"n_heads": 6}),
}


# PyTorch's modules, with what npformer's models have before and after them.


class EncoderDecoder(nn.Transformer):
    def __init__(self, c):
        super().__init__(
            c["d_model"],
            c["n_heads"],
            c["n_encoder_layers"],
            c["n_decoder_layers"],
            c["d_ff"],
            dropout=0.0,
            activation=c["activation"],
            layer_norm_eps=c["eps"],
            batch_first=True,
            norm_first=c["norm_placement"] == "pre",
            bias=c["bias"],
        )
        self.config = c
        if not c["final_norms"]:  # nn.Transformer asks nobody and makes them
            self.encoder.norm = self.decoder.norm = None
        self.encoder.embedding = nn.Embedding(c["source_vocab_size"], c["d_model"])
        self.decoder.embedding = nn.Embedding(c["vocab_size"], c["d_model"])
        if c["shared_embeddings"]:
            self.decoder.embedding = self.encoder.embedding
        if c["positions"] == "learned":
            self.encoder.positions = nn.Embedding(c["max_len"], c["d_model"])
            self.decoder.positions = nn.Embedding(c["max_len"], c["d_model"])
        self.output = nn.Linear(c["d_model"], c["vocab_size"], bias=c["output_bias"])
        if c["tied"]:
            self.output.weight = self.decoder.embedding.weight

    def forward(self, source, target, source_hidden, target_hidden):
        found = super().forward(
            embedded(self.config, self.encoder, source, source_hidden),
            embedded(self.config, self.decoder, target, target_hidden),
            tgt_mask=above_diagonal(T, T, 0),
            src_key_padding_mask=source_hidden,
            tgt_key_padding_mask=target_hidden,
            memory_key_padding_mask=source_hidden,
        )
        return self.output(found)

    def encode(self, source, hidden):
        return self.encoder(embedded(self.config, self.encoder, source, hidden), src_key_padding_mask=hidden)


class Encoder(nn.TransformerEncoder):
    def __init__(self, c):
        layer = nn.TransformerEncoderLayer(
            c["d_model"],
            c["n_heads"],
            c["d_ff"],
            dropout=0.0,
            activation=c["activation"],
            layer_norm_eps=c["eps"],
            batch_first=True,
            norm_first=c["norm_placement"] == "pre",
            bias=c["bias"],
        )
        norm = nn.LayerNorm(c["d_model"], c["eps"], bias=c["bias"]) if c["final_norm"] else None
        super().__init__(layer, c["n_layers"], norm, enable_nested_tensor=False)
        self.config = c
        self.embedding = nn.Embedding(c["vocab_size"], c["d_model"])
        if c["n_token_types"]:
            self.token_types = nn.Embedding(c["n_token_types"], c["d_model"])
        if c["positions"] == "learned":
            self.positions = nn.Embedding(c["max_len"], c["d_model"])

    def forward(self, ids, token_types, hidden):
        x = embedded(self.config, self, ids, hidden)
        if token_types is not None:
            x = x + self.token_types(token_types)
        return super().forward(x, src_key_padding_mask=hidden)


def embedded(c, tables, ids, hidden):
    """(B,T,D), where a hidden token takes no place."""
    D = c["d_model"]
    x = tables.embedding(ids) * (D**0.5 if c.get("scale_embeddings") else 1)
    place = (~hidden).cumsum(1).sub(1).clamp(min=0)
    if c["positions"] == "learned":
        x = x + tables.positions(place)
    elif c["positions"] == "sinusoidal":
        angles = place[..., None] / 10000.0 ** (torch.arange(0, D, 2) / D)  # (B,T,D/2)
        x = x + torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
    return x


def above_diagonal(T, S, offset):
    """True at j > i + offset, which PyTorch then hides."""
    return torch.ones(T, S, dtype=torch.bool).triu(offset + 1)


def kept(lengths, size, padding):
    keep = np.arange(size) < np.array(lengths)[:, None]
    return keep[:, ::-1].copy() if padding == "left" else keep


# PyTorch's names and layout as npformer's.

NAMES = (
    (r"self_attn\.", "attention."),
    (r"multihead_attn\.", "cross_attention."),
    (r"out_proj\.", "output."),
    (r"linear1\.", "feed_forward.widen."),
    (r"linear2\.", "feed_forward.narrow."),
    (r"norm1\.", "attention.norm."),
    (r"(decoder\.layers\.\d+\.)norm2\.", r"\1cross_attention.norm."),
    (r"norm[23]\.", "feed_forward.norm."),
    (r"^((?:encoder\.|decoder\.)?)norm\.", r"\1final_norm."),
    (r"norm\.weight$", "norm.gamma"),
    (r"norm\.bias$", "norm.beta"),
    (r"(embedding|token_types|positions)\.weight$", r"\1.table"),
)


def renamed(named):
    arrays = {}
    for name, tensor in named:
        for pattern, ours in NAMES:
            name = re.sub(pattern, ours, name)
        if "in_proj_" in name:
            for part, third in zip(("query.", "key.", "value."), tensor.chunk(3), strict=True):
                arrays[name.replace("in_proj_", part)] = third
        else:
            arrays[name] = tensor
    return {name: (a.T if name.endswith(".weight") else a).detach().numpy().copy() for name, a in arrays.items()}


def randomise(model, rng):
    """Every parameter, to multiples of 1/256, which pack well; gains around 1, and biases, which all tokens share, smaller
    than what tells tokens apart: where keys are all alike, the gradients of attention are mostly rounding."""
    for name, parameter in model.named_parameters():
        value = rng.normal(size=parameter.shape)
        if parameter.ndim == 2:
            value = value / parameter.shape[-1] ** 0.5
        else:
            value = 0.3 * value + name.endswith("weight")
        parameter.data.copy_(torch.tensor(np.round(256 * value) / 256))


def gradients(model):
    return renamed((name, parameter.grad) for name, parameter in model.named_parameters())


# One record of each kind.


def encoder_decoder(rng, padding, changes):
    c = ENCODER_DECODER | changes
    model = EncoderDecoder(c)
    randomise(model, rng)
    source, target = rng.integers(c["source_vocab_size"], size=(B, S)), rng.integers(c["vocab_size"], size=(B, T))
    source_keep, target_keep = np.ones((B, S), bool), np.ones((B, T), bool)
    given = {"source": source, "target": target}
    if padding:
        source_keep, target_keep = kept([5, 3, 1], S, padding), kept([4, 7, 2], T, "right")
        given |= {"source_keep": source_keep, "target_keep": target_keep}
    given["dlogits"] = rng.normal(size=(B, T, c["vocab_size"])) * target_keep[..., None]

    source_hidden, target_hidden = torch.tensor(~source_keep), torch.tensor(~target_keep)
    logits = model(torch.tensor(source), torch.tensor(target), source_hidden, target_hidden)
    memory = model.encode(torch.tensor(source), source_hidden)
    total = functional.cross_entropy(
        logits[:, :-1].flatten(0, 1),
        torch.tensor(target).masked_fill(target_hidden, NOT_COUNTED)[:, 1:].flatten(),
        ignore_index=NOT_COUNTED,
        label_smoothing=c["label_smoothing"],
        reduction="sum",
    )
    (total + (logits * torch.tensor(given["dlogits"])).sum()).backward()
    answers = {
        "logits": logits.masked_fill(target_hidden[..., None], 0),
        "total": total,
        "memory": memory.masked_fill(source_hidden[..., None], 0),
    }
    return c, model, given, answers


def encoder(rng, padding, changes):
    c = ENCODER | changes
    model = Encoder(c)
    randomise(model, rng)
    given = {"ids": rng.integers(c["vocab_size"], size=(B, T))}
    keep, token_types = np.ones((B, T), bool), None
    if c["n_token_types"]:
        given["token_types"] = rng.integers(c["n_token_types"], size=(B, T))
        token_types = torch.tensor(given["token_types"])
    if padding:
        given["keep"] = keep = kept([7, 1, 4], T, padding)
    given["dfeatures"] = rng.normal(size=(B, T, c["d_model"])) * keep[..., None]

    hidden = torch.tensor(~keep)
    features = model(torch.tensor(given["ids"]), token_types, hidden)
    (features * torch.tensor(given["dfeatures"])).sum().backward()
    return c, model, given, {"features": features.masked_fill(hidden[..., None], 0)}


def attention(rng, padding, cross, causal, changes):
    c = ATTENTION | changes
    model = nn.MultiheadAttention(c["d_model"], c["n_heads"], bias=c["bias"], batch_first=True)
    randomise(model, rng)
    given = {"x": rng.normal(size=(B, T, c["d_model"])), "dy": rng.normal(size=(B, T, c["d_model"]))}
    if cross:
        given["memory"] = rng.normal(size=(B, S, c["d_model"]))
    x = torch.tensor(given["x"], requires_grad=True)
    m = torch.tensor(given["memory"], requires_grad=True) if cross else x
    n_keys = m.shape[1]
    if padding:
        given["keep"] = kept([n_keys, 1, 3], n_keys, padding)
    y, _ = model(
        x,
        m,
        m,
        key_padding_mask=torch.tensor(~given["keep"]) if padding else None,
        attn_mask=None if causal is None else above_diagonal(T, n_keys, 0 if causal is True else causal),
    )
    (y * torch.tensor(given["dy"])).sum().backward()
    answers = {"y": y, "dx": x.grad}
    if cross:
        answers["dmemory"] = m.grad
    return c | {"causal": causal}, model, given, answers


def record(title, make, case):
    config, model, given, answers = make(np.random.default_rng([SEED, zlib.crc32(title.encode())]), *case)
    groups = {
        "weights": renamed(model.named_parameters()),
        "given": given,
        "answers": {name: answer.detach().numpy() for name, answer in answers.items()},
        "gradients": gradients(model),
    }
    if any(not np.isfinite(array).all() for arrays in groups.values() for array in arrays.values()):
        raise ValueError(f"{title}: not finite")
    text = np.array(json.dumps(config).encode())
    fields = [(group, [(name, a.dtype, a.shape) for name, a in arrays.items()]) for group, arrays in groups.items()]
    packed = np.zeros((), [("config", text.dtype), *fields])
    packed["config"] = text
    for group, arrays in groups.items():
        for name, array in arrays.items():
            packed[group][name] = array
    return packed


def main():
    path = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "pytorch_transformer.npz")
    warnings.filterwarnings("ignore", "enable_nested_tensor")
    torch.set_num_threads(1)  # sums in one order
    torch.set_default_dtype(torch.float64)
    kinds = ((encoder_decoder, ENCODER_DECODERS), (encoder, ENCODERS), (attention, ATTENTIONS))
    records = {
        f"{make.__name__}/{name}": record(f"{make.__name__}/{name}", make, case)
        for make, cases in kinds
        for name, case in cases.items()
    }
    np.savez_compressed(path, **records)
    print(f"{path}: {len(records)} cases, {path.stat().st_size:,} bytes, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
