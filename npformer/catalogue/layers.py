"""Every layer and model, with the sizes and choices that it is built with and called with."""

from collections.abc import Callable
from typing import Any

import numpy as np

from npformer import layers
from npformer.catalogue.entry import Axes, Case, Chooser, Operation, Option
from npformer.catalogue.in_pieces import InPieces
from npformer.catalogue.operations import draw_generator, draw_ids, padding_row
from npformer.functional import gelu, gelu_tanh, relu, silu
from npformer.layers import Layer
from npformer.models import blocks, encoder, encoder_decoder, gpt, stack
from npformer.operation import Array

FLOAT64: dict[str, Any] = {"dtype": np.float64}
BOTH = (True, False)


def build_linear(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(axes["D_in"], axes["D_out"], bias=choose.one_of(BOTH), rng=rng, **FLOAT64)


def build_embedding(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(axes["V"], axes["D"], choose.one_of((None, 0)), scale=choose.one_of((1.0, 3.0)), rng=rng, **FLOAT64)


def padding_row_of_layer(case: Case) -> dict[str, Array]:
    """As of the operation; the row is the layer's own choice."""
    padding_id = getattr(case.layer, "padding_id", None)
    options = case.options if padding_id is None else {**case.options, "padding_id": padding_id}
    return padding_row(Case(case.operation, case.arrays, options))


def build_tied_output(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(layers.Embedding(axes["V"], axes["D"], rng=rng, **FLOAT64), bias=choose.one_of(BOTH))


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


def build_attention_read_anyhow(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    layer = build_attention(make, choose, axes, rng)
    return layer if has_memory(axes) else anyhow(layer, choose)


def build_residual(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    layer = build_attention(layers.MultiHeadAttention, choose, axes, rng)
    return make(layer, norm(choose, axes), choose.one_of(("pre", "post")), chance(choose))


def build_residual_read_anyhow(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    layer = build_residual(make, choose, axes, rng)
    return layer if has_memory(axes) else anyhow(layer, choose)


def build_encoder_layer(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    return make(build_residual(layers.Residual, choose, axes, rng), build_thinking(choose, axes, rng))


def build_decoder_layer(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    attention = build_residual(layers.Residual, choose, axes, rng)
    cross_attention = build_residual(layers.Residual, choose, axes, rng) if has_memory(axes) else None
    layer = make(attention, build_thinking(choose, axes, rng), cross_attention, window=choose.one_of((None, 2)))
    return anyhow(layer, choose)


def build_thinking(choose: Chooser, axes: Axes, rng: np.random.Generator) -> layers.Residual:
    feed_forward = build_feed_forward(layers.FeedForward, choose, axes, rng)
    return layers.Residual(feed_forward, norm(choose, axes), choose.one_of(("pre", "post")), chance(choose))


def build_stack(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    """Of one layer twice, which has half as many arrays as two, and each takes its time."""
    made = blocks.Blocks(title="Stack", attention_dropout=0.0, **sizes_and_choices(choose, axes, bias=False))
    encodes = not has_memory(axes) and choose.one_of((True, False, False))
    if encodes:
        layer: Layer = made.make_encoder_layer(np.float64, rng)
    else:
        layer = made.make_decoder_layer(np.float64, rng, cross=has_memory(axes))
    whole = make(
        layers.Embedding(axes["V"], axes["D"], rng=rng, **FLOAT64),
        made.make_positions(axes["T"], np.float64, rng),
        [layer, layer],
        made.make_norm(np.float64) if choose.one_of(BOTH) else None,
        token_types=layers.Embedding(axes["types"], axes["D"], rng=rng, **FLOAT64) if choose.one_of(BOTH) else None,
        dropout=chance(choose),
    )
    return whole if encodes else anyhow(whole, choose, lambda T: {"caches": [layers.KVCache(T), layers.KVCache(T)]})


def build_gpt(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    config = gpt.GPTConfig(
        vocab_size=axes["V"],
        max_len=axes["T"] + choose.one_of((0, 1)),
        n_layers=1,
        tied=choose.one_of(BOTH),
        window=choose.one_of((None, None, 2)),
        **sizes_and_choices(choose, axes, bias=choose.one_of((False, False, True))),
    )
    model: Any = make(config, dtype=np.float64, seed=0)
    return anyhow(model, choose, lambda T: {"cache": model.new_cache(whole=True)})


def build_encoder_decoder(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    shared = choose.one_of(BOTH)
    config = encoder_decoder.TransformerConfig(
        vocab_size=axes["V"],
        max_len=max(axes["S"], axes["T"]),
        n_encoder_layers=1,
        n_decoder_layers=1,
        source_vocab_size=None if shared else axes["V"] + 1,
        final_norms=choose.one_of((None, *BOTH)),
        scale_embeddings=choose.one_of(BOTH),
        shared_embeddings=shared,
        tied=choose.one_of(BOTH),
        output_bias=choose.one_of(BOTH),
        **sizes_and_choices(choose, axes, bias=False),
    )
    return make(config, dtype=np.float64, seed=0)


def build_encoder(make: Callable[..., Layer], choose: Chooser, axes: Axes, rng: np.random.Generator) -> Layer:
    config = encoder.EncoderConfig(
        vocab_size=axes["V"],
        max_len=axes["T"] + choose.one_of((0, 1)),
        n_layers=1,
        n_token_types=axes["types"],
        final_norm=choose.one_of((None, *BOTH)),
        pooling=choose.one_of((None, "mean", "first")),
        n_outputs=choose.one_of((None, 3)),
        **sizes_and_choices(choose, axes, bias=choose.one_of(BOTH)),
    )
    return make(config, dtype=np.float64, seed=0)


def sizes_and_choices(choose: Chooser, axes: Axes, *, bias: bool) -> dict[str, Any]:
    """What all models are told of their layers. Without biases a check takes half the time."""
    return {
        "d_model": axes["D"],
        "n_heads": axes["H"],
        "d_head": 2 * axes["pairs"],
        "n_kv_heads": choose.one_of((None, axes["G"])),
        "d_ff": axes["F"],
        "activation": choose.one_of((*blocks.ACTIVATIONS, "swiglu")),
        "norm": choose.one_of(tuple(blocks.NORMS)),
        "norm_placement": choose.one_of(blocks.PLACEMENTS),
        "positions": choose.one_of(blocks.POSITIONS),
        "dropout": chance(choose),
        "bias": bias,
    }


def chance(choose: Chooser) -> float:
    return choose.one_of((0.0, 0.3))


def norm(choose: Chooser, axes: Axes) -> Layer:
    if choose.one_of(BOTH):
        return layers.LayerNorm(axes["D"], **FLOAT64)
    return layers.RMSNorm(axes["D"], **FLOAT64)


def one_cache(T: int) -> dict[str, Any]:
    return {"cache": layers.KVCache(T)}


def anyhow(layer: Layer, choose: Chooser, new_cache: Callable[[int], dict[str, Any]] = one_cache) -> Layer:
    """`layer`, which reads a sequence all at once, or one that reads it in pieces."""
    return InPieces(layer, new_cache) if choose.one_of((True, True, False)) else layer


def has_memory(axes: Axes) -> bool:
    """Is there one in this case? Its entry leaves the size of S open, so that the letter stands for it."""
    return "S" in axes.sizes


def draw_places(choose: Chooser, axes: Axes, rng: np.random.Generator) -> Array | None:
    """Positions for all rows or of each, with −1, or none."""
    letters = choose.one_of(("", "", "", "", "T", "B T"))
    return rng.integers(-1, max(1, axes["T"]), size=axes.shape(letters)) if letters else None


def draw_keep(*choice: str) -> Option:
    """Booleans with one of these axes, or none; K stands for the keys, those of the memory or of x."""

    def draw(choose: Chooser, axes: Axes, rng: np.random.Generator) -> Array | None:
        letters = choose.one_of(("",) * 2 * len(choice) + choice).replace("K", "S" if has_memory(axes) else "T")
        return rng.random(axes.shape(letters)) < 0.7 if letters else None

    return draw


def draw_memory_keep(*choice: str) -> Option:
    keep = draw_keep(*choice)
    return lambda choose, axes, rng: keep(choose, axes, rng) if has_memory(axes) else None


def draw_causal(choose: Chooser, axes: Axes, rng: np.random.Generator) -> bool | None:
    return None if has_memory(axes) else choose.one_of((None, True))


ROWS = {"x": "B T D"}
WIDE_ROWS = {"D": (3, 5, 7)}  # a norm over two values is nearly a step
HEADS = {"G": (1, 2), "R": (2, 1), "pairs": (1, 2)}
FEW = {"B": (2, 1), "T": (2, 3), "F": (2,), "D": (3,), "G": (1,), "R": (2,), "pairs": (1,)}  # a model is dear
WITH_CHANCE = {"rng": draw_generator}
WITH_PLACES = {"positions": draw_places}

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
            arrays={"x": "B T D", "memory": ("", "", "B S D")},
            options={
                "keep": draw_keep("B 1 1 K", "T K"),
                "causal": draw_causal,
                "window": (None, None, (1, 2)),
                "positions": draw_places,
                **WITH_CHANCE,
            },
            sizes={"B": (2, 1), "T": (3, 2, 5), **HEADS},
            products={"H": ("G", "R")},
            values=("normal", "tied"),
            build=build_attention_read_anyhow,
        ),
        Operation(
            layers.LearnedPositions, arrays=ROWS, options=WITH_PLACES, empty=("B", "T"), build=build_learned_positions
        ),
        Operation(
            layers.SinusoidalPositions, arrays=ROWS, options=WITH_PLACES, empty=("B", "T"), build=build_sinusoidal_positions
        ),
        Operation(
            layers.RotaryPositions,
            arrays={"x": "B H T K"},
            options=WITH_PLACES,
            sizes={"pairs": (1, 2, 3)},
            products={"K": ("pairs", 2)},
            empty=("B", "T"),
            build=build_rotary_positions,
        ),
        Operation(
            layers.Residual,
            arrays={"x": "B T D", "memory": ("", "", "B S D")},
            options=WITH_CHANCE,
            sizes={"B": (2, 1), "T": (3, 2), **WIDE_ROWS, **HEADS},
            products={"H": ("G", "R")},
            values=("normal", "tied"),
            build=build_residual_read_anyhow,
        ),
        Operation(
            layers.EncoderLayer,
            arrays=ROWS,
            options={"keep": draw_keep("B 1 1 T"), "positions": draw_places, **WITH_CHANCE},
            sizes=FEW,
            products={"H": ("G", "R")},
            values=("normal", "tied"),
            build=build_encoder_layer,
        ),
        Operation(
            layers.DecoderLayer,
            arrays={"x": "B T D", "memory": ("", "B S D")},
            options={"memory_keep": draw_memory_keep("B 1 1 S"), "positions": draw_places, **WITH_CHANCE},
            sizes=FEW,
            products={"H": ("G", "R")},
            values=("normal", "tied"),
            build=build_decoder_layer,
        ),
        Operation(
            stack.Stack,
            arrays={"memory": ("", "B S D")},
            options={
                "ids": draw_ids("B T", "V"),
                "token_types": draw_ids("B T", "types"),
                "keep": draw_keep("B T"),
                "memory_keep": draw_memory_keep("B S"),
                **WITH_CHANCE,
            },
            sizes={"V": (5, 7), "types": (2,), **FEW},
            products={"H": ("G", "R")},
            build=build_stack,
        ),
        Operation(
            gpt.GPT,
            options={"ids": draw_ids("B T", "V"), "keep": draw_keep("B T"), **WITH_CHANCE},
            sizes={"V": (5, 7), **FEW},
            products={"H": ("G", "R")},
            build=build_gpt,
        ),
        Operation(
            encoder_decoder.EncoderDecoder,
            options={
                "source": draw_ids("B S", "V"),
                "target": draw_ids("B T", "V"),
                "source_keep": draw_keep("B S"),
                "target_keep": draw_keep("B T"),
                **WITH_CHANCE,
            },
            sizes={"S": (3, 2), "V": (5,), **FEW},
            products={"H": ("G", "R")},
            build=build_encoder_decoder,
        ),
        Operation(
            encoder.Encoder,
            options={
                "ids": draw_ids("B T", "V"),
                "token_types": draw_ids("B T", "types"),
                "keep": draw_keep("B T"),
                **WITH_CHANCE,
            },
            sizes={"V": (5, 7), "types": (2,), **FEW},
            products={"H": ("G", "R")},
            build=build_encoder,
        ),
    )
}
