"""The archive: what is read is exactly what was written, or an error says why not; and a file is never half there."""

import builtins
import errno
import io
import json
import os
import pickle
import stat
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer import archive, whole_file
from npformer.archive import read_archive, write_archive
from permissions import needs_permissions

HEADER = {
    "format": 1,
    "characters": "\n a中\u0301👍\ud83d\ude00",
    "config": {"eps": 1e-5, "names": ["α", None, True]},
    "state": 2**127 + 1,
}
ARRAYS = {
    "layers.0.weight": np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32),
    "half": np.array([1.5, -0.0, np.inf, np.nan], np.float16),
    "step": np.array(7),
}


def assert_same(one, other):
    assert one[0] == other[0]
    assert list(one[1]) == list(other[1])
    for name, array in other[1].items():
        assert one[1][name].dtype == array.dtype
        assert one[1][name].shape == array.shape
        assert one[1][name].tobytes() == array.tobytes()


def members(arrays):
    """An archive of these members, each given as an array or as the bytes themselves."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, array in arrays:
            zipped.writestr(f"{name}.npy", array if isinstance(array, bytes) else npy(array))
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def npy_header(text):
    return b"\x93NUMPY\x01\0" + (len(text) + 1).to_bytes(2, "little") + text.encode() + b"\n"


def text_array(text):
    return np.frombuffer(text.encode(), np.uint8)


GOOD = ("header", text_array("{}"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.npz"


@pytest.fixture
def old(path):
    """A file that is there already; only a whole new one may take its place."""
    write_archive(path, HEADER, ARRAYS)
    return path


def assert_old(path):
    assert os.listdir(path.parent) == [path.name]
    assert_same(read_archive(path), (HEADER, ARRAYS))


not_on_windows = pytest.mark.skipif(os.name == "nt", reason="no modes there, links need a privilege, paths are short")

# What is written is read.

numbers = st.sampled_from([*"?bBhHiIlLqQefdFDg", ">i4", "<u2", ">f8", "<c8"])


@given(
    dtypes=st.lists(numbers, max_size=3),
    shape=st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=4),
    layout=st.sampled_from(["C", "F", "reversed", "read-only"]),
    seed=st.integers(0, 2**32),
)
def test_arrays_come_back_to_the_bit(tmp_path_factory, dtypes, shape, layout, seed):
    path = tmp_path_factory.mktemp("archive") / "model.npz"
    rng = np.random.default_rng(seed)
    arrays = {}
    for i, dtype in enumerate(dtypes):
        array = np.asarray(100 * rng.standard_normal(shape)).astype(np.int8).astype(dtype)
        if layout == "F":
            array = np.asfortranarray(array)
        elif layout == "reversed":
            array = array[(..., *(slice(None, None, -1) for _ in shape))]
        array.flags.writeable = layout != "read-only"
        arrays[f"array {i}"] = array
    write_archive(path, {}, arrays)
    _, read = read_archive(path)
    assert_same(({}, read), ({}, arrays))
    assert all(array.flags.writeable and array.flags.owndata for array in read.values())


def test_the_header_comes_back(old):
    assert_same(read_archive(str(old)), (HEADER, ARRAYS))


def test_the_header_comes_back_as_json_has_it(path):
    write_archive(path, {"pair": (1, 2), 3: "three"}, {})
    assert read_archive(path) == ({"pair": [1, 2], "3": "three"}, {})


def test_numpy_alone_can_read_it(path):
    write_archive(path, {"name": "中"}, ARRAYS)
    with np.load(path) as loaded:
        assert json.loads(loaded["header"].tobytes().decode()) == {"name": "中"}
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(loaded[name], array)


def test_no_name_of_an_array_is_special(path):
    arrays = {
        name: np.array(i)
        for i, name in enumerate(("file", "a.npy", ".npy", "", "a/b", "arr_0", "allow_pickle", "../x", "a b"))
    }
    write_archive(path, {}, arrays)
    assert_same(read_archive(path), ({}, arrays))


@pytest.mark.parametrize(
    "name", ["model", "model.npz", "model.npz.tmp", "模型.npz", pytest.param("m" * 255, marks=not_on_windows)]
)
@pytest.mark.parametrize("convert", [str, lambda path: path])
def test_it_is_written_to_exactly_this_path(tmp_path, name, convert):
    write_archive(convert(tmp_path / name), HEADER, ARRAYS)
    assert_old(tmp_path / name)


def test_a_relative_path_is_one_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_archive("model.npz", HEADER, ARRAYS)
    assert_old(tmp_path / "model.npz")


def test_the_same_content_makes_the_same_file(tmp_path):
    write_archive(tmp_path / "one", HEADER, ARRAYS)
    write_archive(tmp_path / "two", HEADER, ARRAYS)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with zipfile.ZipFile(tmp_path / "one") as zipped:
        assert {info.date_time for info in zipped.infolist()} == {(1980, 1, 1, 0, 0, 0)}  # on any day


def test_nothing_stays_open(old):
    """Windows would refuse both."""
    read_archive(old)
    write_archive(old, {}, {})
    old.rename(old.with_name("other"))


# A file that cannot be written leaves the old one.


class FullDisk:
    """A file on a disk with room for `room` bytes more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    @classmethod
    def with_room(cls, room):
        return lambda *arguments: cls(builtins.open(*arguments), room)

    def write(self, data):
        self.room -= memoryview(data).nbytes
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_disk_that_is_full_at_any_byte_leaves_the_old_file(old, monkeypatch):
    size = old.stat().st_size
    for room in [*range(0, size, 37), size - 1]:
        with monkeypatch.context() as patch:
            patch.setattr(whole_file, "open", FullDisk.with_room(room), raising=False)
            with pytest.raises(OSError) as error:
                write_archive(old, HEADER, ARRAYS)
        assert error.value.errno == errno.ENOSPC
        assert error.value.filename == str(old)
        assert_old(old)


def test_a_disk_with_just_enough_room_is_enough(old, monkeypatch):
    """So the one above fails for want of room and of nothing else."""
    room = 2 * old.stat().st_size  # zipfile goes back and writes the sizes again
    monkeypatch.setattr(whole_file, "open", FullDisk.with_room(room), raising=False)
    write_archive(old, HEADER, ARRAYS)
    monkeypatch.undo()
    assert_old(old)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit, OSError("?"), PermissionError(13, "denied")])
@pytest.mark.parametrize("place", ["os.fsync", "os.replace", "numpy.lib.format.write_array"])
def test_an_interruption_leaves_the_old_file(old, monkeypatch, error, place):
    def interrupted(*_, **__):
        raise error

    monkeypatch.setattr(place, interrupted)
    with pytest.raises(error if isinstance(error, type) else type(error)):
        write_archive(old, {}, {"other": np.zeros(3)})
    monkeypatch.undo()
    assert_old(old)


def test_an_interruption_between_two_arrays_leaves_the_old_file(old, monkeypatch):
    write_array, calls = np.lib.format.write_array, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        write_array(*arguments, **options)

    monkeypatch.setattr("numpy.lib.format.write_array", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_archive(old, HEADER, ARRAYS)
    monkeypatch.undo()
    assert_old(old)


def test_a_folder_that_cannot_be_synchronised_is_no_error(path, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("os.open", refused)  # as on Windows
    write_archive(path, HEADER, ARRAYS)
    assert_old(path)


def test_a_missing_folder_is_named_by_the_path_that_was_given(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        write_archive(tmp_path / "missing" / "model.npz", HEADER, ARRAYS)
    assert error.value.filename == str(tmp_path / "missing" / "model.npz")


def test_a_directory_is_not_replaced(tmp_path):
    with pytest.raises(IsADirectoryError) as error:
        write_archive(tmp_path, {}, {})
    assert error.value.filename == str(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a file that is none")
def test_what_is_no_regular_file_is_not_replaced(path):
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"model\.npz"):
        write_archive(path, {}, {})
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(path.parent) == ["model.npz"]


@needs_permissions
def test_a_folder_that_may_not_be_written_to_is_an_error(old):
    old.parent.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match=r"model\.npz"):
            write_archive(old, {}, {})
        assert_old(old)
    finally:
        old.parent.chmod(0o700)


@needs_permissions
def test_a_file_that_may_not_be_written_to_is_not_replaced(old):
    old.chmod(0o400)
    with pytest.raises(PermissionError, match=r"model\.npz"):
        write_archive(old, {}, {})
    assert_old(old)


@not_on_windows
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_permissions_of_any_new_file(path, mask):
    before = os.umask(mask)
    try:
        write_archive(path, {}, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@not_on_windows
def test_an_old_file_keeps_its_permissions(old):
    old.chmod(0o640)
    write_archive(old, {}, {})
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


@not_on_windows
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path, exists):
    folder = tmp_path / "folder"
    folder.mkdir()
    if exists:
        (folder / "target.npz").write_bytes(b"old")
    (tmp_path / "link.npz").symlink_to("folder/target.npz")
    write_archive(tmp_path / "link.npz", HEADER, ARRAYS)
    assert (tmp_path / "link.npz").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["folder", "link.npz"]
    assert_old(folder / "target.npz")


# What cannot be written is refused before anything is.

CIRCLE = {}
CIRCLE["itself"] = CIRCLE
DEEP = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("header", "arrays", "error", "sentence"),
    [
        ([], {}, TypeError, "header must be a mapping, got list"),
        ({"x": np.zeros(3)}, {}, TypeError, "header must hold what JSON can hold: "),
        ({(1, 2): 3}, {}, TypeError, "header must hold what JSON can hold: "),
        ({"x": float("nan")}, {}, ValueError, "header must hold what JSON can hold: "),
        (CIRCLE, {}, ValueError, "header must hold what JSON can hold: "),
        ({"deep": DEEP}, {}, ValueError, "header must hold what JSON can hold: "),
        ({}, [np.zeros(3)], TypeError, "arrays must be a mapping, got list"),
        ({}, {0: np.zeros(3)}, TypeError, "the names of arrays must be str, got int"),
        ({}, {"header": np.zeros(3)}, ValueError, "the names of arrays must be "),
        ({}, {"a\0b": np.zeros(3)}, ValueError, "the names of arrays must be "),
        ({}, {"a\\b": np.zeros(3)}, ValueError, "the names of arrays must be "),
        ({}, {"ä": np.zeros(3)}, ValueError, "the names of arrays must be "),
        ({}, {"\ud800": np.zeros(3)}, ValueError, "the names of arrays must be "),
        ({}, {"w": [1.0]}, TypeError, "arrays['w'] must be a NumPy array, got list"),
        ({}, {"w": np.float64(1)}, TypeError, "arrays['w'] must be a NumPy array, got a single float64"),
        ({}, {"w": np.ma.array([1.0])}, TypeError, "arrays['w'] must be a NumPy array, got MaskedArray"),
        ({}, {"w": np.array([None])}, TypeError, "arrays['w'] must hold numbers or booleans, got object"),
        ({}, {"w": np.zeros(2, [("a", "f4"), ("b", "O")])}, TypeError, "arrays['w'] must hold numbers or booleans, got [("),
        ({}, {"w": np.array(["a"])}, TypeError, "arrays['w'] must hold numbers or booleans, got <U1"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_written(old, header, arrays, error, sentence):
    with pytest.raises(error) as caught:
        write_archive(old, header, {"first": np.zeros(3), **arrays} if isinstance(arrays, dict) else arrays)
    assert str(caught.value).startswith(f"write_archive: {sentence}")
    assert_old(old)


@pytest.mark.parametrize("path", [3, None, b"model.npz"])
def test_a_path_of_another_type_is_refused(path):
    with pytest.raises(TypeError, match=r"^write_archive: path must be a str or a path"):
        write_archive(path, {}, {})
    with pytest.raises(TypeError, match=r"^read_archive: path must be a str or a path"):
        read_archive(path)


# What is not such a file, or no longer.


def outcome(data):
    """What reading the bytes says, without the path; None where they are read as HEADER and ARRAYS."""
    path = "model.npz"
    try:
        with pytest.MonkeyPatch.context() as patch:  # a thousand files would take their time
            patch.setattr(archive, "open", lambda *_: io.BytesIO(data), raising=False)
            read = read_archive(path)
    except ValueError as error:
        message = str(error)
        assert message.startswith((f"{path} is not an npformer checkpoint: ", f"{path} is damaged: "))
        assert "\n" not in message
        return message.removeprefix(f"{path} is ")
    assert_same(read, (HEADER, ARRAYS))
    return None


def deflated():
    file = io.BytesIO()
    np.savez_compressed(file, header=np.zeros(10**7, np.uint8))
    return file.getvalue()


def with_sizes(data, size):
    """The size of the last member replaced in the directory of the archive."""
    place = data.rindex(b"PK\x01\x02") + 20
    return data[:place] + 2 * size.to_bytes(4, "little") + data[place + 8 :]


def plain_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("word/document.xml", "<xml/>")
    return file.getvalue()


def foreign_files():
    with_shape = "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}".format
    return [
        ("empty", b"", "it is empty"),
        ("text", b"To be, or not to be", "it does not begin as"),
        ("pickle", pickle.dumps({"w": 1}), "it does not begin as"),
        (".npy", npy(np.zeros(3)), "it does not begin as"),
        ("a zip without members", members([]), "it does not begin as"),
        ("a document", plain_zip(), "its member 'word/document.xml' is no array"),
        ("a name in another alphabet", members([GOOD, ("ä", np.zeros(3))]), "its member 'ä.npy' is no array"),
        ("another .npz", members([("w", np.zeros(3))]), "it has no header"),
        ("compressed", deflated(), "'header' is compressed"),
        ("a header of numbers", members([("header", np.zeros(3))]), "its header is not text"),
        ("a header of two axes", members([("header", np.zeros((2, 2), np.uint8))]), "its header is not text"),
        ("a header of bytes", members([("header", np.array([255, 0], np.uint8))]), "its header is not JSON"),
        ("a header that is empty", members([("header", text_array(""))]), "its header is not JSON"),
        ("a header without an end", members([("header", text_array('{"a": 1'))]), "its header is not JSON"),
        ("a header too deep", members([("header", text_array("[" * 100_000))]), "its header is not JSON"),
        ("a header with a long number", members([("header", text_array("[" + "9" * 10_000 + "]"))]), "its header is not"),
        (
            "a header with a key twice",
            members([("header", text_array('{"a": 1, "a": 2}'))]),
            "its header is not JSON: a key is",
        ),
        ("a header that is a list", members([("header", text_array("[1]"))]), "its header is not a mapping"),
        ("a member twice", members([GOOD, ("w", np.zeros(3)), ("w", np.ones(3))]), "'w' is there twice"),
        ("objects", members([GOOD, ("w", np.array([None, 1]))]), "'w' is not an array of numbers or booleans"),
        ("texts", members([GOOD, ("w", np.array(["a"]))]), "'w' is not an array of numbers or booleans"),
        ("records", members([GOOD, ("w", np.zeros(2, "f4,f4"))]), "'w' is not an array of numbers or booleans"),
        ("no array", members([GOOD, ("w", b"12345")]), "'w' is not an array of numbers or booleans"),
        (
            "an array cut short",
            members([GOOD, ("w", npy(np.zeros(3))[:-1])]),
            "'w' of the shape (3,) and float64 does not fill",
        ),
        (
            "a terabyte",
            members([GOOD, ("w", npy_header(with_shape("<f8", (10**12,))))]),
            "'w' of the shape (1000000000000,)",
        ),
        ("nothing, hugely", members([GOOD, ("w", npy_header(with_shape("<f8", (0, 10**30))))]), ""),
        ("an unknown type", members([GOOD, ("w", npy_header(with_shape("<f3", (0,))))]), ""),
        ("a wrong shape", members([GOOD, ("w", npy_header(with_shape("<f8", "(1 2)")))]), ""),
        ("a shape of long numbers", members([GOOD, ("w", npy_header(with_shape("<f8", f"({'9' * 9999},)")))]), ""),
        (
            "a member larger than the file",
            with_sizes(members([GOOD, ("w", np.zeros(3))]), 2**31),
            "'w' is compressed, or larger",
        ),
    ]


with pytest.warns(UserWarning, match="Duplicate name"):  # zipfile's, while it writes one of them
    FOREIGN = foreign_files()


@pytest.mark.parametrize(("data", "sentence"), [file[1:] for file in FOREIGN], ids=[file[0] for file in FOREIGN])
def test_another_file_is_refused_in_one_sentence(path, data, sentence):
    message = outcome(data)
    path.write_bytes(data)
    with pytest.raises(ValueError) as error:
        read_archive(path)
    assert str(error.value) == f"{path} is {message}"
    assert sentence in message
    assert not sentence or message.startswith("not an npformer checkpoint: ")


@pytest.mark.parametrize("descr", [f"{order}{kind}{size}" for order in "<>|=" for kind in "biufc" for size in range(33)])
def test_any_type_of_number_in_a_file_is_read_or_refused_without_a_warning(path, descr):
    data = npy_header(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (0, 3), }}")
    path.write_bytes(members([GOOD, ("w", data)]))
    try:
        (array,) = read_archive(path)[1].values()
    except ValueError:
        return
    assert array.shape == (0, 3)
    assert array.dtype.kind in "biufc"


def test_every_single_flipped_bit_is_noticed_or_changes_nothing(old):
    """Those that change nothing lie in dates and attributes and the like, which nobody reads."""
    data = old.read_bytes()
    assert outcome(data) is None
    harmless = 0
    for i in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[i // 8] ^= 1 << i % 8
        harmless += outcome(bytes(flipped)) is None
    assert harmless < 2 * len(data)  # less than one in four, in a file that is mostly names


def test_every_file_cut_short_is_noticed(old):
    data = old.read_bytes()
    assert all(outcome(data[:length]) is not None for length in range(len(data)))


def test_bytes_flipped_or_cut_at_random_are_noticed_or_change_nothing(old):
    rng = np.random.default_rng(0)
    data = np.frombuffer(old.read_bytes(), np.uint8)
    for _ in range(3000):
        broken = data.copy()
        for place in rng.integers(len(data), size=rng.integers(1, 5)):
            broken[place] = rng.integers(256)
        start, stop = np.sort(rng.integers(len(data), size=2))
        if rng.random() < 0.3:
            broken = np.delete(broken, slice(start, stop))
        elif rng.random() < 0.3:
            broken = np.insert(broken, start, broken[start:stop])
        outcome(broken.tobytes())


def test_a_missing_file_is_the_error_of_the_system(path):
    with pytest.raises(FileNotFoundError, match=r"model\.npz"):
        read_archive(path)


def test_a_directory_is_the_error_of_the_system(tmp_path):
    with pytest.raises(OSError):
        read_archive(tmp_path)
