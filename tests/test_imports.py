"""Imports go one way: a file may import from its own level and from those below it.

    the small modules of npformer → functional → layers → models → text, training, generation, inspection
        → catalogue → oracle → npformer/__init__.py → npformer/__main__.py → demos

The small modules are the files directly in npformer/ that the line does not name: operation.py, arguments.py and so on.
They, and the four siblings from text to inspection, may import one another as long as no circle forms. gradcheck stands
apart: it imports nothing of npformer, and in npformer only oracle and __main__.py import it. The references in
npformer/oracle/reference/ stand apart too, so that they share no mistake with what they judge. An import counts
wherever it stands, in a function or under TYPE_CHECKING too: the rule is for the reader before the interpreter.

Beyond that, only NumPy and the standard library. The extras are in the tables below.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

LEVELS = (
    ("functional",),
    ("layers",),
    ("models",),
    ("text", "training", "generation", "inspection"),
    ("catalogue",),
    ("oracle",),
    ("__init__",),
    ("__main__",),
)
RANK = {unit: rank for rank, level in enumerate(LEVELS, start=1) for unit in level}  # a small module has rank 0
MAY_IMPORT_GRADCHECK = {"oracle", "__main__"}
REFERENCE = "npformer.oracle.reference"

# A file that is an extra from its first line to its last: no other file imports it, except inside a function.
EXTRA_FILES: dict[str, set[str]] = {"gradcheck/strategies.py": {"hypothesis"}}
# A file with a function that needs an extra and imports it there.
EXTRA_FUNCTIONS: dict[str, set[str]] = {}


class Import(NamedTuple):
    line: int
    module: str
    in_function: bool


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(path: str, source: str, modules: Collection[str]) -> Iterator[Import]:
    """Every import in a file, as an absolute name; `from a import b` is a.b where that is one of `modules`."""
    package = module_name(path) if path.endswith("/__init__.py") else module_name(path).rpartition(".")[0]

    def walk(node: ast.AST, in_function: bool) -> Iterator[Import]:
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(node.lineno, alias.name, in_function)
            case ast.ImportFrom():
                base = node.module or ""
                if node.level:
                    parents = package.split(".")
                    base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
                names = [f"{base}.{alias.name}" for alias in node.names]
                for name in dict.fromkeys(name if name in modules else base for name in names):
                    yield Import(node.lineno, name, in_function)
            case ast.Call(
                func=ast.Name("__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(str(name)), *_],
            ):
                yield Import(node.lineno, name, in_function)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(ast.parse(source), False)


def unit_of(module: str) -> str:
    """The part of npformer that a module belongs to: npformer.layers.linear → layers."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def broken_rules(path: str, source: str, modules: Collection[str]) -> list[str]:
    """What a file imports and should not, one sentence each."""
    package = path.partition("/")[0]
    unit = unit_of(module_name(path))
    known = {*modules, *(f"npformer.{name}" for name in RANK)}
    is_reference = module_name(path).startswith(REFERENCE)
    problems = []
    if package == "npformer" and unit not in RANK and path.count("/") > 1:
        problems.append(f"{path}: npformer/{unit}/ has no level in tests/test_imports.py")
    for line, module, in_function in imports(path, source, known):
        top = module.partition(".")[0]
        rule = None
        if is_reference and top in ("npformer", "gradcheck") and not module.startswith(REFERENCE):
            rule = "a reference shares nothing with what it judges"
        elif top == "npformer":
            other = unit_of(module)
            if package == "gradcheck":
                rule = "gradcheck knows nothing of npformer"
            elif package == "npformer" and RANK.get(unit, 0) < RANK.get(other, 0):
                rule = f"{unit} lies below {other}"
        elif top == "gradcheck":
            if package == "npformer" and unit not in MAY_IMPORT_GRADCHECK:
                rule = "in npformer only oracle and __main__.py import gradcheck"
        elif top == "demos":
            if package != "demos":
                rule = f"{package} lies below demos"
        elif top in EXTRA_FUNCTIONS.get(path, ()):
            if not in_function:
                rule = "an extra is imported inside the function that needs it"
        elif top != "numpy" and top not in sys.stdlib_module_names and top not in EXTRA_FILES.get(path, ()):
            rule = "neither NumPy nor the standard library, nor an extra that tests/test_imports.py lists for this file"
        if not in_function and module in map(module_name, EXTRA_FILES):
            rule = "this module needs an extra, so it is imported inside a function"
        if rule:
            problems.append(f"{path}:{line} imports {module}: {rule}")
    return problems


def circles(sources: Mapping[str, str]) -> list[str]:
    """The circles among parts of npformer that lie at one level, each once."""
    modules = set(map(module_name, sources))
    graph: dict[str, set[str]] = {}
    for path, source in sources.items():
        if path.startswith("npformer/"):
            unit = unit_of(module_name(path))
            for _, module, _ in imports(path, source, modules):
                other = unit_of(module)
                if module.startswith("npformer.") and other != unit and RANK.get(unit, 0) == RANK.get(other, 0):
                    graph.setdefault(unit, set()).add(other)

    found: dict[frozenset[str], str] = {}

    def follow(trail: list[str]) -> None:
        for other in sorted(graph.get(trail[-1], ())):
            if other in trail:
                circle = trail[trail.index(other) :]
                found.setdefault(frozenset(circle), "npformer: a circle of imports, " + " → ".join([*circle, other]))
            else:
                follow([*trail, other])

    for unit in sorted(graph):
        follow([unit])
    return sorted(found.values())


def read_sources() -> dict[str, str]:
    files = [path for package in ("npformer", "gradcheck", "demos") for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


SOURCES = read_sources()
MODULES = set(map(module_name, SOURCES))


def test_the_files_were_found():
    assert {"npformer/__init__.py", "npformer/functional/__init__.py", "gradcheck/__init__.py"} <= SOURCES.keys()


@pytest.mark.parametrize("path", SOURCES)
def test_a_file_imports_only_what_lies_below_it(path):
    assert broken_rules(path, SOURCES[path], MODULES) == []


def test_no_circle_forms_at_one_level():
    assert circles(SOURCES) == []


# The rules on made-up files: what each must say, and what each must let pass.

ONLY_THOSE_TWO = "in npformer only oracle and __main__.py import gradcheck"
ONLY_NUMPY = "neither NumPy nor the standard library"

BAD = [
    ("npformer/functional/x.py", "import npformer.layers", "functional lies below layers"),
    ("npformer/functional/x.py", "from npformer import layers", "functional lies below layers"),
    ("npformer/functional/x.py", "from npformer.layers.linear import Linear", "functional lies below layers"),
    ("npformer/functional/x.py", "from ..layers import linear", "functional lies below layers"),
    ("npformer/functional/__init__.py", "from ..layers import linear", "functional lies below layers"),
    ("npformer/functional/x.py", "import numpy, npformer.models", "functional lies below models"),
    ("npformer/functional/x.py", "from npformer import layer_norm", "functional lies below __init__"),
    ("npformer/functional/x.py", "import npformer", "functional lies below __init__"),
    ("npformer/layers/x.py", "def f():\n    from npformer.models import gpt", "layers lies below models"),
    ("npformer/layers/x.py", "if TYPE_CHECKING:\n    from npformer.models import gpt", "layers lies below models"),
    ("npformer/layers/x.py", "import_module('npformer.models.gpt')", "layers lies below models"),
    ("npformer/models/x.py", "import npformer.text", "models lies below text"),
    ("npformer/models/x.py", "import npformer.inspection.record", "models lies below inspection"),
    ("npformer/generation/x.py", "import npformer.catalogue", "generation lies below catalogue"),
    ("npformer/catalogue.py", "from npformer import oracle", "catalogue lies below oracle"),
    ("npformer/oracle/x.py", "import npformer.__main__", "oracle lies below __main__"),
    ("npformer/oracle/x.py", "import demos.copy", "npformer lies below demos"),
    ("npformer/oracle/reference/x.py", "from npformer.functional import relu", "a reference shares nothing"),
    ("npformer/oracle/reference/x.py", "from npformer.arguments import shape_text", "a reference shares nothing"),
    ("npformer/oracle/reference/x.py", "import gradcheck", "a reference shares nothing"),
    ("npformer/operation.py", "from npformer.functional.x import x", "operation lies below functional"),
    ("npformer/operation.py", "from .catalogue import entries", "operation lies below catalogue"),
    ("npformer/speed/x.py", "", "npformer/speed/ has no level in tests/test_imports.py"),
    ("npformer/functional/x.py", "import gradcheck", ONLY_THOSE_TWO),
    ("npformer/catalogue.py", "from gradcheck import check", ONLY_THOSE_TWO),
    ("npformer/__init__.py", "from gradcheck import check", ONLY_THOSE_TWO),
    ("gradcheck/x.py", "from npformer.functional import relu", "gradcheck knows nothing of npformer"),
    ("gradcheck/x.py", "def f():\n    import npformer", "gradcheck knows nothing of npformer"),
    ("gradcheck/x.py", "import demos", "gradcheck lies below demos"),
    ("gradcheck/x.py", "import hypothesis", ONLY_NUMPY),
    ("gradcheck/x.py", "def f():\n    import hypothesis", ONLY_NUMPY),
    ("gradcheck/__init__.py", "from gradcheck import strategies", "this module needs an extra"),
    ("gradcheck/__init__.py", "from . import strategies", "this module needs an extra"),
    ("gradcheck/__init__.py", "from .strategies import arrays", "this module needs an extra"),
    ("npformer/layers/x.py", "import torch", ONLY_NUMPY),
    ("npformer/layers/x.py", "try:\n    import scipy.special\nexcept ImportError:\n    pass", ONLY_NUMPY),
    ("npformer/layers/x.py", "import tests", ONLY_NUMPY),
    ("npformer/text/reader.py", "import extra", "an extra is imported inside the function that needs it"),
    ("demos/x.py", "import matplotlib.pyplot", ONLY_NUMPY),
]

GOOD = [
    ("npformer/functional/x.py", "import math, numpy as np\nfrom npformer.functional import relu"),
    ("npformer/functional/x.py", "from npformer import operation\nfrom npformer.operation import Array"),
    ("npformer/functional/x.py", "from . import relu\nfrom .relu import relu\nfrom .. import operation"),
    ("npformer/functional/__init__.py", "from .relu import relu"),
    ("npformer/operation.py", "from npformer.arguments import shape_text"),
    ("npformer/generation/x.py", "from npformer.text import characters\nimport npformer.models"),
    ("npformer/catalogue.py", "from npformer import functional, layers, models"),
    ("npformer/oracle/x.py", "import gradcheck.mutation\nfrom npformer import catalogue"),
    ("npformer/oracle/reference/x.py", "import math\nfrom npformer.oracle.reference.nested import at"),
    ("npformer/__init__.py", "from npformer import functional, oracle\nfrom .operation import Array"),
    ("npformer/__main__.py", "import argparse, gradcheck, npformer.oracle"),
    ("npformer/text/reader.py", "def read(path):\n    import extra"),
    ("gradcheck/x.py", "from gradcheck.report import Report\nimport numpy.linalg, __future__"),
    ("gradcheck/strategies.py", "import hypothesis.strategies\nfrom hypothesis import assume"),
    ("gradcheck/__main__.py", "def main():\n    from gradcheck import strategies"),
    ("demos/x.py", "import gradcheck, npformer\nfrom demos.pictures import draw"),
]

MADE_UP = {"npformer", "npformer.operation", "npformer.arguments", "gradcheck", "gradcheck.strategies"}


@pytest.fixture(autouse=True)
def _made_up_extras(monkeypatch):
    monkeypatch.setitem(EXTRA_FUNCTIONS, "npformer/text/reader.py", {"extra"})
    monkeypatch.setitem(EXTRA_FILES, "gradcheck/strategies.py", {"hypothesis"})


@pytest.mark.parametrize(("path", "source", "rule"), BAD)
def test_the_rule_names_what_breaks_it(path, source, rule):
    problems = broken_rules(path, source, MADE_UP)
    assert len(problems) == 1
    assert problems[0].startswith(path)
    assert rule in problems[0]


@pytest.mark.parametrize(("path", "source"), GOOD)
def test_the_rule_lets_pass_what_keeps_it(path, source):
    assert broken_rules(path, source, MADE_UP) == []


def test_the_sentence_is_whole():
    (problem,) = broken_rules("npformer/functional/x.py", "import math\nimport npformer.layers", MADE_UP)
    assert problem == "npformer/functional/x.py:2 imports npformer.layers: functional lies below layers"


def test_circles_are_found():
    siblings = {
        "npformer/text/x.py": "import npformer.training.y",
        "npformer/training/y.py": "def f():\n    from npformer.generation import z",
        "npformer/generation/z.py": "from ..text import x",
    }
    small = {
        "npformer/memory.py": "import npformer.blocks",
        "npformer/blocks.py": "from npformer import memory",
    }
    assert circles(siblings) == ["npformer: a circle of imports, generation → text → training → generation"]
    assert circles(small) == ["npformer: a circle of imports, blocks → memory → blocks"]
    assert circles({**siblings, "npformer/generation/z.py": "from .beam import search\nimport npformer.models"}) == []


# What a fresh interpreter really loads.

PROBE = """
import json, sys, warnings
import numpy, numpy.fft, numpy.linalg, numpy.random
warnings.simplefilter("error")
before = set(sys.modules)
import {modules}
loaded = dict(sys.modules)
# A name without a spec is no file that anybody installed: Cython's own, for one.
print(json.dumps(sorted({{
    name.partition(".")[0] for name in loaded.keys() - before if getattr(loaded[name], "__spec__", None) is not None
}})))
"""


def third_party(modules: str, *folders: Path) -> set[str]:
    """The top-level modules, neither ours nor of the standard library, that importing `modules` adds to NumPy's own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}
    command = [sys.executable, "-c", PROBE.format(modules=modules)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    loaded = {name for name in json.loads(run.stdout) if not name.startswith("_sysconfigdata")}
    return loaded - sys.stdlib_module_names - {"numpy", "npformer", "gradcheck"}


def test_importing_the_packages_loads_numpy_alone():
    assert third_party("npformer, gradcheck") == set()


def test_no_module_of_them_loads_more():
    extras = set(map(module_name, EXTRA_FILES))
    ours = {module for module in MODULES if module.startswith(("npformer", "gradcheck"))}
    modules = sorted(module for module in ours - extras if not module.endswith("__main__"))
    assert third_party(", ".join(modules)) == set()


def test_a_stranger_would_be_seen(tmp_path):
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "__init__.py").touch()
    (tmp_path / "friend.py").write_text("import argparse, fractions, stranger\n", encoding="utf-8")
    assert third_party("friend", tmp_path) == {"friend", "stranger"}
