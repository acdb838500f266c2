"""The command: a list of the exercises, a file for one, a grade for that file.

0 listed, written or solved        1 not yet solved        2 bad usage, in one line        130 interrupted
"""

import argparse
import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Sequence
from contextlib import suppress
from textwrap import shorten

import demos.exercises
from demos.exercises.grading import NotYetError, grade, shown
from demos.exercises.writing import EXERCISES, source_of, written_out
from npformer.command_line import Parser, run_command

TITLE = "exercises"
FOLDER = "exercises"
RECORD = ".solved.json"  # in the folder: by exercise, the digest of the file that was right


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(TITLE, lambda: run(arguments), "interrupted")


def run(arguments: Sequence[str] | None) -> int:
    options = parse(arguments)
    if options.name is None:
        print_list(options.folder)
        return 0
    name = options.name
    if name not in EXERCISES:
        raise ValueError(f"there is no exercise {name!r}; there are {', '.join(EXERCISES)}")
    path = os.path.join(options.folder, f"{name}.py")
    if not os.path.lexists(path):
        write_new(path, written_out(name))
        print(f"{name}: {shown(path)} is written. It holds the forward; the backward is yours to write.")
        print(f"  Once it is, or half of it, grade it: {command(name, options.folder)}")
        return 0
    with open(path, "rb") as file:
        source = file.read()
    try:
        print(f"{name}: {grade(name, path, source)}")
    except NotYetError as error:
        print(f"{name}: {error}")
        return 1
    with suppress(OSError):  # it is solved all the same
        remember(options.folder, name, source)
    unsolved = [each for each in EXERCISES if each not in solved(options.folder)]
    if unsolved:
        print(f"  Next: {command(unsolved[0], options.folder)}")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    summary = (demos.exercises.__doc__ or "").partition("\n")[0]
    parser = Parser(prog=f"python -m demos {TITLE}", description=summary, allow_abbrev=False)
    parser.add_argument("name", nargs="?", help="the exercise to write out, or to grade (default: list them all)")
    parser.add_argument(
        "--folder", type=filled, default=FOLDER, metavar="DIR", help=f"where your files are (default: {FOLDER})"
    )
    return parser.parse_args(arguments)


def filled(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def print_list(folder: str) -> None:
    done = solved(folder)
    print(f"{command('NAME', folder)} writes an operation without its backward, and grades what you make of it.\n")
    for name in EXERCISES:
        begun = os.path.lexists(os.path.join(folder, f"{name}.py"))
        mark = "solved" if name in done else "begun" if begun else ""
        first_line = source_of(name).read_text(encoding="utf-8").partition("\n")[0].lstrip('"')
        print(f"  {mark:<8}{name:<19}{shorten(first_line, 70, placeholder=' …')}")
    print(f"\n{len(done)} of {len(EXERCISES)} solved in {shown(folder)}; the first is the easiest.")


def command(name: str, folder: str) -> str:
    return f"python -m demos {TITLE} {name}" + (f" --folder {shlex.quote(folder)}" if folder != FOLDER else "")


def write_new(path: str, text: str) -> None:
    """Write a file that is not there yet, whole or not at all. OSError where something has taken its place meanwhile."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(path, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def solved(folder: str) -> set[str]:
    """The exercises whose files are, to the byte, those that were once right."""
    found, digests = set(), record(folder)
    for name in EXERCISES:
        with suppress(OSError), open(os.path.join(folder, f"{name}.py"), "rb") as file:
            if digest_of(file.read()) == digests.get(name):
                found.add(name)
    return found


def record(folder: str) -> dict[str, str]:
    try:
        with open(os.path.join(folder, RECORD), encoding="utf-8") as file:
            held = json.load(file)
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def remember(folder: str, name: str, source: bytes) -> None:
    text = json.dumps(record(folder) | {name: digest_of(source)}, indent=1, sort_keys=True)
    temporary = os.path.join(folder, f".npformer-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(temporary, os.path.join(folder, RECORD))
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def digest_of(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()
