"""What every head of cross-attention looks at while the answer's city is written."""

from typing import NamedTuple

import numpy as np

from demos.cities.dialogues import TOKENIZER, Dialogue, encode
from npformer import EncoderDecoder
from npformer.functional import softmax
from npformer.observing import seen_by


class Look(NamedTuple):
    """`weights` (n_decoder_layers, n_heads, words) on the characters of each word, and the probability of each word's first
    character."""

    words: tuple[str, ...]
    weights: np.ndarray
    probabilities: np.ndarray


def look(model: EncoderDecoder, dialogue: Dialogue) -> Look:
    """At the step that chooses the first character of the answer, after the right characters before it."""
    source, source_keep, target, target_keep = encode([dialogue])
    seen: list[np.ndarray] = []
    with seen_by(seen.append):
        logits = model(source, target[:, :-1], source_keep, target_keep[:, :-1])
    step = dialogue.answer_places[0]
    # After those of the encoder a decoder layer's own attention and its cross-attention take turns.
    cross = seen[model.config.n_encoder_layers + 1 :: 2]
    words = (dialogue.answer, *dialogue.others)
    weights = np.array([[P[0, :, step, list(dialogue.places(word))].sum(0) for word in words] for P in cross])  # (L,words,H)
    P = softmax(logits[0, step])[0]
    first = [int(TOKENIZER.encode(word)[0]) for word in words]
    return Look(words, weights.transpose(0, 2, 1), P[first])
