"""A small encoder–decoder learns to answer. Each step draws new dialogues, none of them about a pair that is held out."""

from collections.abc import Callable, Sequence

import numpy as np

from demos.cities.dialogues import BEGIN, END, VOCAB_SIZE, Dialogue, decode, dialogues, encode, encode_sources
from npformer import EncoderDecoder, TransformerConfig, generate
from npformer.training import AdamW, FlatParameters, Step, clip_by_norm, warmup_cosine

CONFIG = TransformerConfig(
    vocab_size=VOCAB_SIZE,
    max_len=48,
    n_encoder_layers=2,
    n_decoder_layers=1,
    n_heads=6,
    d_model=96,
    d_head=24,  # at 16 a factor of √16 too much in the scores does not always show
    d_ff=128,
    positions="rotary",
    shared_embeddings=True,
)
BATCH_SIZE, CLIP, N_WARMUP = 64, 1.0, 100
PEAK, END_OF_PEAK = 4e-3, 0.01  # of the learning rate
LONGEST_ANSWER = 24


def train(
    model: EncoderDecoder,
    n_steps: int,
    rng: np.random.Generator,
    *,
    peak: float,
    n_warmup: int,
    report: Callable[[Step], None] = lambda step: None,
) -> None:
    """`report` is called with what came of each step."""
    flat = FlatParameters(model.parameters())
    optimiser = AdamW(flat.values, flat.n_matrix, beta2=0.98)
    for n in range(n_steps):
        flat.gradients[...] = 0
        source, source_keep, target, target_keep = encode(dialogues(BATCH_SIZE, rng))
        (total, count), backward = model.loss(source, target, source_keep, target_keep)
        backward(1 / count)
        norm = clip_by_norm(flat.gradients, CLIP)
        learning_rate = warmup_cosine(n, peak=peak, end=END_OF_PEAK * peak, n_warmup=n_warmup, n_steps=n_steps)
        optimiser.step(flat.values, flat.gradients, learning_rate, n + 1)
        report(Step(n + 1, float(total) / count, norm, learning_rate))


def answers(model: EncoderDecoder, asked: Sequence[Dialogue]) -> list[str]:
    """What the model says, the likeliest character at every step."""
    source, source_keep = encode_sources([each.source for each in asked])
    begin = np.full((len(asked), 1), BEGIN)
    ids = generate(model, begin, LONGEST_ANSWER, source=source, source_keep=source_keep, temperature=0, end_id=END)
    return [decode(row) for row in ids]
