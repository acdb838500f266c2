"""Encoder and decoder: one reads the source whole, the other writes the target and looks at what was read.

    source → encoder → memory            target, so far → decoder, which attends to the memory → logits of what comes next

Source: Vaswani et al. 2017, section 3, of which the default is: post-norm without final norms, sinusoidal positions,
embeddings times √d_model whose table makes the logits too, and dropout on the sums of embeddings and positions and on what
each layer adds.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npformer.arguments import check_count, check_dtype, check_flag, check_probability
from npformer.functional import cross_entropy
from npformer.layers import Embedding, KVCache, LearnedPositions, Linear, TiedOutput
from npformer.models.blocks import Blocks, as_counts
from npformer.models.decoder_cache import DecoderCache
from npformer.models.model import Model
from npformer.models.one_token import decode_step
from npformer.models.stack import NOT_COUNTED, Stack, check_tokens
from npformer.operation import Array, LastBackward


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and choices of an EncoderDecoder. ValueError or TypeError for what cannot be built.

    vocab_size         V, the number of the target's tokens
    max_len            the longest source, and the longest target
    source_vocab_size  vocab_size unless given
    d_head             K, d_model / n_heads unless given
    n_kv_heads         G, n_heads unless given; each serves n_heads / n_kv_heads heads
    d_ff               F, 4·d_model unless given
    activation         "relu" (the paper's), "gelu", "gelu_tanh", "silu", or "swiglu", the gated kind
    norm               "layer_norm" or "rms_norm"
    norm_placement     "post" (the paper's) or "pre"
    final_norms        one more norm after the last layer of each stack; where pre-norm is, unless given
    positions          "sinusoidal" (the paper's), "learned", "rotary", "alibi" or "none"; rotary and ALiBi act in
                       self-attention only
    scale_embeddings   times √d_model, as in the paper
    shared_embeddings  one table for source and target
    tied               whether the logits are made with the target's table
    output_bias        whether they have a bias
    dropout            on the embeddings with their positions, and on what each layer adds
    bias               whether linear maps inside the layers, and layer norms, have one
    eps                of the norms: 1e-5 for layer norm, 1e-6 for RMS norm unless given
    label_smoothing    of `loss`
    """

    vocab_size: int
    max_len: int
    n_encoder_layers: int
    n_decoder_layers: int
    n_heads: int
    d_model: int
    source_vocab_size: int | None = None
    d_head: int | None = None
    n_kv_heads: int | None = None
    d_ff: int | None = None
    activation: str = "relu"
    norm: str = "layer_norm"
    norm_placement: str = "post"
    final_norms: bool | None = None
    positions: str = "sinusoidal"
    scale_embeddings: bool = True
    shared_embeddings: bool = False
    tied: bool = True
    output_bias: bool = False
    dropout: float = 0.0
    bias: bool = True
    eps: float | None = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        title = "TransformerConfig"
        names = ("vocab_size", "max_len", "n_encoder_layers", "n_decoder_layers", "n_heads", "d_model")
        as_counts(self, names, optional=("source_vocab_size", "d_head", "n_kv_heads", "d_ff"))
        for name in ("scale_embeddings", "shared_embeddings", "tied", "output_bias"):
            check_flag(title, name, getattr(self, name))
        if self.final_norms is not None:
            check_flag(title, "final_norms", self.final_norms)
        if self.shared_embeddings and self.source_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                f"{title}: shared_embeddings need one vocabulary, but source_vocab_size = {self.source_vocab_size} and "
                f"vocab_size = {self.vocab_size}"
            )
        check_probability(title, "label_smoothing", self.label_smoothing)
        object.__setattr__(self, "dropout", self.blocks.dropout)

    @property
    def blocks(self) -> Blocks:
        """What its layers are."""
        return Blocks.of(self, attention_dropout=0.0)

    @property
    def has_final_norms(self) -> bool:
        return self.norm_placement == "pre" if self.final_norms is None else self.final_norms

    @property
    def n_parameters(self) -> int:
        """How many numbers an EncoderDecoder of this configuration learns."""
        blocks, D, V = self.blocks, self.d_model, self.vocab_size
        source_vocab_size = 0 if self.shared_embeddings else self.source_vocab_size or V
        return (
            (source_vocab_size + V) * D
            + (2 * self.max_len * D if self.positions == "learned" else 0)
            + self.n_encoder_layers * (blocks.n_attention + blocks.n_feed_forward)
            + self.n_decoder_layers * (2 * blocks.n_attention + blocks.n_feed_forward)
            + (2 * blocks.n_norm if self.has_final_norms else 0)
            + (0 if self.tied else D * V)
            + (V if self.output_bias else 0)
        )


class EncoderDecoder(Model):
    """source (B,S) and target (B,T), integers → logits (B,T,V): after each token of the target, what comes next.

    Padding is hidden by `source_keep` (B, S) and `target_keep` (B, T), booleans, False for padding, wherever it stands: as
    if those tokens were not there. What ids they have is not read. Of a source that is hidden altogether cross-attention
    finds nothing, and adds its bias alone.
    """

    kind = "encoder_decoder"

    def __init__(self, config: TransformerConfig, *, dtype: DTypeLike = np.float32, seed: int = 0) -> None:
        self.config = config
        self.dtype = check_dtype("EncoderDecoder", dtype)
        rng = np.random.default_rng(check_count("EncoderDecoder", "seed", seed, low=0, high=2**64))
        target_embedding = self.make_embedding(config.vocab_size, rng)
        source_embedding = target_embedding
        if not config.shared_embeddings:
            source_embedding = self.make_embedding(config.source_vocab_size or config.vocab_size, rng)
        blocks = config.blocks
        self.encoder = self.make_stack(
            source_embedding, [blocks.make_encoder_layer(dtype, rng) for _ in range(config.n_encoder_layers)], rng
        )
        self.decoder = self.make_stack(
            target_embedding,
            [blocks.make_decoder_layer(dtype, rng, cross=True) for _ in range(config.n_decoder_layers)],
            rng,
        )
        self.output = (
            TiedOutput(target_embedding, bias=config.output_bias)
            if config.tied
            else Linear(config.d_model, config.vocab_size, bias=config.output_bias, dtype=dtype, rng=rng)
        )

    def make_embedding(self, vocab_size: int, rng: np.random.Generator) -> Embedding:
        """Rows of length 1, as the logits need them; times √d_model their entries have the variance 1, as the table's."""
        D = self.config.d_model
        scale = math.sqrt(D) if self.config.scale_embeddings else 1.0
        embedding = Embedding(vocab_size, D, scale=scale, dtype=self.dtype, rng=rng)
        embedding.table.value *= np.asarray(1 / math.sqrt(D), self.dtype)
        return embedding

    def make_stack(self, embedding: Embedding, layers: list[Any], rng: np.random.Generator) -> Stack:
        config = self.config
        positions = config.blocks.make_positions(config.max_len, self.dtype, rng)
        if isinstance(positions, LearnedPositions):  # of the embeddings' size
            positions.table.value *= np.asarray(embedding.scale / math.sqrt(config.d_model), self.dtype)
        final_norm = config.blocks.make_norm(self.dtype) if config.has_final_norms else None
        return Stack(embedding, positions, layers, final_norm, dropout=config.dropout)

    def forward(
        self,
        source: Array,
        target: Array,
        source_keep: Array | None = None,
        target_keep: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Array, LastBackward]:
        """(logits, backward), where backward(dlogits) returns None: ids have no gradient.

        ValueError for an empty source, for ids outside their vocabularies, and for S or T past max_len.
        """
        self.check_source(source, source_keep)
        self.check_target(target, target_keep, len(source))
        memory, encoder_backward = self.encoder.forward(source, keep=source_keep, rng=rng)  # (B,S) → (B,S,D)
        features, decoder_backward = self.decoder.forward(  # (B,T) → (B,T,D)
            target, memory, keep=target_keep, memory_keep=source_keep, rng=rng
        )
        logits, output_backward = self.output.forward(features)  # (B,T,D) → (B,T,V)

        def backward(dlogits: Array) -> None:
            dmemory = decoder_backward(output_backward(dlogits))
            encoder_backward(dmemory)

        return logits, backward

    def loss(
        self,
        source: Array,
        target: Array,
        source_keep: Array | None = None,
        target_keep: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[tuple[Array, int], LastBackward]:
        """((total, count), backward): the summed cross-entropy of each token of the target but the first, predicted from
        those before it, with the configuration's label smoothing; and how many they are.

        Hidden tokens are neither predicted nor read. backward(dtotal) adds the gradients of dtotal·total; dtotal = 1 / count
        is the mean's.
        """
        self.check_source(source, source_keep)
        self.check_target(target, target_keep, len(source))
        expected = target[:, 1:] if target_keep is None else next_kept(target, target_keep)[:, :-1]
        read, read_keep = target[:, :-1], None if target_keep is None else target_keep[:, :-1]  # (B,T−1)
        logits, logits_backward = self.forward(source, read, source_keep, read_keep, rng)
        (total, count), loss_backward = cross_entropy(
            logits, expected, ignore_id=NOT_COUNTED, label_smoothing=self.config.label_smoothing
        )

        def backward(dtotal: Array) -> None:
            logits_backward(loss_backward(dtotal))

        return (total, count), backward

    def encode(self, source: Array, source_keep: Array | None = None) -> Array:
        """The memory (B, S, D) of a source (B, S), for inference; 0 where it is hidden."""
        self.check_source(source, source_keep)
        memory: Array = self.encoder(source, keep=source_keep)
        return memory

    def new_cache(self, source: Array, source_keep: Array | None = None) -> DecoderCache:
        """The encoded source, and no token of the target yet."""
        layers = [KVCache(self.config.max_len) for _ in self.decoder.layers]
        return DecoderCache(self, layers, self.encode(source, source_keep), source_keep)

    def decode(self, ids: Array, cache: DecoderCache, keep: Array | None = None) -> Array:
        """The logits (B, T, V) of target ids (B, T) that follow those in the cache, and are added to it."""
        cache.check("EncoderDecoder", self)
        self.check_target(ids, keep, cache.n_rows, cache.layers)
        features = self.decoder(ids, cache.memory, keep=keep, memory_keep=cache.memory_keep, caches=cache.layers)
        logits: Array = self.output(features)
        return logits

    def decode_step(self, ids: Array, cache: DecoderCache) -> Array:
        """`decode` of one token a row, ids (B,) → logits (B, V): the same but for rounding, in a fraction of the time.

        The weights, and the memory's keys and values, are those of the first decode_step with this cache.
        """
        return decode_step("EncoderDecoder", self, ids, cache)

    def check_source(self, source: Any, keep: Any) -> None:
        config = self.config
        check_tokens("EncoderDecoder", "source", source, keep, config.source_vocab_size or config.vocab_size, config.max_len)
        if source.shape[1] == 0:
            raise ValueError(f"EncoderDecoder: source must hold at least one token, got the shape {source.shape}")

    def check_target(self, target: Any, keep: Any, n_rows: int | None, caches: list[KVCache] | None = None) -> None:
        config = self.config
        check_tokens("EncoderDecoder", "target", target, keep, config.vocab_size, config.max_len, caches)
        if len(target) != n_rows:
            raise ValueError(f"EncoderDecoder: target has {len(target)} rows, but source {n_rows}")


def next_kept(ids: Array, keep: Array) -> Array:
    """For each token (B, T) that is kept the next one that is; NOT_COUNTED where there is none, and for hidden tokens."""
    ids = ids.astype(np.int64)  # in which −1 is no id
    B, _ = ids.shape
    kept_first = np.argsort(~keep, axis=1, kind="stable")  # the places of a row's tokens in order
    ranked = np.concatenate([np.take_along_axis(ids, kept_first, 1), np.zeros((B, 1), ids.dtype)], 1)  # (B,T+1)
    rank = keep.cumsum(1)  # of the next one
    return np.where(keep & (rank < keep.sum(1, keepdims=True)), np.take_along_axis(ranked, rank, 1), NOT_COUNTED)
