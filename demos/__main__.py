"""python -m demos: the demos, a line each; python -m demos NAME runs one."""

import importlib
import sys
from collections.abc import Sequence

try:
    from npformer.command_line import run_command
except ModuleNotFoundError as error:
    print(f"demos: {error.name} is missing; README.md says how to install it, and which python to run", file=sys.stderr)
    sys.exit(2)

DEMOS = ("char_lm", "minimal", "by_hand", "exercises", "cities", "positions", "cache")


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in DEMOS:
        demo = importlib.import_module(f"demos.{given[0]}")
        return run_command(given[0], lambda: demo.main(given[1:]), "interrupted")
    return run_command("demos", lambda: list_demos(given), "interrupted")


def list_demos(given: list[str]) -> int:
    if given and given not in (["-h"], ["--help"]):
        raise ValueError(f"there is no demo {' '.join(given)!r}; there are {', '.join(DEMOS)}")
    print("python -m demos NAME runs one of these; NAME --help lists its options.\n")
    for name in DEMOS:
        first_line = (importlib.import_module(f"demos.{name}").__doc__ or "").partition("\n")[0]
        print(f"  {name:<12}{first_line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
