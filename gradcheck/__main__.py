"""python -m gradcheck: the backward of a function of one's own, checked on random arrays."""

import argparse
import ast
import errno
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

import numpy as np

from gradcheck.checker import check, check_layer, check_pair
from gradcheck.report import Report
from gradcheck.subject import Array
from gradcheck.truth import TRUTHS

PROGRAM = "python -m gradcheck"
STATUS = {"pass": 0, "fail": 1, "inconclusive": 3}
NO_VERDICT = 2
INTERRUPTED = 130
DTYPES = ("float64", "float32", "float16")
NOT_THE_USERS = {"__main__", "gradcheck", "contextlib", "importlib", "numpy"}  # where a traceback begins with them


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line on the error stream."""

    def error(self, message: str) -> NoReturn:
        self.exit(NO_VERDICT, f"{self.prog}: {' '.join(message.splitlines())}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status; `parser` says what each means."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a console that lacks a character shows a question mark
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        print(f"{parser().format_usage()}{PROGRAM} --help says more", file=sys.stderr)
        return NO_VERDICT
    try:
        options = parser().parse_args(given)
    except SystemExit as ended:  # argparse has printed the help, or what is wrong
        return printed("", int(ended.code or 0))
    try:
        report = checked(options)
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (Exception, SystemExit) as error:
        print(told(error), file=sys.stderr)
        return NO_VERDICT
    return printed(f"{report}\n", STATUS[report.verdict])


def parser() -> Parser:
    own = Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} FUNCTION [BACKWARD] --shape 3,5 [--shape 5 ...] [options]",
        description="Check the backward of a function of your own on random arrays.",
        epilog="Exit status: 0 pass; 1 fail; 3 inconclusive; 2 no verdict: wrong usage, or your code raised; 130 Ctrl-C.",
        allow_abbrev=False,
    )
    add = own.add_argument
    add(
        "function",
        metavar="FUNCTION",
        help="package.module:name or path/file.py:name, which returns (y, backward); or a layer with forward and parameters",
    )
    add("backward", metavar="BACKWARD", nargs="?", help="likewise; FUNCTION then returns y, BACKWARD(dy, *arrays) gradients")
    add(
        "--shape",
        metavar="3,5",
        action="append",
        required=True,
        type=shape,
        help="of an array of normal random numbers; once for each argument; `scalar` has no axes",
    )
    add("--option", metavar="NAME=VALUE", action="append", default=[], type=option, help="a keyword argument: eps=1e-5")
    add("--dtype", metavar="TYPE", choices=DTYPES, default=DTYPES[0], help=f"of the arrays: {', '.join(DTYPES)}")
    add("--truth", metavar="HOW", choices=TRUTHS, default=TRUTHS[0], help=f"compare with: {', '.join(TRUTHS)}")
    add("--rtol", metavar="R", type=float, help="tolerance relative to a gradient's largest entry")
    add("--seed", metavar="N", type=int, default=0, help="of the arrays and cotangents (default: 0)")
    return own


def shape(text: str) -> tuple[int, ...]:
    sizes = [] if text == "scalar" else text.split(",")
    if not all(size.strip().isdecimal() for size in sizes):
        raise argparse.ArgumentTypeError(f"a shape is whole numbers such as 3,5, or the word scalar, got {text!r}")
    return tuple(map(int, sizes))


def option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise argparse.ArgumentTypeError(f"an option is NAME=VALUE, got {text!r}")
    try:
        return name, ast.literal_eval(value.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        if value.isidentifier() and value.capitalize() not in ("True", "False", "None"):
            return name, value  # the shell takes the quotes of a text away
        raise argparse.ArgumentTypeError(f"the value of {name} must be written as in Python, got {value!r}") from None


def checked(options: argparse.Namespace) -> Report:
    """Raises ValueError or TypeError for wrong usage, and whatever the user's own code raises."""
    places = [place for place in (options.function, options.backward) if place is not None]
    subjects = [found(place) for place in places]
    is_layer = len(subjects) == 1 and all(callable(getattr(subjects[0], name, None)) for name in ("forward", "parameters"))
    for place, subject in zip(places, subjects, strict=True):
        if isinstance(subject, type) or not (is_layer or callable(subject)):
            kind = "a class" if isinstance(subject, type) else type(subject).__name__
            raise TypeError(f"{place} must be a function or a layer, got {kind}")
    entrance: Callable[..., Report] = check_layer if is_layer else check if len(subjects) == 1 else check_pair
    keywords = dict(options.option)
    if taken := keywords.keys() & named_arguments(entrance):
        raise ValueError(
            f"--option {min(taken)} is an argument of {entrance.__name__} itself: bind it with functools.partial"
        )
    if options.seed < 0:
        raise ValueError(f"--seed must be at least 0, got {options.seed}")
    inputs = arrays(options.shape, options.dtype, options.seed)
    return entrance(*subjects, *inputs, truth=options.truth, rtol=options.rtol, seed=options.seed, **keywords)


def arrays(shapes: Sequence[tuple[int, ...]], dtype: str, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(each), dtype) for each in shapes]


def named_arguments(function: Callable[..., Any]) -> set[str]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name for name, each in inspect.signature(function).parameters.items() if each.kind not in several}


def found(place: str) -> Any:
    """What stands at package.module:name or path/file.py:name."""
    module_name, _, name = place.rpartition(":")
    if not module_name or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"a function is named as package.module:function or file.py:function, got {place!r}")
    module = module_of_file(Path(module_name)) if module_name.endswith(".py") else module_of_name(module_name)
    try:
        return attrgetter(name)(module)
    except AttributeError:
        own = [
            key for key, value in vars(module).items() if str(getattr(value, "__module__", "")).startswith(module.__name__)
        ]
        raise ValueError(f"{module_name} has no {name}; it has {', '.join(own) or 'no functions'}") from None


def module_of_name(name: str) -> ModuleType:
    if name.startswith("."):
        raise ValueError(f"a module's name is absolute, got {name!r}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"there is no module {error.name}, neither in this folder nor installed") from None
        raise


def module_of_file(path: Path) -> ModuleType:
    """The module in a file, which may import its neighbours as it may when Python runs it."""
    path = path.resolve()
    name = str(path)  # no module that is imported by name can be called so
    if name not in sys.modules:
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.path.insert(0, str(path.parent))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def told(error: BaseException) -> str:
    """One line for wrong usage; for an exception out of the user's own code its traceback, from their first line on."""
    frames = error.__traceback__
    while frames is not None and top_of(frames) in NOT_THE_USERS:
        frames = frames.tb_next
    if frames is None and isinstance(error, TypeError | ValueError | MemoryError):
        notes = [f"({note})" for note in getattr(error, "__notes__", [])]
        return f"{PROGRAM}: {' '.join(' '.join([str(error), *notes]).split())}"
    if frames is None and not isinstance(error, SyntaxError):  # a fault of gradcheck's own
        frames = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def top_of(frames: TracebackType) -> str:
    return str(frames.tb_frame.f_globals.get("__name__")).partition(".")[0]


def printed(text: str, status: int) -> int:
    try:
        print(text, end="", flush=True)
    except OSError as error:
        with suppress(OSError):  # a stream that is no file has nothing to flush
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        if error.errno not in (errno.EPIPE, errno.EINVAL):  # whoever was reading has seen enough; Windows says EINVAL
            print(f"{PROGRAM}: {error.strerror}", file=sys.stderr)
            return NO_VERDICT
    return status


if __name__ == "__main__":
    sys.exit(main())
