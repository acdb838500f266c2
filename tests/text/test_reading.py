"""Reading text: right or refused, with the file, the byte and its place."""

import codecs
import encodings.aliases
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.text import read_text
from npformer.text.reading import NOT_FOR_FILES


@pytest.fixture
def written(tmp_path):
    def write(data):
        path = tmp_path / "text.txt"
        path.write_bytes(data)
        return path

    return write


def refusal(path, *options):
    with pytest.raises(ValueError) as error:
        read_text(path, *options)
    message = str(error.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf-8-sig", "gb18030", "utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_what_was_written_is_read(written, encoding):
    text = "天地玄黃\nhello, 世界 😀\n"
    path = written(text.encode(encoding))
    assert read_text(path, encoding) == text
    assert read_text(str(path), encoding) == text


def test_encodings_with_states_are_read(written):
    text = "日本語 and ASCII\n"
    for encoding in ("shift_jis", "euc_jp", "iso2022_jp"):
        assert read_text(written(text.encode(encoding)), encoding) == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be", "gb18030"])
def test_the_mark_at_the_beginning_is_taken_off_and_no_other(written, encoding):
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    marked = ("" if name == "utf-16" else "\ufeff") + "a\ufeffb"
    assert read_text(written(marked.encode(name)), encoding) == "a\ufeffb"


def test_every_line_end_becomes_a_line_feed(written):
    assert read_text(written(b"a\r\nb\rc\nd\r\r\ne\n\r")) == "a\nb\nc\nd\n\ne\n\n"
    assert read_text(written("a\r\nb\rc".encode("utf-16")), "utf-16") == "a\nb\nc"
    assert read_text(written("a\u2028b\x0cc\x85".encode())) == "a\u2028b\x0cc\x85"  # no line ends of a text file


@pytest.mark.parametrize(
    ("data", "encoding", "byte", "offset", "other"),
    [
        ("abc 中文".encode("gb18030"), "utf-8", 0xD6, 4, "gb18030"),
        (b"ab\xff", "utf-8", 0xFF, 2, "gb18030"),
        (b"\xef\xbb\xbfab\xff", "utf-8", 0xFF, 5, "gb18030"),
        (b"\xef\xbb\xbfab\xff", "utf-8-sig", 0xFF, 5, "gb18030"),
        ("abc中".encode()[:-1], "utf-8", 0xE4, 3, "gb18030"),
        (b"ab\xed\xa0\x80", "utf-8", 0xED, 2, "gb18030"),
        ("ab中".encode("gb18030")[:-1], "gb18030", 0xD6, 2, "utf-8"),
        ("ab語".encode("shift_jis")[:-1], "shift_jis", 0x8C, 2, "utf-8"),
        ("abc".encode("utf-16-le")[:-1], "utf-16-le", 0x63, 4, "utf-8"),
        ("a".encode("utf-16-le") + b"\0\xd8", "utf-16-le", 0x00, 2, "utf-8"),
        ("añ".encode(), "ascii", 0xC3, 1, "utf-8"),
        (b"ab\x81", "cp1252", 0x81, 2, "utf-8"),
    ],
)
def test_a_bad_byte_is_named_with_its_offset_and_what_to_do(written, data, encoding, byte, offset, other):
    message = refusal(written(data), encoding)
    name = codecs.lookup(encoding).name.removesuffix("-sig")
    assert message.startswith(f" is not {name}: byte 0x{byte:02x} at offset {offset} (")
    assert message.endswith(f"; if it is another encoding, name it: --encoding {other}")


@given(
    before=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    bad=st.sampled_from([b"\xff", b"\xc0", b"\x80", b"\xe4\xb8"]),
    after=st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=20),
)
def test_the_offset_is_that_of_the_first_bad_byte(tmp_path_factory, before, bad, after):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    start = ("-" + before).encode()
    path.write_bytes(start + bad + after.encode())
    assert f"0x{bad[0]:02x} at offset {len(start)} " in refusal(path)


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
    ],
)
def test_the_mark_of_another_unicode_encoding_is_named(written, mark, name):
    message = refusal(written(mark + "text".encode("utf-16-le")))
    assert message == f" begins with the mark of {name}, not of utf-8; name it: --encoding {name}"


@pytest.mark.parametrize("data", [b"", codecs.BOM_UTF8])
def test_an_empty_file_is_refused(written, data):
    assert refusal(written(data)) == " is empty"


def test_a_mark_alone_is_an_empty_file_in_other_encodings_too(written):
    assert refusal(written(codecs.BOM_UTF16_BE), "utf-16") == " is empty"
    assert refusal(written("\ufeff".encode("gb18030")), "gb18030") == " is empty"


@pytest.mark.parametrize(
    ("data", "encoding", "offset"),
    [
        (b"ab\0c", "utf-8", 2),
        (b"\xef\xbb\xbfab\0c", "utf-8", 5),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "utf-8", 8),  # not sent to look for an encoding
        (b"ab\0", "latin-1", 2),
        (b"ab\0", "gb18030", 2),
        (codecs.BOM_UTF16_BE + "Ābā\0".encode("utf-16-be"), "utf-16", 8),  # Ā begins with a zero byte, ā after it
        ("ab😀\0".encode("utf-32-le"), "utf-32-le", 12),
    ],
)
def test_a_nul_is_taken_for_a_binary_file(written, data, encoding, offset):
    assert refusal(written(data), encoding) == f" looks like a binary file: it has a NUL at offset {offset}"


@pytest.mark.parametrize(
    "encoding",
    ["base64", "rot13", "hex", "zip", "idna", "punycode", "unicode_escape", "utf-7", "undefined", "nope", "", "a\0"],
)
def test_what_is_no_encoding_of_text_files_is_refused(written, encoding):
    with pytest.raises(ValueError) as error:
        read_text(written(b"text"), encoding)
    assert str(error.value) == f"read_text: encoding must be the name of a text encoding, as utf-8, got {encoding!r}"


def test_every_encoding_of_python_reads_or_refuses_any_bytes(written):
    rng = np.random.default_rng(0)
    files = [rng.integers(1, 256, n, np.uint8).tobytes() for n in (1, 2, 3, 5, 20, 101)]
    names = {name for name in encodings.aliases.aliases.values() if name not in ("mbcs", "oem")}  # those are Windows' own
    outcomes = set()
    for name in sorted(names):
        for data in files:
            path = written(data)
            try:
                outcomes.add(type(read_text(path, name)))
            except ValueError as error:
                outcomes.add(ValueError)
                assert str(error).startswith((str(path), "read_text: encoding")), name
    assert outcomes == {str, ValueError}
    assert len(names) > 90


def test_the_encodings_not_for_files_are_called_so_by_python():
    assert {codecs.lookup(name).name.replace("_", "-") for name in NOT_FOR_FILES} == NOT_FOR_FILES


def test_a_missing_file_is_the_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        read_text(tmp_path / "missing.txt")


def test_a_directory_is_one_on_every_system(tmp_path):
    with pytest.raises(IsADirectoryError) as error:
        read_text(tmp_path)
    assert error.value.filename == str(tmp_path)


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_the_error_of_the_system(written):
    path = written(b"text")
    path.chmod(0)
    with pytest.raises(PermissionError, match=r"text\.txt"):
        read_text(path)


@pytest.mark.parametrize(("arguments", "name"), [((3,), "path"), ((b"text.txt",), "path"), (("text.txt", None), "encoding")])
def test_an_argument_of_another_type_is_refused_by_name(arguments, name):
    with pytest.raises(TypeError, match=f"^read_text: {name} must be a str"):
        read_text(*arguments)
