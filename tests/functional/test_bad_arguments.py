"""A bad argument is refused by the call that received it, in one sentence: the operation, the argument, the rule, what came.

RIGHT holds arguments that every operation accepts. A case replaces one of them, and says which error it must be, which
argument the sentence must name, and the words for what was expected and for what came. CASES has them all, for every
argument of every operation that npformer.functional exports; a test fails where one has none.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from npformer import functional

B, T, S, H, G, K, V = 2, 5, 7, 6, 3, 4, 9


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(math.prod(shape)).normal(size=shape)


def integers(limit: int, *shape: int) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape) % limit


def attention_arguments() -> dict[str, Any]:
    return {
        "query": floats(B, H, T, K),
        "key": floats(B, G, S, K),
        "value": floats(B, G, S, V),
        "keep": floats(T, S) < 0.5,
        "bias": floats(B, 1, T, S),
        "causal": S - T,
        "window": (3, 2),
        "scale": 0.5,
        "softcap": 2.0,
        "dropout": 0.25,
        "rng": np.random.default_rng(0),
    }


def without(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in arguments.items() if other != name}


RIGHT: dict[str, Callable[[], dict[str, Any]]] = {
    **{name: lambda: {"x": floats(3, 5)} for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")},
    **{name: lambda: {"x": floats(3, 5), "axis": 0} for name in ("softmax", "log_softmax")},
    "linear": lambda: {"x": floats(2, 3, 5), "weight": floats(5, 7), "bias": floats(7)},
    "layer_norm": lambda: {"x": floats(2, 3, 5), "gamma": floats(5), "beta": floats(5), "eps": 1e-3},
    "rms_norm": lambda: {"x": floats(2, 3, 5), "gamma": floats(5), "eps": 1e-3},
    "embedding": lambda: {"ids": integers(7, 2, 3), "table": floats(7, 5), "padding_id": 2},
    "dropout": lambda: {"x": floats(3, 5), "p": 0.25, "rng": np.random.default_rng(0)},
    "split_heads": lambda: {"x": floats(2, 3, 10), "n_heads": 5},
    "merge_heads": lambda: {"x": floats(2, 3, 5, 7)},
    "attention": attention_arguments,
    "attention_weights": lambda: without(attention_arguments(), "value"),
    "rotary": lambda: {"x": floats(2, 3, 5, 8), "positions": integers(9, 3, 5), "base": 100.0, "layout": "half"},
    "cross_entropy": lambda: {
        "logits": floats(2, 3, 5),
        "targets": integers(5, 2, 3),
        "ignore_id": -1,
        "label_smoothing": 0.1,
    },
    "sinusoidal_positions": lambda: {"length": 5, "d_model": 7, "base": 100.0},
    "alibi_slopes": lambda: {"n_heads": 5},
    "alibi_bias": lambda: {"n_heads": 5, "T": 3, "S": 7, "offset": 4},
}

QUERY_AND_KEY = {"query": "B H T K", "key": "B G S K"}
AXES: dict[str, dict[str, str]] = {
    **{
        name: {"x": "..."}
        for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "softmax", "log_softmax", "dropout")
    },
    "linear": {"x": "... D_in", "weight": "D_in D_out", "bias": "D_out"},
    "layer_norm": {"x": "... D", "gamma": "D", "beta": "D"},
    "rms_norm": {"x": "... D", "gamma": "D"},
    "embedding": {"table": "V D"},
    "split_heads": {"x": "B T D"},
    "merge_heads": {"x": "B H T K"},
    "attention": {**QUERY_AND_KEY, "value": "B G S V", "bias": "..."},
    "attention_weights": {**QUERY_AND_KEY, "bias": "..."},
    "rotary": {"x": "... T K"},
    "cross_entropy": {"logits": "... V"},
}
BOTH_ATTENTIONS = ("attention", "attention_weights")


class Case(NamedTuple):
    operation: str
    argument: str
    value: Any
    error: type[Exception]
    expected: str  # the words for what was expected
    came: str  # and for what came
    others: Mapping[str, Any] = MappingProxyType({})  # what else is not as in RIGHT

    def arguments(self) -> dict[str, Any]:
        return {**RIGHT[self.operation](), **self.others, self.argument: self.value}

    def __str__(self) -> str:
        value = self.value
        text = f"{type(value).__name__} {value.dtype} {value.shape}" if isinstance(value, np.ndarray) else repr(value)
        text = re.sub(" at 0x[0-9A-Fa-f]+", "", text)  # a name that is the same in every process
        return f"{self.operation}: {self.argument} = {text if len(text) < 40 else text[:37] + '...'}"


MATRIX = np.zeros((2, 2)).view(np.matrix)
OTHER_DTYPES = [np.int64, np.int32, bool, object, "U5", np.complex64, np.dtype(float).newbyteorder()]
if np.dtype(np.longdouble).itemsize > 8:
    OTHER_DTYPES.append(np.longdouble)


def floating_arrays() -> Iterator[Case]:
    """What is no array, an array of another dtype, of another dtype than the others, and of another rank."""
    for operation, letters in AXES.items():
        parameters = inspect.signature(getattr(functional, operation)).parameters
        for name, axes in letters.items():
            right = RIGHT[operation]()[name]
            no_arrays = [right.tolist(), tuple(right.tolist()), 2.0, np.float64(2), "x", MATRIX, np.ma.masked_array(right)]
            if parameters[name].default is not None:
                no_arrays.append(None)
            for value in no_arrays:
                yield Case(operation, name, value, TypeError, "must be a NumPy array", f"got {type(value).__name__}")
            for dtype in OTHER_DTYPES:
                value = right.astype(dtype)
                yield Case(operation, name, value, TypeError, "float16, float32 or float64", f"got {value.dtype}")
            if len(letters) > 1:
                for dtype in (np.float32, np.float16, np.complex128):
                    value = right.astype(dtype)
                    yield Case(operation, name, value, TypeError, "all floating arrays share one dtype", f"is {value.dtype}")
            named = [axis for axis in axes.split() if axis != "..."]
            ranks = []
            if named:
                ranks.append(np.asarray(right[(0,) * (right.ndim - len(named) + 1)]))
            if "..." not in axes:
                ranks.append(right[None])
            for value in ranks:
                rule = f"the axes ({', '.join(axes.split())})"
                yield Case(operation, name, value, ValueError, rule, f"got the shape {value.shape}")


def sizes() -> Iterator[Case]:
    """Axes of one letter that differ in size: the array that comes second in the signature is at fault."""

    def differs(operation: str, name: str, shape: tuple[int, ...], letter: str, owner: str) -> Case:
        right = RIGHT[operation]()
        size = dict(zip(AXES[operation][name].split()[::-1], shape[::-1], strict=False))[letter]
        known = dict(zip(AXES[operation][owner].split()[::-1], right[owner].shape[::-1], strict=False))[letter]
        return Case(
            operation,
            name,
            floats(*shape),
            ValueError,
            f"{owner} {right[owner].shape} has {letter} = {known}",
            f"{name} {shape} has {letter} = {size}",
        )

    yield differs("linear", "x", (2, 3, 6), "D_in", "weight")
    yield differs("linear", "x", (1,), "D_in", "weight")
    yield differs("linear", "weight", (7, 5), "D_in", "x")
    yield differs("linear", "weight", (5, 1), "D_out", "bias")
    yield differs("linear", "bias", (5,), "D_out", "weight")
    yield differs("linear", "bias", (1,), "D_out", "weight")
    for norm in ("layer_norm", "rms_norm"):
        yield differs(norm, "x", (2, 5, 3), "D", "gamma")
        yield differs(norm, "gamma", (3,), "D", "x")
        yield differs(norm, "gamma", (1,), "D", "x")
    yield differs("layer_norm", "beta", (1,), "D", "x")
    for operation in BOTH_ATTENTIONS:
        yield differs(operation, "query", (1, H, T, K), "B", "key")
        yield differs(operation, "query", (B, H, T, K + 1), "K", "key")
        yield differs(operation, "key", (1, G, S, K), "B", "query")
        yield differs(operation, "key", (B, G, S, K + 1), "K", "query")
    yield differs("attention", "key", (B, G, S + 1, K), "S", "value")
    yield differs("attention", "value", (1, G, S, V), "B", "query")
    yield differs("attention", "value", (B, H, S, V), "G", "key")
    yield differs("attention", "value", (B, G, T, V), "S", "key")


def empty_or_odd_axes() -> Iterator[Case]:
    nothing = {"gamma": np.zeros(0), "beta": np.zeros(0)}
    yield Case("layer_norm", "x", np.zeros((3, 0)), ValueError, "must not be empty", "(3, 0)", nothing)
    yield Case("rms_norm", "x", np.zeros((3, 0)), ValueError, "must not be empty", "(3, 0)", without(nothing, "beta"))
    yield Case("cross_entropy", "logits", np.zeros((2, 3, 0)), ValueError, "must not be empty", "(2, 3, 0)")
    for operation in BOTH_ATTENTIONS:
        query, key = np.zeros((B, H, T, 0)), np.zeros((B, G, S, 0))
        yield Case(operation, "query", query, ValueError, "must not be empty", f"{query.shape}", {"key": key})
        for groups in (4, 12, 0):
            value = {"value": floats(B, groups, S, V)} if operation == "attention" else {}
            key = floats(B, groups, S, K)
            yield Case(operation, "key", key, ValueError, "divide query's 6", f"key has {groups} heads", value)
    yield Case("split_heads", "x", floats(2, 3, 7), ValueError, "n_heads = 5 does not divide", "x's 7 features")
    yield Case("rotary", "x", floats(2, 3, 5, 7), ValueError, "must be even", "got 7")
    for operation in ("softmax", "log_softmax"):
        yield Case(operation, "x", np.array(2.0), ValueError, "is not an axis of x", "which has 0", {"axis": -1})
        yield Case(operation, "x", floats(3), ValueError, "axis 1 is not an axis of x", "which has 1", {"axis": 1})


NO_NUMBERS = ["0.5", True, np.True_, 1j, [0.5], (0.5,), Decimal("0.5"), Fraction(1, 2), np.timedelta64(1, "s")]
NUMBERS = {  # what each must be; "" where every finite number will do
    **{(norm, "eps"): "above 0" for norm in ("layer_norm", "rms_norm")},
    **{(operation, "scale"): "" for operation in BOTH_ATTENTIONS},
    **{(operation, "softcap"): "above 0" for operation in BOTH_ATTENTIONS},
    **{(operation, "dropout"): "in [0, 1)" for operation in BOTH_ATTENTIONS},
    ("dropout", "p"): "in [0, 1)",
    ("rotary", "base"): "above 0",
    ("sinusoidal_positions", "base"): "above 0",
    ("cross_entropy", "label_smoothing"): "in [0, 1)",
}
OUTSIDE = {
    "": [],
    "above 0": [0, 0.0, -0.0, -1, -1e-300, np.float32(-1)],
    "in [0, 1)": [1, 1.0, 1.5, -0.1, -1, np.float32(1)],
}


def numbers() -> Iterator[Case]:
    for (operation, name), rule in NUMBERS.items():
        for value in [*NO_NUMBERS, *([] if name in ("scale", "softcap") else [None])]:
            yield Case(operation, name, value, TypeError, "must be a number", f"got {value!r}")
        yield Case(operation, name, np.array(0.5), TypeError, "must be a number", "got an array of the shape ()")
        for value in (math.nan, math.inf, -math.inf, np.float32(np.nan), np.float16(np.inf), 10**400, -(10**400)):
            yield Case(operation, name, value, ValueError, "must be finite", f"got {value}")
        for value in OUTSIDE[rule]:
            yield Case(operation, name, value, ValueError, rule, f"got {value}")


NO_INTEGERS = ["3", 3.0, math.nan, np.float64(3), 1j, [3], np.timedelta64(3, "s"), Fraction(3)]
WHOLE = {  # what each must be, and the nearest that is not
    **{(operation, "axis"): ("which has 2", [2, -3, 10**30, np.int8(2)]) for operation in ("softmax", "log_softmax")},
    ("embedding", "padding_id"): ("in 0 … 6", [-1, 7, 10**30, np.int8(-1)]),
    ("split_heads", "n_heads"): ("at least 1", [0, -1, np.uint8(0)]),
    ("cross_entropy", "ignore_id"): ("", []),
    **{
        (operation, "causal"): ("in -9007199254740992 … 9", [2**53 + 1, -(2**53) - 1, 10**30])
        for operation in BOTH_ATTENTIONS
    },
    ("sinusoidal_positions", "length"): ("at least 0", [-1, np.int8(-1)]),
    ("sinusoidal_positions", "d_model"): ("at least 1", [0, -1]),
    ("alibi_slopes", "n_heads"): ("at least 1", [0, -1, np.uint8(0)]),
    ("alibi_bias", "n_heads"): ("at least 1", [0, -1]),
    ("alibi_bias", "T"): ("at least 0", [-1]),
    ("alibi_bias", "S"): ("at least 0", [-1]),
    ("alibi_bias", "offset"): ("in -9007199254740992 … 9", [2**53 + 1, -(2**53) - 1, 10**30]),
}


def whole_numbers() -> Iterator[Case]:
    for (operation, name), (rule, outside) in WHOLE.items():
        optional = name in ("padding_id", "ignore_id", "causal")
        bools = [] if name == "causal" else [True, False, np.True_]
        for value in [*NO_INTEGERS, *bools, *([] if optional else [None])]:
            yield Case(operation, name, value, TypeError, "must be an integer", f"got {value!r}")
        yield Case(operation, name, np.array([3]), TypeError, "must be an integer", "got an array of the shape (1,)")
        for value in outside:
            yield Case(operation, name, value, ValueError, rule, f"{value}")
    for n_heads in (3, 4, 20):
        yield Case("split_heads", "n_heads", n_heads, ValueError, "divide x's 10 features", f"n_heads = {n_heads}")


def integer_arrays() -> Iterator[Case]:
    """Ids, targets and positions: of another kind, out of range, of another shape."""
    for operation, name in (("embedding", "ids"), ("cross_entropy", "targets"), ("rotary", "positions")):
        right = RIGHT[operation]()[name]
        for value in (right.tolist(), 3, np.int64(3), None, "x", range(3), np.ma.masked_array(right), MATRIX.astype(int)):
            came = "got a single int64" if isinstance(value, np.int64) else f"got {type(value).__name__}"
            yield Case(operation, name, value, TypeError, "must be an array of integers", came)
        for dtype in (np.float64, np.float32, bool, complex, object, "U5", "m8[s]", "M8[s]"):
            value = right.astype(dtype)
            yield Case(operation, name, value, TypeError, "must be an array of integers", f"got {value.dtype}")

    def changed(right: np.ndarray, *changes: tuple[tuple[int, ...], int], dtype: Any = np.int64) -> np.ndarray:
        value = right.astype(dtype)
        for place, number in changes:
            value[place] = number
        return value

    ids = RIGHT["embedding"]()["ids"]
    for value, came in (
        (changed(ids, ((0, 2), 7), ((1, 0), -1)), "ids[0, 2] is 7,"),
        (changed(ids, ((0, 2), -1), ((1, 0), 7)), "ids[0, 2] is -1,"),
        (changed(ids, ((1, 1), -128), dtype=np.int8), "ids[1, 1] is -128,"),
        (changed(ids, ((1, 2), 2**64 - 1), dtype=np.uint64), f"ids[1, 2] is {2**64 - 1},"),
        (changed(ids, ((1, 2), 2**63 - 1), dtype=">i8"), f"ids[1, 2] is {2**63 - 1},"),
        (np.array(7), "ids is 7,"),
        (np.array([3, 1, 9, 8]), "ids[2] is 9,"),
    ):
        yield Case("embedding", "ids", value, ValueError, "outside 0 … 6", came)
    yield Case(
        "embedding",
        "ids",
        np.array([0]),
        ValueError,
        "none to choose from",
        "ids[0] is 0,",
        {"table": floats(0, 5), "padding_id": None},
    )

    targets = RIGHT["cross_entropy"]()["targets"]
    for value, came, ignore_id in (
        (changed(targets, ((0, 2), 5), ((1, 0), 6)), "targets[0, 2] is 5,", -1),
        (changed(targets, ((0, 1), -1), ((0, 2), -2)), "targets[0, 2] is -2,", -1),
        (changed(targets, ((1, 1), -1)), "targets[1, 1] is -1,", None),
        (changed(targets, ((1, 1), -1)), "targets[1, 1] is -1,", -100),
        (changed(targets, ((1, 1), 255), dtype=np.uint8), "targets[1, 1] is 255,", -1),
    ):
        yield Case("cross_entropy", "targets", value, ValueError, "outside 0 … 4", came, {"ignore_id": ignore_id})
    for shape in ((3, 2), (6,), (2, 3, 1), (1, 3), (3,), (), (2, 3, 5)):
        yield Case(
            "cross_entropy",
            "targets",
            np.asarray(integers(5, *shape)),
            ValueError,
            "logits' rows (2, 3)",
            f"targets {shape}",
        )
    yield Case(
        "cross_entropy",
        "logits",
        floats(3, 2, 5),
        ValueError,
        "must have the shape of logits' rows (3, 2)",
        "targets (2, 3)",
    )

    for shape in ((4,), (2, 5), (5, 1), (5, 3), (2, 3, 4), (2, 3, 5, 8), (1, 1, 1, 5)):
        yield Case(
            "rotary", "positions", integers(9, *shape), ValueError, "broadcast to x's (2, 3, 5)", f"positions {shape}"
        )


def choices_and_chance() -> Iterator[Case]:
    for value in ("halves", "HALF", "", None, 3, b"half", ["half"], ("half", "interleaved")):
        yield Case("rotary", "layout", value, ValueError, 'must be "half" or "interleaved"', f"got {value!r}")
    for value in (np.array("half"), np.array(["half"]), np.array(["half", "x"])):
        yield Case(
            "rotary",
            "layout",
            value,
            ValueError,
            'must be "half" or "interleaved"',
            f"got an array of the shape {value.shape}",
        )
    for operation in ("dropout", *BOTH_ATTENTIONS):
        for value in (
            np.random.RandomState(0),
            np.random.PCG64(0),
            np.random.SeedSequence(0),
            0,
            True,
            "0",
            np.random.default_rng,
        ):
            rule = "must be a numpy.random.Generator or None"
            yield Case(operation, "rng", value, TypeError, rule, f"got {type(value).__name__}")


def masks_and_windows() -> Iterator[Case]:
    wrong_shapes = (
        *((B, S), (B, T), (S, T), (T,), (S,), (1, S), (T, 1), (1, 1), ()),
        *((H, T, S), (B, T, S), (B, 1, S), (1, T, S)),
        *((B, H, S, T), (B, G, T, S), (B + 1, 1, T, S), (1, 1, T, S + 1), (0, 1, T, S), (1, B, H, T, S)),
    )
    for operation in BOTH_ATTENTIONS:
        keep = RIGHT[operation]()["keep"]
        for value in (keep.tolist(), True, 1, "keep", np.ma.masked_array(keep), MATRIX.astype(bool)):
            yield Case(operation, "keep", value, TypeError, "must be a boolean array", f"got {type(value).__name__}")
        yield Case(operation, "keep", np.True_, TypeError, "must be a boolean array", "got a single bool")
        for dtype in (np.int64, np.uint8, np.float64, np.float32, object, "U5"):
            yield Case(operation, "keep", keep.astype(dtype), TypeError, "must be a boolean array", f"got {np.dtype(dtype)}")
        for shape in wrong_shapes:
            rule = "the shape (T, S) = (5, 7), or four axes that broadcast to (B, H, T, S) = (2, 6, 5, 7)"
            yield Case(operation, "keep", np.ones(shape, bool), ValueError, rule, f"got {shape}")
            yield Case(operation, "bias", np.ones(shape), ValueError, rule, f"got {shape}")
        for true in (True, np.True_):
            yield Case(operation, "causal", true, ValueError, "needs as many queries as keys", "T = 5 and S = 7")

        room = "must leave room for the query's own place"
        for window in (0, -1, np.uint8(0), np.int8(-128), -(10**30), (-1, 0), (0, -1), [-1, -1], (np.int8(-1), 5)):
            yield Case(
                operation, "window", window, ValueError, room, f"got {window!r}" if isinstance(window, tuple) else "got"
            )
        for window in ((), (1,), (1, 2, 3), [1, 2, 3]):
            yield Case(operation, "window", window, ValueError, "must be W or (left, right)", f"got {window!r}")
        for window in (2.0, True, np.True_, "3", {1, 2}, np.float64(2), np.timedelta64(2, "s"), math.inf):
            yield Case(operation, "window", window, TypeError, "must be an integer", f"got {window!r}")
        yield Case(operation, "window", np.array([1, 2]), TypeError, "must be an integer", "got an array of the shape (2,)")
        for side in (1.0, True, "1", None, math.inf):
            yield Case(operation, "window", (side, 0), TypeError, "window's left must be an integer", f"got {side!r}")
            yield Case(operation, "window", (0, side), TypeError, "window's right must be an integer", f"got {side!r}")


CASES = [
    *floating_arrays(),
    *sizes(),
    *empty_or_odd_axes(),
    *numbers(),
    *whole_numbers(),
    *integer_arrays(),
    *choices_and_chance(),
    *masks_and_windows(),
]

# Words of Python's and NumPy's own messages, which know nothing of the arguments' names.
FOREIGN = (
    "could not be broadcast",
    "matmul",
    "cannot reshape",
    "not aligned",
    "ufunc",
    "has no attribute",
    "unsupported operand",
    "bad operand",
    "truth value",
    "out of bounds",
    "too large to convert",
    "used as indices",
    "setting an array element",
)


def snapshot(arguments: dict[str, Any]) -> dict[str, Any]:
    """What the arguments hold, to the last byte."""

    def held(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.dtype, value.shape, value.strides, value.tobytes()
        return str(value.bit_generator.state) if isinstance(value, np.random.Generator) else repr(value)

    return {name: held(value) for name, value in arguments.items()}


def call_by_position(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    kinds = {name: parameter.kind for name, parameter in inspect.signature(function).parameters.items()}
    positional = [arguments[name] for name, kind in kinds.items() if kind != keyword_only]
    return function(*positional, **{name: arguments[name] for name, kind in kinds.items() if kind == keyword_only})


def complaints(call: Callable[[], Any], case: Case, arguments: dict[str, Any]) -> list[str]:
    """What is wrong with how a call refuses a bad argument."""
    before = snapshot(arguments)
    try:
        call()
    except Exception as error:
        caught = error
    else:
        return ["it is accepted"]
    sentence = str(caught)
    found = []
    if type(caught) is not case.error:
        found.append(f"a {type(caught).__name__}, not a {case.error.__name__}")
    if not sentence.startswith(f"{case.operation}: "):
        found.append("it does not begin with the operation")
    if "\n" in sentence:
        found.append("more than one line")
    if not re.search(rf"\b{case.argument}\b", sentence):
        found.append("the argument is not named")
    if case.expected not in sentence:
        found.append(f"what was expected, {case.expected!r}, is not said")
    if case.came not in sentence:
        found.append(f"what came, {case.came!r}, is not said")
    found += [f"foreign words: {words}" for words in FOREIGN if words in sentence]
    if caught.__cause__ is not None or caught.__context__ is not None:
        found.append("it was raised by way of another error")
    if snapshot(arguments) != before:
        found.append("an argument has changed")
    return [f"{complaint}: {sentence}" for complaint in found]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_bad_argument_is_refused_in_one_sentence_and_nothing_changes(case):
    function = getattr(functional, case.operation)
    arguments = case.arguments()
    assert complaints(lambda: function(**arguments), case, arguments) == []
    assert complaints(lambda: call_by_position(function, arguments), case, arguments) == []


@pytest.mark.parametrize("operation", functional.__all__)
def test_every_argument_of_every_operation_has_a_case(operation):
    tried = {case.argument for case in CASES if case.operation == operation}
    assert tried == set(inspect.signature(getattr(functional, operation)).parameters)


@pytest.mark.parametrize("operation", functional.__all__)
def test_the_arguments_are_accepted_where_nothing_is_wrong_with_them(operation):
    arguments = RIGHT[operation]()
    assert list(arguments.keys() ^ inspect.signature(getattr(functional, operation)).parameters) == []
    getattr(functional, operation)(**arguments)
    call_by_position(getattr(functional, operation), arguments)


def says(sentence: str, error: type[Exception] = ValueError, change: Callable[[np.ndarray], Any] = lambda x: None):
    """An operation that refuses its argument with a sentence of its own, after it has done something to it."""

    def operation(x: np.ndarray) -> None:
        change(x)
        raise error(sentence)

    return operation


def leaks(x: np.ndarray) -> None:
    x + np.zeros(4)


def wraps_another_error(x: np.ndarray) -> None:
    try:
        leaks(x)
    except ValueError as error:
        raise ValueError("op: x must have 4 entries, got 3") from error


@pytest.mark.parametrize(
    ("operation", "complaint"),
    [
        (lambda x: x, "it is accepted"),
        (leaks, "foreign words: could not be broadcast"),
        (wraps_another_error, "it was raised by way of another error"),
        (says("op: x must have 4 entries, got 3", TypeError), "a TypeError, not a ValueError"),
        (says("op: x must have 4 entries, got 3", np.exceptions.AxisError), "a AxisError, not a ValueError"),
        (says("x must have 4 entries, got 3"), "it does not begin with the operation"),
        (says("op: xs must have 4 entries, got 3"), "the argument is not named"),
        (says("op: x is wrong, got 3"), "what was expected, '4 entries', is not said"),
        (says("op: x must have 4 entries"), "what came, 'got 3', is not said"),
        (says("op: x must have 4 entries,\ngot 3"), "more than one line"),
        (says("op: x must have 4 entries, got 3", change=lambda x: x.fill(1)), "an argument has changed"),
    ],
)
def test_a_refusal_that_falls_short_is_noticed(operation, complaint):
    x = np.zeros(3)
    case = Case("op", "x", x, ValueError, "4 entries", "got 3")
    assert complaint in " ".join(complaints(lambda: operation(x), case, {"x": x}))


def test_a_refusal_that_says_it_all_is_none_to_complain_of():
    case = Case("op", "x", 3, ValueError, "4 entries", "got 3")
    assert complaints(lambda: says("op: x must have 4 entries, got 3")(3), case, {"x": 3}) == []


# Some sentences whole, to be read as a user reads them.

SENTENCES = [
    (
        "attention",
        {"query": floats(B, 8, T, K), "key": floats(B, 12, S, K), "value": floats(B, 12, S, V)},
        "attention: key has 12 heads, which does not divide query's 8",
    ),
    (
        "attention",
        {"causal": True},
        "attention: causal=True needs as many queries as keys, got T = 5 and S = 7; "
        "say causal=0 for top-left alignment or causal=2 for bottom-right",
    ),
    (
        "attention",
        {"keep": np.ones((T, S), int)},
        "attention: keep must be a boolean array, True where a query may attend, got int64",
    ),
    (
        "attention_weights",
        {"keep": np.ones((B, S), bool)},
        "attention_weights: keep must have the shape (T, S) = (5, 7), or four axes that broadcast to "
        "(B, H, T, S) = (2, 6, 5, 7), got (2, 7)",
    ),
    ("attention", {"window": 0}, "attention: window must leave room for the query's own place, got 0"),
    ("attention", {"softcap": 0}, "attention: softcap must be finite and above 0, got 0"),
    (
        "linear",
        {"weight": floats(6, 7)},
        "linear: weight (6, 7) has D_in = 6, but x (2, 3, 5) has D_in = 5",
    ),
    (
        "layer_norm",
        {"gamma": floats(5).astype(np.float32)},
        "layer_norm: gamma is float32, but x is float64; all floating arrays share one dtype",
    ),
    ("layer_norm", {"gamma": floats(1, 5)}, "layer_norm: gamma must have the axes (D), got the shape (1, 5)"),
    ("rms_norm", {"gamma": None}, "rms_norm: gamma must be a NumPy array, got NoneType"),
    ("embedding", {"ids": np.array([[1, 2], [100, -1]])}, "embedding: ids[1, 0] is 100, outside 0 … 6"),
    ("embedding", {"padding_id": -1}, "embedding: padding_id must be in 0 … 6, got -1"),
    ("split_heads", {"n_heads": 4}, "split_heads: n_heads = 4 does not divide x's 10 features"),
    ("softmax", {"axis": 2}, "softmax: axis 2 is not an axis of x, which has 2"),
    ("dropout", {"p": 1}, "dropout: p must be in [0, 1), got 1"),
    ("dropout", {"rng": 0}, "dropout: rng must be a numpy.random.Generator or None, got int"),
]


@pytest.mark.parametrize(("operation", "changes", "sentence"), SENTENCES)
def test_the_sentence_is_whole(operation, changes, sentence):
    with pytest.raises((TypeError, ValueError)) as caught:
        getattr(functional, operation)(**{**RIGHT[operation](), **changes})
    assert str(caught.value) == sentence


# Python's own refusals: the operation and the argument are in them.


@pytest.mark.parametrize("operation", functional.__all__)
def test_an_argument_that_no_operation_has_is_refused_by_its_name(operation):
    with pytest.raises(TypeError, match=rf"^{operation}\(\).*'no_such_argument'"):
        getattr(functional, operation)(**RIGHT[operation](), no_such_argument=1)


@pytest.mark.parametrize("operation", functional.__all__)
def test_an_argument_that_is_missing_is_named(operation):
    function = getattr(functional, operation)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is inspect.Parameter.empty:
            with pytest.raises(TypeError, match=rf"^{operation}\(\) missing .*'{name}'"):
                function(**without(RIGHT[operation](), name))


# Cotangents.


def bad_cotangents(dy: np.ndarray) -> Iterator[tuple[tuple[Any, ...], type[Exception], str, str]]:
    """Cotangents for an output like `dy`, each with the error, what was expected and what came."""
    one = "backward takes 1 cotangent(s)"
    yield (), TypeError, one, "got 0"
    yield (dy, dy), TypeError, one, "got 2"
    shapes = {(*dy.shape, 1), (1, *dy.shape), dy.shape[1:], dy.shape[::-1], (1,) * dy.ndim, (), (0,)} - {dy.shape}
    for shape in sorted(shapes):
        yield (np.ones(shape),), ValueError, f"the output has {dy.shape}", f"dy has the shape {shape}"
    for dtype in (np.float32, np.float16, np.complex128, np.int64, bool, object, dy.dtype.newbyteorder()):
        other = dy.astype(dtype)
        yield (other,), TypeError, "the output is float64", f"dy is {other.dtype}"
    no_arrays = [None, "x", 1j, True, [1.0], np.ma.masked_array(dy), MATRIX]
    if dy.ndim:
        no_arrays += [dy.tolist(), 1.0, 1]
    for value in no_arrays:
        yield (value,), TypeError, "dy must be a NumPy array", f"got {type(value).__name__}"


@pytest.mark.parametrize("operation", AXES)
def test_a_bad_cotangent_is_refused_and_the_next_one_gets_its_gradient(operation):
    y, backward = getattr(functional, operation)(**RIGHT[operation]())
    shape = (y[0] if isinstance(y, tuple) else y).shape
    dy = floats(*shape)
    before = gradients(backward, dy)
    for cotangents, error, expected, came in bad_cotangents(dy):
        argument = "cotangent" if len(cotangents) != 1 else "dy"
        case = Case(operation, argument, cotangents, error, expected, came)
        given = {str(i): cotangent for i, cotangent in enumerate(cotangents)}
        found = complaints(lambda given=given: backward(*given.values()), case, given)
        assert [complaint for complaint in found if argument == "dy" or "not named" not in complaint] == []
    assert gradients(backward, dy) == before


def gradients(backward: Callable[..., Any], dy: np.ndarray) -> list[bytes]:
    result = backward(dy)
    return [gradient.tobytes() for gradient in (result if isinstance(result, tuple) else (result,))]


# What looks like a bad argument and is none.


def test_a_number_may_stand_for_the_cotangent_of_a_total():
    _, backward = functional.cross_entropy(**RIGHT["cross_entropy"]())
    expected = gradients(backward, np.array(0.5))
    assert gradients(backward, 0.5) == gradients(backward, np.float64(0.5)) == expected


def test_a_number_beyond_float16_is_an_infinite_cotangent_and_no_warning():
    logits, targets = floats(2, 3).astype(np.float16), np.array([0, 2])
    _, backward = functional.cross_entropy(logits, targets)
    assert not np.isfinite(backward(1e10)).any()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_a_numpy_integer_counts_like_pythons(dtype):
    n, two = dtype(127), dtype(2)
    x = floats(1, 2, 254)
    np.testing.assert_array_equal(functional.split_heads(x, n)[0], functional.split_heads(x, 127)[0])
    np.testing.assert_array_equal(functional.alibi_slopes(n), functional.alibi_slopes(127))
    np.testing.assert_array_equal(functional.alibi_bias(two, n, n, n), functional.alibi_bias(2, 127, 127, 127))
    np.testing.assert_array_equal(functional.sinusoidal_positions(n, n), functional.sinusoidal_positions(127, 127))
    arguments = RIGHT["attention_weights"]()
    for given, same in ((dtype(1), 1), ((two, two), (2, 2))):
        np.testing.assert_array_equal(
            functional.attention_weights(**{**arguments, "causal": two, "window": given})[0],
            functional.attention_weights(**{**arguments, "causal": 2, "window": same})[0],
        )


def test_a_window_wider_than_any_sequence_hides_nothing():
    arguments = {**RIGHT["attention_weights"](), "causal": None}
    everything = functional.attention_weights(**{**arguments, "window": None})[0]
    for window in (2**63 - 1, 10**30, (10**30, 10**30), (2**63 - 1, 2**63 - 1)):
        arguments["window"] = window if isinstance(window, tuple) else (window, window)
        np.testing.assert_array_equal(functional.attention_weights(**arguments)[0], everything)


def test_no_input_features_give_the_bias_and_an_empty_gradient():
    x, weight, bias = floats(2, 3, 0), floats(0, 7), floats(7)
    y, backward = functional.linear(x, weight, bias)
    np.testing.assert_array_equal(y, np.broadcast_to(bias, (2, 3, 7)))
    dy = floats(2, 3, 7)
    dx, dweight, dbias = backward(dy)
    assert (dx.shape, dweight.shape) == (x.shape, weight.shape)
    np.testing.assert_allclose(dbias, dy.sum((0, 1)), rtol=1e-14)
