"""What a page file holds, without a browser: what it lets through, what it escapes, its numbers and its size."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest

from npformer.inspection import compare, inspect_arrays
from npformer.inspection.inspection import Inspection
from npformer.inspection.page import maps, page_html, part_of, write_page
from npformer.inspection.page.line_chart import LineChart
from npformer.inspection.page.part import Part, embedded
from npformer.inspection.tokens import display_names
from random_attention import inspection

HOSTILE = [
    "</script>",
    "<b>",
    "<!--",
    '"',
    "'",
    "&amp;",
    "\0",
    "\u2028",
    "\u2029",
    "\ud800",
    "👩‍👩‍👧",
    "שלום",
    "e\u0301",
    "",
    " ",
]


def data_of(html, i=0):
    return json.loads(re.search(rf'<script type="application/json" id="data-{i}">(.*?)</script>', html, re.S)[1])


def decoded(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


def weights_of(head, shape):
    return decoded(head["weights"], "<u2").reshape(shape) / 65535


def codes_of(mask, shape):
    if isinstance(mask, str):
        raw = decoded(mask, "u1")
        codes = np.stack([raw >> shift & 3 for shift in (0, 2, 4, 6)], 1).ravel()
        assert 0 <= len(codes) - np.prod(shape) < 4
        return codes[: np.prod(shape)].reshape(shape)
    return np.repeat(mask[::2], mask[1::2]).reshape(shape)


def test_only_its_own_style_and_script_are_let_through():
    html = page_html("春", [inspection(), "Words."])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[1]
    assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'"} <= set(policy.split("; "))
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.S)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.S)
    for text, source in ((style, "style-src"), (script, "script-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert html.count("<script>") == html.count("<style>") == 1


def test_it_asks_nobody_for_anything():
    html = page_html("t", [inspection(gradient=True), compare(inspection(), inspection(seed=1))])
    assert set(re.findall(r"https?://[^\s\"'<>)]*", html)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|object|embed|base|form)\b|\bstyle=|\son\w+=|@import|url\(", html)


def test_the_same_input_makes_the_same_bytes():
    first, again = (page_html("t", [inspection(gradient=True), compare(inspection(), inspection(seed=1))]) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_weights_names_and_masks_come_back(kind):
    S = 7 if kind == "cross" else 5
    keep = np.ones((5, S), bool)
    keep[:, 3] = keep[1] = False  # a padded key, and a query that sees none
    shown = inspection(T=5, S=S, kind=kind, keep=keep, tokens=list("春天的春天"), keys=list("abcdefg") if S == 7 else None)
    data = data_of(page_html("t", [shown]))
    assert len(data["heads"]) == len(shown.maps) == 6
    for map, head in zip(shown.maps, data["heads"], strict=True):
        assert (head["kind"], head["layer"], head["head"]) == (map.kind, map.layer, map.head)
        assert abs(weights_of(head, map.weights.shape) - map.weights).max() < 8e-6
        assert tuple(data["names"][head["queries"]]) == display_names(map.query_tokens) == ("春", "天", "的", "春₂", "天₂")
        assert tuple(data["names"][head["keys"]]) == display_names(map.key_tokens)
        codes = codes_of(data["masks"][head["mask"]], map.weights.shape)
        assert np.array_equal(codes == 0, map.keep)
        assert np.array_equal(codes == 1, map.future & ~map.keep)
        assert head["metrics"] == shown.metrics(map)  # exactly
    assert len(data["masks"]) == 1  # not one for each head


def test_gradients_come_back_and_their_product_is_that_of_the_exact_weights():
    shown = inspection(gradient=True)
    for map, head in zip(shown.maps, data_of(page_html("t", [shown]))["heads"], strict=True):
        for name, values in (("gradient", map.gradient), ("product", map.weights * map.gradient)):
            assert np.array_equal(decoded(head[name], "<f4"), values.ravel().astype(np.float32))


def test_labels_stand_on_their_heads():
    P = np.full((1, 2, 5, 5), 0.2)
    P[0, 1] = np.eye(5)
    shown = inspect_arrays(P, kind="encoder")
    data = data_of(page_html("t", [shown]))
    assert [head["labels"] for head in data["heads"]] == [["uniform"], ["self"]]
    assert [finding["sentence"] for finding in data["findings"]] == [f.sentence for f in shown.diagnose()]


def test_a_comparison_has_a_and_the_difference_of_each_head_most_changed_first():
    good, bad = inspection(title="good"), inspection(seed=1, title="bad")
    comparison = compare(good, bad)
    data = data_of(page_html("t", [comparison]))
    assert [head["change"] for head in data["heads"]] == [change.distance for change in comparison.changes]
    differences = []
    for head in data["heads"]:
        a, b = (each.find(head["kind"], head["layer"], head["head"]).weights for each in (good, bad))
        assert abs(weights_of(head, a.shape) - a).max() < 8e-6
        differences.append(b - a)
        assert abs(decoded(head["difference"], "<f4") - (b - a).ravel()).max() < 1e-7
    assert data["scale"] == abs(np.array(differences)).max()


def test_no_token_can_leave_its_place():
    tokens = list(HOSTILE)
    title = "</title></script><b>\0\ud800\u2028"
    html = page_html(title, [inspection(T=len(tokens), tokens=tokens, title=title), title])
    html.encode()
    assert re.findall(r"</script\b", html) == ["</script"] * 2  # of the data and of the script
    assert "<b>" not in html
    assert not re.search("[\0\u2028\u2029\ud800-\udfff]", html)
    data = data_of(html)
    assert tuple(data["names"][0]) == display_names(tokens)
    assert data["title"] == title


def test_bytes_of_a_character_are_merged_and_the_page_says_so():
    tokens = [bytes([byte]) for byte in "春a".encode()]
    html = page_html("t", [inspection(1, 1, 4, tokens=tokens)])
    data = data_of(html)
    assert data["names"] == [["春", "a"]]
    assert len(decoded(data["heads"][0]["weights"], "<u2")) == 4
    assert data["note"].startswith("Bytes of one character are merged") and f"<p>{data['note']}</p>" in html


def test_a_head_that_is_to_stay_whole_must_be_there():
    with pytest.raises(ValueError, match=r"write_page: full names \('decoder', 5, 0\), which is in none of the parts"):
        page_html("t", [inspection()], full=[("decoder", 5, 0)])


def test_a_part_of_ones_own_and_prose_and_what_is_none():
    html = page_html("t", [Part("", {}, "<p>mine</p>"), "one\n\ntwo"])
    assert "<p>mine</p>" in html and "<p>one</p>" in html
    assert "application/json" not in html
    with pytest.raises(TypeError, match="cannot show a dict"):
        page_html("t", [{}])


def test_without_scripts_there_are_tables_and_pictures():
    shown = inspection(title="春天")
    static = part_of(shown).static
    for map in shown.maps:
        assert f"{map.kind} {map.name}" in static
    assert f"{shown.metrics(shown.maps[0])['confidence']:.4f}" in static
    assert static.count("<svg") == 6
    many = part_of(inspection(L=3, H=5)).static
    assert "<svg" not in many and "decoder layer 2 head 4" in many
    assert "<svg" not in part_of(inspection(L=1, H=1, T=41)).static


def test_a_head_with_no_pair_at_all():
    html = page_html("t", [inspect_arrays(np.zeros((1, 1, 0, 3)), [], list("abc"), kind="cross")])
    assert data_of(html)["heads"][0]["weights"] == ""


def test_an_old_file_outlives_a_page_that_cannot_be_made_or_written(tmp_path):
    path = tmp_path / "page.html"
    assert write_page(path, "t", [inspection()]) == str(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_page(path, "t", [inspection(), {}])
    with pytest.raises(OSError, match="absent"):
        write_page(tmp_path / "absent" / "page.html", "t", [inspection()])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_twelve_layers_of_twelve_heads_at_64_tokens_take_less_than_2_mb():
    html = page_html("t", [inspection(12, 12, 64)])
    assert len(html.encode()) < 2_000_000
    assert data_of(html)["reduced"] == ""


@pytest.fixture(scope="module")
def large():
    return inspection(12, 12, 256)


def test_a_large_page_is_reduced_and_says_so(large):
    asked = ("decoder", 7, 5)
    html = page_html("t", [large], full=[asked])
    assert len(html.encode()) < 8_000_000
    data = data_of(html)
    whole = [head for head in data["heads"] if "weights" in head]
    assert 10 < len(whole) < 144
    assert f"{len(whole)} of the 144 heads are here in full" in data["reduced"]
    assert html.count(data["reduced"]) == 2  # for the script, and without one
    assert asked in [(head["kind"], head["layer"], head["head"]) for head in whole]
    without = data_of(page_html("t", [large]))["heads"]
    assert "weights" not in next(head for head in without if (head["layer"], head["head"]) == asked[1:])

    reduced = next(head for head in data["heads"] if "pooled" in head)
    map = large.find("decoder", reduced["layer"], reduced["head"])
    assert reduced["pooled"]["blocks"] == [4, 4]
    pooled = decoded(reduced["pooled"]["weights"], "<u2").reshape(64, 64) / 65535
    for i, j in ((0, 0), (5, 2), (63, 63), (2, 5)):
        block = np.s_[4 * i : 4 * i + 4, 4 * j : 4 * j + 4]
        seen = map.weights[block][map.keep[block]]
        assert pooled[i, j] == pytest.approx(seen.mean() if seen.size else 0, abs=8e-6)
    codes = codes_of(data["masks"][reduced["pooled"]["mask"]], (64, 64))
    assert np.array_equal(codes == 0, np.tri(64, dtype=bool))
    keys = decoded(reduced["top"]["keys"], "<u2").reshape(256, 8)
    tops = decoded(reduced["top"]["weights"], "<u2").reshape(256, 8) / 65535
    for q in (0, 3, 100, 255):
        n = min(8, q + 1)
        order = np.argsort(-map.weights[q], kind="stable")[:n]
        assert list(keys[q, :n]) == list(order) and set(keys[q, n:]) <= {65535}
        assert abs(tops[q, :n] - map.weights[q, order]).max() < 8e-6


def test_large_parts_share_the_page_and_small_ones_stay_whole(large):
    small = inspection()
    html = page_html("t", [large, small, large])
    assert len(html.encode()) < 8_000_000
    first, second, third = (data_of(html, i) for i in range(3))
    assert second["reduced"] == ""
    whole = [sum("weights" in head for head in part["heads"]) for part in (first, third)]
    assert max(whole) - min(whole) <= 1 <= min(whole)


def test_a_large_comparison_is_reduced_too(large):
    comparison = compare(large, Inspection("again", inspection(12, 12, 256, seed=1).maps))
    html = page_html("t", [comparison], full=[("decoder", 3, 11)])
    assert len(html.encode()) < 8_000_000
    data = data_of(html)
    assert "heads are here in full" in data["reduced"]
    assert next(head for head in data["heads"] if (head["layer"], head["head"]) == (3, 11)).get("difference")
    reduced = next(head for head in data["heads"] if "pooled" in head)
    a, b = (each.find("decoder", reduced["layer"], reduced["head"]).weights for each in (comparison.good, comparison.bad))
    keys = decoded(reduced["top"]["keys"], "<u2").reshape(256, 8)
    change = abs(b - a)[200]
    assert list(keys[200]) == list(np.argsort(-change, kind="stable")[:8])
    found = decoded(reduced["top"]["difference"], "<f4").reshape(256, 8)[200]
    assert abs(found - (b - a)[200, keys[200]]).max() < 1e-7


def test_very_long_texts_have_fewer_exact_keys_rather_than_a_larger_page(monkeypatch):
    monkeypatch.setattr(maps, "LIMIT", 400_000)
    html = page_html("t", [inspection(2, 3, 211)])
    assert len(html.encode()) < 400_000
    data = data_of(html)
    n = int(re.search(r"each row the (\d) largest weights", data["reduced"])[1])
    reduced = next(head for head in data["heads"] if "pooled" in head)
    assert len(decoded(reduced["top"]["keys"], "<u2")) == 211 * n


@pytest.mark.parametrize("sign", ["<", "\u2028", "\u2029", "\ud800", "\udfff"])
def test_no_sign_of_the_data_can_end_its_element(sign):
    assert sign not in embedded({"a": f"x{sign}y"})
    assert json.loads(embedded({"a": f"x{sign}y"})) == {"a": f"x{sign}y"}


def test_a_heading_that_the_page_has_already_is_not_repeated():
    chart = LineChart("loss", {"a": ([0, 1], [2.0, 1.0])})
    assert page_html("loss", [chart, inspection(title="loss")]).count(">loss</h") == 1
    assert page_html("training", [chart]).count(">loss</h") == 1


@pytest.mark.parametrize("swapped", [False, True])
def test_the_room_that_a_smaller_part_leaves_is_for_the_larger(monkeypatch, swapped):
    monkeypatch.setattr(maps, "LIMIT", 600_000)
    parts = [inspection(6, 5, 101), inspection(1, 3, 101, seed=1)]
    html = page_html("t", parts[::-1] if swapped else parts)
    assert 550_000 < len(html.encode()) < 600_000
    assert data_of(html, 0 if swapped else 1)["reduced"] == ""


def test_heads_with_findings_stay_whole_before_confident_ones(monkeypatch):
    monkeypatch.setattr(maps, "LIMIT", 250_000)
    sharp = inspection(1, 8, 101, kind="encoder")
    P = np.stack([map.weights for map in sharp.maps])
    P[5] = 1 / 101
    data = data_of(page_html("t", [inspect_arrays(P[None], kind="encoder")]))
    assert [head["labels"] for head in data["heads"]] == [[]] * 5 + [["uniform"]] + [[]] * 2
    assert "weights" in data["heads"][5] and not all("weights" in head for head in data["heads"])


def leaking(T=101):
    """A decoder whose heads put half of their weight, and most of some rows, where none may be."""
    P = np.stack([map.weights for map in inspection(2, 3, T).maps]) / 2
    P[:, np.arange(7), T - 1 - np.arange(7)] += 0.5
    P[:, 7:, 0] += 0.5
    return inspect_arrays(P.reshape(2, 3, T, T), kind="decoder")


def test_a_reduced_head_has_the_weights_where_none_may_be(monkeypatch):
    monkeypatch.setattr(maps, "LIMIT", 170_000)
    data = data_of(page_html("t", [leaking()]))
    head = next(head for head in data["heads"] if "pooled" in head)
    keys = decoded(head["top"]["keys"], "<u2").reshape(101, -1)
    weights = decoded(head["top"]["weights"], "<u2").reshape(keys.shape) / 65535
    for q in range(7):
        at = list(keys[q]).index(100 - q + maps.HIDDEN)
        assert weights[q, at] == pytest.approx(0.5, abs=1e-5)
    hidden = (keys >= maps.HIDDEN) & (keys != maps.NO_KEY)
    assert hidden[:7].sum() == 7 and not hidden[7:].any()
    (down, across) = head["pooled"]["blocks"]
    n = -(-101 // down), -(-101 // across)
    pooled = decoded(head["pooled"]["weights"], "<u2").reshape(n) / 65535
    assert codes_of(data["masks"][head["pooled"]["mask"]], n)[0, -1] == maps.FUTURE
    assert pooled[0, -1] == pytest.approx(0.5, abs=1e-5)
    assert list(decoded(data["masks"][head["visible"]], "<u2")) == list(range(1, 102))


def test_a_reduced_comparison_has_them_too(monkeypatch):
    monkeypatch.setattr(maps, "LIMIT", 170_000)
    data = data_of(page_html("t", [compare(inspection(2, 3, 101), leaking())]))
    head = next(head for head in data["heads"] if "pooled" in head)
    keys = decoded(head["top"]["keys"], "<u2").reshape(101, -1)
    assert all(100 - q + maps.HIDDEN in keys[q] for q in range(7))


def test_without_scripts_they_are_drawn():
    shown = inspect_arrays(np.full((1, 1, 3, 3), 1 / 3), list("abc"), kind="decoder")
    assert part_of(shown).static.count("h0.5v0.5h-0.5z") == 3
    assert "h0.5v0.5" not in part_of(inspection(T=3)).static


def test_what_is_lost_is_said(monkeypatch):
    monkeypatch.setattr(maps, "LIMIT", 200_000)
    monkeypatch.setattr(maps, "REDUCTIONS", ((16, 1),))
    data = data_of(page_html("t", [inspection(2, 3, 61, gradient=True)]))
    assert data["reduced"].endswith("and of each row the largest weight, exactly. ∂L/∂P of the others is not here.")
    assert {head["loses_gradient"] for head in data["heads"] if "pooled" in head} == {True}
    without = data_of(page_html("t", [inspection(2, 3, 211)]))
    assert without["reduced"].endswith("and of each row the largest weight, exactly.")


def test_long_names_are_cut_stay_different_and_it_is_said(monkeypatch):
    monkeypatch.setattr(maps, "LIMIT", 400_000)
    tokens = ["x" * 5000 + str(i) for i in range(40)]
    P = np.zeros((1, 1, 40, 40))
    P[..., 3] = 1
    html = page_html("t", [inspect_arrays(P, tokens, kind="encoder")])
    assert len(html.encode()) < 400_000
    data = data_of(html)
    assert data["heads"][0]["labels"]  # a finding, which names key 3
    (names,) = data["names"]
    assert len(set(names)) == 40 and max(map(len, names)) < 210
    assert names[:2] == ["x" * 199 + "…", "x" * 199 + "…2"]
    assert data["note"] == "Of a name that is longer, the first 200 characters are shown."


def test_irregular_masks_are_counted_and_come_back(monkeypatch):
    keep = np.random.default_rng(0).random((1, 6, 199, 199)) < 0.5
    shown = inspection(1, 6, 199, kind="encoder", keep=keep)
    for limit in range(320_000, 440_000, 12_000):  # a mask takes 13 kB
        monkeypatch.setattr(maps, "LIMIT", limit)
        html = page_html("t", [shown])
        assert len(html.encode()) < limit
    data = data_of(html)
    whole = [i for i, head in enumerate(data["heads"]) if "weights" in head]
    assert 0 < len(whole) < 6
    for i in whole:
        codes = codes_of(data["masks"][data["heads"][i]["mask"]], (199, 199))
        assert np.array_equal(codes == maps.VISIBLE, shown.maps[i].keep)


def gradients_of(size):
    P = np.stack([map.weights for map in inspection(1, 2, 5).maps])[None]
    return inspect_arrays(
        P, kind="decoder", gradient=size * np.random.default_rng(0).uniform(-1, 1, P.shape) * [[[1]], [[0.5]]]
    )


@pytest.mark.parametrize("size", [1e31, 1e300, 1.7e308])
def test_a_gradient_beyond_single_precision_is_refused(size):
    with pytest.raises(ValueError, match=r"write_page: decoder layer 0 head 0 has a gradient of .*e\+.*divide the loss"):
        page_html("t", [gradients_of(size)])


@pytest.mark.parametrize("size", [1e-300, 1e-50, 1e-20, 1e29])
def test_a_gradient_of_any_other_size_comes_back(size):
    shown = gradients_of(size)
    for map, head in zip(shown.maps, data_of(page_html("t", [shown]))["heads"], strict=True):
        for name, values in (("gradient", map.gradient), ("product", map.weights * map.gradient)):
            found = decoded(head[name], "<f4").astype(float) * head["unit"]
            assert found == pytest.approx(values.ravel(), rel=1e-6, abs=0)
