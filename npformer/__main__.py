"""python -m npformer check: every operation is tried on random cases, and the verdicts are printed."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

MOST_SEEDS = 1_000_000
SHOWN_FAULTS = 3  # of each operation


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.splitlines())}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a console that lacks a character shows a question mark
    try:
        try:
            return run(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where what goes wrong can still be answered
    except KeyboardInterrupt:
        print("\nnpformer check: interrupted; what stands above was checked", file=sys.stderr)
        return 130
    except OSError as error:
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        if error.errno in (errno.EPIPE, errno.EINVAL):  # whoever was reading has seen enough; Windows says EINVAL
            return 1
        print(f"npformer check: {error}", file=sys.stderr)
        return 2


def run(arguments: Sequence[str] | None) -> int:
    """The command line obeyed; the exit status."""
    parser = Parser(prog="python -m npformer", description="A Transformer in NumPy alone.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check",
        allow_abbrev=False,
        help="check every operation: values against plain loops, gradients by gradcheck, float32 against float64",
    )
    check.add_argument("operations", nargs="*", metavar="OPERATION", help="only these (default: all)")
    check.add_argument("--seeds", type=int, default=50, metavar="N", help="random cases of each (default: 50)")
    options = parser.parse_args(arguments)
    from npformer.catalogue import OPERATIONS

    unknown = [name for name in options.operations if name not in OPERATIONS]
    if unknown:
        check.error(f"no operation is called {unknown[0]!r}; there are {', '.join(OPERATIONS)}")
    if options.seeds < 1:
        check.error(f"--seeds must be at least 1, got {options.seeds}")
    if options.seeds > MOST_SEEDS:
        check.error(f"--seeds must be at most {MOST_SEEDS}, got {options.seeds}")
    return print_checks(options.operations or list(OPERATIONS), options.seeds)


def print_checks(names: Sequence[str], n_seeds: int) -> int:
    """Print a line an operation and then the faults; the exit status."""
    from npformer.oracle.self_check import check_all

    print(f"{'operation':<20}{'shapes tried':>13}{'worst error/bar':>17}  {'verdict':<21}{'seconds':>7}")
    faults: list[str] = []
    for outcome in check_all(names, n_seeds):
        worst = f"{outcome.worst:.2g}"
        row = f"{outcome.name:<20}{len(outcome.shapes):>13}{worst:>17}  {outcome.verdict:<21}{outcome.seconds:>7.1f}"
        print(row, flush=True)
        faults += outcome.faults[:SHOWN_FAULTS]
    what = "operation" if len(names) == 1 else "operations"
    print(f"\n{len(names)} {what}, {n_seeds} random cases of each: {'FAULTS FOUND' if faults else 'all right'}")
    for fault in faults:
        print(f"\n{fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
