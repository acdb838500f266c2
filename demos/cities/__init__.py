"""A small encoder–decoder learns where to go in spring, and is damaged in five ways that its attention tells apart.

npformer began with such a model: told 我喜欢北京的春天和上海的秋天, it mixed up 北京 and 上海, and only a picture of its
attention weights showed why.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from demos.by_hand.tables import prose
from demos.by_hand.terminal import plain_where_needed, printable
from demos.cities.damages import DAMAGES, damaged
from demos.cities.dialogues import STORY, Dialogue, dialogues
from demos.cities.looking import N_TEXTS, asked_of, judged, most_changed, read
from demos.cities.training import BATCH_SIZE, CONFIG, N_WARMUP, PEAK, answers, train
from demos.numbers import count, count_from_0
from demos.pages import training_charts
from demos.progress import Progress, clock
from npformer import EncoderDecoder
from npformer.command_line import Parser, announce_page, run_command
from npformer.inspection import Finding, Opened, Recording, WhoAttends, compare, write_page
from npformer.inspection.diagnosis import summary
from npformer.memory import keep_freed_memory
from npformer.training import Step
from npformer.whole_file import check_writable

TITLE = "cities"
PAGE = "cities.html"
N_STEPS, N_HELD_OUT, N_SHOWN = 1200, 1000, 2
STRIKING = ("uniform", "changed")  # besides faults
MEANING = {"北京": "Beijing", "上海": "Shanghai", "北": "Bei"}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(TITLE, lambda: run(arguments), "interrupted")


def run(arguments: Sequence[str] | None) -> int:
    options = parse(arguments)
    check_writable(options.page)
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
    steps = learn(model, options.steps, options.seed)
    print("held out    dialogues about a city and a season that never met in training")
    print("damages     are done to the trained model, which then answers as it is")
    print("attention   of cross-attention where the city is due, after the right beginning of the answer; layers and heads")
    print("            are counted from 0, and the last column is with that head's output zeroed")
    print(f"seen        is what stands out in attention, over {N_TEXTS} texts; changes are those of the story")
    if options.steps < N_STEPS:
        print(f"caution     the task takes about {N_STEPS} steps; of a model that has not learnt it the rest says little")
    good = read(model, STORY, "trained")
    share = report("trained", "nothing is wrong with it", model, good, judged(model, good, held_out), held_out)
    first = asked_of(good, STORY)
    busiest = first.rows[0].layer, first.rows[0].head
    row = STORY.answer_places[0]
    seen = Opened(good.with_gradients(STORY.answer[0]), "cross", *busiest, row)
    parts: list[Any] = [introduction(share), first, seen]
    for damage in DAMAGES:
        bad_model = damaged(model, damage, busiest)
        bad = read(bad_model, STORY, damage.name)
        findings = judged(bad_model, bad, held_out, good)
        share = report(damage.name, damage.sentence, bad_model, bad, findings, held_out)
        parts += [
            f"# {damage.name.capitalize()}\n\nThe damage: {damage.sentence}. Asked {STORY.question} it says: "
            f"{answers(bad_model, [STORY])[0] or '(nothing)'} Of those held out it answers {share:.1%} right.",
            replace(asked_of(bad, STORY), note=""),
            findings,
            Opened(compare(good, bad), "cross", *most_changed(good, bad, row), row),
        ]
    print()
    parts += training_charts({"training": steps})
    announce_page(write_page(options.page, "The story of the two cities", parts), open_it=options.open)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog=f"python -m demos {TITLE}", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--steps", type=count, default=N_STEPS, metavar="N", help=f"of training (default: {N_STEPS})")
    parser.add_argument("--seed", type=count_from_0, default=0, metavar="N", help="for everything random (default: 0)")
    parser.add_argument("--page", default=PAGE, metavar="FILE", help=f"the page to write (default: {PAGE})")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    return parser.parse_args(arguments)


def learn(model: EncoderDecoder, n_steps: int, seed: int) -> list[Step]:
    """The steps that were taken."""
    tokens_a_step = BATCH_SIZE * (len(STORY.source) + len(STORY.target) + 1)
    progress = Progress(n_steps, tokens_a_step)
    started = time.monotonic()
    try:
        rng = np.random.default_rng([seed, 0])
        train(model, n_steps, rng, peak=PEAK, n_warmup=min(N_WARMUP, n_steps // 10), report=progress)
    finally:
        progress.close()
    print(f"trained     {n_steps} steps in {clock(time.monotonic() - started)}")
    return progress.steps


def report(
    name: str,
    sentence: str,
    model: EncoderDecoder,
    seen: Recording,
    findings: Sequence[Finding],
    held_out: Sequence[Dialogue],
) -> float:
    """How many it gets right, some that it does not, what each head looks at while it says the city of the story, and what
    is striking in its attention. Returned is the share of right answers."""
    said = answers(model, held_out)
    wrong = [(dialogue, answer) for dialogue, answer in zip(held_out, said, strict=True) if answer != dialogue.target]
    share = 1 - len(wrong) / len(held_out)
    print(f"\n{name:<15}{sentence}")
    print(f"  right     {share:.1%} of {len(held_out):,} held out")
    for dialogue, answer in wrong[:N_SHOWN]:
        print(f"  wrong     {dialogue.source} {answer or '(nothing)'} (right: {dialogue.target})")
    print(f"  story     {answers(model, [STORY])[0] or '(nothing)'}")
    for line in str(in_this_console(replace(asked_of(seen, STORY), note=""))).splitlines():  # the note is on the page
        print(f"  {line}")
    for finding, text in summary(findings):
        if finding.label in STRIKING or finding.is_fault:
            print("  seen      " + prose(text, " " * 12).lstrip())
    return share


def in_this_console(answer: WhoAttends) -> WhoAttends:
    """The cities by their other names, where the console lacks theirs."""
    shown = dict(zip(MEANING, printable(MEANING), strict=True))
    return replace(answer, **{name: shown[getattr(answer, name)] for name in ("query", "key", "against")})


def introduction(share: float) -> str:
    return (
        f"Asked: {STORY.source} Right: {STORY.target}\n\n"
        f"A small encoder–decoder was trained on such dialogues, and answers {share:.1%} of those right whose city and "
        "season never met in training. Below is what each head of its cross-attention looks at while it says "
        f"{STORY.answer}, and then the same of the model damaged in five ways, each beside the model as it was.\n\n"
        "Whatever a model itself would say, here it is shown the right answer up to a character, and the row of that "
        f"character is what it looks at then: P({STORY.answer[0]}) is how likely it goes on with {STORY.answer[0]}, and "
        "without a head is with that head's output zeroed. Where several heads do the same work, the answer outlives each."
    )
