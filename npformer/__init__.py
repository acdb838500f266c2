"""A Transformer in NumPy alone, in which every layer carries its own forward and backward pass."""

from npformer import functional

__all__ = ["functional"]
__version__ = "0.1.0"
