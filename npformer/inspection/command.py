"""python -m npformer inspect: what a checkpoint's model attends to in a text, or the weights in a file of arrays."""

import os
import zipfile
from argparse import ArgumentParser, Namespace
from typing import Any

import numpy as np

from npformer.command_line import announce_page
from npformer.inspection.arrays import inspect_arrays
from npformer.inspection.inspection import Inspection
from npformer.inspection.page import write_page
from npformer.inspection.recording import Recording, record
from npformer.inspection.terminal import show
from npformer.models import EncoderDecoder
from npformer.operation import Array
from npformer.text import CharacterTokenizer
from npformer.training import load
from npformer.whole_file import check_writable

PAGE = "attention.html"
ARRAYS = ("weights", "query_tokens", "key_tokens", "kind", "keep", "gradient", "named_by", "title")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", metavar="CHECKPOINT", help="a model, as model.save or a demo wrote it")
    parser.add_argument("--text", metavar="TEXT", help="what it reads; an encoder–decoder's target")
    parser.add_argument("--source", metavar="TEXT", help="an encoder–decoder's source")
    parser.add_argument(
        "--arrays", metavar="FILE.npz", help=f"instead: arrays by the names of inspect_arrays: {', '.join(ARRAYS)}"
    )
    parser.add_argument(
        "--who", nargs="+", metavar="WORD", help="who attends, while the first is said, to the second (and to the third)"
    )
    parser.add_argument("--page", default=PAGE, metavar="FILE", help=f"the page to write (default: {PAGE})")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON as well")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(parser: ArgumentParser, options: Namespace) -> int:
    if (options.checkpoint is None) == (options.arrays is None):
        parser.error("give a CHECKPOINT with --text, or --arrays FILE.npz")
    if options.checkpoint is not None and options.text is None:
        parser.error("give the --text that the model shall read")
    if options.who is not None and len(options.who) not in (2, 3):
        parser.error("--who takes two words or three: who attends, while the first is said, to the second")
    for name in ("text", "source") if options.arrays is not None else ():
        if getattr(options, name) is not None:
            parser.error(f"--arrays come with their own tokens, so --{name} has no use")
    check_places(parser, options)
    if options.arrays is not None:
        inspection: Inspection = read_arrays(options.arrays)
    else:
        inspection = read(options.checkpoint, options.text, options.source)
    parts: list[Any] = [inspection]
    if options.who:
        query, key, *against = options.who
        answer = inspection.who_attends(query, key, against=against[0] if against else None)
        if isinstance(inspection, Recording) and answer.probability is not None:
            parts = [inspection.with_gradients(query)]
        parts.insert(0, answer)
    page = write_page(options.page, inspection.title, parts)  # before anything is shown: the reader of a pipe may go
    if options.json is not None:
        inspection.to_json(options.json)
    inspection.show()
    print()
    if options.who:
        show(answer)
        print()
    announce_page(page, open_it=options.open)
    return 0


def check_places(parser: ArgumentParser, options: Namespace) -> None:
    """Nothing is begun where a file cannot be written, or would be written over one that is needed."""
    taken = {os.path.realpath(options.arrays if options.checkpoint is None else options.checkpoint): "what is read"}
    for name in ("page", "json"):
        path = getattr(options, name)
        if path is None:
            continue
        check_writable(path)
        place = os.path.realpath(path)
        if place in taken:
            parser.error(f"--{name} {path} is {taken[place]}: name another file")
        taken[place] = f"the --{name}"


def read(path: str, text: str, source: str | None) -> Recording:
    """The model of a checkpoint reads the text. ValueError where it cannot."""
    model, tokenizer = load(path)
    if (source is not None) != isinstance(model, EncoderDecoder):
        needs = "needs a --source as well" if source is None else "reads no --source"
        raise ValueError(f"{path} holds the model {model.kind!r}, which {needs}")
    given = [(name, each) for name, each in (("--source", source), ("--text", text)) if each is not None]
    inputs = [encoded(name, each, tokenizer, model.config.max_len) for name, each in given]
    with record(model, tokenizer, title=path) as recording:
        model(*inputs)
    return recording


def encoded(name: str, text: str, tokenizer: CharacterTokenizer | None, max_len: int) -> Array:
    """(1, T) ids: of the characters, or, of a model that was saved without any, the numbers themselves."""
    if tokenizer is not None:
        try:
            ids = tokenizer.encode(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    else:
        try:
            ids = np.array([int(word) for word in text.split()], np.int64)
        except (ValueError, OverflowError):
            raise ValueError(f"the model was saved without its characters: give {name} as ids, such as '3 1 4'") from None
    if not 0 < len(ids) <= max_len:
        raise ValueError(f"{name} has {len(ids)} tokens, and the model reads from 1 to {max_len}")
    return ids[None]


def read_arrays(path: str) -> Inspection:
    """ValueError for a file that is no .npz, and for arrays that inspect_arrays does not take."""
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path} is no .npz file: write it with numpy.savez(path, weights=…, query_tokens=…)")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except MemoryError:
            raise
        except Exception as error:  # zipfile meets broken bytes with a dozen kinds of them
            raise ValueError(f"{path} cannot be read: {str(error) or type(error).__name__}") from error
    strange = [name for name in arrays if name not in ARRAYS]
    if "weights" not in arrays or strange:
        what = f"holds {strange[0]!r}" if strange else "has no array 'weights'"
        raise ValueError(f"{path} {what}; it may hold {', '.join(ARRAYS)}")
    words = {name: str(arrays[name]) for name in ("kind", "named_by", "title") if name in arrays}
    tokens = {name: arrays[name].tolist() for name in ("query_tokens", "key_tokens") if name in arrays}
    options: dict[str, Any] = {"title": path, **arrays, **tokens, **words}
    try:
        return inspect_arrays(**options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
