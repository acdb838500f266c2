"""What every command of ours does alike: plain sentences for errors, the exit status, any terminal.

0 done        1 done, and something was found wrong        2 bad usage or input, in one line        130 interrupted
"""

import argparse
import errno
import os
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line on the error stream, and exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.splitlines())}\n")


def run_command(title: str, command: Callable[[], int], interrupted: str) -> int:
    """The exit status of `command`. Bad input ends it with one line, and so does Ctrl-C."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a console that lacks a character shows a question mark
    try:
        try:
            return command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where what goes wrong can still be answered
    except KeyboardInterrupt:
        print(f"\n{title}: {interrupted}", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is None:
            if sys.stdout is not None:
                with suppress(OSError):  # a stream that is no file has nothing to flush
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
            if error.errno in (errno.EPIPE, errno.EINVAL):  # whoever was reading has seen enough; Windows says EINVAL
                return 1
        print(f"{title}: {sentence(error)}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"{title}: not enough memory", file=sys.stderr)
        return 2
    except (ValueError, ArithmeticError) as error:
        print(f"{title}: {sentence(error)}", file=sys.stderr)
        return 2


def announce_page(path: str, *, open_it: bool) -> None:
    """Say where a page is, as a path and as an address, and open it in the browser if that is wanted."""
    address = Path(path).resolve().as_uri()
    print(f"page        {path}\n            {address}")
    if open_it and not webbrowser.open(address):
        print("note        no browser was found that could open it", file=sys.stderr)


def sentence(error: Exception) -> str:
    """What an exception says, on one line; of a file, its name and what is wrong with it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename or repr('')}: {error.strerror}"
    return " ".join(str(error).split())
