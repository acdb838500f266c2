"""python -m npformer check: every operation and layer is tried on random cases, and the verdicts are printed."""

import sys
from collections.abc import Sequence

from npformer.command_line import Parser, run_command

MOST_SEEDS = 1_000_000
SHOWN_FAULTS = 3  # of each operation


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command("npformer check", lambda: run(arguments), "interrupted; what stands above was checked")


def run(arguments: Sequence[str] | None) -> int:
    """The command line obeyed; the exit status."""
    parser = Parser(prog="python -m npformer", description="A Transformer in NumPy alone.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check",
        allow_abbrev=False,
        help="check every operation and layer: values by plain loops, gradients by gradcheck, float32 by float64",
    )
    check.add_argument("operations", nargs="*", metavar="NAME", help="only these (default: all)")
    check.add_argument("--seeds", type=int, default=20, metavar="N", help="random cases of each (default: 20)")
    options = parser.parse_args(arguments)
    from npformer.oracle.self_check import CATALOGUE

    unknown = [name for name in options.operations if name not in CATALOGUE]
    if unknown:
        check.error(f"no operation or layer is called {unknown[0]!r}; there are {', '.join(CATALOGUE)}")
    if options.seeds < 1:
        check.error(f"--seeds must be at least 1, got {options.seeds}")
    if options.seeds > MOST_SEEDS:
        check.error(f"--seeds must be at most {MOST_SEEDS}, got {options.seeds}")
    return print_checks(options.operations or list(CATALOGUE), options.seeds)


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
