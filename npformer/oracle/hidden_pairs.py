"""What must not matter, put where it must not matter: NaN and infinities at hidden pairs and in blank rows, huge numbers.

No derivative of the forward says what a backward makes of them.
"""

from itertools import product
from typing import Any

import numpy as np

from npformer.catalogue import Case
from npformer.operation import Array
from npformer.oracle.reference.may_attend import may_attend


def visible_pairs(case: Case) -> Array:
    """(B, H, T, S) by plain loops, apart from the code under test."""
    B, H, T = case.arrays["query"].shape[:3]
    S = case.arrays["key"].shape[2]
    masks: dict[str, Any] = {name: case.options.get(name) for name in ("keep", "causal", "window")}
    masks["bias"] = case.arrays.get("bias")
    masks = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in masks.items()}
    visible = np.zeros((B, H, T, S), bool)
    for pair in product(*map(range, visible.shape)):
        visible[pair] = may_attend(*pair, **masks)
    return visible


def faults_of_hidden_pairs(case: Case) -> list[str]:
    """Of attention or its weights: whatever stands where nobody may look changes nothing, to the last bit."""
    visible = visible_pairs(case)
    B, H, T, S = visible.shape
    G = case.arrays["key"].shape[1]
    unseen = ~visible.reshape(B, G, H // G, T, S).any(axis=(2, 3))  # (B,G,S): keys that no query sees
    blind = ~visible.any(axis=-1)  # (B,H,T): queries that see no key
    poisoned = {name: array.copy() for name, array in case.arrays.items()}
    poisoned["key"][unseen] = np.nan
    if "value" in poisoned:
        poisoned["value"][unseen] = np.inf
    poisoned["query"][blind] = np.nan
    (y, backward), (poisoned_y, poisoned_backward) = case.run(), case.with_arrays(poisoned).run()
    dy = np.random.default_rng(0).standard_normal(y.shape)
    poisoned_dy = dy.copy()
    poisoned_dy[blind] = np.nan
    if "value" not in poisoned:
        poisoned_dy[~visible] = np.nan
    found = [] if np.array_equal(y, poisoned_y) else [f"{case}: a hidden key, value or query changes the output"]
    for name, gradient, other in zip(case.arrays, backward(dy), poisoned_backward(poisoned_dy), strict=True):
        if not np.array_equal(gradient, other):
            found.append(f"{case}: a hidden key, value or query changes the gradient of {name}")
    return found


def faults_of_poisoned_query(case: Case) -> list[str]:
    """Of attention or its weights: a query that is not finite changes nothing of other queries, nor of keys that it does not
    see."""
    visible = visible_pairs(case)
    B, H, T, S = visible.shape
    if 0 in visible.shape:
        return []
    rng = np.random.default_rng(0)
    place = tuple(rng.integers(size) for size in (B, H, T))
    group = place[0], place[1] * case.arrays["key"].shape[1] // H
    (y, backward) = case.run()
    dy = rng.standard_normal(y.shape)
    poisoned = {**case.arrays, "query": case.arrays["query"].copy()}
    poisoned["query"][place] = np.nan
    poisoned_dy = dy.copy()
    poisoned_dy[place] = np.inf
    poisoned_y, poisoned_backward = case.with_arrays(poisoned).run()
    own = {"output": (y, poisoned_y)}
    gradients = zip(backward(dy), poisoned_backward(poisoned_dy), strict=True)
    own |= {f"gradient of {name}": pair for name, pair in zip(case.arrays, gradients, strict=True) if name != "bias"}
    found = []
    for name, (array, other) in own.items():
        kept = np.ones(array.shape[:3], bool)
        if name.endswith(("key", "value")):
            kept[group] = ~visible[place]
        else:
            kept[place] = False
        if not np.array_equal(array[kept], other[kept]):
            found.append(f"{case}: a query that is not finite changes what is not its own in the {name}")
    return found


def faults_of_huge_bias(case: Case) -> list[str]:
    """A bias that is huge, negative and the same for all keys is a bias, not a mask: visible keys weigh the same."""
    B, H, T, S = visible_pairs(case).shape
    options = {name: option for name, option in case.options.items() if name in ("keep", "causal", "window")}
    arrays = {name: array for name, array in case.arrays.items() if name != "bias"}
    visible = visible_pairs(Case(case.operation, arrays, options))
    y, _ = Case(case.operation, {**arrays, "bias": np.full((1, 1, T, S), -1e300)}, options).run()
    n = np.maximum(visible.sum(-1, keepdims=True), 1)
    value = np.repeat(arrays["value"], H // arrays["value"].shape[1], axis=1)
    if not np.allclose(y, visible / n @ value, rtol=1e-12, atol=1e-12):
        return [f"{case}: a bias of −1e300 on every key is not uniform attention"]
    return []


def faults_of_blank_rows(case: Case) -> list[str]:
    """Of softmax: the dy of a row that is −inf everywhere is not read."""
    x, axis = case.arrays["x"], case.options.get("axis", -1)
    y, backward = case.run()
    dy = np.random.default_rng(0).standard_normal(y.shape)
    blank = np.broadcast_to((x == -np.inf).all(axis, keepdims=True), x.shape)
    if np.array_equal(backward(dy), backward(np.where(blank, np.nan, dy))):
        return []
    return [f"{case}: the dy of a row of −inf changes the gradient"]


def faults_far_out(case: Case) -> list[str]:
    """Of GELU and its kind: where squares overflow, the slope is 0 on the left and 1 on the right."""
    x = np.copysign(1e200, case.arrays["x"])
    _, backward = case.with_arrays({"x": x}).run()
    if np.array_equal(backward(np.ones_like(x)), x > 0):
        return []
    return [f"{case}: at ±1e200 the slope is not 0 or 1"]
