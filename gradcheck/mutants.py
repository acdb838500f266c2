"""Small wrong versions of a function, made from its source.

Of an operation, which returns (y, backward), only what the backward alone needs is got wrong: the backward itself, the lines
of the forward that y does not hang on, and the functions of the same file that nothing else calls. So the forward, which is
what a backward is measured by, stays as it was.

A mutant differs in one place of the parsed source. It is compiled without the rest of the file, in a copy of the function's
own globals, so that nothing that exists is touched.
"""

import __future__

import ast
import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeGuard

Variant: TypeAlias = tuple[str, ast.AST]  # what is done, and what then stands in the place

MOVED = 1.001  # times a constant: a change of the fourth digit
MOVED_ZERO = 0.001
MOST_TURNS = 2_000_000  # of all `while` loops of a mutant, which may have lost its way out
TURN = "__turn__"
LEFT_OUT = "(left out)"
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
REDUCTIONS = {"sum": "mean", "mean": "sum", "max": "min", "min": "max", "any": "all", "all": "any"}
TRANSPOSES = {"swapaxes", "transpose", "moveaxis"}
METHODS_OF_ARRAYS = {"reshape", "astype", "copy", "ravel", "squeeze"}
# Of these calls no argument could be meant in their place, and none for another.
MAKERS = {"zeros", "ones", "empty", "full", "arange", "isinstance", "len", "range", "tuple", "list", "int", "float"}
NOT_CODE = {"annotation", "returns", "decorator_list"}


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
        node = self.node
        if self.is_index and whole_number(node) is not None:
            return
        for name, value in ast.iter_fields(node):
            children = enumerate(value) if isinstance(value, list) else [(None, value)]
            for number, child in children:
                if name in NOT_CODE or not isinstance(child, ast.stmt | ast.expr | ast.keyword | ast.comprehension):
                    continue
                yield from Place(
                    child,
                    node,
                    name,
                    number,
                    child if isinstance(child, ast.stmt) else self.statement,
                    self.is_index or holds_index(node, name, child),
                    isinstance(node, ast.Return | ast.Lambda)
                    or (self.returned and (isinstance(node, ast.Tuple) or (isinstance(node, ast.IfExp) and name != "test"))),
                ).inner()


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
        turns = iter(range(MOST_TURNS))

        def turn() -> None:
            if next(turns, None) is None:
                raise RuntimeError("a loop does not end")

        namespace = {**self.namespace, TURN: turn}
        exec(code or self.compiled(), namespace)
        return namespace[self.name]

    def compiled(self) -> CodeType:
        module = self.module
        if any(isinstance(node, ast.While) for node in ast.walk(module)):
            module = Bounded().visit(copy.deepcopy(module))
        # As text, annotations need no names, of which those of an enclosing function are not at hand.
        flags = __future__.annotations.compiler_flag
        code: CodeType = compile(ast.fix_missing_locations(module), f"<{self.name}>", "exec", flags, dont_inherit=True)
        return code

    def mutants(self, *, of_all: bool = False) -> list[Mutant]:
        """Every mutant once, of what the backward alone needs; `of_all`, of a function that is no operation."""
        made: list[Mutant] = []
        seen = set()
        rebound = names_bound_twice(self.functions.values())
        for root in statements_of(self.node) if of_all else self.backward_only():
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

    def backward_only(self) -> list[Place]:
        """What the backward alone needs."""
        left = dict(self.functions)
        operations = [name for name, node in left.items() if node is self.node or returns_backward(node)]
        places = [place for name in operations for place in without_output(left.pop(name))]
        while True:
            inside = {node for place in places for node in ast.walk(place.node)}
            alone = next((name for name in left if inside.issuperset(self.mentions(name))), None)
            if alone is None:
                return places
            places += statements_of(left.pop(alone))

    def mentions(self, name: str) -> Iterator[ast.AST]:
        for function in self.functions.values():
            yield from (each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name)


class Bounded(ast.NodeTransformer):
    """Counts the turns of every `while` loop."""

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(ast.Call(ast.Name(TURN, ast.Load()), [], [])))
        return node


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


def head_of(statement: ast.AST) -> ast.AST:
    """A statement without those in it."""
    head = copy.copy(statement)
    for name in ("body", "orelse", "handlers", "finalbody", "decorator_list"):
        if hasattr(head, name):
            setattr(head, name, [])
    return head


# What of an operation only its backward needs.


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
        for name in ("body", "orelse", "finalbody"):
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
            case ast.Return() | ast.Raise() | ast.Assert() | ast.Pass() | ast.Expr(ast.Constant()):
                needed.add(statement)
                names |= loaded(statement) if isinstance(statement, ast.Return) else set()
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
    for name in ("body", "orelse", "finalbody"):
        for statement in getattr(owner, name, []):
            yield statement
            if not isinstance(statement, ast.FunctionDef):
                yield from inner_statements(statement)


def changed(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value, or whose value it may change."""
    match statement:
        case ast.FunctionDef(name=name):
            return {name}
        case ast.Expr(ast.Call(ast.Attribute(collection, "append" | "extend" | "update"))):
            targets: list[ast.AST] = [collection]
        case ast.Expr():
            targets = [statement]
        case ast.Assign(targets=assigned):
            targets = [*assigned]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            targets = [target]
        case _:
            targets = []
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def loaded(node: ast.AST) -> set[str]:
    """The names whose values it takes from outside."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    own = set(bound(node)) if isinstance(node, ast.FunctionDef) else set()
    return {each.id for each in names if isinstance(each.ctx, ast.Load)} - own


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


# What can be got wrong in one place.


def variants(place: Place, namespace: Mapping[str, Any], rebound: set[str]) -> Iterator[Variant]:
    node = place.node
    if isinstance(node, ast.stmt):
        yield from variants_of_statement(node, rebound)
    elif isinstance(node, ast.Tuple):
        yield from swapped("gradients swapped" if place.returned else "entries swapped", node, node.elts)
    elif isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store):
        is_zero = isinstance(node, ast.Constant) and not node.value
        if place.returned and not (is_zero or isinstance(node, ast.Starred | ast.IfExp)):
            yield "a sign turned", node.operand if is_minus(node) else ast.UnaryOp(ast.USub(), node)
            yield "a gradient doubled", ast.BinOp(ast.Constant(2), ast.Mult(), node)
        if place.is_index and whole_number(node) is not None:
            yield from variants_of_index(node)
            return
        if not place.is_index:
            yield from variants_of_number(node, namespace)
        if isinstance(node, ast.BinOp):
            yield from variants_of_arithmetic(node)
        elif isinstance(node, ast.Call):
            yield from variants_of_call(node, place, namespace)
        else:
            yield from variants_of_expression(node)


def variants_of_statement(node: ast.stmt, rebound: set[str]) -> Iterator[Variant]:
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
        case ast.While(test, body, orelse) if not is_alternative(test):
            yield "a condition negated", ast.While(negated(test), body, orelse)


def is_alternative(test: ast.AST) -> bool:
    """A comparison that, turned, is its own negation."""
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and len(COMPARISONS[type(test.ops[0])]) == 1


def negated(test: ast.expr) -> ast.expr:
    return test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else ast.UnaryOp(ast.Not(), test)


def is_minus(node: ast.AST) -> TypeGuard[ast.UnaryOp]:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def swapped(kind: str, node: Any, entries: list[ast.expr], field: str = "elts") -> Iterator[Variant]:
    """Every two of them in each other's place."""
    for i, j in combinations(range(len(entries)), 2):
        if not isinstance(entries[i], ast.Starred) and not isinstance(entries[j], ast.Starred):
            new = copy.copy(node)
            order = list(entries)
            order[i], order[j] = order[j], order[i]
            setattr(new, field, order)
            yield kind, new


def variants_of_index(node: ast.expr) -> Iterator[Variant]:
    value = whole_number(node)
    if value is not None:
        yield from (("another axis or index", ast.Constant(other)) for other in (value - 1, value + 1))


def whole_number(node: ast.AST | None) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if node is not None and is_minus(node) and (value := whole_number(node.operand)) is not None:
        return -value
    return None


def variants_of_number(node: ast.expr, namespace: Mapping[str, Any]) -> Iterator[Variant]:
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


def variants_of_arithmetic(node: ast.BinOp) -> Iterator[Variant]:
    left, right = node.left, node.right

    def by(op: ast.operator, left: ast.expr = left, right: ast.expr = right) -> ast.expr:
        return ast.BinOp(left, op, right)

    match node.op:
        case ast.Add():
            yield from (("a term dropped", left), ("a term dropped", right), ("a sign turned", by(ast.Sub())))
        case ast.Sub():
            yield "a term dropped", left
            yield "a term dropped", ast.UnaryOp(ast.USub(), right)
            yield "a sign turned", by(ast.Add())
        case ast.Mult():
            yield from (("a factor dropped", left), ("a factor dropped", right))
            yield "a factor doubled", by(ast.Mult(), left=node)
            yield "a factor doubled", by(ast.Mult(), left=left, right=node)
        case ast.Div():
            yield "a factor dropped", left
            yield "a factor dropped", by(ast.Div(), left=ast.Constant(1))
            yield "a factor doubled", by(ast.Div(), left=node)
            yield "a division turned", by(ast.Mult())
        case ast.MatMult():
            yield "factors swapped", by(ast.MatMult(), left=right, right=left)
        case ast.Pow():
            yield "a power dropped", left
        case ast.BitAnd():
            yield "a condition changed", by(ast.BitOr())
        case ast.BitOr():
            yield "a condition changed", by(ast.BitAnd())


def variants_of_expression(node: ast.expr) -> Iterator[Variant]:
    match node:
        case ast.UnaryOp(ast.USub(), operand):
            yield "a sign turned", operand
        case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
            yield "a condition negated", operand
        case ast.Compare(left, [op], [right]):
            yield from (("a comparison turned", ast.Compare(left, [new()], [right])) for new in COMPARISONS[type(op)])
        case ast.BoolOp(ast.And(), values):
            yield "a condition changed", ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            yield "a condition changed", ast.BoolOp(ast.And(), values)
        case ast.IfExp(test, body, orelse) if not is_alternative(test):
            yield "a condition negated", ast.IfExp(test, orelse, body)
        case ast.Attribute(value, "T"):
            yield "a transpose removed", value


def variants_of_call(node: ast.Call, place: Place, namespace: Mapping[str, Any]) -> Iterator[Variant]:
    name = ""
    receiver: Any = None  # of a method
    match node.func:
        case ast.Name(name):
            pass
        case ast.Attribute(ast.Name(of), name) if isinstance(namespace.get(of), ModuleType):
            pass
        case ast.Attribute(receiver, name):
            pass
    args: list[ast.expr] = [*([receiver] if receiver else []), *node.args]
    if name in REDUCTIONS and args:
        yield "a sum left out", args[0]
        yield from variants_of_reduction(node, name, 1 if receiver is None else 0)
    elif name in TRANSPOSES and args:
        yield "a transpose removed", args[0]
    elif name not in MAKERS and args and not isinstance(place.owner, ast.Expr):
        if receiver is None or name not in METHODS_OF_ARRAYS:
            args = node.args
        choices = args[1:] if name == "where" else args[:1]
        yield from (("a call left out", each) for each in choices if not isinstance(each, ast.Starred))
    if name not in MAKERS and name != "swapaxes":
        yield from swapped("arguments swapped", node, node.args, "args")


def variants_of_reduction(node: ast.Call, name: str, place_of_axis: int) -> Iterator[Variant]:
    """A sum, or its like, along another axis, over everything, of another kind, or with another shape."""
    axis = next((each.value for each in node.keywords if each.arg == "axis"), None)
    if axis is None and len(node.args) > place_of_axis:
        axis = node.args[place_of_axis]

    def with_axis(new: ast.expr | None) -> ast.Call:
        kept = [each for each in node.keywords if each.arg != "axis"]
        more = [] if new is None else [ast.keyword("axis", new)]
        return ast.Call(node.func, node.args[:place_of_axis], [*more, *kept])

    another = copy.copy(node.func)
    if isinstance(another, ast.Attribute):
        another.attr = REDUCTIONS[name]
        yield "a mean for a sum", ast.Call(another, node.args, node.keywords)
    if axis is not None:
        yield "a sum over everything", with_axis(None)
        yield from (
            ("a sum over another axis", with_axis(ast.Constant(other))) for other in (0, -1) if whole_number(axis) != other
        )
    if name in ("any", "all"):
        return
    keepdims = [each for each in node.keywords if each.arg == "keepdims"]
    others = [each for each in node.keywords if each.arg != "keepdims"]
    keyword = [] if keepdims else [ast.keyword("keepdims", ast.Constant(True))]
    yield "the axes kept or not", ast.Call(node.func, node.args, [*others, *keyword])
