"""`python -m demos`, as a user types it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from demos.__main__ import DEMOS, main

ROOT = Path(__file__).parents[2]


def demos(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-W", "error", "-m", "demos", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_the_demos_are_listed_with_a_line_each(arguments):
    run = demos(*arguments)
    assert (run.returncode, run.stderr) == (0, "")
    head, empty, *listed = run.stdout.splitlines()
    assert (head.startswith("python -m demos NAME "), empty) == (True, "")
    assert [line.split()[0] for line in listed] == list(DEMOS)
    assert all(len(line.split()) > 5 and line.endswith(".") for line in listed)


def test_every_demo_in_the_folder_is_listed():
    parts = {"counting", "gradients", "numbers", "pages", "progress", "weights"}
    assert {path.stem for path in (ROOT / "demos").glob("[!_]*")} - parts == set(DEMOS)


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_has_help_of_its_own(name):
    run = demos(name, "--help")
    assert (run.returncode, run.stderr) == (0, "")
    assert re.search(rf"^ *(usage: )?python (-m demos |demos/){name}", run.stdout, re.MULTILINE)


def test_the_help_of_char_lm_says_what_every_option_does():
    page = demos("char_lm", "--help").stdout
    options = page.partition("options:")[2]
    names = "text encoding steps seed out open resume prompt length temperature n-layers n-heads d-model max-len batch-size"
    for name in names.split():
        words = options.split(f"  --{name}")[1].split("\n  -")[0].split()
        assert len(words) >= 3, name


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["chra_lm"], "'chra_lm'"),
        (["char_lm.py"], "'char_lm.py'"),
        (["list", "them"], "'list them'"),
        (["--list"], "'--list'"),
        (["--help", "me"], "'--help me'"),
        ([""], "''"),
        (["two\nlines"], r"'two\nlines'"),
    ],
)
def test_an_unknown_name_is_one_sentence_and_status_2(arguments, shown, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"demos: there is no demo {shown}; there are {', '.join(DEMOS)}\n"


def test_an_unknown_name_reaches_the_shell_without_a_traceback():
    run = demos("nothing")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["extra"], ["extra", "words"]])
def test_extra_words_after_a_name_are_one_sentence_and_status_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["char_lm", *words])
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    assert captured.err == f"python -m demos char_lm: unrecognized arguments: {' '.join(words)}\n"
