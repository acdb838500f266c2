"""Lines of npformer's own source, to be shown and to be run: what a student reads is what computes the numbers."""

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from demos.by_hand.tables import WIDTH

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Line:
    """One assignment of a module; `number` counts from 1."""

    module: ModuleType
    number: int
    code: str

    def run(self, result: str, **names: Any) -> Any:
        """What `result` is once the line has run with `names`, as it stands in the file."""
        namespace = {**vars(self.module), **names}
        exec(compile(self.code, f"{place_of(self.module)}:{self.number}", "exec"), namespace)
        return namespace[result]


def line_of(function: Callable[..., Any], beginning: str) -> Line:
    """The line that begins so in the module of `function`, without its comment. ValueError unless there is exactly one."""
    module = module_of(function)
    found = [
        Line(module, number, text.partition("  # ")[0].strip())
        for number, text in enumerate(text_of(module).splitlines(), start=1)
        if text.lstrip().startswith(beginning)
    ]
    if len(found) != 1:
        raise ValueError(f"{place_of(module)} has {len(found)} lines that begin with {beginning!r}, and not one")
    return found[0]


def quotation(lines: Sequence[Line]) -> str:
    """The file, and under it the lines with their numbers."""
    [module] = {line.module for line in lines}
    return "\n".join([f"    {place_of(module)}", *(f"    {line.number:>4}  {line.code}" for line in lines)])


def parts_of(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Forward and backward of each function in the module of `function` that has a backward inside: a title, and the
    lines with their numbers."""
    module = module_of(function)
    texts = text_of(module).splitlines()
    for outer in ast.parse("\n".join(texts)).body:
        if not isinstance(outer, ast.FunctionDef):
            continue
        body = outer.body[1:] if ast.get_docstring(outer) else outer.body
        for inner in body:
            if isinstance(inner, ast.FunctionDef) and inner.name == "backward":
                spans = {"forward": (body[0].lineno, inner.lineno - 1), "backward": (inner.lineno, inner.end_lineno or 0)}
                for name, (first, last) in spans.items():
                    lines = [numbered(number, texts[number - 1]) for number in range(first, last + 1)]
                    yield f"{name.upper()} of {outer.name}, in {place_of(module)}", "\n".join(filter(None, lines))


def numbered(number: int, text: str) -> str:
    """A line of a function's body. What leaves the page goes on below: a comment whole, code from a space on."""
    code, mark, comment = text.removeprefix("    ").partition("  # ")
    indent = " " * (len(code) - len(code.lstrip()))
    lines = [f"{number:>4}  {code}{mark}{comment}"]
    if len(lines[0]) > WIDTH and mark:
        lines = [f"{number:>4}  {code}", f"          {indent}# {comment}"]
    if len(lines[0]) > WIDTH:
        cut = lines[0].rindex(" ", 0, WIDTH)
        lines[:1] = [lines[0][:cut], f"          {indent}{lines[0][cut + 1 :]}"]
    return "\n".join(lines) if code.strip() else ""


def module_of(function: Callable[..., Any]) -> ModuleType:
    return sys.modules[function.__module__]  # npformer.functional.softmax, as an attribute, is the function


def text_of(module: ModuleType) -> str:
    return Path(str(module.__file__)).read_text(encoding="utf-8")


def place_of(module: ModuleType) -> str:
    return Path(str(module.__file__)).relative_to(ROOT).as_posix()
