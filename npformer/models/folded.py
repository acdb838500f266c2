"""The sublayers of a decoder, made ready to take one token a row in few calls.

A small model's token costs little arithmetic, and every call as much as a thousand products. So the weights are put together
beforehand, in ways that change nothing but the rounding:

    bias            x W + b = [x, 1] [W; b]                         one more row of the matrix
    norm, then map  (γ·n + β) W + b = n (γ W) + (β W + b)           gain and offset go into the matrix
    attention       [n, 1] [W_Q/√K, W_K, W_V]                       one product, and the scores need no scale
    centring        where layer norms are all that reads the stream, nobody asks for its mean: what is added to the stream
                    gives its own mean up beforehand, and layer norm is what RMS norm is, x / √(mean(x²) + ε)
    activation      x·σ(a·x + b·x³) = −z / (1 + exp(c·z + z³)) / s  with z = −s·x, s³ = b, c = a/s: s goes into the matrices
    rotary          a pair of features is a complex number, and to turn it by pθ is to multiply it by exp(i·pθ)
    softmax         Σ_j exp(s_j)·v_j / Σ_j exp(s_j)                 divided last, where there is less to divide; the largest
                    score is taken off only where the sum without that comes near the ends of the range

`place` gives a sublayer the arrays that it reads and fills at every step, and returns the step, with all it needs at hand:
what a small step loses is the looking up.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from npformer.functional import gelu_tanh, relu, silu
from npformer.functional.gelu_tanh import CUBIC, SLOPE
from npformer.functional.rms_norm import inverse_rms
from npformer.layers import GatedFeedForward, KVCache, LayerNorm, RotaryPositions
from npformer.operation import Array

Step: TypeAlias = Callable[[], None]
LOW, HIGH = 1e-10, 1e10  # a sum of exponentials between them has its digits, in float32 too


def joined(weights: list[Array], biases: list[Any], norm: Any = None) -> Array:
    """[γ W; β W + b] (D + 1, all widths), of maps that read the same, after the gain γ and offset β of `norm` if given."""
    D, widths = len(weights[0]), [weight.shape[1] for weight in weights]
    matrix = np.zeros((D + 1, sum(widths)), weights[0].dtype)
    weight, offset = matrix[:D], matrix[D]
    np.concatenate(weights, 1, out=weight)
    if norm is not None:
        if isinstance(norm, LayerNorm) and norm.beta:
            offset += norm.beta.value @ weight
        weight *= norm.gamma.value[:, None]
    for part, bias in zip(np.split(offset, np.cumsum(widths)[:-1]), biases, strict=True):
        part += bias.value if bias else 0
    return matrix


def of_maps(*maps: Any, norm: Any = None) -> Array:
    return joined([each.weight.value for each in maps], [each.bias for each in maps], norm)


def centre(rows: Array) -> None:
    """Take the mean off each row, in place; twice, as layer norm does, for what rounding has left of a large one."""
    for _ in range(2):
        rows -= rows.mean(1, keepdims=True)


class Norm:
    """n, or γ·n + β if `with_gain`. A layer norm whose input has the mean 0 need not `centre` it."""

    def __init__(self, norm: Any, *, centre: bool, with_gain: bool = False) -> None:
        gamma = norm.gamma.value
        beta = norm.beta.value if isinstance(norm, LayerNorm) and norm.beta else np.zeros_like(gamma)
        self.eps = max(norm.eps, float(np.finfo(gamma.dtype).tiny))
        self.centre = centre and isinstance(norm, LayerNorm)
        self.gain = (gamma.copy(), beta.copy()) if with_gain else None

    def place(self, x: Array, out: Array) -> Step:
        """x (B,D) → out (B,D), which may be x."""
        eps, centre, gain = self.eps, self.centre, self.gain
        centred = out if centre else x
        divide, sqrt, D = np.divide, math.sqrt, x.shape[1]

        def rows() -> None:
            np.multiply(centred, inverse_rms(centred, eps), out)

        def one_row() -> None:  # by single numbers, which are faster than arrays of one
            mean_square = float(dot(row)) / D + eps
            if mean_square < math.inf:
                root[()] = sqrt(mean_square)
                divide(centred, root, out)
            else:
                rows()

        normalise = rows
        if len(x) == 1:
            row, root, normalise = centred[0], np.ones((), x.dtype), one_row
            dot = row.dot
        if not centre and not gain:
            return normalise

        def step() -> None:
            if centre:
                np.subtract(x, x.mean(-1, keepdims=True), out)
            normalise()
            if gain:
                np.multiply(out, gain[0], out)
                np.add(out, gain[1], out)

        return step


class Sublayer:
    """x ← x + f(norm(x)), or norm(x + f(x)): a residual around f, which begins with a map and ends with one."""

    def __init__(self, residual: Any, into: Array, out: Array, centred: bool) -> None:
        self.pre = residual.placement == "pre"
        self.norm = Norm(residual.norm, centre=not centred, with_gain=not self.pre)
        self.into, self.out = into, out
        if centred:
            centre(out)

    def ends(self, x: Array, read: Array) -> tuple[Array, Array, Step, Step]:
        """(made, found, begin, end): begin() makes `made` (B, …) of the stream x (B, D), and end() adds a map of what was
        `found` (B, … + 1) to it. The first map reads `read` (B, D + 1); its last column, and that of `found`, is 1."""
        into, out, features = self.into, self.out, read[:, :-1]
        made, y = np.empty((len(x), into.shape[1]), x.dtype), np.empty_like(x)
        found = np.ones((len(x), len(out)), x.dtype)
        norm = self.norm.place(x, features if self.pre else x)
        dot_into, dot_out, add = read.dot, found.dot, np.add

        def begin_pre() -> None:
            norm()
            dot_into(into, made)  # (B,D+1) → (B,…)

        def end_pre() -> None:
            dot_out(out, y)  # (B,…+1) → (B,D)
            add(x, y, x)

        def begin_post() -> None:
            features[...] = x
            dot_into(into, made)

        def end_post() -> None:
            end_pre()
            norm()

        return made, found, *((begin_pre, end_pre) if self.pre else (begin_post, end_post))


def before(residual: Any) -> Any:
    """The norm to be put into the sublayer's first map."""
    return residual.norm if residual.placement == "pre" else None


class Attention(Sublayer):
    """The common part of self-attention and cross-attention."""

    def __init__(self, residual: Any, centred: bool, *maps: Any) -> None:
        attention = residual.layer
        self.G, self.R = attention.n_kv_heads, attention.n_heads // attention.n_kv_heads
        width = attention.query.weight.value.shape[1]
        self.K = width // attention.n_heads
        into = of_maps(*maps, norm=before(residual))
        into[:, :width] /= math.sqrt(self.K)
        super().__init__(residual, into, of_maps(attention.output), centred)

    def attend(self, queries: Array, found: Array) -> Callable[[Array, Array, Array | None], None]:
        """attend(keys (B,G,S,K), values (B,G,S,K), bias (1 or B, 1 or G, 1 or R, S) or None) with queries (B,H·K)."""
        B = len(queries)
        query = queries.reshape(B, self.G, self.R, self.K).swapaxes(2, 3)  # (B,H·K) → (B,G,K,R)
        mean = found[:, :-1].reshape(B, self.G, self.R, self.K)  # (B,H·K) → (B,G,R,K)
        matmul, exp, divide, total_of = np.matmul, np.exp, np.divide, np.add.reduce

        def attend(keys: Array, values: Array, bias: Array | None) -> None:
            weights = matmul(keys, query).swapaxes(2, 3)  # (B,G,S,K)(B,G,K,R) → (B,G,S,R) → (B,G,R,S)
            if bias is not None:
                weights += bias
            exp(weights, weights)
            total = total_of(weights, -1, keepdims=True)
            totals = total.ravel().tolist()
            if totals and not (LOW < min(totals) and max(totals) < HIGH):
                weights = matmul(keys, query).swapaxes(2, 3)
                if bias is not None:
                    weights += bias
                weights -= weights.max(-1, keepdims=True)
                exp(weights, weights)
                total = total_of(weights, -1, keepdims=True)
            divide(matmul(weights, values), total, mean)  # (B,G,R,S)(B,G,S,K) → (B,G,R,K)

        return attend


class SelfAttention(Attention):
    def __init__(self, residual: Any, centred: bool) -> None:
        attention = residual.layer
        super().__init__(residual, centred, attention.query, attention.key, attention.value)
        self.rotary = attention.positions if isinstance(attention.positions, RotaryPositions) else None
        if self.rotary:
            self.turns = 1j * self.rotary.base ** (-np.arange(0, self.K, 2) / self.K)
            if self.rotary.layout == "half":  # the two of a pair side by side
                turned = self.into[:, : -self.G * self.K]
                turned[...] = turned.reshape(len(turned), -1, 2, self.K // 2).swapaxes(2, 3).reshape(turned.shape)

    def place(self, x: Array, read: Array) -> Callable[[KVCache, Any, Any, Any], Any]:
        """step(cache, positions, seen, visible) → seen: what visible(cache) says once the token is in, unless known."""
        made, found, begin, end = self.ends(x, read)
        B, G, R, K = len(x), self.G, self.R, self.K
        turned, values = made[:, : -G * K], made[:, -G * K :]
        turn, turned = self.place_turn(turned)
        attend = self.attend(turned[:, : G * R * K], found)
        k, v = turned[:, G * R * K :].reshape(B, G, K), values.reshape(B, G, K)  # (B,G·K) → (B,G,K)

        def step(cache: KVCache, positions: Any, seen: Any, visible: Any) -> Any:
            begin()
            if turn:
                turn(positions)
            keys, values = cache.append_one(k, v)
            if seen is None:
                seen = visible(cache)
            recent, bias, hidden = seen
            if recent is not None:
                keys, values = keys[:, :, recent], values[:, :, recent]
            if hidden is not None:
                keys, values = np.where(hidden, 0, keys), np.where(hidden, 0, values)
            attend(keys, values, bias)
            end()
            return seen

        return step

    def place_turn(self, made: Array) -> tuple[Callable[[Any], None] | None, Array]:
        """A function that turns the queries and keys (B, (H+G)·K) by one position or by (B,), and where they are then."""
        if not self.rotary:
            return None, made
        B, N, K = len(made), self.G * (self.R + 1), self.K  # N heads, of queries and of keys
        half, turns = self.rotary.layout == "half", self.turns
        pairs = made.view(np.result_type(made.dtype, np.complex64)).reshape(B, N, K // 2)  # (B,N·K) → (B,N,K/2)
        paired = made.reshape(B, N, K // 2, 2).swapaxes(2, 3)  # (B,N·K) → (B,N,K/2,2) → (B,N,2,K/2)
        apart = np.empty(paired.shape, made.dtype)

        def turn(positions: Any) -> None:
            by = np.exp(turns * (positions if isinstance(positions, int) else positions[:, None, None]))
            np.multiply(pairs, by, pairs)
            if half:
                apart[...] = paired

        return turn, apart.reshape(made.shape) if half else made


class CrossAttention(Attention):
    def __init__(self, residual: Any, centred: bool, memory: Array, keep: Array | None) -> None:
        attention = residual.layer
        super().__init__(residual, centred, attention.query)
        B, S, _ = memory.shape
        made = (make(memory).reshape(B, S, self.G, self.K) for make in (attention.key, attention.value))
        self.keys, self.values = (np.ascontiguousarray(each.swapaxes(1, 2)) for each in made)
        self.bias = None
        if keep is not None:
            self.keys, self.values = (np.where(keep[:, None, :, None], each, 0) for each in (self.keys, self.values))
            hidden = ~keep & keep.any(1, keepdims=True)
            self.bias = np.where(hidden, -np.inf, 0).astype(memory.dtype)[:, None, None]

    def reorder(self, rows: Array) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows]
        self.bias = None if self.bias is None else self.bias[rows]

    def place(self, x: Array, read: Array) -> Step:
        made, found, begin, end = self.ends(x, read)
        attend = self.attend(made, found)

        def step() -> None:
            begin()
            attend(self.keys, self.values, self.bias)
            end()

        return step


class FeedForwardNetwork(Sublayer):
    def __init__(self, residual: Any, centred: bool) -> None:
        network = residual.layer
        self.gated = isinstance(network, GatedFeedForward)
        self.activation = silu if self.gated else network.activation
        maps = (network.gate, network.widen) if self.gated else (network.widen,)
        into, out = of_maps(*maps, norm=before(residual)), of_maps(network.narrow)
        F = len(out) - 1
        s = (SLOPE * CUBIC) ** (1 / 3) if self.activation is gelu_tanh else 1.0
        self.slope = SLOPE / s
        if self.activation in (gelu_tanh, silu):
            into[:, :F] *= -s
            out[:F] /= -s
        super().__init__(residual, into, out, centred)

    def place(self, x: Array, read: Array) -> Step:
        made, found, begin, end = self.ends(x, read)
        F, activation, gated = len(self.out) - 1, self.activation, self.gated
        z, wide, bent = made[:, :F], made[:, F:], found[:, :F]
        one, slope = np.array(1, x.dtype), np.array(self.slope, x.dtype)
        multiply, add, exp, divide = np.multiply, np.add, np.exp, np.divide

        def gelu_step() -> None:
            begin()
            multiply(z, z, bent)
            add(bent, slope, bent)
            multiply(bent, z, bent)
            exp(bent, bent)
            add(bent, one, bent)
            divide(z, bent, bent)
            end()

        def silu_step() -> None:
            begin()
            exp(z, bent)
            add(bent, one, bent)
            divide(z, bent, bent)
            if gated:
                multiply(bent, wide, bent)
            end()

        def other_step() -> None:
            begin()
            bent[...] = np.maximum(z, 0) if activation is relu else activation(z)[0]
            end()

        return gelu_step if activation is gelu_tanh else silu_step if activation is silu else other_step
