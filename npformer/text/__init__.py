"""Text: files read strictly, and characters turned into ids and back."""

from npformer.text.characters import CharacterTokenizer
from npformer.text.reading import read_text

__all__ = ["CharacterTokenizer", "read_text"]
