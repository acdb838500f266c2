"""The models: each a configuration and a class that reads from top to bottom."""

from npformer.models.gpt import GPT, GPTConfig

__all__ = ["GPT", "GPTConfig"]
