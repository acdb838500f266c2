"""GPT: a decoder alone, which says for every position what comes next.

    ids → embedding (+ positions) → n_layers × (attention, feed-forward) → norm → logits over the vocabulary

Sources: Radford et al. 2018 (GPT: post-norm) and 2019 (GPT-2: pre-norm, the final norm, the scaled initialisation).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_dtype, check_flag
from npformer.functional import cross_entropy
from npformer.layers import Embedding, KVCache, Layer, Linear, Parameter, SlidingCache, TiedOutput
from npformer.models.blocks import Blocks, as_counts
from npformer.models.decoder_cache import DecoderCache
from npformer.models.model import Model
from npformer.models.one_token import decode_step
from npformer.models.stack import NOT_COUNTED, Owed, Stack, check_tokens, counted
from npformer.operation import Array, LastBackward

INITIAL_DEVIATION = 0.02


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
    window          W: a position sees the last W, its own included; all of those before it unless given
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
    window: int | None = None

    def __post_init__(self) -> None:
        names = ("vocab_size", "max_len", "n_layers", "n_heads", "d_model")
        as_counts(self, names, optional=("d_head", "n_kv_heads", "d_ff", "window"))
        check_flag("GPTConfig", "tied", self.tied)
        object.__setattr__(self, "dropout", self.blocks.dropout)

    @property
    def blocks(self) -> Blocks:
        """What its layers are."""
        return Blocks.of(self, attention_dropout=self.dropout)

    @property
    def n_parameters(self) -> int:
        """How many numbers a GPT of this configuration learns."""
        blocks = self.blocks
        return (
            self.vocab_size * self.d_model * (1 if self.tied else 2)
            + (self.max_len * self.d_model if self.positions == "learned" else 0)
            + self.n_layers * (blocks.n_attention + blocks.n_feed_forward)
            + (blocks.n_norm if self.norm_placement == "pre" else 0)
        )


class GPT(Model):
    """ids (B,T) integers → logits (B,T,V); `parameters()` has every parameter by name.

    One seed gives float32 and float64 models the same weights, but for rounding.
    """

    kind = "gpt"

    def __init__(self, config: GPTConfig, *, dtype: DTypeLike = np.float32, seed: int = 0) -> None:
        self.config = config
        self.dtype = check_dtype("GPT", dtype)
        rng = np.random.default_rng(check_count("GPT", "seed", seed, low=0, high=2**64))
        blocks = config.blocks
        scale = math.sqrt(config.d_model) if config.positions == "sinusoidal" else 1.0  # or the rows drown in the table
        embedding = Embedding(config.vocab_size, config.d_model, scale=scale, dtype=dtype, rng=rng)
        self.decoder = Stack(
            embedding,
            blocks.make_positions(config.max_len, dtype, rng),
            [blocks.make_decoder_layer(dtype, rng, cross=False) for _ in range(config.n_layers)],
            blocks.make_norm(dtype) if config.norm_placement == "pre" else None,
            dropout=config.dropout,
        )
        self.output = (
            TiedOutput(embedding)
            if config.tied
            else Linear(config.d_model, config.vocab_size, bias=False, dtype=dtype, rng=rng)
        )
        self.initialise(rng)

    def parts(self) -> Iterator[tuple[str, Parameter | Layer]]:
        yield from self.decoder.parts()
        yield "output", self.output

    def forward(
        self,
        ids: Array,
        rng: np.random.Generator | None = None,
        *,
        keep: Array | None = None,
        cache: DecoderCache | None = None,
    ) -> tuple[Array, Any]:
        """(logits, backward), where backward(dlogits) returns None: ids have no gradient.

        keep   (B, T) boolean, False for padding, wherever it stands: as if those tokens were not there. Their logits are 0
        cache  made by `new_cache`: the earlier tokens, to which these are added. Then backward(dlogits, later) → earlier, a
               pair (dkeys, dvalues) for each layer: what these tokens owe to the earlier ones, for the backward of the call
               before, as `later`; it is left out for the last tokens

        ValueError for ids outside the vocabulary and for tokens past max_len.
        """
        caches = None
        if cache is not None:
            cache.check("GPT", self)
            caches = cache.layers
        check_tokens("GPT", "ids", ids, keep, self.config.vocab_size, self.config.max_len, caches)
        features, decoder_backward = self.decoder.forward(ids, keep=keep, caches=caches, rng=rng)  # (B,T) → (B,T,D)
        logits, output_backward = self.output.forward(features)  # (B,T,D) → (B,T,V)
        if cache is not None and cache.no_backward:
            return logits, decoder_backward  # which says so

        def backward(dlogits: Array, later: Owed | None = None) -> Any:
            return decoder_backward(output_backward(dlogits), later)

        return logits, backward

    def loss(
        self, ids: Array, targets: Array, rng: np.random.Generator | None = None, *, keep: Array | None = None
    ) -> tuple[tuple[Array, int], LastBackward]:
        """((total, count), backward): the summed cross-entropy of `targets` (B,T), the ids that come next, and how many.

        A target of −1 is not counted, nor one where `keep` is False. backward(dtotal) adds the gradients of dtotal·total;
        dtotal = 1 / count is the mean's.
        """
        logits, logits_backward = self.forward(ids, rng, keep=keep)
        (total, count), loss_backward = cross_entropy(logits, counted(targets, keep), ignore_id=NOT_COUNTED)

        def backward(dtotal: Array) -> None:
            logits_backward(loss_backward(dtotal))

        return (total, count), backward

    def new_cache(self, *, whole: bool = False) -> DecoderCache:
        """An empty cache. With a window it keeps the last W tokens, unless `whole`: a backward needs them all."""
        window = None if whole or self.config.window is None else min(self.config.window, self.config.max_len)
        layers = [KVCache(self.config.max_len) if window is None else SlidingCache(window) for _ in self.decoder.layers]
        return DecoderCache(self, layers)

    def decode(self, ids: Array, cache: DecoderCache, keep: Array | None = None) -> Array:
        """The logits (B, T, V) of ids (B, T) that follow those in the cache, and are added to it."""
        logits: Array = self(ids, keep=keep, cache=cache)
        return logits

    def decode_step(self, ids: Array, cache: DecoderCache) -> Array:
        """`decode` of one token a row, ids (B,) → logits (B, V): the same but for rounding, in a fraction of the time.

        The weights are those of the first decode_step with this cache.
        """
        return decode_step("GPT", self, ids, cache)

    def initialise(self, rng: np.random.Generator) -> None:
        """GPT-2's: every matrix of deviation 0.02, those that end a residual less, so that the sum of 2·n_layers of them
        does not grow with their number."""
        for name, parameter in self.parameters().items():
            if parameter.value.ndim == 2:
                ends_residual = name.endswith(("attention.output.weight", "feed_forward.narrow.weight"))
                deviation = INITIAL_DEVIATION / (math.sqrt(2 * self.config.n_layers) if ends_residual else 1)
                parameter.value[...] = deviation * rng.standard_normal(parameter.value.shape)
