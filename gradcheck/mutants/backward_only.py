"""What of an operation only its backward needs, and its output does not."""

import ast
import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from gradcheck.mutants.place import Place

BLOCKS = ("body", "orelse", "finalbody")


def backward_only(functions: Mapping[str, ast.FunctionDef], operation: ast.FunctionDef) -> list[Place]:
    """Of an operation and those that it calls, what is not for the output; and other functions, all mentions of which are in
    such places."""
    left = dict(functions)
    operations = [name for name, node in left.items() if node is operation or returns_backward(node)]
    places = [place for name in operations for place in without_output(left.pop(name))]
    while True:
        inside = {node for place in places for node in ast.walk(place.node)}
        alone = next((name for name in left if inside.issuperset(mentions(name, functions.values()))), None)
        if alone is None:
            return places
        places += statements_of(left.pop(alone))


def mentions(name: str, functions: Iterable[ast.FunctionDef]) -> Iterator[ast.AST]:
    for function in functions:
        yield from (each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name)


def statements_of(function: ast.FunctionDef) -> list[Place]:
    places = (Place(node, function, "body", number, node) for number, node in enumerate(function.body))
    return [each for each in places if not (isinstance(each.node, ast.Expr) and isinstance(each.node.value, ast.Constant))]


def returns_backward(function: ast.FunctionDef) -> bool:
    """Does it look like an operation: does it return two things, of which the second is a function of its own?"""
    own = {each.name for each in ast.walk(function) if isinstance(each, ast.FunctionDef)}
    for statement in ast.walk(function):
        match statement:
            case ast.Return(ast.Tuple([_, ast.Lambda()])):
                return True
            case ast.Return(ast.Tuple([_, ast.Name(name)])) if name in own:
                return True
    return False


def without_output(operation: ast.FunctionDef) -> list[Place]:
    """The statements on which the output does not hang, and the expressions that are returned as the backward."""
    needed = needed_by_output(operation)

    def below(owner: ast.AST) -> Iterator[Place]:
        for name in BLOCKS:
            for number, node in enumerate(getattr(owner, name, [])):
                if node not in needed:
                    yield Place(node, owner, name, number, node)
                elif not isinstance(node, ast.FunctionDef):
                    yield from below(node)
                match node:
                    case ast.Return(ast.Tuple([_, last]) as pair) if not isinstance(last, ast.Name):
                        yield Place(last, pair, "elts", 1, node)

    return list(below(operation))


def needed_by_output(operation: ast.FunctionDef) -> set[ast.stmt]:
    """The statements of its body on which the output hangs, or that a wrong argument ends at."""
    every = list(inner_statements(operation))
    needed: set[ast.stmt] = set()
    names: set[str] = set()
    for statement in every:
        match statement:
            case ast.Return(ast.Tuple([output, _])):
                needed.add(statement)
                names |= loaded(output)
            case ast.Return():
                needed.add(statement)
                names |= loaded(statement)
            case ast.Raise() | ast.Assert() | ast.Pass() | ast.Expr(ast.Constant()):
                needed.add(statement)
    n = -1
    while n < len(needed):
        n = len(needed)
        for statement in every:
            is_block = not isinstance(statement, ast.FunctionDef) and hasattr(statement, "body")
            hangs = needed.intersection(inner_statements(statement)) if is_block else names & changed(statement)
            if hangs and statement not in needed:
                needed.add(statement)
                names |= loaded(head_of(statement) if is_block else statement)
    return needed


def inner_statements(owner: ast.AST) -> Iterator[ast.stmt]:
    """Those in its blocks, at any depth; not those of functions in it."""
    for name in BLOCKS:
        for statement in getattr(owner, name, []):
            yield statement
            if not isinstance(statement, ast.FunctionDef):
                yield from inner_statements(statement)


def head_of(statement: ast.AST) -> ast.AST:
    """A statement without those in it."""
    head = copy.copy(statement)
    for name in (*BLOCKS, "handlers", "decorator_list"):
        if hasattr(head, name):
            setattr(head, name, [])
    return head


def changed(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value, or whose value it may change."""
    targets: list[ast.AST] = []
    match statement:
        case ast.FunctionDef(name=name):
            return {name}
        case ast.Expr(ast.Call(ast.Attribute(collection, "append" | "extend" | "update"))):
            targets = [collection]
        case ast.Expr():
            targets = [statement]
        case ast.Assign(targets=assigned):
            targets = [*assigned]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            targets = [target]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def loaded(node: ast.AST) -> set[str]:
    """The names whose values it takes from outside."""
    own = set(bound(node)) if isinstance(node, ast.FunctionDef) else set()
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)} - own


def bound(function: ast.FunctionDef) -> Iterator[str]:
    """Its arguments and variables, each as often as it is given a value; those of functions in it too."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def names_bound_twice(functions: Iterable[ast.FunctionDef]) -> set[str]:
    times = Counter(name for function in functions for name in bound(function))
    return {name for name, count in times.items() if count > 1}
