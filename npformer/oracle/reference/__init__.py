"""Every operation in the plainest words there are: loops over numbers, forward only.

Read an operation here first: nothing is fast, nothing is clever, and a masked pair is a pair that the loop leaves out.
The same lines are the brute force of the tests and, in a `decimal` context of sixty digits, the truth of the oracle.
Nothing is shared with npformer.functional, so that a mistake would have to be made twice.

An array is a nested list of numbers, all of them float or all of them Decimal; a bare number is an array without axes.
Masks are nested lists of bool, ids of int. An empty list hides the axes behind it. The parameters are those of
npformer.functional, save that chance comes as `kept`, the dropout mask that was drawn. What they hold is not checked:
to refuse a wrong argument is the work of npformer.functional. An option may be an int, a float or a Decimal; beside
Decimals a float stands for exactly the number that it is in binary.

Nothing that is masked is ever computed with. A NaN that is seen goes on into the result, as IEEE has it; with Decimals
that, and ∞ − ∞, take a context that does not trap `decimal.InvalidOperation`.
"""

from npformer.oracle.reference.alibi_bias import alibi_bias
from npformer.oracle.reference.alibi_slopes import alibi_slopes
from npformer.oracle.reference.attention import attention
from npformer.oracle.reference.attention_weights import attention_weights
from npformer.oracle.reference.cross_entropy import cross_entropy
from npformer.oracle.reference.dropout import dropout
from npformer.oracle.reference.embedding import embedding
from npformer.oracle.reference.gelu import gelu
from npformer.oracle.reference.gelu_tanh import gelu_tanh
from npformer.oracle.reference.layer_norm import layer_norm
from npformer.oracle.reference.linear import linear
from npformer.oracle.reference.log_softmax import log_softmax
from npformer.oracle.reference.merge_heads import merge_heads
from npformer.oracle.reference.relu import relu
from npformer.oracle.reference.rms_norm import rms_norm
from npformer.oracle.reference.rotary import rotary
from npformer.oracle.reference.sigmoid import sigmoid
from npformer.oracle.reference.silu import silu
from npformer.oracle.reference.sinusoidal_positions import sinusoidal_positions
from npformer.oracle.reference.softmax import softmax
from npformer.oracle.reference.split_heads import split_heads
from npformer.oracle.reference.tanh import tanh

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
