"""What README.md and docs/gradcheck.md tell people to type works: Python runs, commands agree, links lead somewhere.

README.zh-CN.md tells them the same in Chinese, and is held to README.md.
"""

import io
import re
import shutil
import tokenize
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
GRADCHECK = (ROOT / "docs" / "gradcheck.md").read_text(encoding="utf-8")

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# Marks on the line before a block's fence, or with one empty line between.
FAILS_ON_PURPOSE = "<!-- fails on purpose -->"
NEEDS = re.compile(r"<!-- needs (\w+) -->\s*\Z")


class Block(NamedTuple):
    line: int
    language: str
    text: str
    fails_on_purpose: bool
    needs: str | None


def blocks(page: str) -> list[Block]:
    return [
        Block(
            line=page.count("\n", 0, match.start("text")) + 1,
            language=match["language"],
            text=match["text"],
            fails_on_purpose=page[: match.start()].rstrip().endswith(FAILS_ON_PURPOSE),
            needs=next(iter(NEEDS.findall(page[: match.start()])), None),
        )
        for match in FENCE.finditer(page)
    ]


def command(name: str, language: str) -> str:
    """The first block in a language between `<!-- name command -->` and the next such mark."""
    _, _, rest = README.partition(f"<!-- {name} command -->\n")
    section = re.split(r"^<!-- .* command -->$", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return next(block.text for block in blocks(section) if block.language == language)


PAGES = {"README.md": README, "docs/gradcheck.md": GRADCHECK}
EXAMPLES = [
    pytest.param(page, block, id=f"{page} line {block.line}")
    for page, text in PAGES.items()
    for block in blocks(text)
    if block.language == "python"
]


def test_there_are_examples():
    assert len(EXAMPLES) >= 2
    assert {block.needs for _, block in (example.values for example in EXAMPLES)} == {None, "torch", "jax", "cc"}


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_an_example_runs_as_it_stands(page, block):
    if block.needs and not (shutil.which(block.needs) or find_spec(block.needs)):
        pytest.skip(f"needs {block.needs}, which is not installed")
    program = compile("\n" * (block.line - 1) + block.text, str(ROOT / page), "exec")
    namespace = {"__name__": "readme"}
    if block.fails_on_purpose:
        with pytest.raises(AssertionError):
            exec(program, namespace)
    else:
        exec(program, namespace)


@pytest.mark.parametrize(("name", "modules"), [("first", ["venv", "pip", "demos"]), ("test", ["venv", "pip", "pytest"])])
def test_a_command_is_one_line_and_the_same_on_every_system(name, modules):
    for language in ("sh", "powershell"):
        text = command(name, language)
        assert text.count("\n") == 1
        assert re.findall(r" -m (\w+)", text) == modules
    arguments = [re.search(r" -m pip (.*?) ?(?:&&|;)", command(name, language))[1] for language in ("sh", "powershell")]
    assert arguments[0] == arguments[1]


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md", "docs/reading.md", "docs/gradcheck.md"])
def test_a_link_leads_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []


def test_the_report_that_is_shown_is_the_one_that_is_printed(capsys):
    page = re.search(r"```python\n(?P<program>[^`]*)```\n\nIt prints:\n\n```text\n(?P<output>.*?)```", README, re.DOTALL)
    exec(compile(page["program"], "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == page["output"]


def without_comments(program: str) -> str:
    lines = program.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(program).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column]
    return "\n".join(lines)


def untranslated(page: str) -> list[str]:
    """What reads the same in every language: headings' depths, marks and blocks in order, then what the prose names."""
    result = []
    for part in re.finditer(rf"^#+(?= )|^<!-- [^\n]* -->$|{FENCE.pattern}", page, re.MULTILINE | re.DOTALL):
        result.append(without_comments(part["text"]) if part["language"] == "python" else part[0])
    prose = FENCE.sub("", page)
    code = {" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose)}
    links = {target for target in re.findall(r"\]\(([^)]+)\)", prose) if not target.startswith("README")}
    numbers = set(re.findall(r"\d+\.\d+", prose))
    return [*result, *sorted(code), *sorted(links), *sorted(numbers)]


def test_the_translation_says_to_type_the_same():
    assert untranslated(CHINESE) == untranslated(README)


@pytest.mark.parametrize("page", [README, CHINESE], ids=["English", "Chinese"])
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        pytest.param(r"^(```sh\n.*)", r"\1 more", id="a command for the shell"),
        pytest.param(r"^(```powershell\n.*)", r"\1 more", id="a command for PowerShell"),
        pytest.param(r"^(```text\n)", r"\1more ", id="an output"),
        pytest.param(r"^(```python\n)", r"\1import os\n", id="a line of a program"),
        pytest.param(r"(?s)^(```sh\n.*?^```)$(.*?)^(```powershell\n.*?^```)$", r"\3\2\1", id="another order"),
        pytest.param(r"^<!-- .* -->\n", "", id="a mark"),
        pytest.param(r"^## .*\n", "", id="a heading"),
        pytest.param(r"`python -m \w+ ", "`python -m others ", id="a command in a sentence"),
        pytest.param(r"`--\w+", "`--other", id="a flag"),
        pytest.param(r"\]\(docs/", "](doc/", id="a link"),
        pytest.param(r"\d+\.\d+", "0.0", id="a figure"),
    ],
)
def test_a_translation_that_differs_is_found(page, pattern, replacement):
    changed, count = re.subn(pattern, replacement, page, count=1, flags=re.MULTILINE)
    assert count == 1
    assert untranslated(changed) != untranslated(page)


def test_a_translation_may_translate_comments_alone():
    page = "```python\nx = '# {}'  # {}\n```\n"
    assert untranslated(page.format("one", "two")) == untranslated(page.format("one", "二"))
    assert untranslated(page.format("one", "two")) != untranslated(page.format("一", "two"))
