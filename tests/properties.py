"""What every operation must do on every case that the catalogue can draw.

`faults(case)` is what the property tests demand to be empty, and what has to find each fault of wrong_backwards.py.
"""

import numpy as np
from hypothesis import strategies as st

from npformer.catalogue import Case, Operation
from npformer.oracle.hidden_pairs import faults_of_hidden_pairs, faults_of_huge_bias
from npformer.oracle.self_check import check_case

OF_MANY_PARTS = ("EncoderLayer", "DecoderLayer", "Stack", "GPT", "EncoderDecoder", "Encoder")  # seconds for a case or two


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
