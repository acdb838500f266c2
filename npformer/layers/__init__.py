"""The layers: what has parameters. Each returns its output and a backward that adds the parameters' gradients.

A reading order: parameter, layer, linear, norms, feed_forward, multi_head_attention, residual, encoder_layer, decoder_layer,
kv_cache.
"""

from npformer.layers.decoder_layer import DecoderLayer
from npformer.layers.dropout import Dropout
from npformer.layers.embedding import Embedding
from npformer.layers.encoder_layer import EncoderLayer
from npformer.layers.feed_forward import FeedForward, GatedFeedForward
from npformer.layers.kv_cache import KVCache
from npformer.layers.layer import Layer
from npformer.layers.linear import Linear
from npformer.layers.multi_head_attention import MultiHeadAttention
from npformer.layers.norms import LayerNorm, RMSNorm
from npformer.layers.parameter import Parameter
from npformer.layers.positions import ALiBi, LearnedPositions, RotaryPositions, SinusoidalPositions
from npformer.layers.residual import Residual
from npformer.layers.sliding_cache import SlidingCache
from npformer.layers.tied_output import TiedOutput

__all__ = [
    "Parameter",
    "Layer",
    "Linear",
    "Embedding",
    "TiedOutput",
    "LayerNorm",
    "RMSNorm",
    "Dropout",
    "FeedForward",
    "GatedFeedForward",
    "MultiHeadAttention",
    "LearnedPositions",
    "SinusoidalPositions",
    "RotaryPositions",
    "ALiBi",
    "Residual",
    "EncoderLayer",
    "DecoderLayer",
    "KVCache",
    "SlidingCache",
]
