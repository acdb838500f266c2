"""Every fault that is put in on purpose is found by the property tests."""

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import settings

from npformer import functional
from npformer.catalogue import LAYERS, OPERATIONS, RandomChooser
from npformer.oracle.mutation import cost_of, draw
from npformer.oracle.self_check import CATALOGUE
from properties import OF_MANY_PARTS, faults
from wrong_backwards import WRONG, Wrong


def first_case_that_shows(wrong: Wrong, n_cases: int | None = None) -> int | None:
    """Of as many random cases as a property test tries, one with a fault; the small ones are tried first."""
    operation = replace(CATALOGUE[wrong.operation], function=wrong.load())
    for seed in small_first(wrong.operation)[:n_cases]:
        rng = np.random.default_rng(seed)
        found = faults(operation.draw(RandomChooser(rng), rng))
        assert not any("NameError" in fault for fault in found), "what was put in does not even run"
        if found:
            return seed
    return None


@cache
def small_first(name: str) -> list[int]:
    return sorted(range(settings().max_examples), key=lambda seed: cost_of(draw(CATALOGUE[name], seed)))


# A case of these takes half a second and more, so that one of each is tried in every run, and all in a long one.
DEAR = ("MultiHeadAttention", *OF_MANY_PARTS)
ALWAYS = [wrong for wrong in WRONG if wrong.operation not in DEAR]
ALWAYS += [wrong for name in DEAR for wrong in [each for each in WRONG if each.operation == name][:1]]


@pytest.mark.parametrize(
    "wrong", [pytest.param(each, marks=() if each in ALWAYS else pytest.mark.long) for each in WRONG], ids=str
)
def test_a_fault_is_found(wrong):
    assert first_case_that_shows(wrong) is not None


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_operation_has_been_got_wrong(name):
    assert any(wrong.operation == name for wrong in WRONG)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_same_loading_without_a_fault_shows_none(name):
    """Otherwise the loading itself would be what is found."""
    line = "from npformer.operation import Array"
    file = "alibi" if name.startswith("alibi") else name
    assert first_case_that_shows(Wrong(name, line, line, "none", file)) is None


FILES = {wrong.operation: wrong.file for wrong in WRONG if "/" in wrong.file}


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_loading_of_a_layer_shows_none(name):
    line = "from npformer.operation import Array"
    assert first_case_that_shows(Wrong(name, line, line, "none", FILES[name]), n_cases=1 if name in DEAR else 3) is None


def test_loading_a_fault_leaves_the_package_as_it_was():
    before = sys.modules["npformer.functional.softmax"]
    wrong = Wrong("softmax", "dx: Array = y * (dy", "dx: Array = 2 * y * (dy", "doubled")
    assert wrong.load() is not functional.softmax
    assert sys.modules["npformer.functional.softmax"] is before
    assert sys.modules["npformer"].functional is functional


def test_a_piece_that_no_longer_stands_in_the_file_is_an_error():
    with pytest.raises(ValueError, match="0 times"):
        Wrong("softmax", "no such line", "", "").load()
