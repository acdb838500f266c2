"""An encoder alone: it reads a sequence whole, and says something of each token or of all of them together.

    ids (+ token types) → encoder layers → features of each token → pooled to one, if asked for → outputs, if asked for

Pooling takes the mean over the n tokens that are not hidden, and each gets 1/n of the gradient; or it takes the first of
them, where many put a token for that purpose.

Source: Devlin et al. 2019 ("BERT"), section 3, with the token types, in the stack of Vaswani et al. 2017.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_dtype, check_flag, check_ids, check_integers, check_name
from npformer.functional import cross_entropy
from npformer.layers import Embedding, Layer, Linear, Parameter
from npformer.models.blocks import Blocks, as_counts
from npformer.models.model import Model
from npformer.models.stack import NOT_COUNTED, Stack, check_tokens, counted
from npformer.operation import Array, Backward, LastBackward, operation

INITIAL_DEVIATION = 0.02


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes and choices of an Encoder. ValueError or TypeError for what cannot be built.

    vocab_size      V, the number of tokens
    max_len         the longest sequence
    n_token_types   how many kinds of tokens there are besides, such as first and second sentence; none unless given
    d_head          K, d_model / n_heads unless given
    n_kv_heads      G, n_heads unless given; each serves n_heads / n_kv_heads heads
    d_ff            F, 4·d_model unless given
    activation      "gelu" (BERT's), "gelu_tanh", "relu", "silu", or "swiglu", the gated kind
    norm            "layer_norm" or "rms_norm"
    norm_placement  "post" (BERT's) or "pre"
    final_norm      one more norm after the last layer; where pre-norm is, unless given
    positions       "learned" (BERT's), "sinusoidal", "rotary", "alibi" or "none"
    dropout         on the embeddings, the attention weights, and what each layer adds
    bias            whether linear maps and layer norms have one
    eps             of the norms: 1e-5 for layer norm, 1e-6 for RMS norm unless given
    pooling         None: the features of each token; "mean" or "first": one row of features for the sequence
    n_outputs       so many outputs, by a linear map of the features, instead of the features; none unless given
    """

    vocab_size: int
    max_len: int
    n_layers: int
    n_heads: int
    d_model: int
    n_token_types: int | None = None
    d_head: int | None = None
    n_kv_heads: int | None = None
    d_ff: int | None = None
    activation: str = "gelu"
    norm: str = "layer_norm"
    norm_placement: str = "post"
    final_norm: bool | None = None
    positions: str = "learned"
    dropout: float = 0.0
    bias: bool = True
    eps: float | None = None
    pooling: str | None = None
    n_outputs: int | None = None

    def __post_init__(self) -> None:
        title = "EncoderConfig"
        names = ("vocab_size", "max_len", "n_layers", "n_heads", "d_model")
        as_counts(self, names, optional=("n_token_types", "d_head", "n_kv_heads", "d_ff", "n_outputs"))
        if self.final_norm is not None:
            check_flag(title, "final_norm", self.final_norm)
        if self.pooling is not None:
            check_name(title, "pooling", self.pooling, ("mean", "first"))
        object.__setattr__(self, "dropout", self.blocks.dropout)

    @property
    def blocks(self) -> Blocks:
        """What its layers are."""
        return Blocks.of(self, attention_dropout=self.dropout)

    @property
    def has_final_norm(self) -> bool:
        return self.norm_placement == "pre" if self.final_norm is None else self.final_norm

    @property
    def n_parameters(self) -> int:
        """How many numbers an Encoder of this configuration learns."""
        blocks, D = self.blocks, self.d_model
        return (
            (self.vocab_size + (self.n_token_types or 0)) * D
            + (self.max_len * D if self.positions == "learned" else 0)
            + self.n_layers * (blocks.n_attention + blocks.n_feed_forward)
            + (blocks.n_norm if self.has_final_norm else 0)
            + ((D + self.bias) * self.n_outputs if self.n_outputs else 0)
        )


class Encoder(Model):
    """ids (B,T), integers → features (B,T,D), or (B,D) where they are pooled; n_outputs instead of D where given."""

    kind = "encoder"

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike = np.float32, seed: int = 0) -> None:
        self.config = config
        self.dtype = check_dtype("Encoder", dtype)
        rng = np.random.default_rng(check_count("Encoder", "seed", seed, low=0, high=2**64))
        blocks, D = config.blocks, config.d_model
        self.encoder = Stack(
            Embedding(config.vocab_size, D, dtype=dtype, rng=rng),
            blocks.make_positions(config.max_len, dtype, rng),
            [blocks.make_encoder_layer(dtype, rng) for _ in range(config.n_layers)],
            blocks.make_norm(dtype) if config.has_final_norm else None,
            token_types=Embedding(config.n_token_types, D, dtype=dtype, rng=rng) if config.n_token_types else None,
            dropout=config.dropout,
        )
        self.output = Linear(D, config.n_outputs, bias=config.bias, dtype=dtype, rng=rng) if config.n_outputs else None
        for parameter in self.parameters().values():
            if parameter.value.ndim == 2:
                parameter.value[...] = INITIAL_DEVIATION * rng.standard_normal(parameter.value.shape)

    def parts(self) -> Iterator[tuple[str, Parameter | Layer]]:
        yield from self.encoder.parts()
        if self.output:
            yield "output", self.output

    def forward(
        self,
        ids: Array,
        *,
        token_types: Array | None = None,
        keep: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, LastBackward]:
        """(y, backward), where backward(dy) returns None: ids have no gradient.

        token_types  (B, T), integers: 0 everywhere unless given, where the model has types
        keep         (B, T) boolean, False for padding, wherever it stands: as if those tokens were not there. Their features
                     are 0; the mean of no tokens is 0

        ValueError for an empty sequence, for ids and types outside their ranges, and for T past max_len.
        """
        config = self.config
        check_tokens("Encoder", "ids", ids, keep, config.vocab_size, config.max_len)
        if ids.shape[1] == 0:
            raise ValueError(f"Encoder: ids must hold at least one token, got the shape {ids.shape}")
        token_types = self.check_types(token_types, ids)
        features, encoder_backward = self.encoder.forward(ids, token_types=token_types, keep=keep, rng=rng)  # → (B,T,D)
        y, pool_backward = features, None
        if config.pooling:
            y, pool_backward = weighted_sum(features, pooling_weights(config.pooling, ids, keep).astype(features.dtype))
        output_backward = None
        if self.output:
            y, output_backward = self.output.forward(y)

        def backward(dy: Array) -> None:
            if output_backward:
                dy = output_backward(dy)
            if pool_backward:
                dy = pool_backward(dy)
            encoder_backward(dy)

        return y, backward

    def loss(
        self,
        ids: Array,
        targets: Array,
        *,
        token_types: Array | None = None,
        keep: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[tuple[Array, int], LastBackward]:
        """((total, count), backward): the summed cross-entropy of `targets`, and how many they are: integers in
        0 … n_outputs − 1, (B,), or (B, T) for a model that does not pool. −1 is not counted, nor is a hidden token.

        backward(dtotal) adds the gradients of dtotal·total; dtotal = 1 / count is the mean's.
        """
        if not self.output:
            raise ValueError("Encoder: a loss needs a model with n_outputs")
        logits, logits_backward = self.forward(ids, token_types=token_types, keep=keep, rng=rng)
        targets = counted(targets, None if self.config.pooling else keep)
        (total, count), loss_backward = cross_entropy(logits, targets, ignore_id=NOT_COUNTED)

        def backward(dtotal: Array) -> None:
            logits_backward(loss_backward(dtotal))

        return (total, count), backward

    def check_types(self, token_types: Any, ids: Array) -> Array | None:
        n = self.config.n_token_types
        if n is None:
            if token_types is not None:
                raise ValueError("Encoder: token_types were given to a model without n_token_types")
            return None
        if token_types is None:
            return np.zeros(ids.shape, np.int64)
        check_integers("Encoder", "token_types", token_types)
        if token_types.shape != ids.shape:
            raise ValueError(f"Encoder: token_types must have the shape {ids.shape} of ids, got {token_types.shape}")
        check_ids("Encoder", "token_types", token_types, limit=n)
        return np.asarray(token_types)


def pooling_weights(pooling: str, ids: Array, keep: Array | None) -> Array:
    """How much each token counts (B, T): 1/n of the n that are kept, or 1 of the first of them."""
    kept = np.ones(ids.shape, bool) if keep is None else keep
    if pooling == "first":
        return np.asarray(kept & (kept.cumsum(1) == 1))
    return np.asarray(kept / np.maximum(kept.sum(1, keepdims=True), 1))


@operation(x="B T D")
def weighted_sum(x: Array, weights: Array) -> tuple[Array, Backward]:
    """y_b = Σ_t w_bt·x_bt, so dx_bt = w_bt·dy_b."""

    def backward(dy: Array) -> Array:
        dx: Array = weights[..., None] * dy[:, None]  # (B,T,1)(B,1,D) → (B,T,D)
        return dx

    return (weights[..., None] * x).sum(1), backward
