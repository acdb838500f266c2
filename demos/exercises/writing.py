"""The file of an exercise: an operation's own file in npformer, without what is to be found out.

It is cut from the source whenever it is asked for, so that the two never differ. What goes: the body of every backward, the
lines and functions that only a backward needs, and whatever in the derivation speaks of gradients. The rest stays to the
letter, comments too.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterator
from inspect import unwrap
from pathlib import Path

from npformer.catalogue import OPERATIONS

HARDER = (
    *("relu", "linear", "split_heads", "merge_heads", "dropout", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh"),
    *("embedding", "rotary", "softmax", "log_softmax", "cross_entropy", "rms_norm", "layer_norm"),
    *("attention_weights", "attention"),
)
EXERCISES = sorted(
    (name for name, operation in OPERATIONS.items() if operation.differentiable),
    key=lambda name: HARDER.index(name) if name in HARDER else len(HARDER),  # a new operation comes last
)

BACKWARD = "backward"
SPEAKS_OF_GRADIENTS = re.compile(r"backward|gradient|slope|derivative|product rule|chain rule|∂", re.IGNORECASE)
IS_A_GRADIENT = re.compile(r"(∂|d)\S*\s*=")
AT_LEAST = "import numpy as np"


def source_of(name: str) -> Path:
    """The file of an operation."""
    file = sys.modules[unwrap(OPERATIONS[name].function).__module__].__file__
    assert file is not None
    return Path(file)


def written_out(name: str) -> str:
    """The file of an exercise, as a student is given it."""
    return without_answer(source_of(name).read_text(encoding="utf-8"), name, gradients_of(name))


def gradients_of(name: str) -> dict[str, str]:
    """Each array that has a gradient, and the words for its gradient."""
    words = {}
    for array, axes in OPERATIONS[name].arrays.items():
        shapes = [axes] if isinstance(axes, str) else list(dict.fromkeys(each for each in axes if each))
        letters = shapes[0].split()
        shape = f"({', '.join(letters)}{',' * (len(letters) == 1)})" if len(shapes) == 1 else f"of {array}'s shape"
        given = "" if isinstance(axes, str) or "" not in axes else f" where {array} was given"
        words[array] = f"d{array} {shape}{given}"
    return words


def without_answer(source: str, name: str, gradients: dict[str, str]) -> str:
    """`source` as an exercise: the operation `name`, whose arrays have these gradients."""
    text = with_blanks(source, gradients)
    while (shorter := without_dead_lines(text)) != text:
        text = shorter
    return needed_alone(text, name)


def with_blanks(source: str, gradients: dict[str, str]) -> str:
    lines = source.splitlines()
    blanks = [
        (function, node)
        for function in ast.parse(source).body
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef) and node.name == BACKWARD
    ]
    for function, backward in reversed(blanks):
        lines[backward.lineno - 1 : backward.end_lineno] = blank(function, backward, gradients)
    return "\n".join(lines) + "\n"


def blank(function: ast.FunctionDef, backward: ast.FunctionDef, gradients: dict[str, str]) -> Iterator[str]:
    """A backward with the question in place of its lines."""
    arguments = function.args.args + function.args.kwonlyargs
    asked = [gradients[argument.arg] for argument in arguments if argument.arg in gradients]
    dy = backward.args.args[0].arg
    returns = f" -> {ast.unparse(backward.returns)}" if backward.returns else ""
    margin = " " * backward.col_offset
    yield f"{margin}def {BACKWARD}({ast.unparse(backward.args)}){returns}:"
    inputs = "the input:" if len(asked) == 1 else "the inputs, as a tuple in this order:"
    for line in (
        f"# {dy} says how much the loss grows for each entry of {dy[1:]}. Return the same for {inputs}",
        f"#     {', '.join(asked)}",
        "# All that the forward has computed is at hand. Write into none of it, nor into what was given.",
        "raise NotImplementedError",
    ):
        yield f"{margin}    {line}"


def without_dead_lines(source: str) -> str:
    """Without the lines whose results nobody reads, and the comments above them."""
    tree, lines = ast.parse(source), source.splitlines()
    dead = [
        statement
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        for statement in dead_statements(function)
    ]
    emptied = [
        block for node in ast.walk(tree) for block in blocks_of(node) if block and all(each in dead for each in block)
    ]
    for statement in sorted(dead, key=lambda statement: -statement.lineno):
        start = statement.lineno - 1
        while lines[start - 1].lstrip().startswith("#"):
            start -= 1
        stays = any(statement is block[0] for block in emptied)
        lines[start : statement.end_lineno] = [" " * statement.col_offset + "pass"] if stays else []
        if not lines[start - 1] and not lines[start]:
            del lines[start]
    return "\n".join(lines) + "\n"


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def dead_statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """What computes nothing that the function returns, directly or by other lines, wherever it stands."""
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
    writes = {id(statement): written(statement) for statement in statements}
    assigned = [statement for statement in statements if writes[id(statement)]]
    within = {id(node) for statement in assigned for node in ast.walk(statement)}
    live: set[str] = set().union(*(names_read(node) for node in ast.walk(function) if id(node) not in within))
    while True:
        read = set().union(*(names_read(node) for each in assigned if writes[id(each)] & live for node in ast.walk(each)))
        if read <= live:
            break
        live |= read
    dead = {id(statement) for statement in assigned if not writes[id(statement)] & live}
    for statement in reversed(statements):  # the inner ones first
        if isinstance(statement, ast.If) and all(id(each) in dead for each in statement.body + statement.orelse):
            dead.add(id(statement))
    inner = {id(node) for each in statements if id(each) in dead for node in ast.walk(each) if node is not each}
    return (statement for statement in statements if id(statement) in dead and id(statement) not in inner)


def written(statement: ast.stmt) -> set[str]:
    """The names that a statement makes or alters, if it does nothing else."""
    if isinstance(statement, ast.FunctionDef):
        return set() if statement.name == BACKWARD else {statement.name}
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        targets = [statement.target]
    else:
        return set()
    return {
        node.id
        for target in targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and (isinstance(node.ctx, ast.Store) or node is base_of(target))
    }


def base_of(target: ast.expr) -> ast.expr:
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return target


def names_read(node: ast.AST) -> set[str]:
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else set()


def needed_alone(source: str, name: str) -> str:
    """The imports, constants and functions that the function `name` needs, below a docstring without the answer."""
    tree, lines = ast.parse(source), source.splitlines()
    imports = [statement for statement in tree.body if isinstance(statement, ast.Import | ast.ImportFrom)]
    definitions = {defined(statement): statement for statement in tree.body if defined(statement)}
    needed, reached = {name}, {name}
    while reached:
        reached = {each for known in reached & definitions.keys() for each in names_in(definitions[known])} - needed
        needed |= reached
    text = question(ast.get_docstring(tree) or "", name) + "\n" + imported(imports, needed)
    was_function = False
    for statement in (definition for known, definition in definitions.items() if known in needed):
        is_function = isinstance(statement, ast.FunctionDef)
        first = min(node.lineno for node in (statement, *getattr(statement, "decorator_list", ())))
        gap = "\n\n" if is_function or was_function else "\n" if first > 1 and not lines[first - 2] else ""
        text += gap + "\n".join(lines[first - 1 : statement.end_lineno]) + "\n"
        was_function = is_function
    return text


def defined(statement: ast.stmt) -> str:
    """The name that a statement of a module defines; "" for an import and the like."""
    return statement.name if isinstance(statement, ast.FunctionDef) else next(iter(written(statement)), "")


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def imported(imports: Collection[ast.Import | ast.ImportFrom], needed: Collection[str]) -> str:
    """The imports of what is needed, and NumPy, which a backward may want though the forward does not."""
    groups: dict[str, list[str]] = {"standard": [], "numpy": [AT_LEAST], "npformer": []}
    for statement in imports:
        statement.names = [alias for alias in statement.names if (alias.asname or alias.name) in needed]
        line = ast.unparse(statement)
        if statement.names and line != AT_LEAST:
            module = statement.module if isinstance(statement, ast.ImportFrom) else statement.names[0].name
            groups.get((module or "").partition(".")[0], groups["standard"]).append(line)
    return "\n\n".join("\n".join(group) for group in groups.values() if group) + "\n"


def question(docstring: str, name: str) -> str:
    """The docstring: what is computed, from where, and what to do."""
    kept = []
    paragraphs = docstring.split("\n\n")
    end = next((i for i, paragraph in enumerate(paragraphs) if paragraph.startswith("Backward")), len(paragraphs))
    for paragraph in paragraphs[:end]:
        if paragraph.startswith("    "):
            paragraph = "\n".join(filter(None, map(formulas, paragraph.splitlines())))
        if paragraph and not SPEAKS_OF_GRADIENTS.search(paragraph):
            kept.append(paragraph)
    kept += [paragraph for paragraph in paragraphs if paragraph.startswith("Source") and paragraph not in kept]
    task = "The backward is left out. Write it where NotImplementedError is raised, and have it graded:"
    return '"""' + "\n\n".join([*kept, task, f"    python -m demos exercises {name}"]) + '\n"""\n'


def formulas(line: str) -> str:
    """A line of formulas as far as the first gradient."""
    entries = re.split(r"(?<=\S)(\s{4,})", line)
    n = next((i for i, entry in enumerate(entries) if IS_A_GRADIENT.match(entry.strip())), len(entries))
    return "".join(entries[:n]).rstrip()
