"""What npformer says of itself, as tables, and of a model, as pictures.

python -m npformer check      every operation and layer is tried on random cases: the verdicts
python -m npformer mutants    every backward is got wrong in every small way: what nothing finds
python -m npformer inspect    what a model attends to, in the terminal and on a page
"""

import sys
from argparse import ArgumentParser
from collections.abc import Collection, Sequence
from typing import Any

from npformer.command_line import Parser, run_command

MOST_SEEDS = 1_000_000
SHOWN_FAULTS = 3  # of each operation


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    title = " ".join(["npformer", *words[:1]])
    done = "" if words[:1] == ["inspect"] else "; what stands above was checked"
    return run_command(title, lambda: run(words), f"interrupted{done}")


def run(words: Sequence[str]) -> int:
    """The command line obeyed; the exit status."""
    parser = Parser(prog="python -m npformer", description="A Transformer in NumPy alone.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    check = add_command(
        commands,
        "check",
        "check every operation and layer: values by plain loops, gradients by gradcheck, float32 by float64",
        n_seeds=20,
    )
    mutants = add_command(
        commands, "mutants", "get every backward wrong in every small way, and print what no check finds", n_seeds=60
    )
    inspect = commands.add_parser(
        "inspect", allow_abbrev=False, help="what a model attends to, in the terminal and on a page"
    )
    if "inspect" in words:  # the others need not wait for what it imports
        from npformer.inspection import command

        command.add_options(inspect)
    options = parser.parse_args(words)
    if options.command == "inspect":
        return command.run(inspect, options)
    from npformer.oracle.self_check import CATALOGUE

    names = options.operations
    if options.command == "check":
        refuse_wrong_options(check, options, CATALOGUE)
        return print_checks(names or list(CATALOGUE), options.seeds)
    refuse_wrong_options(mutants, options, CATALOGUE)
    tables = [name for name in names if not CATALOGUE[name].differentiable]
    if tables:
        mutants.error(f"{tables[0]} has no backward that could be got wrong")
    return print_mutants(names or [name for name in CATALOGUE if CATALOGUE[name].differentiable], options.seeds)


def add_command(commands: Any, name: str, does: str, n_seeds: int) -> ArgumentParser:
    command: ArgumentParser = commands.add_parser(name, allow_abbrev=False, help=does)
    command.add_argument("operations", nargs="*", metavar="NAME", help="only these (default: all)")
    command.add_argument(
        "--seeds", type=int, default=n_seeds, metavar="N", help=f"random cases of each (default: {n_seeds})"
    )
    return command


def refuse_wrong_options(command: ArgumentParser, options: Any, known: Collection[str]) -> None:
    unknown = [name for name in options.operations if name not in known]
    if unknown:
        command.error(f"no operation or layer is called {unknown[0]!r}; there are {', '.join(known)}")
    if options.seeds < 1:
        command.error(f"--seeds must be at least 1, got {options.seeds}")
    if options.seeds > MOST_SEEDS:
        command.error(f"--seeds must be at most {MOST_SEEDS}, got {options.seeds}")


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
    print(f"\n{of_all(names, n_seeds)}: {'FAULTS FOUND' if faults else 'all right'}")
    for fault in faults:
        print(f"\n{fault}")
    return 1 if faults else 0


def print_mutants(names: Sequence[str], n_cases: int) -> int:
    """Print a line an operation, then the mutants that survived and what is wrong with the list; the exit status."""
    from npformer.oracle.mutation import survey_all

    print(f"{'operation':<20}{'mutants':>8}{'killed':>8}{'equivalent':>12}{'survivors':>11}{'seconds':>9}")
    faults: list[str] = []
    for survey in survey_all(names, n_cases):
        counts = f"{survey.n_mutants:>8}{survey.n_killed:>8}{survey.n_equivalent:>12}{len(survey.survivors):>11}"
        print(f"{survey.name:<20}{counts}{survey.seconds:>9.1f}", flush=True)
        faults += [f"{survey.name} survives: {mutant}" for mutant in survey.survivors]
        faults += [f"{survey.name} {fault}" for fault in survey.stale]
    print(f"\n{of_all(names, n_cases)}: {'FAULTS FOUND' if faults else 'every mutant is killed or equivalent'}")
    for fault in faults:
        print(f"\n{fault}")
    return 1 if faults else 0


def of_all(names: Sequence[str], n_cases: int) -> str:
    return f"{len(names)} {'operation' if len(names) == 1 else 'operations'}, {n_cases} random cases of each"


if __name__ == "__main__":
    sys.exit(main())
