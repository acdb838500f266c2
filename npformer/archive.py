"""One file for a header and named arrays: an .npz archive, without pickle, that is whole or not there.

NumPy alone can read it, by np.load. The first member, "header", is JSON in UTF-8 as an array of bytes. The members are not
compressed, so that none can claim a size that the file does not have, and the archive keeps a checksum of each.

A pickle could run whatever its author liked; nothing here is one.
"""

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np

from npformer.arguments import check_path, is_array, kind
from npformer.operation import Array
from npformer.whole_file import write_whole

Path: TypeAlias = str | os.PathLike[str]

KINDS = "biufc"  # booleans and numbers
START = b"PK\x03\x04"
NPY = re.compile(
    rb"\x93NUMPY\x01\0[\0-\xff]{2}"
    rb"\{'descr': ?'([<>|=]?[biufc]\d+)', ?'fortran_order': ?(True|False), ?'shape': ?\(([\d, ]*)\),? ?\} *\n"
)


def write_archive(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write `header` and `arrays` to exactly `path`, which until the last moment keeps what it held.

    The header is anything that JSON can hold, without NaN and infinities, and comes back as JSON has it: tuples as lists,
    keys as strings. The arrays are booleans and numbers, of any shape and byte order; their names are printable ASCII
    without a backslash, and not "header". TypeError or ValueError before anything is written.

    The file is whole or not there, as by `write_whole`.
    """
    check_path("write_archive", path)
    members = {"header": header_array(header), **checked(arrays)}
    write_whole(path, lambda file: write_members(file, members))


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays of a file that `write_archive` wrote; nothing stays open.

    ValueError, in one sentence with the path, for any other file and for one that is damaged, be it by one bit. A file that
    cannot be read is an OSError.
    """
    check_path("read_archive", path)
    foreign = f"{os.fspath(path)} is not an npformer checkpoint"
    with open(path, "rb") as file:
        start = file.read(len(START))
        if start != START:
            raise ValueError(f"{foreign}: it {'does not begin as an .npz archive does' if start else 'is empty'}")
        data = start + file.read()
    try:
        arrays = {name: as_array(name, member) for name, member in read_members(data)}
        return as_header(arrays.pop("header", None)), arrays
    except ForeignError as error:
        raise ValueError(f"{foreign}: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # zipfile meets broken bytes with a dozen kinds of them
        what = "its end is missing" if str(error) == "File is not a zip file" else " ".join(str(error).split())
        raise ValueError(f"{os.fspath(path)} is damaged: {what or type(error).__name__}") from error


class ForeignError(Exception):
    """Not what is written here, though it may be whole."""


def header_array(header: Any) -> Array:
    if not isinstance(header, Mapping):
        raise TypeError(f"write_archive: header must be a mapping, got {type(header).__name__}")
    try:
        text = json.dumps(dict(header), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        sort = TypeError if isinstance(error, TypeError) else ValueError
        raise sort(f"write_archive: header must hold what JSON can hold: {error}") from error
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def checked(arrays: Any) -> dict[str, Array]:
    if not isinstance(arrays, Mapping):
        raise TypeError(f"write_archive: arrays must be a mapping, got {type(arrays).__name__}")
    for name, array in arrays.items():
        if not isinstance(name, str):
            raise TypeError(f"write_archive: the names of arrays must be str, got {type(name).__name__}")
        if name == "header" or not is_name(name):  # zipfile alters a NUL and, on Windows, a backslash
            rule = 'printable ASCII without a backslash, and not "header"'
            raise ValueError(f"write_archive: the names of arrays must be {rule}, got {name!r}")
        if not is_array(array):
            raise TypeError(f"write_archive: arrays[{name!r}] must be a NumPy array, got {kind(array)}")
        if array.dtype.kind not in KINDS:
            raise TypeError(f"write_archive: arrays[{name!r}] must hold numbers or booleans, got {array.dtype}")
    return dict(arrays)


def is_name(name: str) -> bool:
    return name.isascii() and name.isprintable() and "\\" not in name


def write_members(file: Any, members: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in members.items():
            # ZipInfo's own date, not today's: the same arrays make the same file.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def read_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    names: set[str] = set()
    with zipfile.ZipFile(BytesIO(data)) as archive:
        infos = archive.infolist()
        if min(len(infos), 0xFFFF) != int.from_bytes(data[-12:-10], "little"):  # one wrong length can hide the rest of them
            raise ValueError("its directory does not list as many members as it should")
        for info in infos:
            name = info.filename.removesuffix(".npy")
            if name == info.filename or not is_name(name):
                raise ForeignError(f"its member {info.filename!r} is no array")
            if name in names:
                raise ForeignError(f"{name!r} is there twice")
            if info.compress_type != zipfile.ZIP_STORED or not info.file_size == info.compress_size <= len(data):
                raise ForeignError(f"{name!r} is compressed, or larger than the file")
            names.add(name)
            yield name, archive.read(info)


def as_array(name: str, member: bytes) -> Array:
    """A .npy file, if it is of the one form that is written here; its size is known before any memory is asked for."""
    start = NPY.match(member)
    if start is None:
        raise ForeignError(f"{name!r} is not an array of numbers or booleans")
    dtype = np.dtype(start[1].decode())
    shape = tuple(int(size) for size in start[3].decode().split(",") if size.strip())
    count = math.prod(shape)
    if count * dtype.itemsize != len(member) - start.end():
        raise ForeignError(f"{name!r} of the shape {shape} and {dtype} does not fill its place")
    flat = np.frombuffer(member, dtype, count, start.end())
    return np.array(flat.reshape(shape, order="F" if start[2] == b"True" else "C"))


def as_header(array: Array | None) -> dict[str, Any]:
    if array is None:
        raise ForeignError("it has no header")
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ForeignError("its header is not text")
    try:
        header = json.loads(array.tobytes().decode("utf-8", "surrogatepass"), object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise ForeignError(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ForeignError("its header is not a mapping")
    return header


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)
