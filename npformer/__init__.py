"""A Transformer in NumPy alone, in which every layer carries its own forward and backward pass."""

from npformer import functional, layers
from npformer.generation import generate
from npformer.models import GPT, Encoder, EncoderConfig, EncoderDecoder, GPTConfig, TransformerConfig
from npformer.training import load

__all__ = [
    "functional",
    "layers",
    "GPT",
    "GPTConfig",
    "EncoderDecoder",
    "TransformerConfig",
    "Encoder",
    "EncoderConfig",
    "load",
    "generate",
]
__version__ = "0.1.0"
