"""The models: each a configuration and a class that reads from top to bottom. A reading order: gpt, stack, blocks,
encoder_decoder, encoder."""

from npformer.models.encoder import Encoder, EncoderConfig
from npformer.models.encoder_decoder import EncoderDecoder, TransformerConfig
from npformer.models.gpt import GPT, GPTConfig

__all__ = ["GPT", "GPTConfig", "EncoderDecoder", "TransformerConfig", "Encoder", "EncoderConfig"]
