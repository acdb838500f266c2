"""The parts of a page that are words and numbers: each says in HTML what the thing says in text."""

import re
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

from npformer.inspection import Finding, WhoAttends, inspect_arrays
from npformer.inspection.page import part_of, write_page
from npformer.inspection.who_attends import HeadAnswer

INFORMATION = Finding("sink", "decoder", 0, 1, 0.93, "93% of the queries put 0.6 or more on <s> (key 0)")
FAULT = Finding("mask leak", "decoder", 1, None, 0.1, "春 (row 2) puts 0.1000 on keys after it", "a mask that is missing")
ANSWER = WhoAttends(
    "春天",
    "上海",
    "北京",
    "cross",
    (HeadAnswer(5, 2, 0.3012, 0.0714, 1, 14, 1 / 14, 0.25), HeadAnswer(0, 7, 0.02, 0.5, 9, 14, 1 / 14, 0.875)),
    0.7512,
    "春天 is row 8; attention is a clue, and ablation the evidence",
)


def plain(html):
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def test_findings_are_sentences_faults_first_and_marked_in_words():
    static = part_of([INFORMATION, FAULT]).static
    first, second = re.findall("<li>(.*)</li>", static)
    assert plain(first) == f"Fault: {FAULT.sentence}"
    assert plain(second) == INFORMATION.sentence
    assert "<s>" not in static


def test_no_findings_are_said():
    assert plain(part_of([]).static).startswith("No findings:")


def test_a_list_of_anything_else_is_refused():
    with pytest.raises(TypeError, match="a list must hold findings, got a int"):
        part_of([FAULT, 3])


def test_who_attends_is_a_table_with_every_number():
    static = part_of(ANSWER).static
    tree = ElementTree.fromstring(f"<div>{static}</div>")
    assert "".join(tree.find(".//caption").itertext()) == ANSWER.title
    assert "P(春天) = 0.7512" in ANSWER.title
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    assert rows == [
        ["head", "on 上海", "on 北京", "rank", "uniform", "P(春天) without it"],
        ["layer 5 head 2", "0.3012", "0.0714", "1 of 14", "0.0714", "0.2500"],
        ["layer 0 head 7", "0.0200", "0.5000", "9 of 14", "0.0714", "0.8750"],
    ]
    assert {cell.get("scope") for cell in tree.iter("th")} == {"col", "row"}
    assert ANSWER.note in plain(static)


def test_who_attends_without_another_word_and_without_a_model():
    weights = np.full((1, 2, 3, 3), 1 / 3)
    static = part_of(inspect_arrays(weights, list("abc"), list("abc")).who_attends("a", "b")).static
    rows = [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(f"<div>{static}</div>").iter("tr")]
    assert rows[0] == ["head", "on b", "rank", "uniform"]
    assert rows[1] == ["layer 0 head 0", "0.3333", "1 of 3", "0.3333"]


def test_prose_is_paragraphs_and_never_html():
    static = part_of("One </p><script>x</script>\nline & more.\n\n \n\nTwo\0.\n").static
    assert static == "<p>One &lt;/p&gt;&lt;script&gt;x&lt;/script&gt; line &amp; more.</p>\n<p>Two\ufffd.</p>\n"


@pytest.mark.parametrize("scripts", [True, False])
def test_on_a_page_they_are_the_same_with_and_without_scripts(open_page, tmp_path, scripts):
    path = write_page(tmp_path / "page.html", "北京", [[INFORMATION, FAULT], ANSWER, "Words."])
    page = open_page(path, width=390, scripts=scripts)
    assert page.locator("li").all_inner_texts() == [f"Fault: {FAULT.sentence}", INFORMATION.sentence]
    assert page.get_by_role("table", name=ANSWER.title).get_by_role("row").count() == 3
    assert page.get_by_text("Words.").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
