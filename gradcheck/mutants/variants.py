"""What can be got wrong in one place: of each kind of code its wrong versions, with what is done to it."""

import ast
import copy
from collections.abc import Iterator, Mapping
from itertools import combinations
from types import ModuleType
from typing import Any, TypeAlias

from gradcheck.mutants.place import REDUCTIONS, TRANSPOSES, Place, is_minus, whole_number

Variant: TypeAlias = tuple[str, ast.AST]  # what is done, and what then stands in the place

MOVED = 1.001  # times a constant: a change of the fourth digit
MOVED_ZERO = 0.001
EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
NEGATED = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
COMPARISONS: list[Mapping[Any, type[ast.cmpop]]] = [EDGES, TURNED, NEGATED]
METHODS_OF_ARRAYS = {"reshape", "astype", "copy", "ravel", "squeeze"}
# Of these calls no argument could be meant in their place, and none for another.
MAKERS = {"zeros", "ones", "empty", "full", "arange", "isinstance", "len", "range", "tuple", "list", "int", "float"}


def variants(place: Place, namespace: Mapping[str, Any], rebound: set[str]) -> Iterator[Variant]:
    """`rebound` are the names that are given a value more than once."""
    node = place.node
    if isinstance(node, ast.stmt):
        yield from of_statement(node, rebound)
    elif isinstance(node, ast.Tuple):
        yield from swapped("gradients swapped" if place.returned else "entries swapped", node, "elts")
    elif isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store):
        is_zero = isinstance(node, ast.Constant) and not node.value
        if place.returned and not (is_zero or isinstance(node, ast.Starred | ast.IfExp)):
            yield "a sign turned", node.operand if is_minus(node) else ast.UnaryOp(ast.USub(), node)
            yield "a gradient doubled", ast.BinOp(ast.Constant(2), ast.Mult(), node)
        if place.is_index and (index := whole_number(node)) is not None:
            yield from (("another axis or index", ast.Constant(other)) for other in (index - 1, index + 1))
            return
        if not place.is_index:
            yield from of_number(node, namespace)
        match node:
            case ast.BinOp(left, op, right):
                yield from of_arithmetic(left, op, right)
            case ast.Call():
                yield from of_call(node, place, namespace)
            case _:
                yield from of_expression(node)


def of_statement(node: ast.stmt, rebound: set[str]) -> Iterator[Variant]:
    match node:
        case ast.AugAssign(target, op, value):
            yield "a statement left out", ast.Pass()
            yield "+= turned =", ast.Assign([target], value)
            if isinstance(op, ast.Add | ast.Sub):
                yield "a sign turned", ast.AugAssign(target, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), value)
        case ast.Expr():
            yield "a statement left out", ast.Pass()
        case ast.Assign() | ast.AnnAssign(value=ast.expr()):
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
            if not names or names & rebound:  # nobody overlooks a name without a value
                yield "a statement left out", ast.Pass()
        case ast.If(test, body, orelse) if not is_alternative(test):
            yield "a condition negated", ast.If(negated(test), body, orelse)


def is_alternative(test: ast.AST) -> bool:
    """A comparison that, turned, is its own negation."""
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in NEGATED


def negated(test: ast.expr) -> ast.expr:
    return test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else ast.UnaryOp(ast.Not(), test)


def swapped(kind: str, node: Any, field: str) -> Iterator[Variant]:
    """Every two of its entries in each other's place."""
    entries = getattr(node, field)
    for i, j in combinations([i for i, each in enumerate(entries) if not isinstance(each, ast.Starred)], 2):
        order = list(entries)
        order[i], order[j] = order[j], order[i]
        new = copy.copy(node)
        setattr(new, field, order)
        yield kind, new


def of_number(node: ast.expr, namespace: Mapping[str, Any]) -> Iterator[Variant]:
    value: Any = None
    match node:
        case ast.Constant(int(number) | float(number)) if not isinstance(number, bool):
            yield "a constant moved", ast.Constant(float(f"{MOVED * number:.12g}") if number else MOVED_ZERO)
        case ast.Name(name):
            value = namespace.get(name)
        case ast.Attribute(ast.Name(name), attr) if isinstance(namespace.get(name), ModuleType):
            value = getattr(namespace[name], attr, None)
    if type(value) in (int, float):
        yield "a constant moved", ast.BinOp(ast.Constant(MOVED), ast.Mult(), node)


def of_arithmetic(left: ast.expr, op: ast.operator, right: ast.expr) -> Iterator[Variant]:
    node = ast.BinOp(left, op, right)
    match op:
        case ast.Add():
            yield from (("a term dropped", left), ("a term dropped", right))
            yield "a sign turned", ast.BinOp(left, ast.Sub(), right)
        case ast.Sub():
            yield from (("a term dropped", left), ("a term dropped", ast.UnaryOp(ast.USub(), right)))
            yield "a sign turned", ast.BinOp(left, ast.Add(), right)
        case ast.Mult():
            yield from (("a factor dropped", left), ("a factor dropped", right))
            yield from (("a factor doubled", ast.BinOp(*each)) for each in ((node, op, right), (left, op, node)))
        case ast.Div():
            yield from (("a factor dropped", left), ("a factor dropped", ast.BinOp(ast.Constant(1), op, right)))
            yield "a factor doubled", ast.BinOp(node, op, right)
            yield "a division turned", ast.BinOp(left, ast.Mult(), right)
        case ast.MatMult():
            yield "factors swapped", ast.BinOp(right, op, left)
        case ast.Pow():
            yield "a power dropped", left
        case ast.BitAnd() | ast.BitOr():
            yield "a condition changed", ast.BinOp(left, ast.BitOr() if isinstance(op, ast.BitAnd) else ast.BitAnd(), right)


def of_expression(node: ast.expr) -> Iterator[Variant]:
    match node:
        case ast.UnaryOp(ast.USub(), operand):
            yield "a sign turned", operand
        case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
            yield "a condition negated", operand
        case ast.Compare(left, [op], [right]):
            others = [each[type(op)] for each in COMPARISONS if type(op) in each]
            yield from (("a comparison turned", ast.Compare(left, [other()], [right])) for other in others)
        case ast.BoolOp(op, values):
            yield "a condition changed", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.IfExp(test, body, orelse) if not is_alternative(test):
            yield "a condition negated", ast.IfExp(test, orelse, body)
        case ast.Attribute(value, "T"):
            yield "a transpose removed", value


def of_call(node: ast.Call, place: Place, namespace: Mapping[str, Any]) -> Iterator[Variant]:
    name, receivers = "", []  # of a method, what it is called on
    match node.func:
        case ast.Name(name):
            pass
        case ast.Attribute(ast.Name(of), name) if isinstance(namespace.get(of), ModuleType):
            pass
        case ast.Attribute(receiver, name):
            receivers = [receiver]
    args = [*receivers, *node.args]
    if name in REDUCTIONS and args:
        yield "a sum left out", args[0]
        yield from of_reduction(node, name, 1 - len(receivers))
    elif name in TRANSPOSES and args:
        yield "a transpose removed", args[0]
    elif name not in MAKERS and args and not isinstance(place.owner, ast.Expr):
        args = args if name in METHODS_OF_ARRAYS else node.args
        choices = args[1:] if name == "where" else args[:1]
        yield from (("a call left out", each) for each in choices if not isinstance(each, ast.Starred))
    if name not in MAKERS and name != "swapaxes":
        yield from swapped("arguments swapped", node, "args")


def of_reduction(node: ast.Call, name: str, place_of_axis: int) -> Iterator[Variant]:
    """A sum, or its like, along another axis, over everything, of another kind, or with another shape."""
    axes = [each.value for each in node.keywords if each.arg == "axis"] or node.args[place_of_axis : place_of_axis + 1]
    if isinstance(node.func, ast.Attribute):
        another = ast.Attribute(node.func.value, REDUCTIONS[name], node.func.ctx)
        yield "a mean for a sum", ast.Call(another, node.args, node.keywords)
    if axes:
        args, others = node.args[:place_of_axis], [each for each in node.keywords if each.arg != "axis"]
        yield "a sum over everything", ast.Call(node.func, args, others)
        for other in (0, -1):
            if other != whole_number(axes[0]):
                axis = ast.keyword("axis", ast.Constant(other))
                yield "a sum over another axis", ast.Call(node.func, args, [axis, *others])
    if name not in ("any", "all"):
        others = [each for each in node.keywords if each.arg != "keepdims"]
        keywords = others if len(others) < len(node.keywords) else [*others, ast.keyword("keepdims", ast.Constant(True))]
        yield "the axes kept or not", ast.Call(node.func, node.args, keywords)
