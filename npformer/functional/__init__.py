"""The mathematics: one operation a file, its forward beside its backward.

Somewhere behind every operation stands one number L, the loss. In these files dx is short for ∂L/∂x, an array of x's shape:
how much L grows for each entry of x. `backward` is given dy, which whoever uses y has found out, and returns dx by the
chain rule: dx_j = Σ_i dy_i·∂y_i/∂x_j. A bracket such as [i = j] is 1 where it holds and 0 elsewhere.

Where a line reads x.real, it decides something: which entry is the largest, on which side of 0 one lies. Such decisions are
made by the real part, so that a complex array may go through as well. Its imaginary part then carries a derivative, which
is how the backward is checked (gradcheck/complex_step.py).

A reading order: linear, relu, sigmoid, softmax, layer_norm, embedding, cross_entropy, attention.
"""

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
