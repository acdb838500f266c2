"""What the models are built of: the sizes and choices that their layers share, checked once, and the layers made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_flag, check_name, check_number, check_probability
from npformer.functional import gelu, gelu_tanh, relu, silu
from npformer.layers import (
    ALiBi,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    Layer,
    LayerNorm,
    LearnedPositions,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    RotaryPositions,
    SinusoidalPositions,
)
from npformer.layers.multi_head_attention import head_sizes

ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}  # and "swiglu", which is gated
NORMS = {"layer_norm": 1e-5, "rms_norm": 1e-6}  # with their usual eps
PLACEMENTS = ("pre", "post")
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")


@dataclass(frozen=True)
class Blocks:
    """The layers of a model by its configuration, of the name `title`. ValueError or TypeError for what cannot be built.

    The fields are those of the models' configurations; `attention_dropout` is on the attention weights, `dropout` on what
    each layer adds. With `window` = W a decoder's position sees W positions.
    """

    title: str
    d_model: int
    n_heads: int
    d_head: int | None
    n_kv_heads: int | None
    d_ff: int | None
    activation: str
    norm: str
    norm_placement: str
    positions: str
    dropout: float
    attention_dropout: float
    bias: bool
    eps: float | None = None
    window: int | None = None

    @classmethod
    def of(cls, config: Any, *, attention_dropout: float) -> "Blocks":
        """Those of a configuration, whose fields have the same names; what it does not have is None."""
        names = {field.name for field in fields(cls)} - {"title", "attention_dropout"}
        own: dict[str, Any] = {name: getattr(config, name, None) for name in names}
        return cls(title=type(config).__name__, attention_dropout=attention_dropout, **own)

    def __post_init__(self) -> None:
        for name in ("d_ff", "window"):
            if getattr(self, name) is not None:
                check_count(self.title, name, getattr(self, name))
        check_name(self.title, "activation", self.activation, (*ACTIVATIONS, "swiglu"))
        check_name(self.title, "norm", self.norm, NORMS)
        check_name(self.title, "norm_placement", self.norm_placement, PLACEMENTS)
        check_name(self.title, "positions", self.positions, POSITIONS)
        object.__setattr__(self, "dropout", check_probability(self.title, "dropout", self.dropout))  # as Python's float
        check_flag(self.title, "bias", self.bias)
        if self.eps is not None:
            check_number(self.title, "eps", self.eps, low=0)
        self.head_sizes()

    def head_sizes(self) -> tuple[int, int, int]:
        """H, G and K."""
        rotary = self.positions == "rotary"
        return head_sizes(self.title, self.d_model, self.n_heads, self.d_head, self.n_kv_heads, rotary=rotary)

    # How many numbers each learns.

    @property
    def n_norm(self) -> int:
        return 2 * self.d_model if self.norm == "layer_norm" and self.bias else self.d_model

    @property
    def n_attention(self) -> int:
        D = self.d_model
        H, G, K = self.head_sizes()
        return 2 * D * (H + G) * K + ((H + 2 * G) * K + D if self.bias else 0) + self.n_norm

    @property
    def n_feed_forward(self) -> int:
        D, F = self.d_model, self.d_ff or 4 * self.d_model
        n_maps = 3 if self.activation == "swiglu" else 2
        return n_maps * D * F + ((n_maps - 1) * F + D if self.bias else 0) + self.n_norm

    # The layers.

    def make_norm(self, dtype: DTypeLike) -> LayerNorm | RMSNorm:
        eps = NORMS[self.norm] if self.eps is None else self.eps
        if self.norm == "rms_norm":
            return RMSNorm(self.d_model, eps=eps, dtype=dtype)
        return LayerNorm(self.d_model, eps=eps, bias=self.bias, dtype=dtype)

    def make_encoder_layer(self, dtype: DTypeLike, rng: np.random.Generator) -> EncoderLayer:
        return EncoderLayer(self.make_attention(dtype, rng, self.positions), self.make_feed_forward(dtype, rng))

    def make_decoder_layer(self, dtype: DTypeLike, rng: np.random.Generator, *, cross: bool) -> DecoderLayer:
        attention = self.make_attention(dtype, rng, self.positions)
        cross_attention = self.make_attention(dtype, rng, "none") if cross else None
        return DecoderLayer(attention, self.make_feed_forward(dtype, rng), cross_attention, window=self.window)

    def make_attention(self, dtype: DTypeLike, rng: np.random.Generator, positions: str) -> Residual:
        own: dict[str, Callable[[], RotaryPositions | ALiBi]] = {
            "rotary": RotaryPositions,
            "alibi": lambda: ALiBi(self.n_heads),
        }
        attention = MultiHeadAttention(
            self.d_model,
            self.n_heads,
            d_head=self.d_head,
            n_kv_heads=self.n_kv_heads,
            bias=self.bias,
            dropout=self.attention_dropout,
            positions=own[positions]() if positions in own else None,
            dtype=dtype,
            rng=rng,
        )
        return self.make_residual(attention, dtype)

    def make_feed_forward(self, dtype: DTypeLike, rng: np.random.Generator) -> Residual:
        F = self.d_ff or 4 * self.d_model
        if self.activation == "swiglu":
            return self.make_residual(GatedFeedForward(self.d_model, F, bias=self.bias, dtype=dtype, rng=rng), dtype)
        activation = ACTIVATIONS[self.activation]
        return self.make_residual(FeedForward(self.d_model, F, activation, bias=self.bias, dtype=dtype, rng=rng), dtype)

    def make_residual(self, layer: Layer, dtype: DTypeLike) -> Residual:
        return Residual(layer, self.make_norm(dtype), self.norm_placement, self.dropout)

    def make_positions(
        self, max_len: int, dtype: DTypeLike, rng: np.random.Generator
    ) -> LearnedPositions | SinusoidalPositions | None:
        """What is added to the embeddings."""
        if self.positions == "learned":
            return LearnedPositions(max_len, self.d_model, dtype=dtype, rng=rng)
        return SinusoidalPositions() if self.positions == "sinusoidal" else None


def as_counts(config: Any, names: Sequence[str], optional: Sequence[str]) -> None:
    """The fields of a frozen configuration that count something become Python's int; those in `optional` may be None."""
    for name in (*names, *optional):
        value = getattr(config, name)
        if value is not None or name not in optional:
            object.__setattr__(config, name, check_count(type(config).__name__, name, value))
