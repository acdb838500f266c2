"""`python -m npformer inspect`, as a user types it: any model, any arrays, any console, and one line for what is wrong."""

import html
import json
import os
import pickle
import re
import subprocess
import sys
import webbrowser
import zipfile
from pathlib import Path

import numpy as np
import pytest

from npformer.__main__ import main
from npformer.inspection import command, inspect_arrays, record
from npformer.models import GPT, Encoder, EncoderConfig, EncoderDecoder, GPTConfig, TransformerConfig
from npformer.text import CharacterTokenizer

ROOT = Path(__file__).parents[2]
TOKENIZER = CharacterTokenizer("".join(sorted(set("我喜欢北京的春天和上海的秋天。天该去哪里？"))))
SOURCE, TARGET = "我喜欢北京的春天和上海的秋天。", "春天去北京。"
IDS = "3 1 4 1 5"
SIZES = {"max_len": 17, "n_heads": 3, "d_model": 12, "d_ff": 20}
N = TOKENIZER.vocab_size


def vary(model):
    """So that heads differ, as after training."""
    rng = np.random.default_rng(7)
    for parameter in model.parameters().values():
        parameter.value[...] = rng.standard_normal(parameter.value.shape) / np.sqrt(len(parameter.value))
    return model


def gpt(vocab_size=N):
    return vary(GPT(GPTConfig(vocab_size=vocab_size, n_layers=2, **SIZES)))


def encoder_decoder(vocab_size=N):
    return vary(EncoderDecoder(TransformerConfig(vocab_size=vocab_size, n_encoder_layers=2, n_decoder_layers=1, **SIZES)))


def softmax(*shape, seed=0):
    scores = np.exp(2 * np.random.default_rng(seed).standard_normal(shape))
    return scores / scores.sum(-1, keepdims=True)


P = softmax(2, 3, 4, 5)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def inspect(capsys):
    """The status, the output and the errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main(["inspect", *arguments])
        except SystemExit as ended:
            status = ended.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def refused(inspect, folder):
    """Runs the command, which must refuse: one sentence, status 2, and no file changed."""

    def run(*arguments: str) -> str:
        before = files(folder)
        status, output, error = inspect(*arguments)
        assert (status, output) == (2, ""), (output, error)
        assert error.endswith("\n")
        assert error.count("\n") == 1
        assert files(folder) == before
        return (
            error.removesuffix("\n").removeprefix("python -m ").removeprefix("npformer inspect: ").removeprefix("npformer: ")
        )

    return run


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def typed(*arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    start = [sys.executable, "-W", "error", "-m", "npformer", "inspect", *arguments]
    return subprocess.run(start, env={**kept, "PYTHONPATH": str(ROOT), **more}, capture_output=True, check=False)


def page_text(path="attention.html") -> str:
    """What a reader of the page meets without scripts, its tags as blanks."""
    page = Path(path).read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL))


def recorded(model, *ids, names=TOKENIZER, title="m.npz"):
    with record(model, names, title=title) as recording:
        model(*(np.array([each]) for each in ids))
    return recording


# Models.


def test_what_a_gpt_attends_to_is_shown_and_written(inspect, folder):
    model = gpt()
    model.save("m.npz", TOKENIZER)
    status, output, error = inspect("m.npz", "--text", TARGET)
    assert (status, error) == (0, "")
    assert output.splitlines()[0] == "m.npz"
    assert "DECODER, 6 heads" in output
    assert output.endswith(f"\n\npage        attention.html\n            {(folder / 'attention.html').as_uri()}\n")
    expected = recorded(model, TOKENIZER.encode(TARGET))
    expected.to_html("expected.html")
    assert Path("attention.html").read_bytes() == Path("expected.html").read_bytes()
    assert sorted(files(folder)) == ["attention.html", "expected.html", "m.npz"]


def test_an_encoder_decoder_reads_source_and_target(inspect):
    model = encoder_decoder()
    model.save("m.npz", TOKENIZER)
    status, output, error = inspect("m.npz", "--source", SOURCE, "--text", TARGET)
    assert (status, error) == (0, "")
    assert [kind for kind in ("ENCODER, 6", "DECODER, 3", "CROSS, 3") if f"{kind} heads" not in output] == []
    expected = recorded(model, TOKENIZER.encode(SOURCE), TOKENIZER.encode(TARGET))
    assert expected.find("cross", 0, 1).key_tokens == tuple(SOURCE)
    expected.to_html("expected.html")
    assert Path("attention.html").read_bytes() == Path("expected.html").read_bytes()


@pytest.mark.parametrize("make", [gpt, encoder_decoder])
def test_a_model_without_characters_reads_ids(inspect, make):
    model = make(11)
    model.save("m.npz")
    source = ["--source", " 7  2\t10 "] if make is encoder_decoder else []
    status, _, error = inspect("m.npz", *source, "--text", IDS)
    assert (status, error) == (0, "")
    ids = [[7, 2, 10], [3, 1, 4, 1, 5]][1 - bool(source) :]
    recorded(model, *ids, names=None).to_html("expected.html")
    assert Path("attention.html").read_bytes() == Path("expected.html").read_bytes()


def test_an_encoder_reads_a_text(inspect):
    model = vary(Encoder(EncoderConfig(vocab_size=N, n_layers=2, **SIZES)))
    model.save("m.npz", TOKENIZER)
    status, output, error = inspect("m.npz", "--text", SOURCE, "--who", "春天", "北京", "上海")
    assert (status, error) == (0, "")
    assert "ENCODER, 6 heads" in output
    expected = recorded(model, TOKENIZER.encode(SOURCE)).who_attends("春天", "北京", against="上海")
    assert expected.probability is None
    assert rows(output) == [list(cells) for cells in expected.cells()]


def rows(output: str) -> list[list[str]]:
    """The table of who attends, its heads as two cells."""
    table = output.rpartition("who attends to")[2].split("\n\n")[0]
    found = re.findall(r"^ *(\d)\.(\d) +(.*)$", table, re.MULTILINE)
    return [[layer, head, *re.findall(r"\d+ of \d+|\S+", rest)] for layer, head, rest in found]


@pytest.mark.parametrize("against", [(), ("北京",)])
def test_who_attends_is_answered_with_each_head_and_what_is_said_without_it(inspect, against):
    model = encoder_decoder()
    model.save("m.npz", TOKENIZER)
    status, output, error = inspect("m.npz", "--source", SOURCE, "--text", TARGET, "--who", "北", "上海", *against)
    assert (status, error) == (0, "")
    recording = recorded(model, TOKENIZER.encode(SOURCE), TOKENIZER.encode(TARGET))
    answer = recording.who_attends("北", "上海", against=against[0] if against else None)
    assert answer.kind == "cross"
    assert rows(output) == [list(cells) for cells in answer.cells()]
    page = page_text()
    assert answer.title in page
    assert page.index(answer.title) < page.index("The heads of")
    assert f"{answer.rows[0].weight:.4f}" in page
    assert "−ln P(北)" in Path("attention.html").read_text(encoding="utf-8")  # the page has the gradients of that token


def test_one_token_is_enough(inspect):
    gpt().save("m.npz", TOKENIZER)
    assert inspect("m.npz", "--text", "天")[::2] == (0, "")


def test_the_longest_text_that_the_model_reads_is_read(inspect):
    gpt().save("m.npz", TOKENIZER)
    assert inspect("m.npz", "--text", (SOURCE * 2)[:17])[::2] == (0, "")


# Arrays.


def test_every_array_is_passed_on_by_its_name(inspect):
    keep = np.random.default_rng(1).random((4, 5)) < 0.7
    keep[:, 0] = True
    weights = P * keep
    weights /= weights.sum(-1, keepdims=True)
    gradient = np.random.default_rng(2).standard_normal(P.shape)
    given = {
        "weights": weights.astype(np.float32),
        "query_tokens": ["<b>", "北京", "", "it's"],
        "key_tokens": ["上海", " ", "\n", "上海", "é"],
        "kind": "cross",
        "keep": keep,
        "gradient": gradient,
        "named_by": "produces",
        "title": "A title & more",
    }
    assert set(given) == set(command.ARRAYS)
    np.savez("a.npz", **given)
    status, output, error = inspect("--arrays", "a.npz", "--json", "a.json")
    assert (status, error) == (0, "")
    assert output.splitlines()[0] == "A title & more"
    inspection = inspect_arrays(**given)
    inspection.to_html("expected.html")
    inspection.to_json("expected.json")
    assert Path("attention.html").read_bytes() == Path("expected.html").read_bytes()
    assert Path("a.json").read_bytes() == Path("expected.json").read_bytes()
    assert "A title &amp; more" in Path("attention.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_weights_alone_are_enough_and_the_file_gives_the_title(inspect, save):
    save("权 重.npz", weights=P)
    status, output, error = inspect("--arrays", "权 重.npz")
    assert (status, error) == (0, "")
    assert output.splitlines()[0] == "权 重.npz"
    inspect_arrays(P, title="权 重.npz").to_html("expected.html")
    assert Path("attention.html").read_bytes() == Path("expected.html").read_bytes()


def test_tokens_may_be_bytes(inspect):
    np.savez("a.npz", weights=P[..., :4], query_tokens=np.array([*"天".encode(), 65], np.uint8).view("S1"))
    assert "not to 1" in inspect("--arrays", "a.npz")[2]
    np.savez("a.npz", weights=softmax(1, 2, 4, 4), query_tokens=np.array([*"天".encode(), 65], np.uint8).view("S1"))
    status, output, error = inspect("--arrays", "a.npz")
    assert (status, error) == (0, "")
    assert "天" in output


def test_who_attends_in_arrays_is_answered_without_probabilities(inspect):
    np.savez("a.npz", weights=P, query_tokens=list("春天去吧"), key_tokens=list("北京和上海"))
    status, output, error = inspect("--arrays", "a.npz", "--who", "春天", "上海", "北京")
    assert (status, error) == (0, "")
    answer = inspect_arrays(P, list("春天去吧"), list("北京和上海")).who_attends("春天", "上海", against="北京")
    assert rows(output) == [list(cells) for cells in answer.cells()]
    assert "P(" not in output
    assert answer.title in page_text()


# What is written.


def test_json_is_written_if_it_is_wanted(inspect, folder):
    model = gpt()
    model.save("m.npz", TOKENIZER)
    assert inspect("m.npz", "--text", TARGET, "--page", "p.html", "--json", "j.json")[0] == 0
    assert sorted(files(folder)) == ["j.json", "m.npz", "p.html"]
    maps = recorded(model, TOKENIZER.encode(TARGET)).maps
    found = json.loads(Path("j.json").read_text(encoding="utf-8"))
    assert json.dumps(found).count('"layer"') >= len(maps)


def test_the_same_input_writes_the_same_bytes(inspect, folder):
    gpt().save("m.npz", TOKENIZER)
    seen = []
    for _ in range(2):
        output = inspect("m.npz", "--text", TARGET, "--who", "北", "天", "--json", "j.json")[1]
        seen.append((output, files(folder)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("finds_one", [True, False])
def test_a_browser_opens_the_page_if_that_is_wanted_and_there_is_one(inspect, monkeypatch, folder, finds_one):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or finds_one)
    np.savez("a.npz", weights=P)
    status, output, error = inspect("--arrays", "a.npz", "--open", "--page", "故 事.html")
    assert (status, opened) == (0, [(folder / "故 事.html").as_uri()])
    assert output.endswith(f"page        故 事.html\n            {opened[0]}\n")
    assert error == ("" if finds_one else "note        no browser was found that could open it\n")
    opened.clear()
    inspect("--arrays", "a.npz")
    assert opened == []


def test_an_old_page_stays_where_the_new_one_does_not_come_to_be(inspect, monkeypatch):
    Path("attention.html").write_text("old")
    np.savez("a.npz", weights=P)

    def cut_short(path, write):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("npformer.inspection.page.write_whole", cut_short)
        assert inspect("--arrays", "a.npz") == (130, "", "\nnpformer inspect: interrupted\n")
    assert Path("attention.html").read_text() == "old"
    assert inspect("--arrays", "a.npz")[0] == 0
    assert Path("attention.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


# Wrong usage.

WRONG_USAGE = [
    ([], "give a CHECKPOINT with --text, or --arrays FILE.npz"),
    (["--text", TARGET], "give a CHECKPOINT with --text, or --arrays FILE.npz"),
    (["m.npz", "--arrays", "a.npz", "--text", TARGET], "give a CHECKPOINT with --text, or --arrays FILE.npz"),
    (["m.npz"], "give the --text that the model shall read"),
    (["m.npz", "--source", SOURCE], "give the --text that the model shall read"),
    (["--arrays", "a.npz", "--text", TARGET], "--arrays come with their own tokens, so --text has no use"),
    (["--arrays", "a.npz", "--source", SOURCE], "--arrays come with their own tokens, so --source has no use"),
    *(
        (["m.npz", "--text", TARGET, "--who", *words], "--who takes two words or three: who attends, while the first is")
        for words in (["北"], ["北", "京", "天", "去"])
    ),
    (["m.npz", "--text", TARGET, "--who"], "argument --who: expected at least one argument"),
    (["m.npz", "--text"], "argument --text: expected one argument"),
    (["m.npz", "--tex", TARGET], "unrecognized arguments: --tex"),
    (["m.npz", "a.npz", "--text", TARGET], "unrecognized arguments: a.npz"),
    (["m.npz", "--text", TARGET, "--page", "m.npz"], "--page m.npz is what is read: name another file"),
    (["m.npz", "--text", TARGET, "--json", "./m.npz"], "--json ./m.npz is what is read: name another file"),
    (["--arrays", "a.npz", "--page", "a.npz"], "--page a.npz is what is read: name another file"),
    (["--arrays", "a.npz", "--json", "attention.html"], "--json attention.html is the --page: name another file"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG_USAGE, ids=[" ".join(words)[:60] for words, _ in WRONG_USAGE])
def test_wrong_usage_is_one_line_and_status_2(refused, arguments, sentence):
    gpt().save("m.npz", TOKENIZER)
    np.savez("a.npz", weights=P)
    assert refused(*arguments).startswith(sentence)


def test_wrong_usage_reaches_the_shell_without_a_traceback():
    run = typed()
    assert (run.returncode, run.stdout) == (2, b"")
    assert run.stderr.splitlines() == [b"python -m npformer inspect: give a CHECKPOINT with --text, or --arrays FILE.npz"]


def test_help_names_every_option_and_every_array(inspect):
    status, output, error = inspect("--help")
    assert (status, error) == (0, "")
    words = re.split(r"[\s,:]+", output)
    assert set(command.ARRAYS) <= set(words)
    assert {"--text", "--source", "--arrays", "--who", "--page", "--json", "--open"} <= set(words)


# Wrong texts.


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "--text has 0 tokens, and the model reads from 1 to 17"),
        ((SOURCE * 2)[:18], "--text has 18 tokens, and the model reads from 1 to 17"),
        (
            "天x天",
            "--text: CharacterTokenizer.encode: text has characters outside the vocabulary, the first at position 1: 'x'",
        ),
        (
            "天\udcff",
            "--text: CharacterTokenizer.encode: text has characters outside the vocabulary, the first at position 1:",
        ),
    ],
)
def test_a_text_that_the_model_cannot_read_is_one_sentence(refused, text, sentence):
    gpt().save("m.npz", TOKENIZER)
    assert refused("m.npz", "--text", text).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "--text has 0 tokens, and the model reads from 1 to 17"),
        (" \n", "--text has 0 tokens, and the model reads from 1 to 17"),
        (" ".join("0" * 18), "--text has 18 tokens, and the model reads from 1 to 17"),
        *(
            (text, "the model was saved without its characters: give --text as ids, such as '3 1 4'")
            for text in ("春天", "3,1", "1.5", "9" * 30, "9" * 9999)
        ),
        ("3 11", "GPT: ids[0, 1] is 11, outside 0 … 10"),
        ("-1", "GPT: ids[0, 0] is -1, outside 0 … 10"),
    ],
)
def test_ids_that_the_model_does_not_have_are_one_sentence(refused, text, sentence):
    gpt(11).save("m.npz")
    assert refused("m.npz", f"--text={text}") == sentence


def test_a_source_is_for_a_model_that_reads_one(refused):
    gpt().save("g.npz", TOKENIZER)
    encoder_decoder().save("e.npz", TOKENIZER)
    sentence = "e.npz holds the model 'encoder_decoder', which needs a --source as well"
    assert refused("e.npz", "--text", TARGET) == sentence
    sentence = "g.npz holds the model 'gpt', which reads no --source"
    assert refused("g.npz", "--text", TARGET, "--source", SOURCE) == sentence
    assert refused("e.npz", "--text", TARGET, "--source", "").startswith("--source has 0 tokens, ")
    assert refused("e.npz", "--text", TARGET, "--source", "xyz").startswith("--source: CharacterTokenizer.encode: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["海", "天"], "who_attends: '海' is not among the rows of decoder attention"),
        (["天", "海"], "who_attends: '海' is not among the keys of decoder attention"),
        (["天", "天", "海"], "who_attends: '海' is not among the keys of decoder attention"),
        (["春", "天"], "who_attends: '春' is not among the rows of decoder attention"),  # nothing produces the first token
        (["", "天"], "who_attends: '' is not among the rows of decoder attention"),
        (["天", ""], "who_attends: '' is not among the keys of decoder attention"),
    ],
)
def test_a_word_that_is_not_there_is_one_sentence(refused, words, sentence):
    gpt().save("m.npz", TOKENIZER)
    assert refused("m.npz", "--text", TARGET, "--who", *words) == sentence


# Wrong files.

NO_NPZ = "is no .npz file: write it with numpy.savez(path, weights=…, query_tokens=…)"


def test_a_file_that_is_no_checkpoint_is_one_sentence(refused):
    Path("t.txt").write_text("hello")
    Path("empty.npz").write_bytes(b"")
    np.savez("a.npz", weights=P)
    assert refused("t.txt", "--text", "x").startswith("t.txt is not an npformer checkpoint: it does not begin as")
    assert refused("empty.npz", "--text", "x") == "empty.npz is not an npformer checkpoint: it is empty"
    assert refused("a.npz", "--text", "x") == "a.npz is not an npformer checkpoint: it has no header"
    assert refused("missing.npz", "--text", "x") == "missing.npz: No such file or directory"
    assert refused("", "--text", "x") == "'': No such file or directory"
    gpt().save("m.npz", TOKENIZER)
    whole = Path("m.npz").read_bytes()
    Path("m.npz").write_bytes(whole[: len(whole) // 2])
    assert refused("m.npz", "--text", TARGET).startswith("m.npz is damaged: ")


def test_a_file_that_holds_no_arrays_is_one_sentence(refused):
    Path("t.txt").write_text("hello")
    np.save("w.npy", P)
    for name in ("t.txt", "w.npy"):
        assert refused("--arrays", name) == f"{name} {NO_NPZ}"
    gpt().save("m.npz", TOKENIZER)
    names = "weights, query_tokens, key_tokens, kind, keep, gradient, named_by, title"
    assert refused("--arrays", "m.npz") == f"m.npz holds 'header'; it may hold {names}"
    np.savez("a.npz", query_tokens=["a", "b"])
    assert refused("--arrays", "a.npz") == f"a.npz has no array 'weights'; it may hold {names}"
    np.savez("a.npz", weights=P, wieghts=P)
    assert refused("--arrays", "a.npz") == f"a.npz holds 'wieghts'; it may hold {names}"
    assert refused("--arrays", "missing.npz") == "missing.npz: No such file or directory"


class Spy:
    """What a pickle makes of itself when somebody reads it."""

    def __reduce__(self):
        return open, ("stolen", "w")


def test_a_pickle_is_refused_and_does_nothing(refused, folder):
    np.savez("a.npz", weights=P, title=np.array([Spy()], object))
    assert refused("--arrays", "a.npz") == "a.npz cannot be read: Object arrays cannot be loaded when allow_pickle=False"
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("weights", pickle.dumps(Spy()))
    assert refused("--arrays", "a.npz").startswith("a.npz: inspect_arrays: weights must be real numbers, got an array of ")
    assert not (folder / "stolen").exists()


def nan(i, h):
    weights = P.copy()
    weights[i, h, 2, 3] = np.nan
    return weights


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"weights": nan(1, 2)}, "cross layer 1 head 2: the weight of query 2 on key 3 is NaN: find where the run left"),
        (
            {"weights": 2 * P},
            "cross layer 0 head 0: the weights of query 0 sum to 2 and not to 1 (or 0, fully masked); give",
        ),
        ({"weights": np.log(P)}, "cross layer 0 head 0: the weight of query 0 on key 0 is -"),
        ({"weights": P[0]}, "weights must be (L, H, T, S), or a list of (H, T, S) for each layer, got the shape (3, 4, 5)"),
        ({"weights": P + 0j}, "weights must be real numbers, got an array of complex128"),
        ({"weights": P, "kind": "crossed"}, "kind must be one of encoder, decoder, cross, got 'crossed'"),
        ({"weights": P, "kind": ["cross"]}, "kind must be one of "),
        ({"weights": P, "named_by": "makes"}, "named_by must be one of reads, produces, got 'makes'"),
        ({"weights": P, "query_tokens": range(4)}, "query_tokens must be strings or bytes, but number 0 is int"),
        ({"weights": P, "query_tokens": "abcd"}, "query_tokens must be a list of strings, one for each token, got str"),
        ({"weights": P, "key_tokens": ["a"]}, "layer 0 head 0 has 5 keys, but there are 1 key_tokens: give one for each"),
        (
            {"weights": P, "keep": np.ones((3, 3), bool)},
            "keep must have the shape (5,), (4, 5) or that of weights, got (3, 3)",
        ),
        ({"weights": P, "gradient": P[:1]}, "gradient has the shapes "),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:40],
)
def test_arrays_that_are_no_attention_are_one_sentence(refused, arrays, sentence):
    np.savez("a.npz", **arrays)
    assert refused("--arrays", "a.npz").startswith(f"a.npz: inspect_arrays: {sentence}")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_file_of_arrays_is_one_sentence(inspect, save):
    save("a.npz", weights=P[:1, :1], query_tokens=list("春天去吧"))
    whole = Path("a.npz").read_bytes()
    rng = np.random.default_rng(3)
    said = set()
    for place in rng.choice(len(whole), 60, replace=False):
        data = bytearray(whole)
        data[place] ^= int(rng.integers(1, 256))
        Path("a.npz").write_bytes(data)
        status, output, error = inspect("--arrays", "a.npz")
        if status != 0:  # a date, say, is no loss
            assert (status, output) == (2, "")
            assert re.fullmatch(r"npformer inspect: a\.npz .+\n", error)
            said.add(error)
    assert len(said) > 3
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        Path("a.npz").write_bytes(whole[:length])
        assert inspect("--arrays", "a.npz")[::2] == (2, f"npformer inspect: a.npz {NO_NPZ}\n")


def test_an_error_without_words_is_named(refused, monkeypatch):
    def broken(*_, **__):
        raise EOFError

    np.savez("a.npz", weights=P)
    monkeypatch.setattr(np, "load", broken)
    assert refused("--arrays", "a.npz") == "a.npz cannot be read: EOFError"


def test_weights_that_are_not_finite_are_named_with_layer_and_head(refused):
    model = gpt()
    model.parameters()["layers.1.attention.query.weight"].value[0, 5] = np.nan  # of the second head of three
    model.save("m.npz", TOKENIZER)
    assert refused("m.npz", "--text", TARGET) == (
        "record: decoder layer 1 head 1: the weight of query 0 on key 0 is NaN: find where the run left finite numbers"
    )


@pytest.mark.parametrize("option", ["--page", "--json"])
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("", "Is a directory"),
        (".", "Is a directory"),
        (os.path.join("missing", "x"), "No such file or directory"),
        pytest.param("x" * 999, "File name too long", marks=pytest.mark.skipif(os.name == "nt", reason="other limits")),
    ],
)
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_read(refused, monkeypatch, option, place, why):
    monkeypatch.setattr(command, "load", lambda path: pytest.fail("read"))
    assert refused("m.npz", "--text", TARGET, option, place) == f"{place or repr('')}: {why}"


# Other consoles.


@pytest.mark.parametrize("encoding", ["gbk", "cp1252", "ascii", "utf-8"])
def test_a_console_that_lacks_characters_loses_no_line(encoding):
    encoder_decoder().save("m.npz", TOKENIZER)
    arguments = ["m.npz", "--source", SOURCE, "--text", TARGET, "--who", "北", "上海", "北京"]
    run = typed(*arguments, PYTHONIOENCODING=encoding, COLUMNS="100")
    assert (run.returncode, run.stderr) == (0, b"")
    output = run.stdout.decode(encoding)
    assert "?" not in output.replace("?  ", "").replace("? ", "")  # the one row whose token is not known yet
    assert ("上海" in output) == (encoding in ("gbk", "utf-8"))
    assert ("U+4E0A" in output) == (encoding in ("cp1252", "ascii"))
    assert len(rows(output)) == 3
    assert "page        attention.html" in output
    if encoding == "utf-8":
        assert "░" in output
    assert b"\x1b" not in run.stdout  # a pipe is no terminal to be coloured


def test_the_reader_of_a_pipe_may_go_and_the_page_is_there():
    gpt().save("m.npz", TOKENIZER)
    reader, writer = os.pipe()
    os.close(reader)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    start = [sys.executable, "-W", "error", "-m", "npformer", "inspect", "m.npz", "--text", TARGET, "--json", "j.json"]
    run = subprocess.run(start, env={**kept, "PYTHONPATH": str(ROOT)}, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (1, b"")
    assert Path("attention.html").read_text(encoding="utf-8").endswith("</html>\n")
    assert json.loads(Path("j.json").read_text(encoding="utf-8"))


def test_a_narrow_window_is_not_overrun(inspect, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    gpt().save("m.npz", TOKENIZER)
    output = inspect("m.npz", "--text", TARGET, "--who", "北", "天")[1]
    page = output.index("page  ")
    assert max(len(line) for line in output[:page].splitlines()) <= 40
