"""One id drawn from each row of logits.

    weight_i = exp((logit_i − max) / temperature),  or 0 for what top_k and top_p leave out
    P(i) = weight_i / Σ weight

The draw is the inverse of the cumulative sum: u in [0, 1) picks the first i with weight_0 + … + weight_i > u·Σ weight. An id
of weight 0 does not raise the sum, so it is never the first.

Sources: Fan, Lewis and Dauphin 2018, section 5 (top_k); Holtzman et al. 2020, section 3.1 (top_p).
"""

from typing import Any, NamedTuple, NoReturn

import numpy as np

from npformer.arguments import check_count, check_filled, check_generator, check_number, is_array, kind
from npformer.operation import Array


class Choice(NamedTuple):
    """How to choose, checked."""

    temperature: float
    top_k: int | None
    top_p: float | None


def sample(
    logits: Array,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: np.random.Generator | None,
) -> Array:
    """Draw one id of each row: logits (..., V), floating → ids (...) int64.

    The temperature comes first, then top_k, then top_p on what top_k has left, renormalised. Hugging Face does the same;
    llama.cpp by default applies the temperature last, so that its top_p keeps the same ids at every temperature.

    temperature ≥ 0; at 0 the largest logit is taken, the first of equals, and `rng` may be None.
    top_k ≥ 1 keeps the k largest logits, of equals at the k-th place those with the lower ids (Hugging Face keeps all of
    them); more than V keeps all.
    0 < top_p ≤ 1 keeps the smallest set of most probable ids whose probability reaches top_p, at least one.

    −inf is never drawn. ValueError, with the place, for NaN, +inf and a row that holds nothing but −inf. All is computed in
    float64. Each row takes one number from `rng`, in order, so (B, T, V) is drawn as (B·T, V) is.
    """
    choice = check_choice("sample", temperature, top_k, top_p)
    check_generator("sample", "rng", rng)
    if rng is None and choice.temperature > 0:
        raise TypeError("sample: rng must be a numpy.random.Generator where the temperature is above 0, got None")
    x = checked("sample", logits)
    return draw(x, choice, None if rng is None or choice.temperature == 0 else rng.random(x.shape[:-1]))


def check_choice(title: str, temperature: Any, top_k: Any, top_p: Any) -> Choice:
    temperature = check_number(title, "temperature", temperature)
    if temperature < 0:
        raise ValueError(f"{title}: temperature must be at least 0, got {temperature}")
    if top_k is not None:
        top_k = check_count(title, "top_k", top_k)
    if top_p is not None:
        top_p = check_number(title, "top_p", top_p)
        if not 0 < top_p <= 1:
            raise ValueError(f"{title}: top_p must be in (0, 1], got {top_p}")
    return Choice(temperature, top_k, top_p)


def draw(x: Array, choice: Choice, u: Array | None) -> Array:
    """One id of each row of x (..., V), float64 and usable: by the numbers u (...) in [0, 1), or greedily without them."""
    if u is None:
        return np.asarray(x.argmax(-1), np.int64)
    with np.errstate(all="ignore"):  # what is too far below the maximum becomes −inf, and its weight 0
        weights = np.exp((x - x.max(-1, keepdims=True)) / choice.temperature)
    if choice.top_k is not None or choice.top_p is not None:
        weights = restrict(weights, np.argsort(-x, -1, kind="stable"), choice)
    sums = weights.cumsum(-1)
    return np.asarray((sums <= u[..., None] * sums[..., -1:]).sum(-1), np.int64)  # (..., V) → (...)


def restrict(weights: Array, order: Array, choice: Choice) -> Array:
    """The weights, 0 for what is left out; `order` has the ids of each row from the largest logit to the smallest."""
    ranked = np.take_along_axis(weights, order, -1)
    if choice.top_k is not None:
        ranked[..., choice.top_k :] = 0
    if choice.top_p is not None and choice.top_p < 1:
        sums = ranked.cumsum(-1)
        reached = sums >= choice.top_p * sums[..., -1:]
        ranked[..., 1:][reached[..., :-1]] = 0  # those before have reached it
    restricted = np.empty_like(weights)
    np.put_along_axis(restricted, order, ranked, -1)
    return restricted


def checked(title: str, logits: Any) -> Array:
    if not is_array(logits) or logits.dtype.kind != "f":
        raise TypeError(f"{title}: logits must be an array of floating numbers, got {kind(logits)}")
    if logits.ndim == 0:
        raise ValueError(f"{title}: logits must have the axes (..., V), got the shape ()")
    check_filled(title, "logits", logits)
    with np.errstate(all="ignore"):  # a long double may be too large
        x = np.array(logits, np.float64, order="C")
    if not usable(x):
        refuse(title, x)
    return x


def usable(x: Array) -> bool:
    """Whether the largest entry of each row is finite: then no entry is NaN or +inf, and there is one to choose."""
    return bool(np.isfinite(x.max(-1)).all())


def refuse(title: str, x: Array) -> NoReturn:
    """ValueError with the first place in x (..., V), which is not usable."""
    wrong = np.isnan(x) | (x == np.inf)
    if wrong.any():
        index = tuple(map(int, np.argwhere(wrong)[0]))
        raise ValueError(f"{title}: logits hold {x[index]} at {list(index)}")
    row = list(map(int, np.argwhere((x == -np.inf).all(-1))[0]))
    raise ValueError(f"{title}: logits hold nothing but -inf{f' at {row}' if row else ''}")
