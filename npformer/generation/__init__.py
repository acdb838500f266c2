"""Generation: one id after the other, drawn from what the model expects next."""

from npformer.generation.generate import generate, stream
from npformer.generation.sampling import sample

__all__ = ["generate", "stream", "sample"]
