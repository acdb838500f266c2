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
from typing import Any

import numpy as np

from demos.counting import n_gram_loss
from demos.gradients import gradients_are_right
from demos.numbers import count, count_from_0
from demos.pages import training_charts
from demos.progress import Progress, clock
from npformer import GPT, GPTConfig, load
from npformer.archive import read_archive, write_archive
from npformer.command_line import Parser, announce_page, run_command
from npformer.generation import stream
from npformer.inspection import LineChart, record, write_page
from npformer.inspection.page import GENERATOR
from npformer.text import CharacterTokenizer, read_text
from npformer.text.characters import readable
from npformer.training import NotFiniteError, Step, Trainer, TrainingConfig, held_out_loss
from npformer.whole_file import check_writable

TITLE = "char_lm"
OUT = "char_lm.npz"
SIZES = {"n_layers": 4, "n_heads": 4, "d_model": 128, "max_len": 64, "batch_size": 12}
LARGEST = 10**9
HELD_OUT = 10  # the last of so many parts
ENCODING, LENGTH, TEMPERATURE = "utf-8", 400, 0.8
PROMPT_LENGTH = 32
LONGEST_GRAM = 5
START = 1000  # bytes of a page, in which it says where it comes from


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(TITLE, lambda: run(arguments), "interrupted; the checkpoint written last is whole")


def run(arguments: Sequence[str] | None) -> int:
    options = parse(arguments)
    if (options.resume or options.prompt is not None) and not os.path.exists(options.out):
        raise ValueError(f"there is no checkpoint {options.out}; a run without --resume and --prompt writes one")
    if options.prompt is not None:
        return write_on(options)
    text, name = (read_text(options.text, options.encoding), options.text) if options.text else python_topics()
    check_places(options)
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    n_train = len(ids) - len(ids) // HELD_OUT
    train, held_out = ids[:n_train], ids[n_train:]
    print(f"text        {name}: {len(ids):,} characters, {tokenizer.vocab_size} of them distinct, the last tenth held out")
    trainer = resumed(options, train, tokenizer) if options.resume else begun(options, train, held_out, tokenizer)
    model, config = trainer.model, trainer.model.config
    n_parameters = config.n_parameters
    print(
        f"model       {config.n_layers} layers, {config.n_heads} heads, d_model {config.d_model}, "
        f"context {config.max_len}: {n_parameters:,} parameters"
    )
    if not gradients_are_right(model, train):
        return 1
    if not options.resume:
        keep_previous(options.out)
    steps = train_on(trainer, options)
    if steps is None:
        return 130
    loss = print_results(model, train, held_out, tokenizer)
    prompt = text[n_train : n_train + min(PROMPT_LENGTH, config.max_len)]
    print(f"sample      how it goes on after {prompt!r}, where the text held out begins:\n")
    status = 0
    try:
        write(model, tokenizer, prompt, options)
    except KeyboardInterrupt:  # the model is trained and saved all the same
        status = 130
        print()
    print(f"\ncheckpoint  {options.out}, {n_parameters:,} parameters")
    charts = training_charts({"training": steps}, loss)
    page = write_attention(model, tokenizer, text[n_train : n_train + config.max_len], charts, page_of(options.out))
    announce_page(page, open_it=options.open)
    words = re.search(r"\w[\w ]{0,15}", prompt)  # which no shell takes for anything else
    print(f"to go on    {command(options.out, prompt=words[0].strip() if words else prompt[0])}")
    return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog=f"python -m demos {TITLE}", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--text", type=filled, metavar="FILE", help="learn this text (default: Python's documentation)")
    parser.add_argument(
        "--encoding", type=filled, default=ENCODING, help=f"of the text, for example gb18030 (default: {ENCODING})"
    )
    parser.add_argument("--steps", type=count, metavar="N", help="training steps in all (default: 2000)")
    parser.add_argument("--seed", type=count_from_0, metavar="N", help="for everything random (default: 0)")
    parser.add_argument("--out", type=filled, default=OUT, metavar="FILE", help=f"the checkpoint (default: {OUT})")
    parser.add_argument("--open", action="store_true", help="open the page of the trained model in the browser")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument(
        "--prompt", type=filled, metavar="TEXT", help="train nothing: write on after this, with the model in --out"
    )
    parser.add_argument(
        "--length", type=count_from_0, default=LENGTH, metavar="N", help=f"characters to write (default: {LENGTH})"
    )
    parser.add_argument(
        "--temperature",
        type=degree,
        default=TEMPERATURE,
        metavar="X",
        help=f"0 writes the likeliest, above 1 is wild (default: {TEMPERATURE})",
    )
    sizes = parser.add_argument_group("sizes of the model and of a batch")
    for name, default in SIZES.items():
        sizes.add_argument(flag(name), type=count, metavar="N", help=f"default: {default}")
    options = parser.parse_args(arguments)
    if options.prompt is not None and options.resume:
        parser.error("--prompt trains nothing, so there is nothing to --resume")
    for name in (*SIZES, "seed") if options.resume else SIZES if options.prompt is not None else ():
        if getattr(options, name) is not None:
            parser.error(f"{flag(name)} was settled when the run in --out began")
    for name in ("text", "steps", "open") if options.prompt is not None else ():
        if getattr(options, name):
            parser.error(f"--prompt trains nothing, so {flag(name)} has no use")
    if options.seed is None:
        options.seed = 0
    return options


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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
    """A new run. ValueError where its place is taken by another that was stopped half-way, or by what is no checkpoint."""
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
    model_config = GPTConfig(vocab_size=tokenizer.vocab_size, bias=False, **sizes)
    n_in_batch = batch_size * sizes["max_len"] * sizes["n_layers"] * sizes["d_model"]
    if max(model_config.n_parameters, n_in_batch) > LARGEST:
        raise ValueError(
            f"the sizes make {model_config.n_parameters:,} parameters, {n_in_batch:,} numbers a batch between the layers; "
            f"at most {LARGEST:,} of either can be trained here"
        )
    model = GPT(model_config, seed=options.seed)
    n_steps = TrainingConfig.n_steps if options.steps is None else options.steps
    config = TrainingConfig(n_steps=n_steps, batch_size=batch_size, n_warmup=min(100, n_steps // 10), seed=options.seed)
    trainer = Trainer(model, train, config, tokenizer)
    held = held_by(options.out)
    if held is None:
        trainer.save(options.out)  # what cannot be written is better known now
    else:
        header, arrays = held
        n_done, n_in_all = header.get("step", 0), header.get("training", {}).get("n_steps", 0)
        if 0 < n_done < n_in_all:
            raise ValueError(
                f"{options.out} holds an unfinished run, at step {n_done} of {n_in_all}: "
                "go on with --resume, or name another --out"
            )
        held_by(previous_of(options.out))
        write_archive(options.out, header, arrays)
    return trainer


def held_by(path: str) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """The checkpoint in a file, None where there is no file. ValueError for a file of another kind, which is left alone."""
    if not os.path.lexists(path):
        return None
    try:
        return read_archive(path)
    except ValueError as error:
        raise ValueError(f"{error}; it is left alone, name another --out") from None


def previous_of(out: str) -> str:
    root, extension = os.path.splitext(out)
    return f"{root}.previous{extension}"


def keep_previous(out: str) -> None:
    """Before a new run takes its place: the trained model that `out` holds goes on to live beside it."""
    held = held_by(out)
    if held is not None and held[0].get("step") != 0:
        write_archive(previous_of(out), *held)
        print(f"note        {out} held a model, which is now {previous_of(out)}")


def resumed(options: argparse.Namespace, train: np.ndarray, tokenizer: CharacterTokenizer) -> Trainer:
    try:
        trainer = Trainer.resume(options.out, train, tokenizer, options.steps)
    except ValueError as error:
        hint = "; name it with --text" if "another text" in str(error) and options.text is None else ""
        raise ValueError(f"{error}{hint}") from error
    options.seed = trainer.config.seed
    finished = ", all done: --steps N goes on to more" if trainer.n_done == trainer.config.n_steps else ""
    print(f"resumed     {options.out} after step {trainer.n_done} of {trainer.config.n_steps}{finished}")
    return trainer


def train_on(trainer: Trainer, options: argparse.Namespace) -> list[Step] | None:
    """The steps that were taken; None where Ctrl-C came, which was answered with how to go on."""
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
        return progress.steps
    defaults = {"text": None, "encoding": ENCODING, "length": LENGTH, "temperature": TEMPERATURE}
    given = {name: str(getattr(options, name)) for name, default in defaults.items() if getattr(options, name) != default}
    print(f"stopped     after step {trainer.n_done} of {trainer.config.n_steps}, which {options.out} holds")
    print(f"to go on    {command(options.out, '--resume', **given)}")
    return None


def print_results(model: GPT, train: np.ndarray, held_out: np.ndarray, tokenizer: CharacterTokenizer) -> float:
    """The loss on the text held out."""
    loss, blind = held_out_loss(model, held_out), math.log(tokenizer.vocab_size)
    print(f"held out    {loss:.3f} nats a character over the text held out (less is better; blind guessing: {blind:.3f})")
    longest = min(LONGEST_GRAM, len(held_out))
    counted = [n_gram_loss(train, held_out, tokenizer.vocab_size, n) for n in range(1, longest + 1)]
    print(f"counting    {', '.join(f'{loss:.3f}' for loss in counted)} by tables of 1- to {longest}-grams")
    return loss


def check_places(options: argparse.Namespace) -> None:
    """Nothing is begun where checkpoint or page cannot be written, or where the page would replace what is needed."""
    page = page_of(options.out)
    for path in (options.out, page):
        check_writable(path)
    for path in filter(None, (options.out, options.text)):
        if os.path.realpath(page) == os.path.realpath(path):
            raise ValueError(f"the page beside --out {options.out} would be written over {path}: name another --out")
    if os.path.exists(page):
        with open(page, "rb") as file:
            if GENERATOR.encode() not in file.read(START):
                raise ValueError(f"{page}, where the page goes, is none of npformer's; it is left alone, name another --out")


def page_of(out: str) -> str:
    return f"{os.path.splitext(out)[0]}.html"


def write_attention(model: GPT, tokenizer: CharacterTokenizer, text: str, charts: Sequence[LineChart], page: str) -> str:
    """The page: how the training went, and what each head attends to in a text that the model has not learnt from."""
    with record(model, tokenizer, title="What each head attends to") as recording:
        model(tokenizer.encode(text)[None])
    shown = text.replace(" ", "␣").replace("\n", "⏎ ")  # which a page would fold
    sentence = f"The text, where the part held out begins: {shown} A row is named by the character that comes next there."
    return write_page(page, "A small GPT", [*charts, sentence, recording])


def write_on(options: argparse.Namespace) -> int:
    model, tokenizer = load(options.out)
    if not isinstance(model, GPT):
        raise ValueError(f"{options.out} holds the model {model.kind!r}, which does not write on")
    if tokenizer is None:
        raise ValueError(f"{options.out} was saved without its characters")
    strange = sorted(set(options.prompt) - set(tokenizer.characters))
    if strange:
        raise ValueError(f"the text that the model has learnt lacks {', '.join(map(readable, strange))} of --prompt")
    print(options.prompt, end="", flush=True)
    write(model, tokenizer, options.prompt, options)
    return 0


def write(model: GPT, tokenizer: CharacterTokenizer, prompt: str, options: argparse.Namespace) -> None:
    """What follows after the prompt, each character as soon as it is drawn."""
    ids = tokenizer.encode(prompt)
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        steps = stream(model, ids, options.length, temperature=options.temperature, seed=options.seed)
    for notice in notices:
        print(f"note        {notice.message}", file=sys.stderr)
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
    if os.name == "nt":  # PowerShell runs what is quoted only after an &
        line = " ".join(word if re.fullmatch(r"[\w.:\\/=-]+", word) else f'"{word}"' for word in words)
        return f"& {line}" if line.startswith('"') else line
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
