"""The mathematics: one operation a file, its forward beside its backward."""

from npformer.functional.alibi import alibi_bias, alibi_slopes
from npformer.functional.attention import attention
from npformer.functional.attention_weights import attention_weights
from npformer.functional.cross_entropy import cross_entropy
from npformer.functional.dropout import dropout
from npformer.functional.embedding import embedding
from npformer.functional.gelu import gelu
from npformer.functional.gelu_tanh import gelu_tanh
from npformer.functional.layer_norm import layer_norm
from npformer.functional.linear import linear
from npformer.functional.log_softmax import log_softmax
from npformer.functional.merge_heads import merge_heads
from npformer.functional.relu import relu
from npformer.functional.rms_norm import rms_norm
from npformer.functional.rotary import rotary
from npformer.functional.sigmoid import sigmoid
from npformer.functional.silu import silu
from npformer.functional.sinusoidal_positions import sinusoidal_positions
from npformer.functional.softmax import softmax
from npformer.functional.split_heads import split_heads
from npformer.functional.tanh import tanh

__all__ = [
    "alibi_bias",
    "alibi_slopes",
    "attention",
    "attention_weights",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "linear",
    "log_softmax",
    "merge_heads",
    "relu",
    "rms_norm",
    "rotary",
    "sigmoid",
    "silu",
    "sinusoidal_positions",
    "softmax",
    "split_heads",
    "tanh",
]
