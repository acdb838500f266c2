"""Attention, or any operation, by hand: every gradient beside the number that gradcheck finds."""

import argparse
import sys
from collections.abc import Sequence

from demos.by_hand import one_head, one_operation
from demos.by_hand.experiments import scaling, word_order
from demos.by_hand.terminal import goes_on, plain_where_needed, printable
from npformer.command_line import Parser, run_command

TITLE = "by_hand"


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(TITLE, lambda: run(arguments), "interrupted")


def run(arguments: Sequence[str] | None) -> int:
    options = parse(arguments)
    plain_where_needed()
    if options.op is None:
        words = printable(one_head.WORDS)
        steps, right = one_head.walk(words)
        steps += [scaling(), word_order(words)]
    else:
        steps, right = one_operation.walk(options.op)
    for i, step in enumerate(steps):
        if i and options.step and not goes_on():
            break
        print(f"{step}\n")
    return 0 if right else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog=f"python -m demos {TITLE}", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--op", metavar="NAME", help="an operation of npformer.functional, on a small case (default: one head of attention)"
    )
    parser.add_argument("--step", action="store_true", help="wait after every step: Enter goes on, q ends")
    options = parser.parse_args(arguments)
    if options.step and (sys.stdin is None or not sys.stdin.isatty()):
        parser.error("--step waits for a key, and the standard input is not a terminal; leave --step out")
    return options
