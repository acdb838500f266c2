"""Text files, read strictly: what is not text in the encoding named is refused, with the byte and its place.

Skipping or replacing the bytes that do not fit would train a model on garbage without a word.
"""

import codecs
import errno
import os
from typing import Any

import numpy as np

from npformer.arguments import check_path, shown

MARKS = {  # the longer ones first: that of utf-32 in little-endian begins with that of utf-16
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
# Python counts them among the encodings of text, but no file is kept in them.
NOT_FOR_FILES = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7"}


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    r"""The text of a file, without a byte-order mark and with every line end, \r\n or \r, as \n.

    ValueError, with the path and the offset in bytes: a byte that `encoding` does not allow, or a character cut off at the
    end; the mark of UTF-16 or UTF-32 where UTF-8 is expected; a NUL, which no text has and most binary files have. Also for
    an empty file, and for an encoding that Python does not know or that is none of text, as base64. A file that cannot be
    read is the OSError that says why; a directory is IsADirectoryError on every system.
    """
    check_path("read_text", path)
    path = os.fspath(path)
    codec = codec_name(encoding)
    if os.path.isdir(path):  # Windows would say that permission is denied
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    with open(path, "rb") as file:
        data = file.read()
    if codec == "utf-8":
        for other, marks in MARKS.items():
            if data.startswith(marks):
                raise ValueError(f"{path} begins with the mark of {other}, not of utf-8; name it: --encoding {other}")
    nul = find_nul(data, codec)
    if nul is not None:
        raise ValueError(f"{path} looks like a binary file: it has a NUL at offset {nul}")
    try:
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        other = "gb18030" if codec == "utf-8" else "utf-8"
        raise ValueError(
            f"{path} is not {codec}: byte 0x{data[error.start]:02x} at offset {error.start} ({error.reason}); "
            f"if it is another encoding, name it: --encoding {other}"
        ) from None
    text = text.removeprefix("\ufeff")
    if not text:
        raise ValueError(f"{path} is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def codec_name(encoding: Any) -> str:
    """Python's own name of an encoding; utf-8 for utf-8-sig, since the mark is taken off in any case."""
    if not isinstance(encoding, str):
        raise TypeError(f"read_text: encoding must be a str, got {type(encoding).__name__}")
    try:
        "".encode(encoding)  # refuses base64, rot13 and other codecs that are not of text
        name = codecs.lookup(encoding).name.removesuffix("-sig")
    except (LookupError, ValueError):
        name = ""
    if not name or name.replace("_", "-") in NOT_FOR_FILES:
        raise ValueError(f"read_text: encoding must be the name of a text encoding, as utf-8, got {shown(encoding)}")
    return name


def find_nul(data: bytes, codec: str) -> int | None:
    """The offset of the first NUL: a zero byte, or two or four of them where that is the unit."""
    unit = {"utf-16": 2, "utf-32": 4}.get(codec[:6], 1)
    zeros = np.flatnonzero(np.frombuffer(data, f"u{unit}", len(data) // unit) == 0)
    return int(zeros[0]) * unit if zeros.size else None
