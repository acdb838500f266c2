"""A JSON file holds everything, with all digits."""

import json

import numpy as np
import pytest

from attention_by_hand import V, gpt
from npformer.inspection import compare, inspect_arrays, record

RNG = np.random.default_rng(0)
TOKENS = ["春", " ", "</script>", b"\xe6", "\ud800"]


def softmax(scores):
    P = np.exp(scores - scores.max(-1, keepdims=True))
    return P / P.sum(-1, keepdims=True)


def document(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_all_digits(tmp_path):
    path = tmp_path / "attention.json"
    weights, gradient = softmax(RNG.standard_normal((2, 3, 5, 5))), RNG.standard_normal((2, 3, 5, 5)) * 1e-300
    keep = RNG.random((5, 5)) < 0.8
    inspection = inspect_arrays(
        weights, TOKENS, kind="decoder", keep=keep, gradient=gradient, title="春", named_by="produces"
    )
    assert inspection.to_json(path) == str(path)
    read = document(path)
    assert (read["title"], read["note"], read["loss_name"]) == ("春", "", "")
    assert len(read["maps"]) == 6
    tokens = ["春", " ", "</script>", {"bytes": "e6"}, "\ud800"]
    for map, of_map in zip(inspection.maps, read["maps"], strict=True):
        assert (of_map["kind"], of_map["layer"], of_map["head"], of_map["named_by"]) == (
            "decoder",
            map.layer,
            map.head,
            "produces",
        )
        assert of_map["query_tokens"] == of_map["key_tokens"] == tokens
        np.testing.assert_array_equal(of_map["weights"], weights[map.layer, map.head])
        np.testing.assert_array_equal(of_map["gradient"], gradient[map.layer, map.head])
        np.testing.assert_array_equal(of_map["keep"], keep & np.tri(5, dtype=bool))
        assert of_map["metrics"] == inspection.metrics(map)
    found = inspection.diagnose()
    assert any(finding.is_fault for finding in found)
    assert [finding["sentence"] for finding in read["findings"]] == [finding.sentence for finding in found]
    assert [finding["number"] for finding in read["findings"]] == [finding.number for finding in found]
    assert [finding["is_fault"] for finding in read["findings"]] == [finding.is_fault for finding in found]


def test_a_recording(tmp_path):
    model = gpt()
    with record(model) as recording:
        model(RNG.integers(V, size=(1, 6)))
    word = recording.maps[0].query_tokens[2]
    recording.with_gradients(word).to_json(tmp_path / "with.json")
    recording.to_json(tmp_path / "without.json")
    read = document(tmp_path / "with.json")
    assert read["loss_name"] == f"−ln P({word})"
    assert read["maps"][0]["query_tokens"][-1] == "(next)"
    assert np.any(read["maps"][0]["gradient"])
    assert document(tmp_path / "without.json")["maps"][0]["gradient"] is None


def test_a_comparison(tmp_path):
    path = tmp_path / "both.json"
    runs = [inspect_arrays(softmax(RNG.standard_normal((2, 3, 5, 7))), title=title) for title in ("one", "other")]
    comparison = compare(*runs)
    comparison.to_json(path)
    read = document(path)
    assert read["title"] == "one (A) and other (B)"
    for name, run in zip("AB", runs, strict=True):
        run.to_json(path)
        assert read[name] == document(path)
    assert [change["distance"] for change in read["changes"]] == [change.distance for change in comparison.changes]
    entropies = [list(change.metrics["entropy"]) for change in comparison.changes]
    assert [change["metrics"]["entropy"] for change in read["changes"]] == entropies
    assert [finding["sentence"] for finding in read["findings"]] == [f.sentence for f in comparison.diagnose()]


def test_the_same_bytes_for_the_same_maps(tmp_path):
    weights = softmax(RNG.standard_normal((2, 3, 5, 7)))
    for name in ("a", "b"):
        inspect_arrays(weights).to_json(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "attention.json"
    path.write_text("old")
    inspection = inspect_arrays(np.eye(3)[None, None])
    monkeypatch.setattr("npformer.whole_file.os.replace", lambda *given: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        inspection.to_json(path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["attention.json"]


@pytest.mark.parametrize("path", [None, 3, b"attention.json"])
def test_what_is_no_path(path):
    with pytest.raises(TypeError, match="to_json: path must be a str or a path"):
        inspect_arrays(np.eye(3)[None, None]).to_json(path)
