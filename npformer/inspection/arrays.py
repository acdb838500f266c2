"""Weights from any framework, inspected like our own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from npformer.arguments import check_mask, check_name
from npformer.inspection.attention_map import KINDS, MOST_TOKENS, NAMED_BY, AttentionMap, check_map, check_tokens
from npformer.inspection.inspection import Inspection
from npformer.inspection.tokens import Token
from npformer.operation import Array

TITLE = "inspect_arrays"


def inspect_arrays(
    weights: Any,
    query_tokens: Sequence[Token] | None = None,
    key_tokens: Sequence[Token] | None = None,
    *,
    kind: str | None = None,
    keep: Any = None,
    gradient: Any = None,
    named_by: str = "reads",
    title: str = "attention",
) -> Inspection:
    """The views of weights (L, H, T, S), or of a list with (H, T, S) or (1, H, T, S) for each layer, of any precision.

    query_tokens  T strings or bytes, and key_tokens S; numbers unless given, and key_tokens are the query_tokens where T = S
    kind          "encoder", "decoder" or "cross". Unless given: cross where T ≠ S; a decoder where no query attends to a key
                  after it in any head; otherwise an encoder. Say "decoder" to have weights on later keys found as a leak
    keep          boolean, True where a query may attend: (S,), (T, S) or (L, H, T, S); in a decoder besides what is causal
    gradient      ∂L/∂P, in the form of `weights`
    named_by      what query_tokens are: the tokens that the queries "reads", or those that they "produces"

    ValueError or TypeError, which names layer and head and says what mends it: for NaN, for rows that sum to neither 1 nor,
    fully masked, 0, for axes that are swapped, for tokens of another number, and for more than 4,096 tokens.
    """
    if kind is not None:
        check_name(TITLE, "kind", kind, KINDS)
    check_name(TITLE, "named_by", named_by, NAMED_BY)
    layers = layers_of("weights", weights)
    if not any(layer.shape[0] for layer in layers):
        raise ValueError(f"{TITLE}: weights hold no head")
    T, S = layers[0].shape[1:]
    gradients = None if gradient is None else layers_of("gradient", gradient)
    if gradients is not None and [g.shape for g in gradients] != [layer.shape for layer in layers]:
        raise ValueError(f"{TITLE}: gradient has the shapes {[g.shape for g in gradients]}, not those of weights")
    refuse_swapped(layers[0].shape, query_tokens, key_tokens)
    queries = check_tokens(TITLE, "query_tokens", query_tokens, T, "queries")
    keys = queries if key_tokens is None and T == S else check_tokens(TITLE, "key_tokens", key_tokens, S, "keys")
    if kind is None:
        causal = T > 1 and not any(np.triu(layer, 1).any() for layer in layers)
        kind = "cross" if T != S else "decoder" if causal else "encoder"
    if kind != "cross" and T > S:
        raise ValueError(f"{TITLE}: layer 0 head 0 has {T} queries, which are no {kind}'s {S} keys: give the kind cross")
    maps = []
    visible = visibility(keep, [layer.shape for layer in layers], kind)
    for i, layer in enumerate(layers):
        for h, P in enumerate(layer):
            dP = None if gradients is None else gradients[i][h]
            seen = visible[i][h] & P.any(1, keepdims=True)  # a row of 0 is fully masked
            maps.append(AttentionMap(kind, i, h, P, queries, keys, seen, dP, named_by))
            check_map(TITLE, maps[-1])
    return Inspection(title, maps)


def layers_of(name: str, given: Any) -> list[Array]:
    """(H, T, S) float64 for each layer."""
    parts = list(given) if isinstance(given, list | tuple) else as_array(name, given)
    if not isinstance(parts, list):
        if parts.ndim != 4:
            raise ValueError(
                f"{TITLE}: {name} must be (L, H, T, S), or a list of (H, T, S) for each layer, got the shape {parts.shape}"
            )
        parts = list(parts)
    layers: list[Array] = []
    for i, part in enumerate(parts):
        layer = as_array(f"{name} of layer {i}", part)
        if layer.ndim == 4:
            if len(layer) != 1:
                raise ValueError(f"{TITLE}: {name} of layer {i} has {len(layer)} sequences, {layer.shape}: give one of them")
            layer = layer[0]
        if layer.ndim != 3:
            raise ValueError(f"{TITLE}: {name} of layer {i} must have the axes (H, T, S), got the shape {layer.shape}")
        if layers and layer.shape[1:] != layers[0].shape[1:]:
            raise ValueError(f"{TITLE}: {name} of layer {i} is {layer.shape}, but of layer 0 {layers[0].shape}: not one run")
        layers.append(layer)
    if not layers:
        raise ValueError(f"{TITLE}: {name} hold no layer")
    T, S = layers[0].shape[1:]
    if max(T, S) > MOST_TOKENS:
        raise ValueError(
            f"{TITLE}: {name} of layer 0 head 0 are of {T} queries and {S} keys, and {MOST_TOKENS} can be shown: "
            f"give a part, such as {name}[:, :, :{MOST_TOKENS}, :{MOST_TOKENS}]"
        )
    return [np.array(layer, np.float64) for layer in layers]


def as_array(name: str, given: Any) -> Array:
    try:
        array = np.asarray(given)
    except Exception as error:  # whatever another framework raises for what lies on a device or has a gradient
        raise TypeError(f"{TITLE}: {name} is no NumPy array and does not become one: {error}") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{TITLE}: {name} must be real numbers, got an array of {array.dtype}")
    return array


def refuse_swapped(shape: tuple[int, ...], query_tokens: Any, key_tokens: Any) -> None:
    try:
        n_queries, n_keys = len(query_tokens), len(key_tokens)
    except TypeError:
        return
    H, T, S = shape
    if T != S and (T, S) == (n_keys, n_queries):
        raise ValueError(
            f"{TITLE}: layer 0 head 0 is {T} × {S}, but there are {n_queries} query_tokens and {n_keys} key_tokens: "
            "swap the last two axes"
        )


def visibility(keep: Any, shapes: Sequence[tuple[int, ...]], kind: str) -> list[Array]:
    """(H, T, S) boolean for each layer."""
    T, S = shapes[0][1:]
    seen = np.arange(S) <= np.arange(T)[:, None] + S - T if kind == "decoder" else np.ones((T, S), bool)
    if keep is None:
        return [np.broadcast_to(seen, shape) for shape in shapes]
    keep = as_array("keep", keep)
    check_mask(TITLE, "keep", keep, "where a query may attend")
    if keep.shape not in ((S,), (T, S)) and not (keep.ndim == 4 and [k.shape for k in keep] == list(shapes)):
        raise ValueError(f"{TITLE}: keep must have the shape ({S},), {T, S} or that of weights, got {keep.shape}")
    if keep.ndim == 4:
        return [seen & of_layer for of_layer in keep]
    return [np.broadcast_to(seen & keep, shape) for shape in shapes]
