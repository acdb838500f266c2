"""Every operation of functional/: its arrays by axis letters, its options, and the numbers that it is tried on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from npformer import functional
from npformer.catalogue.entry import Axes, Case, Chooser, Operation, Option
from npformer.operation import Array


def draw_ids(letters: str, limit: str, ignored: int | None = None) -> Option:
    """Integers of some integer dtype in 0 … limit − 1, with repeats, and about a third of `ignored`."""

    def draw(choose: Chooser, axes: Axes, rng: np.random.Generator) -> Array:
        ids = rng.integers(axes[limit], size=axes.shape(letters)).astype(choose.one_of((np.int64, np.int32)))
        return ids if ignored is None else np.where(rng.random(ids.shape) < 0.3, np.asarray(ignored, ids.dtype), ids)

    return draw


def draw_axis(choose: Chooser, axes: Axes, rng: np.random.Generator) -> int | None:
    n = len(axes.shape("... D"))
    choice: list[int | None] = [None, *range(-n, n)]
    return choose.one_of(choice)


def draw_positions(choose: Chooser, axes: Axes, rng: np.random.Generator) -> Array:
    """One row of positions for all, or rows of their own."""
    shape = choose.one_of((axes.shape("T"), axes.shape("... T")))
    return rng.integers(-3, choose.one_of((8, 2000)), size=shape)


def largest_position(case: "Case") -> float:
    """An angle of so many radians is rounded to as many units."""
    return float(np.abs(case.options["positions"]).max(initial=0))


def draw_generator(choose: Chooser, axes: Axes, rng: np.random.Generator) -> np.random.Generator:
    return np.random.default_rng(int(rng.integers(2**32)))


NONE = ("",) * 6  # so that attention without any mask or bias is not rare


def draw_keep(choose: Chooser, axes: Axes, rng: np.random.Generator) -> Array | None:
    letters = choose.one_of((*NONE, "T S", "B H T S", "1 1 T S", "B 1 1 S", "B 1 T S", "1 H T 1"))
    return rng.random(axes.shape(letters)) < choose.one_of((0.7, 0.3)) if letters else None


def draw_causal(choose: Chooser, axes: Axes, rng: np.random.Generator) -> bool | int | None:
    choice: list[bool | int | None] = [None, None, None, False, 0, axes["S"] - axes["T"], -1, 1]
    return choose.one_of([*choice, True, True, True] if axes["T"] == axes["S"] else choice)


def padding_row(case: "Case") -> dict[str, Array]:
    rows = np.zeros(case.arrays["table"].shape, bool)
    if "padding_id" in case.options:
        rows[case.options["padding_id"]] = True
    return {"table": rows}


def count(letter: str) -> Option:
    return lambda choose, axes, rng: axes[letter]


ATTENTION_OPTIONS: dict[str, Sequence[Any] | Option] = {
    "keep": draw_keep,
    "causal": draw_causal,
    "window": (None, None, None, None, None, 1, 2, (0, 1), (1, 0), (2, 1)),
    "scale": (None, None, 0.3, -1.0),
    "softcap": (None, None, 2.0, 0.5),
    "dropout": (None, 0.0, 0.3),
    "rng": draw_generator,
}
ATTENTION_SIZES = {
    "B": (2, 1),
    "G": (1, 2, 3),
    "R": (2, 1, 3),
    "T": (3, 5, 2, 1),
    "S": ("T", "T", 5, 3, 4, 1),
    "K": (3, 2, 1),
}
ATTENTION_BIAS = (*NONE, "T S", "B H T S", "1 H T S", "B 1 1 S", "1 1 T 1", "B H T 1")
ROWS = {"x": "... D"}

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            functional.linear,
            arrays={"x": "... D_in", "weight": "D_in D_out", "bias": ("", "D_out")},
            empty=("...",),
        ),
        Operation(
            functional.relu,
            arrays=ROWS,
            empty=("...", "D"),
            values=("normal", "small", "tied", "offset"),
            stopped=lambda case: {"x": case.arrays["x"] == 0},
        ),
        *(
            Operation(function, arrays=ROWS, empty=("...", "D"), values=("normal", "small", "wide", "left tail", "offset"))
            for function in (functional.gelu, functional.gelu_tanh)
        ),
        *(
            Operation(function, arrays=ROWS, empty=("...", "D"))
            for function in (functional.silu, functional.sigmoid, functional.tanh)
        ),
        *(
            Operation(
                function,
                arrays=ROWS,
                options={"axis": draw_axis},
                empty=("...", "D"),
                values=("normal", "small", "wide", "tied", "offset", "far", "with −inf"),
            )
            for function in (functional.softmax, functional.log_softmax)
        ),
        Operation(
            functional.layer_norm,
            arrays={"x": "... D", "gamma": "D", "beta": "D"},
            options={"eps": (None, 1e-3, 1.0)},
            sizes={"D": (3, 5, 7)},
            empty=("...",),
            own_values={"x": ("normal", "wide", "tied", "offset"), "gamma": ("normal",), "beta": ("normal",)},
        ),
        Operation(
            functional.rms_norm,
            arrays={"x": "... D", "gamma": "D"},
            options={"eps": (None, 1e-3, 1.0)},
            sizes={"D": (3, 5, 7)},
            empty=("...",),
            own_values={"x": ("normal", "wide", "tied", "offset"), "gamma": ("normal",)},
        ),
        Operation(
            functional.embedding,
            arrays={"table": "V D"},
            options={"ids": draw_ids("B T", "V"), "padding_id": (None, 0)},
            stopped=padding_row,
            sizes={"B": (2, 1), "T": (3, 5, 1)},
            empty=("B", "T"),
        ),
        Operation(
            functional.dropout,
            arrays=ROWS,
            options={"p": (0.3, 0.0, 0.9), "rng": draw_generator},
            empty=("...", "D"),
        ),
        Operation(
            functional.split_heads,
            arrays={"x": "B T D"},
            options={"n_heads": count("H")},
            products={"D": ("H", "K")},
            empty=("B", "T", "K"),
        ),
        Operation(
            functional.merge_heads,
            arrays={"x": "B H T K"},
            sizes={"B": (2, 1, 3)},
            empty=("B", "T"),
        ),
        Operation(
            functional.attention,
            arrays={"query": "B H T K", "key": "B G S K", "value": "B G S V", "bias": ATTENTION_BIAS},
            options=ATTENTION_OPTIONS,
            sizes={**ATTENTION_SIZES, "V": (2, 3, 1)},
            products={"H": ("G", "R")},
            empty=("B", "T", "S", "V"),
            values=("normal", "normal", "small", "tied"),
            own_values={"bias": ("normal", "with −inf")},
        ),
        Operation(
            functional.attention_weights,
            arrays={"query": "B H T K", "key": "B G S K", "bias": ATTENTION_BIAS},
            options=ATTENTION_OPTIONS,
            sizes=ATTENTION_SIZES,
            products={"H": ("G", "R")},
            empty=("B", "T", "S"),
            values=("normal", "normal", "small", "tied"),
            own_values={"bias": ("normal", "with −inf")},
        ),
        Operation(
            functional.rotary,
            arrays={"x": "... T K"},
            options={"positions": draw_positions, "base": (None, 100.0), "layout": (None, "half", "interleaved")},
            units=lambda case: 64.0 + 4.0 * largest_position(case),
            sizes={"pairs": (1, 2, 3)},
            products={"K": ("pairs", 2)},
            empty=("...", "T"),
        ),
        Operation(
            functional.cross_entropy,
            arrays={"logits": "... V"},
            options={
                "targets": draw_ids("...", "V", ignored=-1),
                "ignore_id": (-1,),
                "label_smoothing": (None, 0.1, 0.9),
            },
            empty=("...",),
            values=("normal", "small", "wide", "tied", "offset", "far"),
        ),
        Operation(
            functional.sinusoidal_positions, options={"length": (7, 1, 0), "d_model": (6, 5, 1), "base": (None, 100.0)}
        ),
        Operation(functional.alibi_slopes, options={"n_heads": (8, 1, 3, 12)}),
        Operation(functional.alibi_bias, options={"n_heads": (3, 2), "T": (2, 0, 3), "S": (5, 1), "offset": (None, 3, -2)}),
    )
}
