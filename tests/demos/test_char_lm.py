"""`python -m demos char_lm`: a model learns, is stopped, goes on, and writes, whatever the text, the files, the flags."""

import html
import os
import re
import shlex
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import gradcheck
from demos import char_lm, gradients
from demos.counting import n_gram_loss
from npformer import load
from npformer.inspection import record
from npformer.layers import Embedding
from npformer.models import GPT, GPTConfig
from npformer.text import CharacterTokenizer
from npformer.training import Trainer, held_out_loss
from permissions import needs_permissions

ROOT = Path(__file__).parents[2]
SIZES = ["--n-layers", "1", "--n-heads", "2", "--d-model", "8", "--max-len", "8", "--batch-size", "4"]
TINY = [*SIZES, "--length", "9"]
INTERRUPTED = "\nchar_lm: interrupted; the checkpoint written last is whole\n"
TEXT = "the cat sat on the mat, and the dog sat by the cat.\n" * 12
CHINESE = "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。寒来暑往，秋收冬藏。\n" * 12
OTHER = "a quick brown fox jumps over the lazy dog; " * 14

not_on_windows = pytest.mark.skipif(os.name == "nt", reason="POSIX shells and signals")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The working folder, with a text in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


CHECK_LAYER = gradcheck.check_layer


@pytest.fixture(autouse=True)
def _unchecked(monkeypatch):
    """Most tests are about something else than the gradient check, which takes longer than all the rest."""
    monkeypatch.setattr(gradcheck, "check_layer", lambda *_: gradcheck.Report("ExactLoss", "pass"))


@pytest.fixture
def checked(monkeypatch, _unchecked):
    monkeypatch.setattr(gradcheck, "check_layer", CHECK_LAYER)


@pytest.fixture
def demo(run_here):
    return partial(run_here, char_lm.main)


@pytest.fixture
def learn(demo):
    """Six steps of a tiny model on t.txt, unless other arguments say otherwise."""

    def run(*arguments: str, text: str = "t.txt") -> tuple[int, str, str]:
        sizes = [] if "--resume" in arguments else TINY
        steps = [] if "--steps" in arguments or "--resume" in arguments else ["--steps", "6"]
        return demo("--text", text, *sizes, *steps, *arguments)

    return run


@pytest.fixture
def refused(demo, folder):
    """Runs the demo, which must refuse: one sentence, status 2, and no file changed."""

    def run(*arguments: str) -> str:
        before = files(folder)
        status, output, error = demo(*arguments)
        assert status == 2, (output, error)
        assert error.count("\n") == 1
        assert error.endswith("\n")
        assert "Traceback" not in output + error
        assert files(folder) == before
        return error.removesuffix("\n").removeprefix("python -m demos ").removeprefix("char_lm: ")

    return run


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def line(output: str, name: str) -> str:
    """What stands behind one of the names at the left."""
    (found,) = re.findall(rf"^{name} +(.*)$", output, re.MULTILINE)
    return found


def sample_of(output: str) -> str:
    return output.partition("where the text held out begins:\n\n")[2].partition("\n\ncheckpoint")[0]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **more}


def typed(*arguments: str, program: str = "") -> list[str]:
    """The demo as a command of its own; with a program that comes first."""
    start = f"{program}\nimport sys\nfrom demos.char_lm import main\nsys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-W", "error", *(["-c", start] if program else ["-m", "demos", "char_lm"]), *arguments]


def as_process(*arguments: str, program: str = "", **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(typed(*arguments, program=program), env=environment(**more), capture_output=True, check=False)


def interrupt_after(monkeypatch, step: int, times: int = 1) -> None:
    """Ctrl-C arrives while the progress of this step is shown."""

    class Interrupted(char_lm.Progress):
        def __call__(self, done):
            super().__call__(done)
            if done.number == step:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(char_lm, "Progress", Interrupted)


# A run from the beginning to the end.


def test_a_run_says_all_that_one_wants_to_know(learn, checked):
    status, output, error = learn()
    assert (status, error) == (0, "")
    assert line(output, "text") == "t.txt: 624 characters, 17 of them distinct, the last tenth held out"
    model, tokenizer = load("char_lm.npz")
    n = sum(parameter.value.size for parameter in model.parameters().values())
    assert line(output, "model") == f"1 layers, 2 heads, d_model 8, context 8: {n:,} parameters"
    assert re.fullmatch(rf"(pass|inconclusive): 11 parameter arrays with {n:,} entries, .*", line(output, "gradients"))
    assert [int(row.split()[1]) for row in re.findall(r"^step .*$", output, re.MULTILINE)] == [1, 2, 3, 4, 5, 6]
    assert re.search(r"^step 6 of 6  loss 2\.\d{3}  [\d,]+ tokens/s  0:00 left$", output, re.MULTILINE)
    assert re.fullmatch(r"6 steps in \d+:\d\d", line(output, "trained"))
    assert line(output, "checkpoint") == f"char_lm.npz, {n:,} parameters"

    held_out, train = tokenizer.encode(TEXT)[-62:], tokenizer.encode(TEXT)[:-62]
    assert line(output, "held out").startswith(
        f"{held_out_loss(model, held_out):.3f} nats a character over the text held out"
    )
    counted = [n_gram_loss(train, held_out, 17, n) for n in range(1, 6)]
    assert line(output, "counting") == f"{', '.join(f'{loss:.3f}' for loss in counted)} by tables of 1- to 5-grams"
    assert line(output, "sample") == f"how it goes on after {TEXT[-62:-54]!r}, where the text held out begins:"
    assert len(sample_of(output)) == 9


def test_the_order_is_that_of_what_happens(learn):
    names = [
        "text",
        "model",
        "gradients",
        "step 1",
        "trained",
        "held out",
        "counting",
        "sample",
        "checkpoint",
        "page",
        "to go on",
    ]
    _, output, _ = learn()
    places = [re.search(rf"^{name} ", output, re.MULTILINE).start() for name in names]
    assert places == sorted(places)


def test_the_same_seed_is_the_same_run_and_another_is_not(learn):
    outputs = [learn("--seed", seed, "--out", f"{i}.npz")[1] for i, seed in enumerate("001")]
    samples = [sample_of(output) for output in outputs]
    data = [Path(f"{i}.npz").read_bytes() for i in range(3)]
    assert (samples[0], data[0]) == (samples[1], data[1])
    assert samples[0] != samples[2]
    assert data[0] != data[2]


def test_it_learns(learn):
    _, output, _ = learn("--steps", "150", "--d-model", "16")
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", output)]
    assert losses[-1] < losses[0] - 0.3
    assert float(line(output, "held out").split()[0]) < losses[0] - 0.3


def test_the_default_is_the_recipe_of_nanogpt_for_a_cpu():
    options = char_lm.parse([])
    text, _ = char_lm.python_topics()
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    trainer = char_lm.begun(options, ids, ids[:100], tokenizer)
    model, training = trainer.model.config, trainer.config
    assert (model.n_layers, model.n_heads, model.d_model, model.max_len, model.dropout) == (4, 4, 128, 64, 0)
    assert (training.batch_size, training.n_steps, training.n_warmup, training.seed) == (12, 2000, 100, 0)
    assert sorted(os.listdir()) == ["char_lm.npz", "t.txt"]


def test_without_a_text_it_is_pythons_documentation(demo):
    status, output, error = demo(*TINY, "--steps", "1")
    assert (status, error) == (0, "")
    text, _ = char_lm.python_topics()
    expected = f"Python's documentation topics: {len(text):,} characters, {len(set(text))} of them distinct"
    assert line(output, "text").startswith(expected)
    if sys.version_info[:2] == (3, 11):
        assert line(output, "counting").startswith("3.238, 2.316, 1.730, 1.508, 1.615 ")


def test_what_is_checked_is_the_very_model_that_is_trained(learn, monkeypatch):
    checked = []

    def recorded(layer, ids, targets):
        model, tokenizer = load("char_lm.npz")
        weights = model.parameters()
        for name, parameter in layer.parameters().items():
            assert parameter.value.dtype == np.float64
            assert np.array_equal(parameter.value, weights[name].value)
            checked.append(name)
        assert checked == list(weights)
        assert tokenizer.decode(ids[0]) + tokenizer.decode(targets[0, -1:]) == TEXT[: ids.size + 1]
        return CHECK_LAYER(layer, ids, targets)

    monkeypatch.setattr(gradcheck, "check_layer", recorded)
    status, output, _ = learn("--seed", "3")
    assert status == 0
    assert len(checked) == 11
    assert len(re.findall("^gradients ", output, re.MULTILINE)) == 1


def wrong_embedding(monkeypatch) -> None:
    forward = Embedding.forward

    def doubled(self, ids):
        y, backward = forward(self, ids)
        return y, lambda dy: backward(2 * dy)

    monkeypatch.setattr(Embedding, "forward", doubled)


def test_a_wrong_gradient_is_reported_and_nothing_is_trained(learn, checked, monkeypatch):
    wrong_embedding(monkeypatch)
    status, output, error = learn()
    assert (status, error) == (1, "")
    assert line(output, "gradients").startswith("fail: ")
    assert "fail: the gradient of embedding.table is wrong" in output
    assert not re.search("^(step|trained|sample) ", output, re.MULTILINE)


def test_a_check_that_could_show_nothing_says_so_in_a_sentence_and_training_goes_on(learn, monkeypatch):
    finding = gradcheck.report.Finding("inconclusive", "a relative error of 3e-06 would not be seen")
    report = gradcheck.Report("x", "inconclusive", findings=[finding], n_entries=3)
    monkeypatch.setattr(gradcheck, "check_layer", lambda *_: report)
    status, output, _ = learn()
    assert status == 0
    assert line(output, "gradients").startswith("inconclusive: ")
    assert line(output, "note") == str(finding)


@pytest.mark.parametrize("max_len", [1, 2, 3])
def test_a_held_out_part_shorter_than_the_longest_gram_is_counted_as_far_as_it_goes(learn, max_len):
    Path("short.txt").write_text("abcde" * (2 * max_len + 2), encoding="utf-8")
    status, output, error = learn("--max-len", str(max_len), text="short.txt")
    assert (status, error) == (0, "")
    assert line(output, "counting").endswith(f" by tables of 1- to {max_len + 1}-grams")


def test_a_text_of_one_character_is_learnt_too(learn):
    Path("a.txt").write_text("a" * 300, encoding="utf-8")
    status, output, error = learn(text="a.txt")
    assert (status, error) == (0, "")
    assert line(output, "held out").startswith("0.000 nats")
    assert line(output, "counting").startswith("0.000, 0.000, 0.000, 0.000, 0.000 ")
    assert sample_of(output) == 9 * "a"


@pytest.mark.parametrize("length", ["0", "1", "40"])
def test_a_sample_is_as_long_as_one_wants(learn, length):
    _, output, _ = learn("--length", length)
    assert len(sample_of(output)) == int(length)


def test_a_large_model_is_announced_before_its_gradients_are_checked(learn, monkeypatch):
    monkeypatch.setattr(gradients, "CHECKED_QUICKLY", 100)
    status, output, _ = learn()
    assert status == 0
    assert re.search(r"^note .* takes about \d+:\d\d$\n(.*\n)?gradients ", output, re.MULTILINE)


# The page.


def page_text(path: str) -> str:
    """What a reader of the page meets without scripts, its tags as blanks."""
    page = Path(path).read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL))


@pytest.mark.parametrize(
    ("out", "page"),
    [
        ("char_lm.npz", "char_lm.html"),
        ("x", "x.html"),
        ("模型 1.v2.npz", "模型 1.v2.html"),
        ("sub.folder/x", "sub.folder/x.html"),
        (".npz", ".npz.html"),
    ],
)
def test_the_page_lies_beside_the_checkpoint_and_is_named_after_it(learn, folder, out, page):
    (folder / "sub.folder").mkdir()
    status, output, _ = learn("--out", out)
    assert status == 0
    assert output.rpartition("\ncheckpoint  ")[2].splitlines()[1:3] == [
        f"page        {page}",
        f"            {(folder / page).as_uri()}",
    ]
    assert sorted(files(folder)) == sorted([out, page, "t.txt"])


def test_the_page_shows_what_each_head_attends_to_in_the_text_held_out(learn):
    learn()
    page = page_text("char_lm.html")
    text = TEXT[-62:][:8]  # as long as the context
    shown = text.replace(" ", "␣").replace("\n", "⏎ ")
    assert f"The text, where the part held out begins: {shown} A row" in page
    model, tokenizer = load("char_lm.npz")
    with record(model, tokenizer) as recording:
        model(tokenizer.encode(text)[None])
    for map in recording.maps:
        metrics = recording.metrics(map)
        row = page.partition(f"decoder layer {map.layer} head {map.head} ")[2].split()
        assert {f"{metrics['entropy']:.4f}", f"{metrics['distance']:.4f}"} <= set(row[:20])


@pytest.fixture
def charts(monkeypatch):
    """The steps that are drawn, of each page."""
    drawn = []
    whole = char_lm.training_charts
    monkeypatch.setattr(char_lm, "training_charts", lambda runs, loss: drawn.append(runs) or whole(runs, loss))
    return drawn


def test_the_curves_are_of_the_steps_of_this_run(learn, charts, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, 4)
        assert learn()[0] == 130
    assert charts == []
    assert not Path("char_lm.html").exists()
    learn("--resume")
    learn("--resume")
    assert [[step.number for step in run["training"]] for run in charts] == [[5, 6], []]
    assert "Loss" not in page_text("char_lm.html")  # nothing was trained
    _, output, _ = learn("--out", "whole.npz")
    assert [step.number for step in charts[-1]["training"]] == [1, 2, 3, 4, 5, 6]
    assert f"step 1 of 6  loss {charts[-1]['training'][0].loss:.3f} " in output
    assert charts[0]["training"] == charts[-1]["training"][4:]
    assert "Loss" in page_text("whole.html")


def test_a_chinese_page(learn):
    Path("千字文.txt").write_text(CHINESE, encoding="utf-8")
    assert learn(text="千字文.txt")[0] == 0
    held_out = CHINESE[-(len(CHINESE) // 10) :]
    page = Path("char_lm.html").read_text(encoding="utf-8")
    assert f"begins: {held_out[:8]} A row".replace("\n", "⏎ ") in page
    assert all(character in page for character in held_out[:8].replace("\n", "⏎"))


def test_a_prompt_writes_no_page(learn, demo, folder):
    learn()
    Path("char_lm.html").unlink()
    assert demo("--prompt", "the")[0] == 0
    assert sorted(files(folder)) == ["char_lm.npz", "t.txt"]


@pytest.mark.parametrize("finds_one", [True, False])
def test_a_browser_opens_the_page_if_that_is_wanted_and_there_is_one(learn, monkeypatch, folder, finds_one):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or finds_one)
    status, output, error = learn("--open")
    assert (status, opened) == (0, [(folder / "char_lm.html").as_uri()])
    assert error == ("" if finds_one else "note        no browser was found that could open it\n")
    learn("--resume")
    assert len(opened) == 1


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_trained(refused, learn, folder, monkeypatch):
    monkeypatch.setattr(char_lm, "Trainer", None)
    (folder / "char_lm.html").mkdir()
    assert refused("--text", "t.txt", *TINY) == "char_lm.html: Is a directory"
    monkeypatch.undo()
    os.chdir(folder)
    learn("--out", "x.npz")
    Path("x.html").unlink()
    Path("x.html").mkdir()
    assert refused("--resume", "--text", "t.txt", "--out", "x.npz") == "x.html: Is a directory"


def test_the_page_replaces_neither_the_text_nor_the_checkpoint(refused, learn):
    Path("book.html").write_text(TEXT, encoding="utf-8")
    sentence = "the page beside --out book.npz would be written over book.html: name another --out"
    assert refused("--text", "book.html", "--out", "book.npz", *TINY) == sentence
    sentence = "the page beside --out x.html would be written over x.html: name another --out"
    assert refused("--text", "t.txt", "--out", "x.html", *TINY) == sentence
    assert learn(text="book.html")[0] == 0


def test_ctrl_c_before_the_page_is_whole_leaves_the_old_one(learn, monkeypatch, folder):
    learn("--seed", "1")
    old = Path("char_lm.html").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: signal.raise_signal(signal.SIGINT) if is_page(number) else None)
        status, _, error = learn()
    assert (status, error) == (130, INTERRUPTED)
    assert Path("char_lm.html").read_bytes() == old
    assert sorted(files(folder)) == ["char_lm.html", "char_lm.npz", "char_lm.previous.npz", "t.txt"]
    assert learn("--resume")[0] == 0
    assert Path("char_lm.html").read_bytes() != old


def is_page(number: int) -> bool:
    """Whether an open file is large, as a page is beside the small checkpoints here."""
    return os.fstat(number).st_size > 50_000


# Texts of other encodings.


@pytest.mark.parametrize(
    ("encoding", "flags"), [("utf-8", []), ("utf-8-sig", []), ("gb18030", ["--encoding", "gb18030"]), ("utf-16", None)]
)
def test_a_chinese_text_is_learnt_in_any_encoding(learn, demo, encoding, flags):
    flags = ["--encoding", encoding] if flags is None else flags
    Path("千字文.txt").write_text(CHINESE, encoding=encoding)
    status, output, error = learn(*flags, text="千字文.txt")
    assert (status, error) == (0, "")
    assert line(output, "text").startswith(f"千字文.txt: {len(CHINESE)} characters, {len(set(CHINESE))} of them distinct")
    assert demo("--prompt", "天地", "--length", "3")[1][:2] == "天地"
    assert "\ufeff" not in load("char_lm.npz")[1].characters


def test_a_text_in_another_encoding_than_named_is_refused_with_the_place(refused):
    Path("t.txt").write_text("ab" + CHINESE, encoding="gb18030")
    assert refused("--text", "t.txt", *TINY) == (
        "t.txt is not utf-8: byte 0xcc at offset 2 (invalid continuation byte); "
        "if it is another encoding, name it: --encoding gb18030"
    )
    Path("t.txt").write_text(CHINESE, encoding="utf-8")
    assert "is not ascii: byte 0xe5 at offset 0" in refused("--text", "t.txt", "--encoding", "ascii", *TINY)


@pytest.mark.parametrize(
    "more",
    [
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_console_that_cannot_show_the_text_loses_nothing(more):
    Path("c.txt").write_text(CHINESE, encoding="utf-8")
    run = as_process("--text", "c.txt", *TINY, "--steps", "2", **more)
    assert (run.returncode, run.stderr) == (0, b"")
    assert b"checkpoint  char_lm.npz" in run.stdout
    model, tokenizer = load("char_lm.npz")
    assert set(tokenizer.characters) == set(CHINESE)
    more = {"PYTHONUTF8": "1", **more} if "LC_ALL" not in more else more
    run = as_process("--prompt", "the x", **more)
    assert (run.returncode, run.stdout) == (2, b"")
    assert b"lacks ' ', 'e', 'h', 't', 'x' of --prompt" in run.stderr


# Wrong flags.

HUGE = "9" * 30
WRONG_FLAGS = [
    (["--foo"], "unrecognized arguments: --foo"),
    (["--step", "3"], "unrecognized arguments: --step 3"),
    (["--temp=1"], "unrecognized arguments: --temp=1"),
    (["-x"], "unrecognized arguments: -x"),
    (["more", "words"], "unrecognized arguments: more words"),
    *(
        (["--" + name], f"argument --{name}: expected one argument")
        for name in ("text", "steps", "out", "prompt", "n-heads")
    ),
    *(
        ([f"--{name}", value], f"argument --{name}: must be in 1 … 2147483647, got {value}")
        for name in ("steps", "n-layers", "n-heads", "d-model", "max-len", "batch-size")
        for value in ("0", "-3", HUGE)
    ),
    *(([f"--{name}", "-1"], f"argument --{name}: must be in 0 … 2147483647, got -1") for name in ("seed", "length")),
    *(
        ([f"--{name}", value], f"argument --{name}: must be an integer, got {value!r}")
        for name in ("steps", "seed", "length", "n-layers", "batch-size")
        for value in ("many", "2.5", "", "nan", "1e3")
    ),
    *(
        ([f"--temperature={value}"], f"argument --temperature: must be a number of at least 0, got {value!r}")
        for value in ("nan", "-0.5", "inf", "-inf", "hot", "")
    ),
    *(([f"--{name}", ""], f"argument --{name}: must not be empty") for name in ("text", "encoding", "out", "prompt")),
    (["--prompt", "x", "--resume"], "--prompt trains nothing, so there is nothing to --resume"),
    *(
        ([*mode, f"--{name}", "3"], f"--{name} was settled when the run in --out began")
        for mode, names in (
            (["--resume"], "n-layers n-heads d-model max-len batch-size seed"),
            (["--prompt", "x"], "n-layers n-heads d-model max-len batch-size"),
        )
        for name in names.split()
    ),
    *(
        (["--prompt", "x", f"--{name}", "3"], f"--prompt trains nothing, so --{name} has no use")
        for name in ("text", "steps")
    ),
    (["--prompt", "x", "--open"], "--prompt trains nothing, so --open has no use"),
]


@pytest.mark.parametrize(("flags", "sentence"), WRONG_FLAGS, ids=[" ".join(flags)[:40] for flags, _ in WRONG_FLAGS])
def test_a_wrong_flag_is_one_sentence(refused, flags, sentence):
    assert refused(*flags) == sentence


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--n-heads", "3"], "--n-heads 3 does not divide --d-model 8"),
        (["--n-heads", "16"], "--n-heads 16 does not divide --d-model 8"),
        (["--encoding", "base64"], "read_text: encoding must be the name of a text encoding, as utf-8, got 'base64'"),
        (["--encoding", "klingon"], "read_text: encoding must be the name of a text encoding, as utf-8, got 'klingon'"),
        (["--d-model", "2000000000"], "the sizes make 48,000,000,056,000,000,000 parameters, "),
        (["--n-layers", "2000000000"], "the sizes make 1,568,000,000,208 parameters, "),
        (["--batch-size", "2000000000"], "the sizes make 992 parameters, 128,000,000,000 numbers a batch "),
        (
            ["--max-len", "2000000000"],
            "the text has 624 characters, 562 to learn, 62 held out; a context of 2000000000 needs",
        ),
    ],
)
def test_sizes_that_make_no_model_are_one_sentence(refused, flags, sentence):
    assert refused("--text", "t.txt", *TINY, *flags).startswith(sentence)


def test_the_largest_model_is_counted_exactly(learn, refused, monkeypatch):
    sizes = ["--n-layers", "3", "--d-model", "10", "--max-len", "7", "--out", "x.npz"]
    n = 10 * (3 * (12 * 10 + 2) + 1 + 7 + 17)
    monkeypatch.setattr(char_lm, "LARGEST", n - 1)
    assert refused("--text", "t.txt", *TINY, *sizes).startswith(f"the sizes make {n:,} parameters, {4 * 7 * 3 * 10} ")
    monkeypatch.setattr(char_lm, "LARGEST", n)
    assert line(learn(*sizes)[1], "checkpoint") == f"x.npz, {n:,} parameters"


def test_a_wrong_flag_reaches_the_shell_without_a_traceback():
    run = as_process("--steps", "0")
    assert (run.returncode, run.stdout) == (2, b"")
    assert run.stderr.startswith(b"python -m demos char_lm: argument --steps: ")
    assert len(run.stderr.splitlines()) == 1


# Wrong texts.


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "bad.txt is empty"),
        (b"\xef\xbb\xbf", "bad.txt is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "bad.txt looks like a binary file: it has a NUL at offset 8"),
        (b"\xff\xfea\0b\0", "bad.txt begins with the mark of utf-16, not of utf-8; name it: --encoding utf-16"),
        (b"abc\xff" * 99, "bad.txt is not utf-8: byte 0xff at offset 3 "),
        (b"a", "the text has 1 characters, 1 to learn, 0 held out; a context of 8 needs at least 9 of each: "),
        (
            b"abcdefghij" * 8,
            "the text has 80 characters, 72 to learn, 8 held out; a context of 8 needs at least 9 of each: ",
        ),
    ],
)
def test_a_text_that_cannot_be_learnt_is_one_sentence(refused, data, sentence):
    Path("bad.txt").write_bytes(data)
    assert refused("--text", "bad.txt", *TINY).startswith(sentence)


def test_a_text_that_is_just_long_enough_is_learnt(learn):
    Path("t.txt").write_text("abcdefghij" * 9, encoding="utf-8")
    assert learn()[0] == 0


def test_a_text_that_is_not_there_is_one_sentence(refused, folder):
    assert refused("--text", "missing.txt", *TINY) == "missing.txt: No such file or directory"
    assert refused("--text", str(folder), *TINY) == f"{folder}: Is a directory"


# Where the checkpoint cannot be.


def test_a_folder_that_is_not_there_is_one_sentence(refused, folder):
    path = os.path.join("missing", "x.npz")
    assert refused("--text", "t.txt", *TINY, "--out", path) == f"{path}: No such file or directory"
    assert not (folder / "missing").exists()


@not_on_windows
def test_a_folder_is_not_replaced(refused, folder):
    (folder / "sub").mkdir()
    assert refused("--text", "t.txt", *TINY, "--out", "sub") == "sub: Is a directory"
    assert refused("--prompt", "the", "--out", "sub") == "sub: Is a directory"
    assert refused("--resume", "--text", "t.txt", "--out", "sub") == "sub: Is a directory"


@needs_permissions
@pytest.mark.parametrize("place", ["the folder", "the file"])
def test_what_may_not_be_written_to_is_one_sentence(learn, refused, folder, place):
    (folder / "sub").mkdir()
    for seed in "12":
        learn("--out", "sub/x.npz", "--seed", seed)
    path = folder / "sub" if place == "the folder" else folder / "sub" / "x.npz"
    path.chmod(0o500 if place == "the folder" else 0o400)
    try:
        assert refused("--text", "t.txt", *TINY, "--out", "sub/x.npz") == "sub/x.npz: Permission denied"
    finally:
        path.chmod(0o700)


@pytest.mark.parametrize(
    "data", [b"", b"my diary", b"PK\x03\x04 but no archive", b"\x93NUMPY\x01\0"], ids=["empty", "text", "zip", "npy"]
)
@pytest.mark.parametrize("name", ["x.npz", "x.previous.npz"])
def test_a_foreign_file_is_left_alone(learn, refused, name, data):
    learn("--out", "x.npz")
    Path(name).write_bytes(data)
    sentence = refused("--text", "t.txt", *TINY, "--out", "x.npz")
    assert sentence.startswith(f"{name} is ")
    assert sentence.endswith("; it is left alone, name another --out")


def test_a_text_is_not_overwritten_by_its_checkpoint(refused):
    assert "t.txt is not an npformer checkpoint" in refused("--text", "t.txt", *TINY, "--out", "t.txt")


@pytest.mark.parametrize("kind", ["finished", "a model alone"])
@pytest.mark.parametrize("out", ["x.npz", "模型 1", "sub.folder/x"])
def test_a_model_that_is_there_is_kept_beside_the_new_one(learn, folder, kind, out):
    (folder / "sub.folder").mkdir()
    if kind == "a model alone":
        GPT(GPTConfig(vocab_size=3, max_len=4, n_layers=1, n_heads=1, d_model=2)).save(out)
    else:
        learn("--out", out)
    old = Path(out).read_bytes()
    status, output, _ = learn("--out", out, "--seed", "5")
    root, extension = os.path.splitext(out)
    assert status == 0
    assert line(output, "note") == f"{out} held a model, which is now {root}.previous{extension}"
    assert Path(f"{root}.previous{extension}").read_bytes() == old
    assert Path(out).read_bytes() != old


def test_a_run_that_was_stopped_half_way_is_not_replaced(learn, refused, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        learn()
    assert refused("--text", "t.txt", *TINY) == (
        "char_lm.npz holds an unfinished run, at step 3 of 6: go on with --resume, or name another --out"
    )


def test_runs_that_end_before_their_first_step_replace_nothing(learn, monkeypatch):
    """A trained model is there; twice somebody begins another run by mistake, and stops it at once."""
    learn()
    trained = Path("char_lm.npz").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(gradcheck, "check_layer", lambda *_: signal.raise_signal(signal.SIGINT))
        for _ in range(2):
            assert learn("--seed", "5")[0] == 130
    assert Path("char_lm.npz").read_bytes() == trained
    assert not Path("char_lm.previous.npz").exists()


# To go on.


def held_out(output: str) -> str:
    return line(output, "held out")


def test_an_interruption_prints_the_command_that_goes_on(learn, monkeypatch):
    interrupt_after(monkeypatch, 3)
    status, output, error = learn()
    assert (status, error) == (130, "")
    assert line(output, "stopped") == "after step 3 of 6, which char_lm.npz holds"
    words = shlex.split(line(output, "to go on").replace("\\", "/"))
    assert words[1:] == ["-m", "demos", "char_lm", "--resume", "--text", "t.txt", "--length", "9"]


@not_on_windows
@pytest.mark.parametrize(
    ("name", "out", "more"),
    [
        ("t.txt", "char_lm.npz", []),
        ('it\'s a "text" & $HOME `x` !.txt', "my run;.npz", ["--seed", "7", "--temperature", "0.5"]),
        ("千字文.txt", "模型.npz", ["--encoding", "gb18030"]),
        ("-t.txt", "-x.npz", ["--length", "0"]),
    ],
)
def test_pasting_the_printed_commands_ends_as_an_unbroken_run_does(demo, folder, monkeypatch, capsys, name, out, more):
    text = CHINESE if "千" in name else TEXT
    Path(name).write_text(text, encoding="gb18030" if "--encoding" in more else "utf-8")
    arguments = [f"--text={name}", f"--out={out}", *SIZES, "--steps", "6", *more]
    _, whole, _ = demo(*arguments)
    data = Path(out).read_bytes()
    Path(out).unlink()
    with monkeypatch.context() as patch:
        interrupt_after(patch, 4)
        status, output, _ = demo(*arguments)
    assert status == 130
    assert Path(out).read_bytes() != data

    resumed = paste(line(output, "to go on"))
    assert held_out(resumed) == held_out(whole)
    assert resumed.partition("\nsample ")[2] == whole.partition("\nsample ")[2]
    assert Path(out).read_bytes() == data
    prompted = paste(line(resumed, "to go on"))
    prompt = re.search(r"--prompt[ =](.*)$", resumed, re.MULTILINE)[1]
    assert prompted.startswith(shlex.split(prompt)[0])


def paste(command: str) -> str:
    run = subprocess.run(command, shell=True, env=environment(), capture_output=True, encoding="utf-8", check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


@not_on_windows
@pytest.mark.parametrize("text", ["-- - -", "\n\n\n  x  \n", "'\"'\"", "$(exit 3)`;", "--resume", 'a\'b "c"', "天 地", "-x"])
def test_a_prompt_of_any_characters_can_be_pasted(demo, text):
    Path("t.txt").write_text((text * 300)[:600], encoding="utf-8")
    _, output, _ = demo("--text", "t.txt", *SIZES, "--steps", "1", "--length", "0")
    words = output.partition("\nto go on    ")[2].removesuffix("\n")
    prompted = paste(words + " --length 2").removesuffix("\n")
    assert len(prompted) >= 3
    assert prompted[:-2] in (text * 300)[:600]


def test_the_command_names_the_python_that_runs_it(monkeypatch, folder):
    assert shlex.split(char_lm.command("char_lm.npz", "--resume"))[1:] == ["-m", "demos", "char_lm", "--resume"]
    python = os.path.join(os.getcwd(), ".venv", "bin", "python")
    monkeypatch.setattr(sys, "executable", python)
    assert char_lm.command("char_lm.npz").split(" ")[0].replace("\\", "/") == ".venv/bin/python"
    monkeypatch.setattr(sys, "executable", os.path.join(os.getcwd() + "-elsewhere", "python"))
    assert char_lm.command("char_lm.npz").split(" ")[0].strip("'\"") == sys.executable
    monkeypatch.setattr("shutil.which", lambda name: sys.executable if name == "python" else None)
    assert char_lm.command("char_lm.npz").startswith("python -m demos")
    monkeypatch.setattr(sys, "executable", "")
    assert char_lm.command("char_lm.npz").startswith("python -m demos")


def test_on_windows_a_word_is_quoted_where_it_must_be_and_nowhere_else(monkeypatch):
    """PowerShell takes a command that begins with a quotation mark for a text."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", r"C:\venv\Scripts\python.exe")
        patch.setattr(os, "name", "nt")
        plain = char_lm.command("模型.npz", "--resume", text=r"D:\texts\千字文.txt")
        spaced = char_lm.command("my run.npz", text="a & b (1).txt", prompt="the cat")
        patch.setattr(sys, "executable", r"C:\Program Files\python.exe")
        quoted = char_lm.command("char_lm.npz")
    assert quoted == r'& "C:\Program Files\python.exe" -m demos char_lm'
    assert plain == r"C:\venv\Scripts\python.exe -m demos char_lm --resume --out 模型.npz --text D:\texts\千字文.txt"
    assert spaced.endswith(' -m demos char_lm --out "my run.npz" --text "a & b (1).txt" --prompt "the cat"')


def test_a_finished_run_goes_on_only_to_more_steps(learn, demo, refused):
    _, whole, _ = learn("--steps", "9", "--out", "whole.npz")
    _, first, _ = learn()
    status, again, _ = learn("--resume")
    assert status == 0
    assert line(again, "resumed") == "char_lm.npz after step 6 of 6, all done: --steps N goes on to more"
    assert line(again, "trained").startswith("0 steps in ")
    assert held_out(again) == held_out(first)
    status, more, _ = learn("--resume", "--steps", "9")
    assert status == 0
    assert line(more, "resumed") == "char_lm.npz after step 6 of 9"
    assert line(more, "trained").startswith("3 steps in ")
    assert refused("--resume", "--text", "t.txt", "--steps", "3").endswith("must be at least 9, which are done, got 3")


def test_a_run_that_is_not_there_cannot_go_on(refused):
    sentence = "there is no checkpoint char_lm.npz; a run without --resume and --prompt writes one"
    assert refused("--resume", "--text", "t.txt") == sentence
    assert refused("--prompt", "x") == sentence


def test_a_run_goes_on_with_its_own_text_only(learn, refused):
    learn()
    Path("other.txt").write_text(OTHER, encoding="utf-8")
    assert refused("--resume", "--text", "other.txt") == "char_lm.npz was trained on another text than the one given"
    Path("other.txt").write_text(TEXT.replace("cat", "dog"), encoding="utf-8")
    assert refused("--resume", "--text", "other.txt") == "char_lm.npz was trained on another text than the one given"
    assert refused("--resume") == "char_lm.npz was trained on another text than the one given; name it with --text"


def test_a_model_without_a_run_cannot_go_on_but_writes(refused, demo):
    tokenizer = CharacterTokenizer.from_text(TEXT)
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, max_len=8, n_layers=1, n_heads=1, d_model=4))
    model.save("char_lm.npz", tokenizer)
    assert refused("--resume", "--text", "t.txt") == "char_lm.npz holds a model, but no training run to go on with"
    assert demo("--prompt", "the", "--length", "5")[0] == 0
    model.save("char_lm.npz")
    assert refused("--prompt", "the") == "char_lm.npz was saved without its characters"


def test_a_damaged_checkpoint_is_one_sentence_for_every_use(learn, refused):
    learn()
    whole = Path("char_lm.npz").read_bytes()
    rng = np.random.default_rng(0)
    cut = [whole[:length] for length in (1, 100, len(whole) // 2, len(whole) - 1)]
    flipped = [bytearray(whole) for _ in range(4)]
    for data in flipped:
        place = 2000 + int(rng.integers(len(whole) - 6000))
        data[place : place + 64] = bytes(255 - byte for byte in data[place : place + 64])
    for data in (*cut, *flipped):
        Path("char_lm.npz").write_bytes(data)
        for arguments in (["--resume", "--text", "t.txt"], ["--prompt", "the"], ["--text", "t.txt", *TINY]):
            assert re.match(r"char_lm\.npz is (damaged|not an npformer checkpoint): ", refused(*arguments))


# To write.


def test_a_prompt_is_continued_without_training(learn, demo, folder):
    learn()
    before = files(folder)
    status, output, error = demo("--prompt", "the cat", "--length", "20")
    assert (status, error) == (0, "")
    assert output.startswith("the cat")
    assert len(output) == 7 + 20 + 1
    assert demo("--prompt", "the cat", "--length", "20")[1] == output
    assert demo("--prompt", "the cat", "--length", "20", "--seed", "1")[1] != output
    assert files(folder) == before


def test_a_length_of_zero_is_the_prompt_alone(learn, demo):
    learn()
    assert demo("--prompt", "the cat", "--length", "0") == (0, "the cat\n", "")


def test_a_temperature_of_zero_needs_no_seed(learn, demo):
    learn()
    first, second = (demo("--prompt", "the", "--temperature", "0", "--seed", seed) for seed in "12")
    assert first == second


def test_characters_that_the_model_does_not_know_are_all_listed(learn, refused):
    learn()
    unknown = "XYZ0123456789ÄÖÜ天"
    sentence = refused("--prompt", f"the {unknown}\u0301{unknown} cat")
    listed = ", ".join([*map(repr, sorted(unknown + "\u0301"))]).replace(repr("\u0301"), r"'\u0301'")
    assert sentence == f"the text that the model has learnt lacks {listed} of --prompt"


def test_a_prompt_longer_than_the_context_is_cropped_with_a_notice(learn, demo):
    learn()
    status, output, error = demo("--prompt", "the dog sat by the cat", "--length", "30")
    assert status == 0
    assert error == "note        the prompt has 22 tokens, the context holds 8: the first 14 are left out\n"
    assert output.startswith("the dog sat by the cat")
    _, short, silent = demo("--prompt", " the cat", "--length", "30")
    assert silent == ""
    assert output.removeprefix("the dog sat by") == short


def test_bytes_that_are_no_text_are_refused_as_a_prompt(learn):
    if os.name == "nt":
        pytest.skip("arguments are text there")
    learn()
    command = typed("--prompt", b"the \xff")
    run = subprocess.run(command, env=environment(), capture_output=True, check=False)
    assert (run.returncode, run.stdout) == (2, b"")
    assert rb"lacks '\udcff' of --prompt" in run.stderr


# Interruptions.


def test_ctrl_c_while_the_gradients_are_checked_is_a_plain_ending(learn, monkeypatch):
    monkeypatch.setattr(gradcheck, "check_layer", lambda *_: signal.raise_signal(signal.SIGINT))
    status, output, error = learn()
    assert (status, error) == (130, INTERRUPTED)
    assert output.endswith("\ngradients   ")  # said before it begins, so that nobody waits without a word


def test_ctrl_c_while_the_sample_is_written_is_a_plain_ending(learn, monkeypatch, demo):
    stream = char_lm.stream

    def interrupted(*arguments, **options):
        for i, step in enumerate(stream(*arguments, **options)):
            if i == 3:
                signal.raise_signal(signal.SIGINT)
            yield step

    monkeypatch.setattr(char_lm, "stream", interrupted)
    status, output, error = learn()
    assert (status, error) == (130, "")
    assert len(sample_of(output)) == 3
    assert " --prompt " in line(output, "to go on")
    assert load("char_lm.npz")[1].characters == "".join(sorted(set(TEXT)))
    assert demo("--prompt", "the")[0] == 130


def test_a_second_ctrl_c_ends_at_once_and_the_last_checkpoint_is_whole(learn, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3, times=2)
        status, _, error = learn()
    assert (status, error) == (130, INTERRUPTED)
    status, output, _ = learn("--resume")
    assert status == 0
    assert line(output, "resumed") == "char_lm.npz after step 0 of 6"


@not_on_windows
def test_ctrl_c_from_outside_ends_after_the_step_with_a_checkpoint():
    every_step = "from demos import progress\nprogress.N_LINES = 10**6"
    command = typed("--text", "t.txt", *TINY, "--steps", "1000000", program=every_step)
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not process.stdout.readline().startswith(b"step "):
            pass
        process.send_signal(signal.SIGINT)
        output, error = process.communicate()
    assert (process.returncode, error) == (130, b"")
    assert re.search(rb"^stopped     after step \d+ of 1000000, which char_lm.npz holds$", output, re.MULTILINE)
    assert re.search(rb"^to go on    .* --resume --text t.txt --length 9$", output, re.MULTILINE)


# Numbers that are not finite.


def test_a_number_that_is_not_finite_ends_training_with_its_place_and_the_checkpoint_stays(learn, monkeypatch):
    _, whole, _ = learn("--out", "whole.npz")
    step = Trainer.step

    def spoilt(self):
        if self.n_done == 3:
            self.flat.parameters["embedding.table"].value[2, 5] = np.nan
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", spoilt)
        status, output, error = learn()
    assert status == 2
    assert error == (
        "char_lm: step 4: not finite is the parameter embedding.table, nan at [2, 5]; "
        "the last good checkpoint is in char_lm.npz\n"
    )
    assert "step 3 of 6" in output
    assert "step 4 of 6" not in output
    status, output, _ = learn("--resume")
    assert (status, held_out(output)) == (0, held_out(whole))


# Pipes and disks.


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("arguments", [["--text", "t.txt", *TINY, "--steps", "3"], ["--help"], ["--prompt", "the"]])
def test_a_reader_that_has_gone_ends_the_demo_without_a_word(learn, arguments, closed_pipe):
    learn()
    command = typed(*arguments)
    run = subprocess.run(command, env=environment(), stdout=closed_pipe, stderr=subprocess.PIPE, check=False)
    assert (run.returncode, run.stderr) == (1, b"")
    assert load("char_lm.npz")[1].characters == "".join(sorted(set(TEXT)))


def test_a_reader_that_goes_in_the_middle_leaves_a_whole_checkpoint():
    command = typed("--text", "t.txt", *TINY, "--steps", "1500")
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not process.stdout.readline().startswith(b"step "):
            pass
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
    assert load("char_lm.npz")[1].characters == "".join(sorted(set(TEXT)))


@not_on_windows
@pytest.mark.parametrize("closed", [[1], [2], [1, 2], [0, 1, 2]])
def test_closed_streams_do_not_hinder_training(closed):
    """The files that are opened then may get the numbers of the streams."""
    program = f"import os, sys\nfor number in {closed}: os.close(number)\nos.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", program, *typed("--text", "t.txt", *TINY, "--steps", "6")]
    run = subprocess.run(command, env=environment(), capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (0, b"")
    assert (run.stdout == b"") == (1 in closed)
    assert load("char_lm.npz")[1].characters == "".join(sorted(set(TEXT)))


SMALL_DISK = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))"


@not_on_windows
@pytest.mark.parametrize("room", [0, 10_000])
@pytest.mark.parametrize("what", ["a first run", "a new run", "a run that goes on"])
def test_a_full_disk_is_one_sentence_and_the_old_checkpoint_stays(learn, folder, room, what):
    for seed in "12" if what != "a first run" else "":
        learn("--seed", seed)
    before = files(folder)
    mode = ["--resume", "--steps", "9"] if what == "a run that goes on" else TINY
    run = as_process("--text", "t.txt", *mode, program=SMALL_DISK.format(room=room))
    assert run.returncode == 2, run.stdout
    assert run.stderr == b"char_lm: char_lm.npz: File too large\n"
    assert files(folder) == before


@not_on_windows
def test_a_disk_that_becomes_full_while_training_costs_no_more_than_the_steps_since_the_checkpoint(learn, demo, folder):
    program = (
        "import resource\nfrom npformer.training import Trainer\nstep = Trainer.step\n"
        "def full(self):\n"
        "    if self.n_done == 3:\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "    return step(self)\n"
        "Trainer.step = full"
    )
    run = as_process("--text", "t.txt", *TINY, "--steps", "6", program=program)
    assert run.returncode == 2
    assert run.stderr == b"char_lm: char_lm.npz: File too large\n"
    assert sorted(os.listdir()) == ["char_lm.npz", "t.txt"]
    status, output, _ = learn("--resume")
    assert (status, line(output, "resumed")) == (0, "char_lm.npz after step 0 of 6")


@not_on_windows
def test_a_disk_without_room_for_the_page_costs_the_page_alone(learn, folder):
    learn("--seed", "1")
    page = Path("char_lm.html").read_bytes()
    room = 2 * len(Path("char_lm.npz").read_bytes())
    assert len(page) > room
    run = as_process("--text", "t.txt", *TINY, "--steps", "6", program=SMALL_DISK.format(room=room))
    assert (run.returncode, run.stderr) == (2, b"char_lm: char_lm.html: File too large\n")
    assert Path("char_lm.html").read_bytes() == page
    assert sorted(os.listdir()) == ["char_lm.html", "char_lm.npz", "char_lm.previous.npz", "t.txt"]
    assert learn("--resume")[0] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_an_output_that_cannot_be_written_is_one_sentence():
    command = typed("--text", "t.txt", *TINY, "--steps", "3")
    with open("/dev/full", "wb") as full:
        run = subprocess.run(command, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False)
    assert (run.returncode, run.stderr) == (2, b"char_lm: No space left on device\n")
    assert load("char_lm.npz")[1].characters == "".join(sorted(set(TEXT)))


def test_a_page_of_somebody_else_is_left_alone(demo, folder):
    page = folder / "notes.html"
    page.write_text("<p>mine</p>")
    status, output, errors = demo("--text", "t.txt", "--out", "notes.npz", "--steps", "1", *TINY)
    assert (status, output) == (2, "")
    assert (
        errors == "char_lm: notes.html, where the page goes, is none of npformer's; it is left alone, name another --out\n"
    )
    assert page.read_text() == "<p>mine</p>"
    assert not (folder / "notes.npz").exists()
