"""Four ways to tell where a token stands, learnt at one length and tried at up to eight times that length."""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from demos.char_lm import python_topics
from demos.numbers import count, count_from_0
from demos.progress import Progress
from demos.weights import with_weights_of
from npformer import GPT, GPTConfig
from npformer.command_line import Parser, run_command
from npformer.text import CharacterTokenizer
from npformer.training import Trainer, TrainingConfig, held_out_loss

TITLE = "positions"
LENGTH, TIMES = 32, range(1, 9)
KINDS = {"learned": "l", "sinusoidal": "s", "rotary": "r", "alibi": "a"}  # each with its sign in the chart
N_STEPS, N_HELD_OUT = 1000, 16 * LENGTH * TIMES[-1]
CHART_HEIGHT = 14


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(TITLE, lambda: run(arguments), "interrupted")


def run(arguments: Sequence[str] | None) -> int:
    parser = Parser(prog=f"python -m demos {TITLE}", description=__doc__, allow_abbrev=False)
    parser.add_argument("--steps", type=count, default=N_STEPS, metavar="N", help=f"of each model (default: {N_STEPS})")
    parser.add_argument("--seed", type=count_from_0, default=0, metavar="N", help="for everything random (default: 0)")
    options = parser.parse_args(arguments)
    text, name = python_topics()
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    train, held_out = ids[: -len(ids) // 10], ids[-len(ids) // 10 :][: N_HELD_OUT + 1]
    print(f"text        {name}; learnt in windows of {LENGTH} characters, then read in up to {LENGTH * TIMES[-1]}")
    losses, refusal = {}, ""
    for kind in KINDS:
        config = GPTConfig(
            vocab_size=tokenizer.vocab_size, max_len=LENGTH, n_layers=2, n_heads=4, d_model=64, positions=kind, bias=False
        )
        model = trained(GPT(config, seed=options.seed), train, kind, options.steps, options.seed)
        if kind == "learned":  # its table has an end
            losses[kind] = {1: held_out_loss(model, held_out)}
            refusal = answer_to_one_more(model)
        else:
            losses[kind] = {times: held_out_loss(at_length(model, LENGTH * times), held_out) for times in TIMES}
    print("\nNats a character over text that was held out, read in windows so many times as long as those learnt:\n")
    print_table(losses)
    print(f"\nlearned     refuses {LENGTH + 1} characters: {refusal}\n")
    print_chart(losses)
    return 0


def trained(model: GPT, train: np.ndarray, kind: str, n_steps: int, seed: int) -> GPT:
    config = TrainingConfig(n_steps=n_steps, batch_size=16, n_warmup=min(50, n_steps // 10), learning_rate=3e-3, seed=seed)
    trainer = Trainer(model, train, config)
    print(f"training    {kind}")
    progress = Progress(n_steps, config.batch_size * model.config.max_len)
    try:
        finished = trainer.run(report=progress)
    finally:
        progress.close()
    if not finished:
        raise KeyboardInterrupt  # which the trainer has caught
    return model


def answer_to_one_more(model: GPT) -> str:
    """What the model says to a text that is longer by one than it can be."""
    try:
        model(np.zeros((1, model.config.max_len + 1), np.int64))
    except ValueError as error:
        return str(error)
    return "it does not"


def at_length(model: GPT, length: int) -> GPT:
    """The same weights in a model that reads more."""
    return with_weights_of(model, GPT(replace(model.config, max_len=length), dtype=model.dtype))


def print_table(losses: Mapping[str, Mapping[int, float]]) -> None:
    print(f"{'':<12}" + "".join(f"{f'{times}x':>8}" for times in TIMES))
    for kind, by_times in losses.items():
        print(f"{kind:<12}" + "".join(f"{by_times[times]:>8.3f}" if times in by_times else f"{'-':>8}" for times in TIMES))


def print_chart(losses: Mapping[str, Mapping[int, float]]) -> None:
    """Lines for losses, a column for each length; kinds that meet stand side by side."""
    values = [loss for by_times in losses.values() for loss in by_times.values()]
    low, high = min(values), max(values)
    step = max(high - low, 1e-9) / (CHART_HEIGHT - 1)
    signs: defaultdict[tuple[int, int], str] = defaultdict(str)
    for kind, by_times in losses.items():
        for times, loss in by_times.items():
            signs[round((loss - low) / step), times] += KINDS[kind]
    for line in reversed(range(CHART_HEIGHT)):
        print(f"{low + line * step:8.2f} |" + "".join(f"{signs[line, times]:>6}" for times in TIMES).rstrip())
    print(f"{'':8} +{'-' * 6 * len(TIMES)}")
    print(f"{'':8}  " + "".join(f"{f'{times}x':>6}" for times in TIMES))
    print(f"{'':10}{', '.join(f'{sign} {kind}' for kind, sign in KINDS.items())}")


if __name__ == "__main__":
    sys.exit(main())
