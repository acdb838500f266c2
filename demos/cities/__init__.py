"""A small encoder–decoder learns where to go in spring, and is damaged in five ways that its attention tells apart.

npformer began with such a model: told 我喜欢北京的春天和上海的秋天, it mixed up 北京 and 上海, and only a picture of its
attention weights showed why.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

from demos.by_hand.tables import left, width
from demos.by_hand.terminal import plain_where_needed, printable
from demos.cities.damages import DAMAGES, damaged
from demos.cities.dialogues import STORY, Dialogue, dialogues
from demos.cities.looking import Look, look
from demos.cities.training import BATCH_SIZE, CONFIG, N_WARMUP, PEAK, answers, train
from demos.numbers import count, count_from_0
from demos.progress import Progress, clock
from npformer import EncoderDecoder
from npformer.command_line import Parser, run_command
from npformer.memory import keep_freed_memory

TITLE = "cities"
N_STEPS, N_HELD_OUT, N_SHOWN = 1000, 1000, 2
MEANING = {"北京": "Beijing", "上海": "Shanghai"}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(TITLE, lambda: run(arguments), "interrupted")


def run(arguments: Sequence[str] | None) -> int:
    options = parse(arguments)
    keep_freed_memory()
    plain_where_needed()
    if printable(MEANING) != list(MEANING):
        print("note        this console cannot show Chinese, and ? stands for it; set PYTHONIOENCODING=utf-8 to have it")
    held_out = dialogues(N_HELD_OUT, np.random.default_rng([options.seed, 1]), held_out=True)
    print(f"asked       {STORY.source}")
    print(f"right       {STORY.target}")
    model = EncoderDecoder(CONFIG, seed=options.seed)
    print(
        f"model       {CONFIG.n_encoder_layers} encoder layers, {CONFIG.n_decoder_layers} decoder layer, "
        f"{CONFIG.n_heads} heads, d_model {CONFIG.d_model}: {CONFIG.n_parameters:,} parameters"
    )
    learn(model, options.steps, options.seed)
    print("held out    dialogues about a city and a season that never met in training")
    print("damages     are done to the trained model, which then answers as it is")
    print("attention   where the city is due, after the right beginning of the answer, and P of the city there")
    if options.steps < N_STEPS:
        print(f"caution     the task takes about {N_STEPS} steps; of a model that has not learnt it the rest says little")
    seen = report("trained", "nothing is wrong with it", model, held_out)
    best = np.unravel_index(seen.weights[..., 0].argmax(), seen.weights.shape[:2])
    for damage in DAMAGES:
        report(damage.name, damage.sentence, damaged(model, damage, (int(best[0]), int(best[1]))), held_out)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog=f"python -m demos {TITLE}", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--steps", type=count, default=N_STEPS, metavar="N", help=f"of training (default: {N_STEPS})")
    parser.add_argument("--seed", type=count_from_0, default=0, metavar="N", help="for everything random (default: 0)")
    return parser.parse_args(arguments)


def learn(model: EncoderDecoder, n_steps: int, seed: int) -> None:
    tokens_a_step = BATCH_SIZE * (len(STORY.source) + len(STORY.target) + 1)
    progress = Progress(n_steps, tokens_a_step)
    started = time.monotonic()
    try:
        rng = np.random.default_rng([seed, 0])
        train(model, n_steps, rng, peak=PEAK, n_warmup=min(N_WARMUP, n_steps // 10), report=progress)
    finally:
        progress.close()
    print(f"trained     {n_steps} steps in {clock(time.monotonic() - started)}")


def report(name: str, sentence: str, model: EncoderDecoder, held_out: Sequence[Dialogue]) -> Look:
    """How many it gets right, some that it does not, and what each head looks at while it says the city of the story."""
    said = answers(model, held_out)
    wrong = [(dialogue, answer) for dialogue, answer in zip(held_out, said, strict=True) if answer != dialogue.target]
    seen = look(model, STORY)
    print(f"\n{name:<15}{sentence}")
    print(f"  right     {1 - len(wrong) / len(held_out):.1%} of {len(held_out):,} held out")
    for dialogue, answer in wrong[:N_SHOWN]:
        print(f"  wrong     {dialogue.source} {answer or '(nothing)'} (right: {dialogue.target})")
    print(f"  story     {answers(model, [STORY])[0] or '(nothing)'}")
    heads = [f"{layer + 1}.{head + 1}" for layer in range(len(seen.weights)) for head in range(len(seen.weights[layer]))]
    words = printable({word: MEANING[word] for word in seen.words})
    title = f"  where {words[0]} is due: layer.head"
    print(title + "".join(f"{head:>7}" for head in heads) + "   P(city)")
    for i, word in enumerate(words):
        weights = "".join(f"{weight:7.3f}" for weight in seen.weights[:, :, i].ravel())
        print(f"{left(f'    weight on {word}', width(title))}{weights}{seen.probabilities[i]:10.3f}", flush=True)
    return seen
