"""Each label at its threshold and on either side of it, on a head or on a whole layer, and what good and bad models get."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from attention_by_hand import SOURCE_V, V, encoder_decoder, gpt
from demos.cities.damages import LooksAhead, leave_out_scale
from npformer import GPT, GPTConfig
from npformer.inspection import Thresholds, inspect_arrays, record
from npformer.inspection.diagnosis import FAULTS

RNG = np.random.default_rng(0)
NEVER = {
    "uniform": 2,
    "collapsed": 0,
    "collapsed_heads": 2,
    "leak": 2,
    "sink": 2,
    "pattern": 2,
    "no_effect": 0,
    "changed": 2,
}
INFORMATION = {"uniform", "sink", "previous", "next", "self", "no effect", "changed"}


def softmax(scores):
    P = np.exp(scores - scores.max(-1, keepdims=True))
    return P / P.sum(-1, keepdims=True)


def labels(inspection, **thresholds):
    """(label, layer, head) of all findings, where nothing else is labelled."""
    return {(f.label, f.layer, f.head) for f in inspection.diagnose(Thresholds(**NEVER | thresholds))}


def around(number):
    """Just below, at, just above."""
    return float(np.nextafter(number, -1)), number, float(np.nextafter(number, 2))


def test_the_thresholds_as_they_are():
    assert asdict(Thresholds()) == {
        "uniform": 0.97,
        "collapsed": 0.10,
        "collapsed_heads": 0.9,
        "leak": 1e-6,
        "sink": 0.6,
        "sink_queries": 0.8,
        "pattern": 0.6,
        "no_effect": 1e-3,
        "changed": 0.1,
    }


@pytest.mark.parametrize("name", asdict(Thresholds()))
@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (-0.1, ValueError, "must be at least 0, got -0.1"),
        (np.nan, ValueError, "must be finite"),
        (np.inf, ValueError, "must be finite"),
        ("0.5", TypeError, "must be a number"),
        (True, TypeError, "must be a number"),
        (None, TypeError, "must be a number"),
    ],
)
def test_a_threshold_that_is_none(name, value, error, said):
    with pytest.raises(error, match=f"Thresholds: {name} {said}"):
        Thresholds(**{name: value})
    assert getattr(Thresholds(**{name: np.float32(0.5)}), name) == 0.5


# Each label.


def test_uniform_and_untrained():
    inspection = inspect_arrays(softmax(0.3 * RNG.standard_normal((2, 3, 5, 7))))
    entropies = [[inspection.metrics(inspection.find("cross", i, h))["entropy"] for h in range(3)] for i in range(2)]
    for i in range(2):
        below, at, above = around(min(entropies[i]))
        for threshold in (below, at):
            assert ("untrained", i, None) in labels(inspection, uniform=threshold)
        assert ("untrained", i, None) not in labels(inspection, uniform=above)
        for h in range(3):  # of a layer that is untrained no head is said to be uniform
            below, at, above = around(entropies[i][h])
            assert {("uniform", i, h), ("untrained", i, None)} & labels(inspection, uniform=at)
            assert ("uniform", i, h) not in labels(inspection, uniform=above)
    most = max(max(entropies))
    (finding,) = inspection.diagnose(Thresholds(**NEVER | {"uniform": most}))
    assert (finding.label, finding.number, finding.is_fault) == ("uniform", most, False)
    (finding,) = inspect_arrays(np.full((1, 2, 3, 4), 0.25)).diagnose()
    assert (finding.label, finding.head, finding.is_fault) == ("untrained", None, True)
    assert "1.0000" in finding.sentence


def test_collapsed():
    inspection = inspect_arrays(softmax(9 * RNG.standard_normal((1, 10, 5, 7))))
    entropies = sorted(inspection.metrics(map)["entropy"] for map in inspection.maps)
    below, at, above = around(entropies[8])  # the ninth of ten heads
    assert not labels(inspection, collapsed=below, collapsed_heads=0.9)
    for threshold in (at, above):
        assert labels(inspection, collapsed=threshold, collapsed_heads=0.9) == {("collapsed", 0, None)}
    less, same, more = around(0.9)
    assert labels(inspection, collapsed=at, collapsed_heads=less)
    assert not labels(inspection, collapsed=at, collapsed_heads=more)
    (finding,) = inspection.diagnose(Thresholds(**NEVER | {"collapsed": at, "collapsed_heads": 0.9}))
    assert finding.number == pytest.approx((entropies[4] + entropies[5]) / 2)
    assert finding.evidence.startswith("9 of 10 heads")
    assert "√d" in finding.cause
    assert finding.is_fault


def test_one_narrow_head_is_no_collapse():
    weights = softmax(RNG.standard_normal((1, 4, 5, 7)))
    weights[0, 0] = np.eye(5, 7)
    assert not [f for f in inspect_arrays(weights).diagnose() if f.is_fault]


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_a_mask_that_leaks(kind):
    weights = np.tri(5)[None, None] / np.arange(1, 6)[:, None]
    keep = None
    if kind == "encoder":
        keep = np.array([True, True, True, True, False])
        weights = np.full((1, 1, 5, 5), 0.25) * keep
    for leak in (0.0, 2e-7, 2.0**-20, 2.0**-19):  # 9.5e-7 and 1.9e-6
        weights[0, 0, 1, 4], weights[0, 0, 1, 0] = leak, weights[0, 0, 1, 1] - leak
        found = [f for f in inspect_arrays(weights, list("abcde"), kind=kind, keep=keep).diagnose() if f.is_fault]
        found = [f for f in found if f.label != "untrained"]
        assert [f.label for f in found] == ["mask leak"] * (leak > 1e-6)
    (finding,) = found
    assert (finding.number, finding.head, finding.is_fault) == (2.0**-19, 0, True)
    assert "b (row 1) puts 0.0000 on" in finding.evidence
    assert ("keys after it" in finding.evidence) == (kind == "decoder")
    assert "mask" in finding.cause
    inspection = inspect_arrays(weights, kind=kind, keep=keep)
    below, at, above = around(2.0**-19)
    assert ("mask leak", 0, 0) in labels(inspection, leak=below)
    assert not labels(inspection, leak=at)


def test_a_row_that_sees_nothing_does_not_leak_and_is_not_named():
    weights = np.full((1, 1, 4, 4), 0.25)
    weights[0, 0, 2] = [0.5, 0.25, 0.25, 0]
    keep = np.ones((4, 4), bool)
    keep[0] = False  # of padding, which other frameworks let look anywhere
    keep[2, 0] = False
    (finding,) = [f for f in inspect_arrays(weights, list("abcd"), keep=keep).diagnose() if f.label == "mask leak"]
    assert finding.number == 0.5
    assert "c (row 2)" in finding.evidence


def test_sink():
    weights = np.full((1, 1, 5, 4), 0.25)
    weights[0, 0, :4] = [0.125, 0.625, 0.125, 0.125]  # four of five queries
    inspection = inspect_arrays(weights, list("abcde"), list("wxyz"))
    below, at, above = around(0.625)
    for threshold in (below, at):
        assert labels(inspection, sink=threshold) == {("sink", 0, 0)}
    assert not labels(inspection, sink=above)
    below, at, above = around(0.8)
    for threshold in (below, at):
        assert labels(inspection, sink=0.6, sink_queries=threshold) == {("sink", 0, 0)}
    assert not labels(inspection, sink=0.6, sink_queries=above)
    (finding,) = inspection.diagnose(Thresholds(**NEVER | {"sink": 0.6}))
    assert finding.evidence == "80% of the queries put 0.6 or more on x (key 1)"
    assert (finding.number, finding.is_fault, finding.cause) == (0.8, False, "")
    spread = np.roll(np.eye(5), 1, 0)[None, None]  # each query another key
    assert not labels(inspect_arrays(spread), sink=0.6)


def test_a_query_that_sees_one_key_makes_no_sink():
    weights = np.tri(2)[None, None] * np.array([[1, 0], [0.5, 0.5]])
    assert not labels(inspect_arrays(weights), sink=0.6, sink_queries=0.1)


@pytest.mark.parametrize(("label", "step"), [("previous", -1), ("next", 1), ("self", 0)])
def test_previous_next_and_self(label, step):
    rest = np.roll(np.eye(5), 2 + step, 1)
    P = 0.625 * np.eye(5, k=step) + 0.375 * rest
    P /= P.sum(1, keepdims=True)
    inspection = inspect_arrays(P[None, None], kind="encoder")
    number = inspection.metrics(inspection.maps[0])[label]
    below, at, above = around(number)
    for threshold in (below, at):
        assert labels(inspection, pattern=threshold) == {(label, 0, 0)}
    assert not labels(inspection, pattern=above)
    (finding,) = inspection.diagnose(Thresholds(**NEVER | {"pattern": 0.6}))
    assert (finding.number, finding.is_fault) == (number, False)
    assert f"{number:.4f}" in finding.sentence
    assert not labels(inspect_arrays(P[None, None], kind="cross"), pattern=0.6)


def test_no_effect():
    model = gpt()
    model.parameters()["layers.1.attention.output.weight"].value[6:12] = 0  # of head 1
    with record(model) as recording:
        model(RNG.integers(V, size=(1, 6)))
    assert labels(recording, no_effect=1e-12) == {("no effect", 1, 1)}
    changes = {a.head: abs(a.change) for a in recording.ablations() if a.layer == 0}
    for head, change in changes.items():
        below, at, above = around(change)
        assert ("no effect", 0, head) not in labels(recording, no_effect=below)
        assert ("no effect", 0, head) not in labels(recording, no_effect=at)
        assert ("no effect", 0, head) in labels(recording, no_effect=above)
    assert not inspect_arrays(np.eye(3)[None, None]).ablation_findings(Thresholds())


def test_changed_against_a_reference():
    a = softmax(RNG.standard_normal((1, 3, 4, 5)))
    b = a.copy()
    b[0, 1] = 0.75 * a[0, 1] + 0.25 * a[0, 1][:, ::-1]
    good, bad = inspect_arrays(a), inspect_arrays(b)
    distance = float((0.5 * abs(b - a)).sum(-1).mean(-1)[0, 1])
    below, at, above = around(distance)
    for threshold in (below, at):
        found = bad.diagnose(Thresholds(**NEVER | {"changed": threshold}), reference=good)
        assert [(f.label, f.head, f.is_fault) for f in found] == [("changed", 1, False)]
        assert found[0].number == pytest.approx(distance, rel=1e-12)
    assert not bad.diagnose(Thresholds(**NEVER | {"changed": above * 1.0001}), reference=good)


# Models.


def test_faults_come_first():
    weights = np.tri(4)[None, None] / np.arange(1, 5)[:, None]
    sink = np.tri(4)[None, None] * 0.0
    sink[..., 0] = 1
    leaking = np.full((1, 1, 4, 4), 0.25)
    inspection = inspect_arrays(np.concatenate([sink, weights, leaking]), kind="decoder")
    found = [f.is_fault for f in inspection.diagnose()]
    assert found == sorted(found, reverse=True)
    assert True in found
    assert False in found


def test_every_sentence_has_its_place_its_evidence_and_its_number():
    weights = [np.full((3, 4, 4), 0.25), np.eye(4)[None].repeat(3, 0), np.eye(4, k=-1)[None].repeat(2, 0)]
    weights[2][:, 0, 1] = 1
    inspection = inspect_arrays(weights, list("abcd"), kind="decoder")
    found = inspection.diagnose()
    assert {f.label for f in found} >= {"untrained", "collapsed", "mask leak", "self", "previous"}
    for finding in found:
        sentence = finding.sentence
        assert str(finding) == sentence
        assert sentence.startswith(f"decoder layer {finding.layer}" + f" head {finding.head}" * (finding.head is not None))
        assert finding.label in sentence
        assert finding.evidence in sentence
        assert f"{finding.number:.4f}" in finding.evidence or f"{finding.number:.0%}" in finding.evidence
        assert finding.is_fault == (finding.label in FAULTS) == (finding.label not in INFORMATION) == bool(finding.cause)
        assert "broken" not in sentence.lower()
        assert "\n" not in sentence


def test_a_fresh_model_is_untrained():
    model = GPT(GPTConfig(vocab_size=V, max_len=16, n_layers=3, n_heads=4, d_model=32))
    with record(model) as recording:
        model(RNG.integers(V, size=(1, 13)))
    found = recording.diagnose()
    assert {(f.layer, f.head) for f in found if f.label == "untrained"} == {(0, None), (1, None), (2, None)}
    assert {f.label for f in found if f.is_fault} == {"untrained"}
    assert "uniform" not in {f.label for f in found}


SOURCE, IDS = RNG.integers(SOURCE_V, size=(1, 9)), RNG.integers(V, size=(1, 11))


def faults(model):
    with record(model) as recording:
        model(SOURCE, IDS)
    return {(f.label, f.kind) for f in recording.diagnose() if f.is_fault}


def toy(d_head=16):
    """Scores that are neither flat nor sharp."""
    model = encoder_decoder(d_head=d_head, n_kv_heads=4, norm_placement="pre", d_model=32)
    for name, parameter in model.parameters().items():
        if "attention.query.weight" in name:
            parameter.value *= 0.7
    return model


@pytest.mark.parametrize("d_head", [16, 256])
def test_a_good_model_has_no_fault(d_head):
    assert not faults(toy(d_head))


def test_a_mask_the_wrong_way_round():
    model = toy()
    for layer in model.decoder.layers:
        layer.attention.layer = LooksAhead(layer.attention.layer)
    assert faults(model) == {("mask leak", "decoder")}


def test_scores_that_are_not_scaled():
    model = toy(d_head=256)
    leave_out_scale(model, (0, 0))
    assert {label for label, _ in faults(model)} == {"collapsed"}


def test_queries_of_zero_are_uniform_in_one_head_and_untrained_in_all():
    model = toy()
    attention = model.decoder.layers[1].cross_attention.layer
    attention.query.weight.value[:, 16:32] = attention.query.bias.value[16:32] = 0
    with record(model) as recording:
        model(SOURCE, IDS)
    found = {(f.label, f.kind, f.layer, f.head) for f in recording.diagnose()}
    assert ("uniform", "cross", 1, 1) in found
    assert not [f for f in recording.diagnose() if f.is_fault]
    attention.query.weight.value[...] = attention.query.bias.value[...] = 0
    assert faults(model) == {("untrained", "cross")}


def test_a_layer_of_one_token_says_nothing():
    with record(gpt()) as recording:
        recording.model(IDS[:, :1])
    assert {f.label for f in recording.diagnose()} <= {"self"}


def test_thresholds_can_be_changed():
    weights = np.full((1, 2, 4, 4), 0.25)
    assert inspect_arrays(weights, kind="encoder").diagnose(replace(Thresholds(), uniform=1.5)) == []
