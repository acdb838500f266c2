"""Every small wrong version of every backward is found, but for those that are listed with a reason."""

import math
import pickle

import pytest

from npformer.catalogue import LAYERS
from npformer.oracle import mutation
from npformer.oracle.equivalent_mutants import EQUIVALENT
from npformer.oracle.mutation import CASES, POISONED, fault_of, key_of, mutants_of, source_of, survey, try_mutants
from npformer.oracle.self_check import CATALOGUE

NAMES = [name for name in CATALOGUE if CATALOGUE[name].differentiable]
DEAR = ("DecoderLayer", "Stack", "EncoderDecoder")
SAMPLE = {name: 1 if name in DEAR else 2 if name in LAYERS else 6 for name in NAMES}  # in every run; all in a long one


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_the_mutants_is_killed(name):
    mutants = [mutant for mutant in mutants_of(name) if key_of(name, mutant) not in EQUIVALENT]
    sample = mutants[:: max(1, math.ceil(len(mutants) / SAMPLE[name]))]
    assert [str(tried.mutant) for tried in try_mutants(name, sample, CASES) if not tried.killed_by] == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_mutant_is_killed_or_listed(name):
    found = survey(name)
    assert (found.survivors, found.stale) == ([], [])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_only_made_anew_is_right(name):
    """Otherwise the making itself would be what kills."""
    function = source_of(name).load()
    for seed in range(4 if name in POISONED else 1):
        assert fault_of(CATALOGUE[name], seed, function) == ""


def test_every_listed_mutant_is_still_made_and_has_a_reason():
    for name in {name for name, _, _ in EQUIVALENT}:
        made = {key_of(name, mutant) for mutant in mutants_of(name)}
        assert {key for key in EQUIVALENT if key[0] == name} <= made
    assert all(len(reason.split()) > 5 for reason in EQUIVALENT.values())


def test_every_operation_with_a_backward_of_its_own_has_mutants():
    """RotaryPositions returns what the operation returns."""
    assert [name for name in NAMES if len(mutants_of(name)) < 2] == ["RotaryPositions"]


def test_mutants_of_a_layer_leave_the_layer_alone():
    forward = LAYERS["Linear"].function.forward
    wrong = source_of("Linear").load(mutants_of("Linear")[0].code)
    assert wrong is not LAYERS["Linear"].function
    assert wrong.__name__ == "Linear"
    assert LAYERS["Linear"].function.forward is forward


# What the survey says.


def test_a_mutant_that_is_not_listed_and_survives_is_named(monkeypatch):
    listed = {key for key in EQUIVALENT if key[0] == "Linear"}
    monkeypatch.setattr(mutation, "EQUIVALENT", {})
    found = survey("Linear", n_cases=10)
    assert len(found.survivors) == len(listed)
    assert all(any(after in text for text in found.survivors) for _, _, after in listed)
    assert pickle.loads(pickle.dumps(found)) == found  # it comes from another process
    assert (found.n_equivalent, found.n_mutants) == (0, found.n_killed + len(listed))


def test_what_is_listed_and_killed_or_no_longer_made_is_named(monkeypatch):
    killed, gone = key_of("relu", mutants_of("relu")[0]), ("relu", "no such line", "(left out)")
    monkeypatch.setattr(mutation, "EQUIVALENT", {killed: "", gone: "", ("tanh", "x", "y"): ""})
    found = survey("relu", n_cases=10)
    assert len(found.stale) == 2
    assert "but killed: line" in found.stale[0]
    assert "no longer made" in found.stale[1]
    assert found.n_killed == found.n_mutants


HIDDEN = "ds = zero_hidden(softmax_backward(zero_hidden(dP, visible)), visible)"
CAPPED = "dv = SLOPE + 3 * SLOPE * CUBIC * np.minimum(square, 10000.0)"
SEEN = "seen_by = None if visible is None else visible.swapaxes(-1, -2)"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("softmax", "if blank.any():", "if blank.all():"),
        ("gelu_tanh", CAPPED, CAPPED.replace("np.minimum(square, 10000.0)", "square")),
        ("attention", SEEN, SEEN.replace(".swapaxes(-1, -2)", "")),
        ("attention_weights", HIDDEN, HIDDEN.replace("zero_hidden(dP, visible)", "dP")),
        ("attention_weights", HIDDEN, "ds = softmax_backward(zero_hidden(dP, visible))"),
    ],
)
def test_what_poison_alone_kills(name, before, after, monkeypatch):
    (mutant,) = (each for each in mutants_of(name) if (each.before, each.after) == (before, after))
    assert try_mutants(name, [mutant], CASES)[0].killed_by
    monkeypatch.setattr(mutation, "POISONED", {})
    assert not try_mutants(name, [mutant], 12)[0].killed_by
