"""Every layer and model, with the sizes and choices that it is built with and called with."""

from collections.abc import Callable
from typing import Any

import numpy as np

from npformer import layers
from npformer.catalogue.entry import Axes, Case, Chooser, Operation
from npformer.catalogue.operations import draw_generator, draw_ids, padding_row
from npformer.functional import gelu, gelu_tanh, relu, silu
from npformer.layers import Layer
from npformer.models import blocks, gpt
from npformer.operation import Array

FLOAT64: dict[str, Any] = {"dtype": np.float64}
BOTH = (True, False)


def build_linear(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(axes["D_in"], axes["D_out"], bias=choose.one_of(BOTH), rng=rng, **FLOAT64)


def build_embedding(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(axes["V"], axes["D"], choose.one_of((None, 0)), rng=rng, **FLOAT64)


def padding_row_of_layer(case: Case) -> dict[str, Array]:
    """As of the operation; the row is the layer's own choice."""
    padding_id = getattr(case.layer, "padding_id", None)
    options = case.options if padding_id is None else {**case.options, "padding_id": padding_id}
    return padding_row(Case(case.operation, case.arrays, options))


def build_tied_output(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(layers.Embedding(axes["V"], axes["D"], rng=rng, **FLOAT64))


def build_layer_norm(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(axes["D"], eps=choose.one_of((1e-5, 1e-3)), bias=choose.one_of(BOTH), **FLOAT64)


def build_rms_norm(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(axes["D"], eps=choose.one_of((1e-6, 1e-3)), **FLOAT64)


def build_dropout(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(choose.one_of((0.3, 0.0, 0.9)))


def build_feed_forward(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    activation = choose.one_of((relu, gelu, gelu_tanh, silu))
    return make(axes["D"], axes["F"], activation, bias=choose.one_of(BOTH), dropout=chance(choose), rng=rng, **FLOAT64)


def build_gated_feed_forward(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(axes["D"], axes["F"], bias=choose.one_of(BOTH), dropout=chance(choose), rng=rng, **FLOAT64)


def build_attention(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    positions = choose.one_of((None, layers.RotaryPositions(), layers.ALiBi(axes["H"])))
    return make(
        axes["D"],
        axes["H"],
        d_head=2 * axes["pairs"],
        n_kv_heads=axes["G"],
        bias=choose.one_of(BOTH),
        dropout=chance(choose),
        positions=positions,
        rng=rng,
        **FLOAT64,
    )


def build_learned_positions(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(max(1, axes["T"]) + choose.one_of((0, 1, 3)), axes["D"], rng=rng, **FLOAT64)


def build_sinusoidal_positions(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(base=choose.one_of((10000.0, 100.0)))


def build_rotary_positions(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(base=choose.one_of((10000.0, 100.0)), layout=choose.one_of(("half", "interleaved")))


def build_residual(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    layer = build_attention(layers.MultiHeadAttention, choose, axes, rng)
    return make(layer, norm(choose, axes), choose.one_of(("pre", "post")), chance(choose))


def build_decoder_layer(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    feed_forward = build_feed_forward(layers.FeedForward, choose, axes, rng)
    placement = choose.one_of(("pre", "post"))
    return make(
        build_residual(layers.Residual, choose, axes, rng),
        layers.Residual(feed_forward, norm(choose, axes), placement, chance(choose)),
    )


def build_gpt(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    config = gpt.GPTConfig(
        vocab_size=axes["V"],
        max_len=axes["T"] + choose.one_of((0, 1)),
        n_layers=choose.one_of((1, 1, 2)),
        n_heads=axes["H"],
        d_model=axes["D"],
        d_head=2 * axes["pairs"],
        n_kv_heads=choose.one_of((None, axes["G"])),
        d_ff=axes["F"],
        activation=choose.one_of((*blocks.ACTIVATIONS, "swiglu")),
        norm=choose.one_of(tuple(blocks.NORMS)),
        norm_placement=choose.one_of(blocks.PLACEMENTS),
        positions=choose.one_of(blocks.POSITIONS),
        dropout=chance(choose),
        tied=choose.one_of(BOTH),
        bias=choose.one_of(BOTH),
    )
    return make(config, dtype=np.float64, seed=0)


def chance(choose: Chooser) -> float:
    return choose.one_of((0.0, 0.3))


def norm(choose: Chooser, axes: Axes) -> Layer:
    if choose.one_of(BOTH):
        return layers.LayerNorm(axes["D"], **FLOAT64)
    return layers.RMSNorm(axes["D"], **FLOAT64)


ROWS = {"x": "B T D"}
WIDE_ROWS = {"D": (3, 5, 7)}  # a norm over two values is nearly a step
HEADS = {"G": (1, 2), "R": (2, 1), "pairs": (1, 2)}
WITH_CHANCE = {"rng": draw_generator}

LAYERS: dict[str, Operation] = {
    entry.name: entry
    for entry in (
        Operation(
            layers.Linear, arrays={"x": "... D_in"}, sizes={"D_out": (3, 5, 2, 7, 1)}, empty=("...",), build=build_linear
        ),
        Operation(
            layers.Embedding,
            options={"ids": draw_ids("B T", "V")},
            sizes={"B": (2, 1), "T": (3, 5, 1), "V": (7, 5), "D": (3, 2)},
            empty=("B", "T"),
            stopped=padding_row_of_layer,
            build=build_embedding,
        ),
        Operation(layers.TiedOutput, arrays=ROWS, sizes={"V": (7, 5)}, build=build_tied_output),
        Operation(layers.LayerNorm, arrays=ROWS, sizes=WIDE_ROWS, empty=("B", "T"), build=build_layer_norm),
        Operation(layers.RMSNorm, arrays=ROWS, sizes=WIDE_ROWS, empty=("B", "T"), build=build_rms_norm),
        Operation(layers.Dropout, arrays=ROWS, options=WITH_CHANCE, empty=("B", "T"), build=build_dropout),
        Operation(layers.FeedForward, arrays=ROWS, options=WITH_CHANCE, sizes={"F": (5, 7, 2)}, build=build_feed_forward),
        Operation(
            layers.GatedFeedForward, arrays=ROWS, options=WITH_CHANCE, sizes={"F": (5, 7, 2)}, build=build_gated_feed_forward
        ),
        Operation(
            layers.MultiHeadAttention,
            arrays={"x": "B T D", "memory": ("", "B S D")},
            options={"causal": (None, 0, 1), "window": (None, None, (1, 2)), **WITH_CHANCE},
            sizes={"B": (2, 1), "T": (3, 2, 5), "S": ("T", 5, 2), **HEADS},
            products={"H": ("G", "R")},
            values=("normal", "tied"),
            build=build_attention,
        ),
        Operation(layers.LearnedPositions, arrays=ROWS, empty=("B", "T"), build=build_learned_positions),
        Operation(layers.SinusoidalPositions, arrays=ROWS, empty=("B", "T"), build=build_sinusoidal_positions),
        Operation(
            layers.RotaryPositions,
            arrays={"x": "B H T K"},
            sizes={"pairs": (1, 2, 3)},
            products={"K": ("pairs", 2)},
            empty=("B", "T"),
            build=build_rotary_positions,
        ),
        Operation(
            layers.Residual,
            arrays={"x": "B T D", "memory": ("", "B S D")},
            options=WITH_CHANCE,
            sizes={"B": (2, 1), "T": (3, 2, 5), "S": (5, 2), **WIDE_ROWS, **HEADS},
            products={"H": ("G", "R")},
            values=("normal", "tied"),
            build=build_residual,
        ),
        Operation(
            layers.DecoderLayer,
            arrays=ROWS,
            options=WITH_CHANCE,
            sizes={"B": (2, 1), "T": (3, 2), "F": (5, 2), **WIDE_ROWS, **HEADS},
            products={"H": ("G", "R")},
            values=("normal", "tied"),
            build=build_decoder_layer,
        ),
        Operation(
            gpt.GPT,
            options={"ids": draw_ids("B T", "V"), **WITH_CHANCE},
            sizes={"B": (2, 1), "T": (3, 2, 5), "V": (5, 7), "F": (5, 2), **WIDE_ROWS, **HEADS},
            products={"H": ("G", "R")},
            build=build_gpt,
        ),
    )
}
