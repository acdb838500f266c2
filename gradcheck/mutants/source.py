"""A function made anew from its source, as it was or with one place got wrong."""

import __future__

import ast
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from gradcheck.mutants.backward_only import backward_only, head_of, loaded, names_bound_twice, statements_of
from gradcheck.mutants.variants import variants

LEFT_OUT = "(left out)"


@dataclass(frozen=True)
class Mutant:
    """One wrong version: a statement of the file, the line where it begins, and how it reads in this version."""

    line: int
    before: str
    after: str
    kind: str
    code: CodeType = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"line {self.line}, {self.kind}: {self.before}  →  {self.after}"


class Source:
    """A function, a method or a lambda as it stands in its file, and what it calls of the same file.

    `load` makes the function anew; of a method, the whole class. ValueError where the source cannot be found.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        plain = inspect.unwrap(function)
        if not isinstance(plain, FunctionType):
            raise ValueError(f"mutants are made of functions written in Python, got {type(plain).__name__}")
        try:
            lines, _ = inspect.findsource(plain)
        except (OSError, TypeError) as error:
            raise ValueError(f"the source of {plain.__name__} cannot be read: {error}") from error
        self.tree = ast.parse("".join(lines))
        self.file = plain.__code__.co_filename
        self.namespace: dict[str, Any] = {**plain.__globals__, **closure_of(plain)}
        self.node = self.find(plain, "mutant")
        classes = (each for each in ast.walk(self.tree) if isinstance(each, ast.ClassDef) and self.node in each.body)
        statement: ast.ClassDef | ast.FunctionDef = next(classes, self.node)
        self.name = statement.name
        self.functions = {self.node.name: self.node}
        self.gather(self.node)
        parts = [statement, *(node for node in self.functions.values() if node is not self.node)]
        self.module = ast.Module(sorted(parts, key=lambda part: part.lineno), type_ignores=[])

    def find(self, function: FunctionType, name: str) -> ast.FunctionDef:
        """The node of a function of this file; a lambda becomes a function called `name`."""
        code = function.__code__
        found: list[ast.FunctionDef] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
                first = node.decorator_list[0] if node.decorator_list else node
                if first.lineno == code.co_firstlineno:
                    found.append(node)
            elif isinstance(node, ast.Lambda) and function.__name__ == "<lambda>" and node.lineno == code.co_firstlineno:
                arguments = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                if arguments == list(code.co_varnames[: len(arguments)]):
                    found.append(as_function(node, name))
        if len(found) != 1:
            raise ValueError(f"the source of {function.__name__} stands {len(found)} times where it should stand once")
        return found[0]

    def gather(self, node: ast.FunctionDef) -> None:
        """Note the functions of this file that `node` mentions, and those that they mention."""
        for name in sorted(loaded(node)):
            value = self.namespace.get(name)
            plain = inspect.unwrap(value) if callable(value) else None
            if isinstance(plain, FunctionType) and plain.__code__.co_filename == self.file and name not in self.functions:
                self.functions[name] = self.find(plain, name)
                self.namespace = {**closure_of(plain), **self.namespace}
                self.gather(self.functions[name])

    def load(self, code: CodeType | None = None) -> Any:
        """The function or class anew: by the compiled code of a mutant, or as it was."""
        namespace = dict(self.namespace)
        exec(code or self.compiled(), namespace)
        return namespace[self.name]

    def compiled(self) -> CodeType:
        # As text, annotations need no names, of which those of an enclosing function are not at hand.
        flags = __future__.annotations.compiler_flag
        code: CodeType = compile(self.module, f"<{self.name}>", "exec", flags, dont_inherit=True)
        return code

    def mutants(self, *, of_all: bool = False) -> list[Mutant]:
        """Every mutant once, of what the backward alone needs; `of_all`, of a function that is no operation.

        ValueError where there is a `while`: a wrong one might never end.
        """
        roots = statements_of(self.node) if of_all else backward_only(self.functions, self.node)
        if any(isinstance(each, ast.While) for root in roots for each in ast.walk(root.node)):
            raise ValueError(f"{self.name} has a while loop, and a wrong version of it might never end")
        made: list[Mutant] = []
        seen = set()
        rebound = names_bound_twice(self.functions.values())
        for root in roots:
            for place in root.inner():
                before = text_of(place.statement)
                for kind, node in variants(place, self.namespace, rebound):
                    place.put(ast.fix_missing_locations(ast.copy_location(node, place.node)))
                    try:
                        after = text_of(node if isinstance(node, ast.stmt) else place.statement)
                        if after != before and (place.statement, after) not in seen:
                            seen.add((place.statement, after))
                            made.append(Mutant(place.statement.lineno, before, after, kind, self.compiled()))
                    finally:
                        place.put(place.node)
        return made


def closure_of(function: FunctionType) -> dict[str, Any]:
    """What a function has captured, by name."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # what is not there yet
            values[name] = cell.cell_contents
    return values


def as_function(node: ast.Lambda, name: str) -> ast.FunctionDef:
    function = ast.parse(f"def {name}(): return 0").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.args = node.args
    function.body = [ast.copy_location(ast.Return(node.body), node)]
    return ast.copy_location(function, node)


def text_of(statement: ast.AST) -> str:
    """A statement in one line; of one with others in it, its own."""
    return LEFT_OUT if isinstance(statement, ast.Pass) else ast.unparse(head_of(statement))
