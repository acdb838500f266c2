"""Parts of a page that are opened at one head and row."""

import json
import re

import pytest

from npformer.inspection import Inspection, Opened, compare, write_page
from npformer.inspection.page import page_html
from random_attention import inspection


def two_kinds(seed):
    encoder = inspection(2, 3, 5, kind="encoder", seed=seed)
    cross = inspection(2, 3, 7, 5, kind="cross", seed=seed + 1)
    return Inspection(f"run {seed}", [*encoder.maps, *cross.maps])


def data_of(page):
    return [json.loads(text) for text in re.findall(r'<script type="application/json" id="data-\d+">(.*?)</script>', page)]


def test_the_place_is_in_the_part_and_the_rest_is_as_without_it():
    run = two_kinds(0)
    [opened], [plain] = data_of(page_html("t", [Opened(run, "cross", 1, 2, 4)])), data_of(page_html("t", [run]))
    assert opened.pop("opened") == {"kind": "cross", "layer": 1, "head": 2, "query": 4}
    assert plain.pop("opened") is None
    assert opened == plain


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (("decoder", 0, 0, 0), "kind must be one of"),
        (("cross", 2, 0, 0), "cross attention has the layers 0 … 1, not 2"),
        (("cross", 1, 3, 0), "cross layer 1 has the heads 0 … 2, not 3"),
        (("cross", 1, 1, 7), "Opened: query must be in 0 … 6, got 7"),
        (("cross", 1, 1, -1), "Opened: query must be in 0 … 6, got -1"),
    ],
)
def test_a_place_that_is_not_there_is_refused(place, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        page_html("t", [Opened(two_kinds(0), *place)])


def test_the_head_at_which_a_page_opens_stays_whole_first():
    large = inspection(12, 12, 256)
    [data] = data_of(page_html("t", [Opened(large, "decoder", 11, 3, 200)]))
    [entry] = [head for head in data["heads"] if (head["layer"], head["head"]) == (11, 3)]
    assert data["reduced"] and "pooled" not in entry


def test_an_inspection_shows_that_head_and_row_at_once(open_page, tmp_path):
    run = two_kinds(0)
    page = open_page(write_page(tmp_path / "page.html", "t", [Opened(run, "cross", 1, 2, 4)]))
    assert page.get_by_role("tab", selected=True).inner_text().startswith("cross")
    assert page.locator(".detail h3").inner_text() == "cross-attention, layer 1 head 2"
    map = run.find("cross", 1, 2)
    assert page.locator(".sentence").inner_text() == map.sentence(4, int(map.weights[4].argmax()))
    assert page.locator("output").inner_text().startswith("5 of 7")
    assert page.evaluate("document.activeElement === document.body")  # a reader is not taken there


def test_a_comparison_shows_that_head_and_the_key_that_changed_most(open_page, tmp_path):
    a, b = two_kinds(0), two_kinds(7)
    page = open_page(write_page(tmp_path / "page.html", "t", [Opened(compare(a, b), "cross", 0, 1, 3)]))
    assert page.locator(".detail h3").inner_text() == "cross-attention, layer 0 head 1"
    of_a, of_b = a.find("cross", 0, 1), b.find("cross", 0, 1)
    k = int(abs(of_b.weights[3] - of_a.weights[3]).argmax())
    said = page.locator(".sentence").inner_text()
    assert said.startswith(of_a.sentence(3, k))
    assert f"{of_b.weights[3, k]:.4f} in B" in said
    assert page.locator(".detail [role=gridcell]").nth(2).get_attribute("aria-rowindex") == "4"
