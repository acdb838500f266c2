"""Models read back from their files."""

from collections.abc import Mapping
from dataclasses import fields
from os import PathLike
from typing import Any, TypeAlias, TypeVar, cast

from npformer.archive import read_archive
from npformer.arguments import check_name
from npformer.models import GPT, Encoder, EncoderConfig, EncoderDecoder, GPTConfig, TransformerConfig
from npformer.operation import Array
from npformer.text import CharacterTokenizer

C = TypeVar("C")
AnyModel: TypeAlias = GPT | EncoderDecoder | Encoder
KINDS: dict[str, tuple[type[AnyModel], type[Any]]] = {
    GPT.kind: (GPT, GPTConfig),
    EncoderDecoder.kind: (EncoderDecoder, TransformerConfig),
    Encoder.kind: (Encoder, EncoderConfig),
}


def load(path: str | PathLike[str]) -> tuple[AnyModel, CharacterTokenizer | None]:
    """The model of a file that model.save or a Trainer wrote, and its tokenizer, None where it was saved without.

    ValueError, in one sentence, for any other file and for a damaged one.
    """
    return model_of(*read_archive(path), path)


def model_of(
    header: Mapping[str, Any], arrays: Mapping[str, Array], path: str | PathLike[str]
) -> tuple[AnyModel, CharacterTokenizer | None]:
    kind = header.get("model")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{path} is not an npformer checkpoint: it holds the model {kind!r}, not one of {', '.join(KINDS)}")
    model_class, config_class = KINDS[kind]
    try:
        config = config_of(config_class, header["config"])
        characters = header["characters"]
        tokenizer = None if characters is None else CharacterTokenizer(characters)
        dtype = header["dtype"]
        check_name(model_class.__name__, "dtype", dtype, ("float32", "float64"))
    except KeyError as error:
        raise ValueError(f"{path} is not an npformer checkpoint: its header has no {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not an npformer checkpoint: {error}") from error
    if tokenizer is not None and tokenizer.vocab_size != config.vocab_size:
        raise ValueError(f"{path} is damaged: {tokenizer.vocab_size} characters, but a vocab_size of {config.vocab_size}")
    weights = {name.removeprefix("weights/"): array for name, array in arrays.items() if name.startswith("weights/")}
    n_weights = sum(array.size for array in weights.values())
    if n_weights < config.n_parameters / 2:  # asked before a model of whatever size is made
        raise ValueError(f"{path} is damaged: it holds {n_weights:,} weights, but its model has {config.n_parameters:,}")
    model = model_class(config, dtype=dtype)
    parameters = model.parameters()
    if weights.keys() != parameters.keys():
        name = min(weights.keys() ^ parameters.keys())
        raise ValueError(f"{path} is damaged: the parameter {name} is {'missing' if name in parameters else 'unknown'}")
    for name, parameter in parameters.items():
        given = weights[name]
        if given.shape != parameter.value.shape or given.dtype != parameter.value.dtype:
            expected = f"{parameter.value.dtype} {parameter.value.shape}"
            raise ValueError(f"{path} is damaged: {name} is {given.dtype} {given.shape}, not {expected}")
        parameter.value[...] = given
    return model, tokenizer


def config_of(kind: type[C], settings: Any) -> C:
    """A configuration from a header, which must give every setting: a default could be another than the file's."""
    if not isinstance(settings, dict):
        raise TypeError(f"{kind.__name__} must be a mapping, got {type(settings).__name__}")
    names = {field.name for field in fields(cast(Any, kind))}
    if settings.keys() != names:
        name = min(settings.keys() ^ names)
        raise ValueError(f"{kind.__name__}: {name} is {'missing' if name in names else 'unknown'}")
    return kind(**settings)
