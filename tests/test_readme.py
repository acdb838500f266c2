"""What README.md and docs/gradcheck.md tell people to type works: Python runs, commands agree, links lead somewhere."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/reading.md", "docs/gradcheck.md"])
def test_a_link_leads_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []


def test_the_report_that_is_shown_is_the_one_that_is_printed(capsys):
    page = re.search(r"```python\n(?P<program>[^`]*)```\n\nIt prints:\n\n```text\n(?P<output>.*?)```", README, re.DOTALL)
    exec(compile(page["program"], "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == page["output"]
