"""Draws docs/loss.svg: the default run of demos/char_lm, beside what counting gets. It trains, so it takes two minutes.

python docs/draw_loss.py            in the checkout, with npformer installed
"""

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from demos.char_lm import HELD_OUT, SIZES, python_topics  # noqa: E402
from demos.counting import n_gram_loss  # noqa: E402
from npformer import GPT, GPTConfig  # noqa: E402
from npformer.inspection.page.line_chart import LineChart  # noqa: E402
from npformer.text import CharacterTokenizer  # noqa: E402
from npformer.training import Trainer, TrainingConfig, held_out_loss  # noqa: E402

SMOOTHED, EVERY = 25, 10


def train() -> tuple[list[float], float, list[float]]:
    text, _ = python_topics()
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    n_train = len(ids) - len(ids) // HELD_OUT
    train, held_out = ids[:n_train], ids[n_train:]
    sizes = dict(SIZES)
    batch_size = sizes.pop("batch_size")
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, bias=False, **sizes))
    losses: list[float] = []
    Trainer(model, train, TrainingConfig(batch_size=batch_size)).run(report=lambda step: losses.append(step.loss))
    counted = [n_gram_loss(train, held_out, tokenizer.vocab_size, n) for n in range(1, 6)]
    return losses, held_out_loss(model, held_out), counted


def chart(losses: list[float], held_out: float, counted: list[float]) -> LineChart:
    n = len(losses)
    steps = range(0, n, EVERY)
    smooth = [float(np.mean(losses[max(0, i - SMOOTHED) : i + 1])) for i in steps]
    lines = {"the model, training": (steps, smooth), "the model, held out": ([n], [held_out])}
    lines |= {f"counting {k}-grams": ([0, n], [loss, loss]) for k, loss in enumerate(counted, start=1)}
    return LineChart("Loss of the model, and of counting on the text held out", lines, y="nats a character")


if __name__ == "__main__":
    (ROOT / "docs" / "loss.svg").write_text(chart(*train()).svg(), encoding="utf-8")
