"""A small GPT checks its own gradients, learns a text character by character, and writes on.

The text is Python's own documentation, which every CPython carries, or a file of yours. The recipe is nanoGPT's for a CPU.
"""

import argparse
import math
import os
import pydoc_data.topics
import re
import shlex
import shutil
import sys
import time
import warnings
from collections.abc import Sequence

import numpy as np

import gradcheck
from demos.counting import n_gram_loss
from demos.progress import Progress, clock
from npformer import GPT, GPTConfig, load
from npformer.archive import read_archive, write_archive
from npformer.command_line import Parser, run_command
from npformer.generation import stream
from npformer.text import CharacterTokenizer, read_text
from npformer.text.characters import readable
from npformer.training import NotFiniteError, Trainer, TrainingConfig, held_out_loss

TITLE = "char_lm"
OUT = "char_lm.npz"
SIZES = {"n_layers": 4, "n_heads": 4, "d_model": 128, "max_len": 64, "batch_size": 12}
LARGEST = 10**9
HELD_OUT = 10  # the last of so many parts
CHECKED_TOKENS = 4
CHECKED_QUICKLY = 3 * 10**6  # parameters
ENCODING, LENGTH, TEMPERATURE = "utf-8", 400, 0.8
PROMPT_LENGTH = 32
LONGEST_GRAM = 5


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(TITLE, lambda: run(arguments), "interrupted")


def run(arguments: Sequence[str] | None) -> int:
    options = parse(arguments)
    if (options.resume or options.prompt is not None) and not os.path.exists(options.out):
        raise ValueError(f"there is no checkpoint {options.out}; a run without --resume and --prompt writes one")
    if options.prompt is not None:
        return write_on(options)
    text, name = (read_text(options.text, options.encoding), options.text) if options.text else python_topics()
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    n_train = len(ids) - len(ids) // HELD_OUT
    train, held_out = ids[:n_train], ids[n_train:]
    print(f"text        {name}: {len(ids):,} characters, {tokenizer.vocab_size} of them distinct, the last tenth held out")
    trainer = resumed(options, train, tokenizer) if options.resume else begun(options, train, held_out, tokenizer)
    model, config = trainer.model, trainer.model.config
    n_parameters = sum(parameter.value.size for parameter in model.parameters().values())
    print(
        f"model       {config.n_layers} layers, {config.n_heads} heads, d_model {config.d_model}, "
        f"context {config.max_len}: {n_parameters:,} parameters"
    )
    if not gradients_are_right(model, train):
        return 1
    if not train_on(trainer, options):
        return 130
    print_results(model, train, held_out, tokenizer)
    prompt = text[n_train : n_train + min(PROMPT_LENGTH, config.max_len)]
    print(f"sample      what it writes on after the first {len(prompt)} characters that were held out:\n")
    write(model, tokenizer, prompt, options)
    print(f"\ncheckpoint  {options.out}, {n_parameters:,} parameters")
    words = re.search(r"\w[\w ]{0,15}", prompt)  # which no shell takes for anything else
    print(f"to go on    {command(options.out, prompt=words[0].strip() if words else prompt[0])}")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog=f"python -m demos {TITLE}", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--text", type=filled, metavar="FILE", help="learn this text (default: Python's documentation)")
    parser.add_argument("--encoding", type=filled, default=ENCODING, help=f"of the text, as gb18030 (default: {ENCODING})")
    parser.add_argument("--steps", type=count, metavar="N", help="updates in all (default: 2000)")
    parser.add_argument("--seed", type=count_from_0, metavar="N", help="of all chance (default: 0)")
    parser.add_argument("--out", type=filled, default=OUT, metavar="FILE", help=f"the checkpoint (default: {OUT})")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument(
        "--prompt", type=filled, metavar="TEXT", help="train nothing: write on after this, with the model in --out"
    )
    parser.add_argument(
        "--length", type=count_from_0, default=LENGTH, metavar="N", help=f"characters to write (default: {LENGTH})"
    )
    parser.add_argument(
        "--temperature", type=degree, default=TEMPERATURE, metavar="X", help=f"0: the likeliest (default: {TEMPERATURE})"
    )
    sizes = parser.add_argument_group("sizes of the model and of a batch")
    for name, default in SIZES.items():
        sizes.add_argument(flag(name), type=count, metavar="N", help=f"default: {default}")
    options = parser.parse_args(arguments)
    if options.prompt is not None and options.resume:
        parser.error("--prompt trains nothing, so there is nothing to --resume")
    settled = (*SIZES, "seed") if options.resume else (*SIZES, "text", "steps") if options.prompt is not None else ()
    for name in settled:
        if getattr(options, name) is not None:
            parser.error(f"{flag(name)} was settled when the run in --out began")
    if options.seed is None:
        options.seed = 0
    return options


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def count(text: str) -> int:
    return count_from_0(text, low=1)


def count_from_0(text: str, low: int = 0) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}") from None
    if not low <= number < 2**31:
        raise argparse.ArgumentTypeError(f"must be in {low} … {2**31 - 1}, got {number}")
    return number


def degree(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return number


def filled(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def python_topics() -> tuple[str, str]:
    topics = pydoc_data.topics.topics
    return "\n\n".join(topics[key] for key in sorted(topics)), "Python's documentation topics"


def begun(options: argparse.Namespace, train: np.ndarray, held_out: np.ndarray, tokenizer: CharacterTokenizer) -> Trainer:
    """A new run; a checkpoint that `--out` holds already is kept beside it."""
    sizes = {name: default if getattr(options, name) is None else getattr(options, name) for name, default in SIZES.items()}
    batch_size = sizes.pop("batch_size")
    needed = sizes["max_len"] + 1
    if min(len(train), len(held_out)) < needed:
        raise ValueError(
            f"the text has {len(train) + len(held_out):,} characters, {len(train):,} to learn, {len(held_out):,} held out; "
            f"a context of {sizes['max_len']} needs at least {needed} of each: a longer text, or a smaller --max-len"
        )
    if sizes["d_model"] % sizes["n_heads"]:
        raise ValueError(f"--n-heads {sizes['n_heads']} does not divide --d-model {sizes['d_model']}")
    n_layers, d_model, max_len = (sizes[name] for name in ("n_layers", "d_model", "max_len"))
    n_weights = d_model * (n_layers * (12 * d_model + 2) + 1 + max_len + tokenizer.vocab_size)
    n_in_batch = batch_size * max_len * n_layers * d_model
    if max(n_weights, n_in_batch) > LARGEST:
        raise ValueError(
            f"the sizes make {n_weights:,} parameters, and {n_in_batch:,} numbers a batch between the layers; "
            f"at most {LARGEST:,} of either can be trained here"
        )
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, bias=False, **sizes), seed=options.seed)
    n_steps = TrainingConfig.n_steps if options.steps is None else options.steps
    config = TrainingConfig(n_steps=n_steps, batch_size=batch_size, n_warmup=min(100, n_steps // 10), seed=options.seed)
    if os.path.lexists(options.out):
        keep_previous(options.out)
    trainer = Trainer(model, train, config, tokenizer)
    trainer.save(options.out)  # what cannot be written is better known now
    return trainer


def keep_previous(out: str) -> None:
    root, extension = os.path.splitext(out)
    previous = f"{root}.previous{extension}"
    for path in (previous, out) if os.path.lexists(previous) else (out,):
        try:
            held = read_archive(path)
        except ValueError as error:
            raise ValueError(f"{error}; it is left alone, name another --out") from None
    for path in (out, previous):  # out as well, to see that it can be written before an older run is given up
        write_archive(path, *held)
    print(f"note        {out} held a run already, which is now {previous}")


def resumed(options: argparse.Namespace, train: np.ndarray, tokenizer: CharacterTokenizer) -> Trainer:
    trainer = Trainer.resume(options.out, train, tokenizer, options.steps)
    options.seed = trainer.config.seed
    finished = ", all done: --steps N goes on to more" if trainer.n_done == trainer.config.n_steps else ""
    print(f"resumed     {options.out} after step {trainer.n_done} of {trainer.config.n_steps}{finished}")
    return trainer


class ExactLoss:
    """The model's loss as gradcheck wants a layer."""

    def __init__(self, model: GPT) -> None:
        self.forward, self.parameters = model.loss, model.parameters


def gradients_are_right(model: GPT, ids: np.ndarray) -> bool:
    """Every parameter's gradient of the very model that is to be trained, its weights in float64, against complex step."""
    started = time.monotonic()
    exact = GPT(model.config, dtype=np.float64)
    for mine, given in zip(exact.parameters().values(), model.parameters().values(), strict=True):
        mine.value[...] = given.value
    n_tokens = min(CHECKED_TOKENS, model.config.max_len)
    if sum(parameter.value.size for parameter in exact.parameters().values()) > CHECKED_QUICKLY:
        print("note        to check the gradients of so many parameters takes its time")
    print("gradients   ", end="", flush=True)
    report = gradcheck.check_layer(ExactLoss(exact), ids[None, :n_tokens], ids[None, 1 : n_tokens + 1])
    print(
        f"{report.verdict}: {len(exact.parameters())} parameter arrays with {report.n_entries:,} entries, "
        f"{report.n_evaluations} forward evaluations, {time.monotonic() - started:.1f} s",
        flush=True,
    )
    if report.verdict == "fail":
        print(report)
    elif report.verdict == "inconclusive":
        print(f"note        {report.findings[0]}")
    return report.verdict != "fail"


def train_on(trainer: Trainer, options: argparse.Namespace) -> bool:
    """Whether it came to the end; otherwise Ctrl-C was answered with how to go on."""
    tokens_a_step = trainer.config.batch_size * trainer.model.config.max_len
    n_before = trainer.n_done
    progress = Progress(trainer.config.n_steps, tokens_a_step, n_before)
    started = time.monotonic()
    try:
        finished = trainer.run(options.out, report=progress)
    except NotFiniteError as error:
        raise NotFiniteError(f"{error}; the last good checkpoint is in {options.out}") from error
    finally:
        progress.close()
    if finished:
        print(f"trained     {trainer.n_done - n_before} steps in {clock(time.monotonic() - started)}")
        return True
    defaults = {"text": None, "encoding": ENCODING, "length": LENGTH, "temperature": TEMPERATURE}
    given = {name: str(getattr(options, name)) for name, default in defaults.items() if getattr(options, name) != default}
    print(f"stopped     after step {trainer.n_done} of {trainer.config.n_steps}, which {options.out} holds")
    print(f"to go on    {command(options.out, '--resume', **given)}")
    return False


def print_results(model: GPT, train: np.ndarray, held_out: np.ndarray, tokenizer: CharacterTokenizer) -> None:
    print(f"held out    {held_out_loss(model, held_out):.3f} nats a character, over all windows of the text held out")
    longest = min(LONGEST_GRAM, len(held_out))
    counted = [n_gram_loss(train, held_out, tokenizer.vocab_size, n) for n in range(1, longest + 1)]
    print(f"counting    {', '.join(f'{loss:.3f}' for loss in counted)} with 1- to {longest}-grams")


def write_on(options: argparse.Namespace) -> int:
    model, tokenizer = load(options.out)
    if tokenizer is None:
        raise ValueError(f"{options.out} was saved without its characters")
    strange = sorted(set(options.prompt) - set(tokenizer.characters))
    if strange:
        raise ValueError(f"the text that the model has learnt lacks {', '.join(map(readable, strange))} of --prompt")
    write(model, tokenizer, options.prompt, options)
    return 0


def write(model: GPT, tokenizer: CharacterTokenizer, prompt: str, options: argparse.Namespace) -> None:
    """The prompt and what follows, each character as soon as it is drawn."""
    ids = tokenizer.encode(prompt)
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        steps = stream(model, ids, options.length, temperature=options.temperature, seed=options.seed)
    for notice in notices:
        print(f"note        {notice.message}", file=sys.stderr)
    print(prompt, end="", flush=True)
    for step in steps:
        print(tokenizer.decode(step), end="", flush=True)
    print()


def command(out: str, *flags: str, **options: str) -> str:
    """This demo once more, as one types it."""
    python = sys.executable or "python"
    if shutil.which("python") == python:
        python = "python"
    elif python.startswith(os.path.join(os.getcwd(), "")):
        python = os.path.relpath(python)
    if out != OUT:
        options = {"out": out, **options}
    words = [python, "-m", "demos", TITLE, *flags]
    for name, value in options.items():
        words += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
    if os.name == "nt":
        return " ".join(word if re.fullmatch(r"[\w.:\\/=-]+", word) else f'"{word}"' for word in words)
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
