"""What every head looks at while the answer is written."""

from collections.abc import Sequence

import numpy as np

from demos.cities.dialogues import BEGIN, END, TOKENIZER, VOCAB_SIZE, Dialogue, encode
from npformer import EncoderDecoder
from npformer.inspection import Finding, Recording, WhoAttends, record

SPECIAL = {BEGIN: "<begin>", END: "<end>"}
NAMES = [SPECIAL.get(id) or TOKENIZER.decode(np.array(id)) for id in range(VOCAB_SIZE)]


N_TEXTS = 32  # by which a model is judged: a short text alone may show any head at an extreme


def read(model: EncoderDecoder, dialogue: Dialogue, title: str) -> Recording:
    """The model reads the dialogue and its right answer to the end."""
    source, source_keep, target, target_keep = encode([dialogue])
    with record(model, NAMES, title=title) as recording:
        model(source, target, source_keep, target_keep)
    return recording


def judged(
    model: EncoderDecoder, seen: Recording, dialogues: Sequence[Dialogue], good: Recording | None = None
) -> list[Finding]:
    """What there is to say of the model that was `seen`, and of how it differs from the good one; by N_TEXTS texts."""
    others = [read(model, dialogue, seen.title) for dialogue in dialogues[: N_TEXTS - 1]]
    return seen.diagnose(reference=good, also=others)


def asked_of(recording: Recording, dialogue: Dialogue) -> WhoAttends:
    """Who attends to the answer's city, and to another, where its first character is due."""
    return recording.who_attends(dialogue.answer[0], dialogue.answer, against=dialogue.others[0], kind="cross")


def most_changed(good: Recording, bad: Recording, row: int) -> tuple[int, int]:
    """The layer and the head of the cross-attention that differs most in one row."""
    heads = {(map.layer, map.head): map.weights[row] for map in good.of_kind("cross")}
    return max(heads, key=lambda head: abs(bad.find("cross", *head).weights[row] - heads[head]).sum())
