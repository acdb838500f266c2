"""GPT: a decoder alone, which says for every position what comes next.

    ids → embedding (+ positions) → n_layers × (attention, feed-forward) → norm → logits over the vocabulary

Sources: Radford et al. 2018 (GPT: post-norm) and 2019 (GPT-2: pre-norm, the final norm, the scaled initialisation).
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npformer.archive import write_archive
from npformer.arguments import check_count, check_dtype, check_flag, check_integers, check_name, check_probability
from npformer.functional import cross_entropy, gelu, gelu_tanh, relu, silu
from npformer.layers import (
    ALiBi,
    DecoderLayer,
    Dropout,
    Embedding,
    FeedForward,
    GatedFeedForward,
    Layer,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    RotaryPositions,
    SinusoidalPositions,
    TiedOutput,
)
from npformer.layers.multi_head_attention import head_sizes
from npformer.operation import Array, LastBackward

ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}  # and "swiglu", which is gated
NORMS = ("layer_norm", "rms_norm")
PLACEMENTS = ("pre", "post")
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")
INITIAL_DEVIATION = 0.02
NOT_COUNTED = -1  # as a target


@dataclass(frozen=True)
class GPTConfig:
    """The sizes and choices of a GPT. ValueError or TypeError for what cannot be built.

    vocab_size      V, the number of tokens
    max_len         the longest sequence, the context
    d_head          K, d_model / n_heads unless given
    n_kv_heads      G, n_heads unless given; each serves n_heads / n_kv_heads heads
    d_ff            F, 4·d_model unless given
    activation      "gelu_tanh" (GPT-2's), "gelu", "relu", "silu", or "swiglu", the gated kind
    norm            "layer_norm" or "rms_norm"
    norm_placement  "pre", with one more norm before the logits, or "post", without it
    positions       "learned", "sinusoidal", "rotary", "alibi" or "none"
    dropout         on the embeddings, the attention weights, and what each layer adds
    tied            whether the logits are made with the embedding's table
    bias            whether linear maps and layer norms have one
    """

    vocab_size: int
    max_len: int
    n_layers: int
    n_heads: int
    d_model: int
    d_head: int | None = None
    n_kv_heads: int | None = None
    d_ff: int | None = None
    activation: str = "gelu_tanh"
    norm: str = "layer_norm"
    norm_placement: str = "pre"
    positions: str = "learned"
    dropout: float = 0.0
    tied: bool = True
    bias: bool = True

    def __post_init__(self) -> None:
        title = "GPTConfig"
        optional = ("d_head", "n_kv_heads", "d_ff")
        for name in ("vocab_size", "max_len", "n_layers", "n_heads", "d_model", *optional):
            if name not in optional or getattr(self, name) is not None:
                object.__setattr__(self, name, check_count(title, name, getattr(self, name)))  # as Python's int
        check_name(title, "activation", self.activation, (*ACTIVATIONS, "swiglu"))
        check_name(title, "norm", self.norm, NORMS)
        check_name(title, "norm_placement", self.norm_placement, PLACEMENTS)
        check_name(title, "positions", self.positions, POSITIONS)
        object.__setattr__(self, "dropout", check_probability(title, "dropout", self.dropout))
        check_flag(title, "tied", self.tied)
        check_flag(title, "bias", self.bias)
        self.head_sizes()

    def head_sizes(self) -> tuple[int, int, int]:
        """H, G and K."""
        rotary = self.positions == "rotary"
        return head_sizes("GPTConfig", self.d_model, self.n_heads, self.d_head, self.n_kv_heads, rotary=rotary)

    @property
    def n_parameters(self) -> int:
        """How many numbers a GPT of this configuration learns."""
        D, F = self.d_model, self.d_ff or 4 * self.d_model
        H, G, K = self.head_sizes()
        n_maps = 3 if self.activation == "swiglu" else 2
        norm = 2 * D if self.norm == "layer_norm" and self.bias else D
        attention = 2 * D * (H + G) * K + ((H + 2 * G) * K + D if self.bias else 0)
        feed_forward = n_maps * D * F + ((n_maps - 1) * F + D if self.bias else 0)
        return (
            self.vocab_size * D * (1 if self.tied else 2)
            + (self.max_len * D if self.positions == "learned" else 0)
            + self.n_layers * (attention + feed_forward + 2 * norm)
            + (norm if self.norm_placement == "pre" else 0)
        )


class GPT(Layer):
    """ids (B,T) integers → logits (B,T,V); `parameters()` has every parameter by name.

    One seed gives float32 and float64 models the same weights, but for rounding.
    """

    def __init__(self, config: GPTConfig, *, dtype: DTypeLike = np.float32, seed: int = 0) -> None:
        self.config = config
        self.dtype = check_dtype("GPT", dtype)
        rng = np.random.default_rng(check_count("GPT", "seed", seed, low=0, high=2**64))
        self.embedding = Embedding(config.vocab_size, config.d_model, dtype=dtype, rng=rng)
        self.positions = self.build_positions(rng)
        self.dropout = Dropout(config.dropout)
        self.layers = [
            DecoderLayer(self.build_residual(self.build_attention(rng)), self.build_residual(self.build_feed_forward(rng)))
            for _ in range(config.n_layers)
        ]
        self.final_norm = self.build_norm() if config.norm_placement == "pre" else None
        self.output = (
            TiedOutput(self.embedding)
            if config.tied
            else Linear(config.d_model, config.vocab_size, bias=False, dtype=dtype, rng=rng)
        )
        self.initialise(rng)

    def forward(self, ids: Array, rng: np.random.Generator | None = None) -> tuple[Array, LastBackward]:
        """(logits, backward), where backward(dlogits) returns None: ids have no gradient. ValueError where T > max_len."""
        check_integers("GPT", "ids", ids)
        if ids.ndim != 2 or ids.shape[1] > self.config.max_len:
            raise ValueError(
                f"GPT: ids must have the shape (B, T), T at most max_len = {self.config.max_len}, got {ids.shape}"
            )
        backward: Callable[[Array], Any]
        x, backward = self.embedding.forward(ids)  # (B,T) → (B,T,D)
        backwards: list[Callable[[Array], Any]] = [backward]
        if self.positions:
            x, backward = self.positions.forward(x)
            backwards.append(backward)
        x, backward = self.dropout.forward(x, rng)
        backwards.append(backward)
        for layer in self.layers:
            x, backward = layer.forward(x, rng)
            backwards.append(backward)
        if self.final_norm:
            x, backward = self.final_norm.forward(x)
            backwards.append(backward)
        logits, backward = self.output.forward(x)  # (B,T,D) → (B,T,V)
        backwards.append(backward)

        def backward_of_all(dlogits: Array) -> None:
            for backward in reversed(backwards):
                dlogits = backward(dlogits)

        return logits, backward_of_all

    def loss(
        self, ids: Array, targets: Array, rng: np.random.Generator | None = None
    ) -> tuple[tuple[Array, int], LastBackward]:
        """((total, count), backward): the summed cross-entropy of `targets` (B,T), the ids that come next, and how many.

        A target of −1 is not counted. backward(dtotal) adds the gradients of dtotal·total; dtotal = 1 / count is the mean's.
        """
        logits, logits_backward = self.forward(ids, rng)
        (total, count), loss_backward = cross_entropy(logits, targets, ignore_id=NOT_COUNTED)

        def backward(dtotal: Array) -> None:
            logits_backward(loss_backward(dtotal))

        return (total, count), backward

    def save(self, path: str | PathLike[str], tokenizer: Any = None) -> None:
        """Write configuration, weights and the tokenizer to one .npz file, for npformer.load. An old file stays until the
        new one is whole."""
        weights = {f"weights/{name}": parameter.value for name, parameter in self.parameters().items()}
        write_archive(path, self.description(tokenizer), weights)

    def description(self, tokenizer: Any = None) -> dict[str, Any]:
        """What a saved model says of itself, beside its weights."""
        if tokenizer is not None and tokenizer.vocab_size != self.config.vocab_size:
            n = self.config.vocab_size
            raise ValueError(f"GPT: tokenizer has {tokenizer.vocab_size} characters, but the model a vocab_size of {n}")
        return {
            "model": "gpt",
            "config": asdict(self.config),
            "dtype": self.dtype.name,
            "characters": None if tokenizer is None else tokenizer.characters,
        }

    # What the constructor builds with.

    def build_norm(self) -> Layer:
        config = self.config
        if config.norm == "rms_norm":
            return RMSNorm(config.d_model, dtype=self.dtype)
        return LayerNorm(config.d_model, bias=config.bias, dtype=self.dtype)

    def build_residual(self, layer: Layer) -> Residual:
        return Residual(layer, self.build_norm(), self.config.norm_placement, self.config.dropout)

    def build_attention(self, rng: np.random.Generator) -> MultiHeadAttention:
        config = self.config
        positions: RotaryPositions | ALiBi | None = None
        if config.positions == "rotary":
            positions = RotaryPositions()
        elif config.positions == "alibi":
            positions = ALiBi(config.n_heads)
        return MultiHeadAttention(
            config.d_model,
            config.n_heads,
            d_head=config.d_head,
            n_kv_heads=config.n_kv_heads,
            bias=config.bias,
            dropout=config.dropout,
            positions=positions,
            dtype=self.dtype,
            rng=rng,
        )

    def build_feed_forward(self, rng: np.random.Generator) -> FeedForward | GatedFeedForward:
        config = self.config
        d_ff = config.d_ff or 4 * config.d_model
        if config.activation == "swiglu":
            return GatedFeedForward(config.d_model, d_ff, bias=config.bias, dtype=self.dtype, rng=rng)
        activation = ACTIVATIONS[config.activation]
        return FeedForward(config.d_model, d_ff, activation, bias=config.bias, dtype=self.dtype, rng=rng)

    def build_positions(self, rng: np.random.Generator) -> LearnedPositions | SinusoidalPositions | None:
        config = self.config
        if config.positions == "learned":
            return LearnedPositions(config.max_len, config.d_model, dtype=self.dtype, rng=rng)
        if config.positions == "sinusoidal":
            return SinusoidalPositions(scale=math.sqrt(config.d_model))
        return None

    def initialise(self, rng: np.random.Generator) -> None:
        """GPT-2's: every matrix of deviation 0.02, those that end a residual less, so that the sum of 2·n_layers of them
        does not grow with their number."""
        for name, parameter in self.parameters().items():
            if parameter.value.ndim == 2:
                ends_residual = name.endswith(("attention.output.weight", "feed_forward.narrow.weight"))
                deviation = INITIAL_DEVIATION / (math.sqrt(2 * self.config.n_layers) if ends_residual else 1)
                parameter.value[...] = deviation * rng.standard_normal(parameter.value.shape)
