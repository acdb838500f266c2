"""What the models have in common: a configuration, a dtype, and a file to be kept in."""

from dataclasses import asdict
from os import PathLike
from typing import Any

import numpy as np

from npformer.archive import write_archive
from npformer.layers import Layer


class Model(Layer):
    """A layer that can be saved, and read back with npformer.load. Its parameters are made by its configuration alone."""

    kind: str  # its name in a file
    config: Any
    dtype: np.dtype[Any]

    def save(self, path: str | PathLike[str], tokenizer: Any = None) -> None:
        """Write configuration, weights and the tokenizer to one .npz file, for npformer.load. An old file stays until the
        new one is whole."""
        weights = {f"weights/{name}": parameter.value for name, parameter in self.parameters().items()}
        write_archive(path, self.description(tokenizer), weights)

    def description(self, tokenizer: Any = None) -> dict[str, Any]:
        """What a saved model says of itself, beside its weights."""
        n = self.config.vocab_size
        if tokenizer is not None and tokenizer.vocab_size != n:
            title = type(self).__name__
            raise ValueError(f"{title}: tokenizer has {tokenizer.vocab_size} characters, but the model a vocab_size of {n}")
        return {
            "model": self.kind,
            "config": asdict(self.config),
            "dtype": self.dtype.name,
            "characters": None if tokenizer is None else tokenizer.characters,
        }
