"""Small models, and what their attention gives by hand: the weights of every head, by functional.attention_weights alone."""

import numpy as np

from npformer import GPT, GPTConfig
from npformer.functional import attention_weights, split_heads
from npformer.layers import ALiBi, RotaryPositions
from npformer.models import Encoder, EncoderConfig, EncoderDecoder, TransformerConfig

V, SOURCE_V = 11, 13
SIZES = {"vocab_size": V, "max_len": 12, "n_heads": 4, "n_kv_heads": 2, "d_model": 12, "d_head": 6, "d_ff": 7}


def randomised(model, seed=1):
    """Weights that make heads differ and choose, and no offset 0."""
    rng = np.random.default_rng(seed)
    for name, parameter in model.parameters().items():
        value = parameter.value
        spread = 1.5 / np.sqrt(len(value)) if value.ndim == 2 else 0.3
        value[...] = name.endswith("gamma") + spread * rng.standard_normal(value.shape)
    return model


def gpt(dtype=np.float64, seed=1, **changes):
    return randomised(GPT(GPTConfig(**SIZES | {"n_layers": 2} | changes), dtype=dtype), seed)


def encoder(dtype=np.float64, **changes):
    return randomised(Encoder(EncoderConfig(**SIZES | {"n_layers": 2} | changes), dtype=dtype))


def encoder_decoder(dtype=np.float64, seed=1, **changes):
    sizes = {"source_vocab_size": SOURCE_V, "n_encoder_layers": 3, "n_decoder_layers": 2, "output_bias": True}
    return randomised(EncoderDecoder(TransformerConfig(**SIZES | sizes | changes), dtype=dtype), seed)


def weights(attention, x, memory, keep, positions):
    """P (B,H,T,S) of one MultiHeadAttention, where `keep` (B,T,S) says what is seen."""
    q, _ = split_heads(attention.query(x), attention.n_heads)
    k, _ = split_heads(attention.key(x if memory is None else memory), attention.n_kv_heads)
    bias = None
    if memory is None and isinstance(attention.positions, RotaryPositions):
        q, k = attention.positions(q, positions), attention.positions(k, positions)
    if memory is None and isinstance(attention.positions, ALiBi):
        bias = attention.positions.bias(positions, positions, x.dtype)
    P, _ = attention_weights(q, k, keep=keep[:, None], bias=bias)
    return P


def seen_by(keep, causal, window):
    """(B,T,T): which tokens each token may see, one pair after the other."""
    B, T = keep.shape
    seen = np.zeros((B, T, T), bool)
    for b in range(B):
        places = keep[b].cumsum()
        for i in range(T):
            for j in range(T):
                near = not causal or (j <= i and (window is None or places[i] - places[j] < window))
                seen[b, i, j] = keep[b, i] and keep[b, j] and near
    return seen


def stack_weights(stack, ids, keep, token_types=None, memory=None, memory_keep=None):
    """{(kind, layer): P} and {kind: what is seen} of one pass of a stack."""
    positions = np.where(keep, keep.cumsum(1) - 1, -1)
    x = stack.embedding(np.where(keep, ids, 0))
    if stack.token_types:
        x = x + stack.token_types(token_types)
    if stack.positions:
        x = stack.positions(x, positions)
    x = np.where(keep[..., None], x, 0)
    found, seen = {}, {}
    for i, layer in enumerate(stack.layers):
        kind = "decoder" if hasattr(layer, "cross_attention") else "encoder"
        seen[kind] = seen_by(keep, kind == "decoder", getattr(layer, "window", None))
        found[kind, i] = weights(layer.attention.layer, before(layer.attention, x), None, seen[kind], positions)
        options = {"positions": positions}
        if memory is not None:
            options |= {"memory": memory, "memory_keep": memory_keep[:, None, None]}
            seen["cross"] = keep[:, :, None] & memory_keep[:, None]
            asking = before(layer.cross_attention, layer.attention(x, causal=True, positions=positions))
            found["cross", i] = weights(layer.cross_attention.layer, asking, memory, seen["cross"], None)
        x = layer(x, **options)
    return found, seen


def before(residual, x):
    return residual.norm(x) if residual.placement == "pre" else x


def by_hand(model, ids, keep=None, source=None, source_keep=None, token_types=None):
    """{(kind, layer): P (B,H,T,S)} and {kind: (B,T,S) boolean}, of one pass."""
    keep = np.ones(ids.shape, bool) if keep is None else keep
    if isinstance(model, Encoder):
        return stack_weights(model.encoder, ids, keep, token_types)
    if isinstance(model, GPT):
        return stack_weights(model.decoder, ids, keep)
    source_keep = np.ones(source.shape, bool) if source_keep is None else source_keep
    of_source, source_seen = stack_weights(model.encoder, source, source_keep)
    memory = model.encode(source, source_keep)
    of_target, seen = stack_weights(model.decoder, ids, keep, memory=memory, memory_keep=source_keep)
    return of_source | of_target, source_seen | seen


def assert_by_hand(inspection, b, expected, bound=None):
    """Every map is row b of what is `expected`, and there are no others."""
    P, seen = expected
    assert {(map.kind, map.layer) for map in inspection.maps} == P.keys()
    assert len(inspection.maps) == sum(of_layer.shape[1] for of_layer in P.values())
    bound = bound or (1e-12 if next(iter(P.values())).dtype == np.float64 else 1e-6)
    for map in inspection.maps:
        truth = P[map.kind, map.layer][b, map.head]
        assert map.weights.shape == truth.shape, map.name
        assert map.weights.dtype == np.float64
        assert abs(map.weights - truth).max(initial=0) <= bound, f"{map.kind} {map.name}"
        np.testing.assert_array_equal(map.keep, seen[map.kind][b], f"{map.kind} {map.name}")
