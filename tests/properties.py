"""What every operation must do on every case that the catalogue can draw.

`faults(case)` is what the property tests demand to be empty, and what has to find each fault of wrong_backwards.py.
"""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from npformer.catalogue import Case, Operation
from npformer.oracle.reference.may_attend import may_attend
from npformer.oracle.self_check import check_case


class HypothesisChooser:
    """The catalogue's choices, made by Hypothesis, which then shrinks them."""

    def __init__(self, draw):
        self.draw = draw

    def one_of(self, choices):
        return self.draw(st.sampled_from(choices))


@st.composite
def cases(draw, operation: Operation) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return operation.draw(HypothesisChooser(draw), rng)


def faults(case: Case) -> list[str]:
    """All that is wrong with one case."""
    found = check_case(case).faults
    if not found and case.operation.name == "attention":
        found = faults_of_hidden_pairs(case) + faults_of_huge_bias(case)
    return found


def visible_pairs(case: Case) -> np.ndarray:
    """(B, H, T, S) by plain loops, apart from the code under test."""
    B, H, T = case.arrays["query"].shape[:3]
    S = case.arrays["key"].shape[2]
    masks = {name: case.options.get(name) for name in ("keep", "causal", "window")}
    masks["bias"] = case.arrays.get("bias")
    masks = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in masks.items()}
    visible = np.zeros((B, H, T, S), bool)
    for pair in product(*map(range, visible.shape)):
        visible[pair] = may_attend(*pair, **masks)
    return visible


def faults_of_hidden_pairs(case: Case) -> list[str]:
    """Whatever stands where nobody may look changes nothing, to the last bit."""
    visible = visible_pairs(case)
    B, H, T, S = visible.shape
    G = case.arrays["key"].shape[1]
    unseen = ~visible.reshape(B, G, H // G, T, S).any(axis=(2, 3))  # (B,G,S): keys that no query sees
    blind = ~visible.any(axis=-1)  # (B,H,T): queries that see no key
    poisoned = {name: array.copy() for name, array in case.arrays.items()}
    poisoned["key"][unseen] = np.nan
    poisoned["value"][unseen] = np.inf
    poisoned["query"][blind] = np.nan
    (y, backward), (poisoned_y, poisoned_backward) = case.run(), case.with_arrays(poisoned).run()
    dy = np.random.default_rng(0).standard_normal(y.shape)
    poisoned_dy = dy.copy()
    poisoned_dy[blind] = np.nan
    found = [] if np.array_equal(y, poisoned_y) else [f"{case}: a hidden key, value or query changes the output"]
    for name, gradient, other in zip(case.arrays, backward(dy), poisoned_backward(poisoned_dy), strict=True):
        if not np.array_equal(gradient, other):
            found.append(f"{case}: a hidden key, value or query changes the gradient of {name}")
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
