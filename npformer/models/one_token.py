"""One token at a time."""

from npformer.layers import Linear, TiedOutput
from npformer.models.decoder_cache import DecoderCache
from npformer.models.stack import Stack, check_tokens
from npformer.operation import Array


class OneToken:
    nbytes = 0

    def reorder(self, rows: Array) -> None: ...

    def fork(self) -> "OneToken":
        return self


def decode_step(
    title: str,
    decoder: Stack,
    output: Linear | TiedOutput,
    vocab_size: int,
    max_len: int,
    ids: Array,
    cache: DecoderCache,
) -> Array:
    check_tokens(title, "ids", ids[:, None], None, vocab_size, max_len, cache.layers)
    features = decoder(ids[:, None], cache.memory, memory_keep=cache.memory_keep, caches=cache.layers)
    logits: Array = output(features)[:, 0]
    return logits
