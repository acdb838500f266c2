"""The places in a source at which something can be got wrong."""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

REDUCTIONS = {"sum": "mean", "mean": "sum", "max": "min", "min": "max", "any": "all", "all": "any"}
TRANSPOSES = {"swapaxes", "transpose", "moveaxis"}
NOT_CODE = {"annotation", "returns", "decorator_list"}


class Place(NamedTuple):
    """A node of the source, where it hangs, and the statement that it is or belongs to.

    is_index   an index or an axis, or part of one
    returned   returned by a function, or one of the tuple that is
    """

    node: ast.AST
    owner: Any
    field: str
    number: int | None  # in a field that is a list
    statement: ast.stmt
    is_index: bool = False
    returned: bool = False

    def put(self, node: ast.AST) -> None:
        if self.number is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.number] = node

    def inner(self) -> Iterator["Place"]:
        """The place itself and every place in it."""
        yield self
        if self.is_index and whole_number(self.node) is not None:
            return
        for name, value in ast.iter_fields(self.node):
            for number, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if name not in NOT_CODE and isinstance(child, ast.stmt | ast.expr | ast.keyword | ast.comprehension):
                    statement = child if isinstance(child, ast.stmt) else self.statement
                    is_index = self.is_index or holds_index(self.node, name, child)
                    returned = holds_returned(self.node, name, self.returned)
                    yield from Place(child, self.node, name, number, statement, is_index, returned).inner()


def holds_index(node: ast.AST, name: str, child: ast.AST) -> bool:
    """Is the child an index, or numbers that stand for axes?"""
    match node:
        case ast.Subscript():
            return name == "slice"
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in TRANSPOSES or attr in REDUCTIONS:
            entries = child.elts if isinstance(child, ast.Tuple) else [child]
            return name == "args" and all(whole_number(each) is not None for each in entries)
        case ast.keyword(arg="axis"):
            return True
    return False


def holds_returned(node: ast.AST, name: str, returned: bool) -> bool:
    is_choice = isinstance(node, ast.Tuple) or (isinstance(node, ast.IfExp) and name != "test")
    return isinstance(node, ast.Return | ast.Lambda) or (returned and is_choice)


def whole_number(node: ast.AST | None) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if node is not None and is_minus(node) and (value := whole_number(node.operand)) is not None:
        return -value
    return None


def is_minus(node: ast.AST) -> TypeGuard[ast.UnaryOp]:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
