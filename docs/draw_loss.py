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
from npformer.text import CharacterTokenizer  # noqa: E402
from npformer.training import Trainer, TrainingConfig, held_out_loss  # noqa: E402

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 736, 340, 46, 166, 34, 40
LOWEST, HIGHEST = 1.0, 4.8
SMOOTHED, EVERY = 25, 10
TITLE = "Loss, in nats a character: while training (line), on text held out (right)"


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


def draw(losses: list[float], held_out: float, counted: list[float]) -> str:
    def x(step: float) -> float:
        return LEFT + step / len(losses) * (WIDTH - LEFT - RIGHT)

    def y(loss: float) -> float:
        return TOP + (HIGHEST - loss) / (HIGHEST - LOWEST) * (HEIGHT - TOP - BOTTOM)

    smooth = [float(np.mean(losses[max(0, i - SMOOTHED) : i + 1])) for i in range(0, len(losses), EVERY)]
    curve = " ".join(f"{x(i * EVERY):.1f},{y(loss):.1f}" for i, loss in enumerate(smooth))
    right = WIDTH - RIGHT
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{TITLE}</text>',
    ]
    for loss in range(1, 5):
        rows.append(f'<line x1="{LEFT}" y1="{y(loss):.1f}" x2="{right}" y2="{y(loss):.1f}" stroke="#e0e0e0"/>')
        rows.append(f'<text x="{LEFT - 8}" y="{y(loss) + 4:.1f}" text-anchor="end" fill="#555555">{loss}</text>')
    for step in range(0, len(losses) + 1, len(losses) // 4):
        rows.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 16}" text-anchor="middle" fill="#555555">{step}</text>')
    for loss in counted:
        line = f'<line x1="{LEFT}" y1="{y(loss):.1f}" x2="{right}" y2="{y(loss):.1f}" stroke="#b26a00"'
        rows.append(f'{line} stroke-dasharray="3 4"/>')
    rows.append(f'<polyline points="{curve}" fill="none" stroke="#1f5fbf" stroke-width="2"/>')
    rows.append(f'<circle cx="{right}" cy="{y(held_out):.1f}" r="4" fill="#1f5fbf"/>')
    labels = [(loss, f"{loss:.3f}  counting {n}-grams", "#8a5200") for n, loss in enumerate(counted, start=1)]
    labels.append((held_out, f"{held_out:.3f}  the model", "#1f5fbf"))
    lowest = 0.0
    for loss, label, colour in sorted(labels, reverse=True):  # from the top down, none over another
        lowest = max(lowest + 14, y(loss) + 4)
        rows.append(f'<text x="{right + 8}" y="{lowest:.1f}" fill="{colour}">{label}</text>')
    return "\n".join([*rows, "</svg>\n"])


if __name__ == "__main__":
    (ROOT / "docs" / "loss.svg").write_text(draw(*train()), encoding="utf-8")
