"""Files that are whole or not there."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from errno import EACCES, EINVAL, EISDIR, ENOENT
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import Any, BinaryIO


def check_writable(path: str | os.PathLike[str]) -> None:
    """OSError, before anything is done, where `write_whole` would certainly fail."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    number = None
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        number = None if os.path.isdir(folder) else ENOENT
    except OSError as error:  # a name that is too long, links in a circle, a file where a folder should be
        number = error.errno
    else:
        if not S_ISREG(mode):  # renaming would put a file in the place of /dev/null
            number = EISDIR if S_ISDIR(mode) else EINVAL
        elif not os.access(target, os.W_OK):
            number = EACCES
    if number is None and not os.access(folder, os.W_OK):
        number = EACCES
    if number is not None:
        raise OSError(number, os.strerror(number), os.fspath(path))


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill the file at exactly `path`, which until the last moment keeps what it held.

    The file is written under another name in the same folder and then renamed. Whatever goes wrong before that, an
    interruption too, leaves the old file as it was and nothing beside it. A link stays, and what it points to is replaced; a
    file that may not be written to is not replaced either.
    """
    check_writable(path)
    target = os.path.realpath(path)
    name = os.fspath(path)
    mode = S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else None
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".npformer-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:  # with the permissions of any new file, which tempfile would narrow
            if mode is not None:
                with suppress(OSError):  # on a file system without modes
                    os.chmod(temporary, mode)
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None:  # the caller knows the path, not the other name
            raise OSError(error.errno, error.strerror, name) from error
        raise
    with suppress(OSError):  # that the new name outlives a power cut; Windows opens no folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
