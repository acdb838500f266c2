"""Generation: one id after the other, chosen by what the model expects next, which a cache lets it say fast."""

from npformer.generation.beam_search import Hypothesis, beam_search
from npformer.generation.generate import generate, stream
from npformer.generation.sampling import sample
from npformer.generation.scoring import log_probabilities

__all__ = ["generate", "stream", "sample", "beam_search", "Hypothesis", "log_probabilities"]
