"""Pages in a real browser: what they show, what the keyboard alone can reach, and what is left without scripts.

`open_page` fails a test whose page logs an error or asks for anything but its own file.
"""

import csv
import io
import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest

from npformer.inspection import compare, inspect_arrays
from npformer.inspection.inspection import Inspection
from npformer.inspection.page import maps, write_page
from random_attention import inspection

HOSTILE = [
    "</script>",
    "<b>",
    '"',
    "'",
    "&amp;",
    "👩‍👩‍👧",
    "שלום",
    "e\u0301",
    "\0",
    "\ud800",
    " ",
    "\n",
    "",
    "x" * 60,
    "春",
    "春",
]
SOURCE = list("我喜欢北京的春天和上海的秋天")


@pytest.fixture
def show(open_page, tmp_path):
    def shown(*parts, full=(), **options):
        return open_page(write_page(tmp_path / "page.html", "Title", parts, full=full), **options)

    return shown


@pytest.fixture
def cities():
    keep = np.arange(len(SOURCE)) < 12
    encoder = inspection(2, 3, 14, kind="encoder", tokens=SOURCE, keep=keep)
    cross = inspection(2, 3, 5, 14, kind="cross", tokens=list("北京的春天"), keys=SOURCE, keep=keep, named_by="produces")
    decoder = inspection(2, 3, 5, tokens=list("北京的春天"), named_by="produces")
    return Inspection("two cities", [*encoder.maps, *decoder.maps, *cross.maps])


def as_stored(map):
    """A map as a page has it: weights to within 8e-6, and those that are the same there share a rank."""
    return replace(map, weights=np.rint(65535 * map.weights) / 65535)


def heads(page):
    return page.locator(".overview [role=gridcell]")


def cell(page):
    return page.locator(".detail [role=grid] [role=gridcell]")


def sentence(page):
    return page.locator(".detail .sentence").inner_text()


def focused(page):
    return page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")


def copied(page, kind):
    page.get_by_role("button", name=f"copy as {kind}").click()
    page.get_by_text(f"copied as {kind}").wait_for()
    return page.evaluate("navigator.clipboard.readText()")


def numbers(text):
    return [float(x.replace("−", "-")) for x in re.findall(r"[+−]?\d+\.\d{4}", text)]


def test_all_heads_stand_there_with_their_names_and_labels(show):
    P = np.full((1, 2, 5, 5), 0.2)
    P[0, 1] = np.eye(5)
    page = show(inspect_arrays(P, kind="encoder"))
    assert heads(page).all_inner_texts() == ["layer 0 head 0\nuniform", "layer 0 head 1\nself"]
    assert heads(page).nth(0).get_attribute("aria-label") == "encoder layer 0 head 0, uniform"
    assert heads(page).nth(1).locator("canvas").evaluate("c => [c.width, c.height, c.clientWidth > 40]") == [5, 5, True]


def test_tabs(show, cities):
    page = show(cities)
    tabs = page.get_by_role("tab")
    assert tabs.all_inner_texts() == ["encoder (6)", "decoder (6)", "cross (6)"]
    tabs.nth(0).focus()
    page.keyboard.press("ArrowLeft")
    assert focused(page) == "cross (6)"
    assert tabs.nth(2).get_attribute("aria-selected") == "true"
    assert heads(page).nth(5).get_attribute("aria-label") == "cross layer 1 head 2"
    page.keyboard.press("Home")
    assert focused(page) == "encoder (6)"


def test_sort_and_filter(show, cities):
    page = show(cities)
    maps = cities.of_kind("encoder")
    names = sorted(
        (map.name for map in maps), key=lambda name: -next(cities.metrics(m)["entropy"] for m in maps if m.name == name)
    )

    def shown():
        return [text.split("\n")[0] for text in heads(page).all_inner_texts()]

    page.get_by_label("sort by").select_option("entropy")
    assert shown() == names
    first = heads(page).nth(0).inner_text()
    assert numbers(first)[0] == pytest.approx(max(cities.metrics(m)["entropy"] for m in maps), abs=6e-5)
    page.get_by_label("order").select_option("up")
    assert shown() == names[::-1]
    page.get_by_label("sort by").select_option("")
    assert shown() == [map.name for map in maps]
    limit = float(np.median([cities.metrics(m)["confidence"] for m in maps]))
    page.get_by_label("only where").select_option("confidence")
    page.get_by_label("number", exact=True).fill(str(limit))
    assert shown() == [m.name for m in maps if cities.metrics(m)["confidence"] >= limit]
    assert page.locator(".count").inner_text() == "3 of 6 heads of the encoder; choose one to see its map"
    page.get_by_role("combobox", name="is", exact=True).select_option("most")
    assert shown() == [m.name for m in maps if cities.metrics(m)["confidence"] <= limit]


def test_filter_by_label(show):
    P = np.full((1, 3, 5, 5), 0.2)
    P[0, 1] = np.eye(5)
    page = show(inspect_arrays(P, kind="encoder"))
    page.get_by_label("finding").select_option("uniform")
    assert [text.split("\n")[0] for text in heads(page).all_inner_texts()] == ["layer 0 head 0", "layer 0 head 2"]


def test_every_pair_reads_the_sentence_of_the_map(show, cities):
    page = show(cities)
    page.get_by_role("tab").nth(2).click()
    heads(page).nth(4).click()
    map = cities.find("cross", 1, 1)
    assert "produces" in page.locator(".detail .axes").inner_text()
    for q in range(5):
        for k in range(14):
            assert cell(page).get_attribute("aria-label") == sentence(page) == as_stored(map).sentence(q, k)
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")


def test_hidden_pairs_say_why_and_are_not_drawn_as_zeros(show, cities):
    page = show(cities)
    colour = (
        "([q, k]) => { const c = document.querySelector('.detail .map canvas'); const s = c.width / {n}; return "
        "[...c.getContext('2d').getImageData((k + 0.5) * s, (q + 0.5) * s, 1, 1).data]; }"
    )
    page.get_by_role("tab").nth(1).click()
    heads(page).nth(0).click()
    page.keyboard.press("End")
    assert sentence(page) == as_stored(cities.find("decoder", 0, 0)).sentence(0, 4)
    assert "hidden: after the query" in sentence(page)
    assert page.evaluate(colour.replace("{n}", "5"), [0, 4])[3] == 0  # clear: the hatching shows
    assert page.evaluate(colour.replace("{n}", "5"), [4, 0])[3] == 255
    page.get_by_role("tab").nth(0).click()
    heads(page).nth(0).click()
    page.keyboard.press("End")
    assert "hidden: padding" in sentence(page)
    grey, seen = page.evaluate(colour.replace("{n}", "14"), [0, 13]), page.evaluate(colour.replace("{n}", "14"), [0, 3])
    assert max(grey[:3]) - min(grey[:3]) < 20 and grey != seen
    assert "hidden" in page.locator(".detail .legend").inner_text()


def test_hover_reads_click_pins_and_escape_lets_go(show, cities):
    page = show(cities)
    page.get_by_role("tab").nth(2).click()
    heads(page).nth(0).click()
    map = cities.find("cross", 0, 0)
    box = page.locator(".detail .map canvas").bounding_box()

    def at(q, k):
        return box["x"] + (k + 0.5) * box["width"] / 14, box["y"] + (q + 0.5) * box["height"] / 5

    page.mouse.move(*at(2, 7))
    assert sentence(page) == as_stored(map).sentence(2, 7)
    page.mouse.click(*at(3, 1))
    pinned = page.locator(".detail .pinned")
    assert as_stored(map).sentence(3, 1) in pinned.inner_text()
    page.mouse.move(*at(0, 2))
    assert sentence(page) == as_stored(map).sentence(0, 2)
    assert as_stored(map).sentence(3, 1) in pinned.inner_text()
    page.keyboard.press("Escape")
    assert not pinned.is_visible()
    assert page.locator(".detail").is_visible()


def test_with_the_keyboard_alone(show, cities):
    page = show(cities)
    for _ in range(20):
        page.keyboard.press("Tab")
        if focused(page).startswith("encoder layer"):
            break
    assert focused(page) == "encoder layer 0 head 0"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    assert focused(page) == "encoder layer 1 head 2"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    map = cities.find("encoder", 1, 1)
    assert focused(page) == as_stored(map).sentence(0, 0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert focused(page) == as_stored(map).sentence(1, 1)
    page.keyboard.press("Control+End")
    assert focused(page) == as_stored(map).sentence(13, 13)
    page.keyboard.press("Control+Home")
    page.keyboard.press("End")
    assert focused(page) == as_stored(map).sentence(0, 13)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert as_stored(map).sentence(0, 13) in page.locator(".detail .pinned").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator(".detail .pinned").is_visible()
    page.keyboard.press("Escape")
    assert page.locator(".detail").count() == 0
    assert focused(page) == "encoder layer 1 head 1"


def test_a_row_by_the_slider_its_top_keys_and_the_metrics(show, cities):
    page = show(cities)
    page.get_by_role("tab").nth(2).click()
    heads(page).nth(1).click()
    map = cities.find("cross", 0, 1)
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "3 of 5, 的"
    assert sentence(page) == as_stored(map).sentence(2, 0)
    top, metrics = (table.inner_text().split("\n") for table in page.locator(".detail .right table").all())
    rows = [line.split("\t") for line in top[2:]]
    names = [f"{SOURCE[k]}" for k in np.argsort(-map.weights[2])[:8]]
    assert [name.rstrip("₂") for name, _ in rows] == names
    assert [float(value) for _, value in rows] == pytest.approx(sorted(map.weights[2], reverse=True)[:8], abs=6e-5)
    shown = dict(line.split("\t") for line in metrics[2:])
    assert float(shown["confidence"]) == pytest.approx(cities.metrics(map)["confidence"], abs=6e-5)
    assert page.locator(".detail tr[title]").nth(1).get_attribute("title") == "mean over q of max P"


def test_the_whole_map_as_a_table_and_copied(show, cities):
    page = show(cities)
    page.get_by_role("tab").nth(1).click()
    heads(page).nth(2).click()
    map = cities.find("decoder", 0, 2)
    page.get_by_role("button", name="show as a table").click()
    table = page.locator(".detail > div:last-child table")
    rows = [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert table.locator("tbody th").all_inner_texts() == list("北京的春天")
    for q in range(5):
        for k in range(5):
            if map.keep[q, k]:
                assert float(rows[q][k]) == pytest.approx(map.weights[q, k], abs=6e-5)
            else:
                assert rows[q][k] == "–"
    page.get_by_role("button", name="hide the table").click()
    assert table.count() == 0
    as_json = json.loads(copied(page, "JSON"))
    assert as_json["weight"][4] == pytest.approx(map.weights[4], abs=8e-6)
    assert as_json["weight"][0][1:] == [None] * 4
    as_csv = list(csv.reader(io.StringIO(copied(page, "CSV"))))
    assert as_csv[0] == ["query", "key", "weight"]
    assert [(q, k) for q, k, _ in as_csv[1:4]] == [("北", "北"), ("京", "北"), ("京", "京")]
    assert float(as_csv[3][2]) == pytest.approx(map.weights[1, 1], abs=8e-6)
    assert f"的 → {'北京的'[int(map.weights[2].argmax())]} {map.weights[2].max():.4f}" in copied(page, "text")


def test_gradients_by_choice_with_their_signs(show):
    given = inspection(1, 1, 5, kind="encoder", gradient=True)
    shown = Inspection("gradients", given.maps, loss_name="−ln P(北京)")
    page = show(shown)
    map = shown.maps[0]
    cell(page).focus()
    assert "−ln P(北京)" in page.locator(".detail .values").inner_text()
    assert sentence(page).startswith(as_stored(map).sentence(0, 0))
    for name, values in (("∂L/∂P", map.gradient), ("P·∂L/∂P", map.weights * map.gradient)):
        page.get_by_role("radio", name=name, exact=True).check()
        page.get_by_role("button", name="show as a table").click()
        text = page.locator(".detail > div:last-child tbody").inner_text()
        assert numbers(text) == pytest.approx(values.ravel(), abs=6e-5)
        assert "−" in text and "+" in text
        assert f"+{abs(values).max():.4f}" in page.locator(".detail .ticks").inner_text()


def test_the_comparison_has_the_differences_on_one_scale(show):
    good, bad = (inspection(2, 2, 7, kind="encoder", seed=seed, title=title) for seed, title in ((0, "good"), (1, "bad")))
    comparison = compare(good, bad)
    page = show(comparison)
    names = [f"encoder layer {change.layer} head {change.head}" for change in comparison.changes]
    assert page.locator(".changes tbody button").all_inner_texts() == names
    page.locator(".changes tbody button").nth(0).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    place = comparison.changes[1]
    a, b = (each.find("encoder", place.layer, place.head) for each in (good, bad))
    assert page.locator(".detail h4").all_inner_texts() == ["A", "B", "B − A"]
    for q, k in ((0, 0), (0, 1), (1, 1)):
        assert sentence(page).startswith(as_stored(a).sentence(q, k))
        expected = [b.weights[q, k], b.weights[q, k] - a.weights[q, k]]
        assert numbers(sentence(page))[-2:] == pytest.approx(expected, abs=6e-5)
        page.keyboard.press("ArrowRight" if k == 0 else "ArrowDown")
    scale = max(abs(bad.find(m.kind, m.layer, m.head).weights - m.weights).max() for m in good.maps)
    for _ in range(2):
        assert numbers(page.locator(".legends .ticks").nth(1).inner_text()) == pytest.approx([-scale, 0, scale], abs=6e-5)
        page.locator(".changes tbody button").nth(3).click()
    page.get_by_role("button", name="show as a table").click()
    rows = page.locator(".detail > div:last-child tbody").inner_text().split("\n")
    place = comparison.changes[3]
    a, b = (each.find("encoder", place.layer, place.head).weights for each in (good, bad))
    assert [numbers(row)[-1] for row in rows] == pytest.approx((b - a).ravel(), abs=6e-5)
    page.locator(".detail [role=gridcell]").nth(2).focus()
    page.keyboard.press("Escape")
    assert focused(page) == names[3]


def test_two_views_of_one_kind_do_not_disturb_one_another(show, cities):
    page = show(cities, inspection(1, 2, 5, title="other"), compare(cities, cities), compare(cities, cities))
    first, second = (page.locator(f"#part-{i}") for i in (0, 1))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids)) > 8
    first.get_by_role("tab").nth(2).click()
    first.locator(".overview [role=gridcell]").nth(0).click()
    second.locator(".overview [role=gridcell]").nth(1).click()
    assert first.locator(".sentence").inner_text() == as_stored(cities.find("cross", 0, 0)).sentence(0, 0)
    assert second.locator(".sentence").inner_text().startswith("layer 0 head 1 · 0 → 0 = 1.0000")
    page.keyboard.press("Escape")
    assert second.locator(".detail").count() == 0
    assert first.locator(".detail").count() == 1
    assert first.get_by_role("tab", selected=True).inner_text() == "cross (6)"


def test_tokens_that_would_break_a_page(show):
    shown = inspection(1, 2, len(HOSTILE), kind="encoder", tokens=HOSTILE, title="</script><b>")
    page = show(shown, compare(shown, shown))
    assert page.locator("h2").nth(0).inner_text() == "</script><b>"
    heads(page).nth(1).click()
    map = shown.maps[1]
    for k in range(len(HOSTILE)):
        assert focused(page) == as_stored(map).sentence(0, k)
        page.keyboard.press("ArrowRight")
    assert page.locator("b").count() == page.locator(".detail .pinned b").count()
    label = page.locator(".detail .column-names bdi").nth(6)
    assert label.inner_text() == "שלום"
    assert label.evaluate("e => getComputedStyle(e).unicodeBidi") == "isolate"
    assert (
        page.locator(".detail .column-names span").nth(14).evaluate("e => getComputedStyle(e).writingMode") == "vertical-rl"
    )


def test_two_tokens_from_right_to_left_keep_their_places(show):
    page = show(inspection(1, 1, 2, kind="encoder", tokens=["שלום", "עולם"]))
    page.locator(".detail [role=gridcell]").focus()
    page.keyboard.press("ArrowRight")
    first, second = page.locator(".detail .sentence bdi").all()
    assert (first.inner_text(), second.inner_text()) == ("שלום", "עולם")
    assert first.bounding_box()["x"] < second.bounding_box()["x"]


def test_numbers_are_rounded_as_python_rounds_them(show):
    shown = inspect_arrays(np.full((1, 1, 32, 32), 1 / 32), kind="encoder")  # half-way between two numbers of four decimals
    page = show(shown)
    assert sentence(page) == as_stored(shown.maps[0]).sentence(0, 0)


def test_a_small_metric_is_not_shown_as_0(show):
    P = np.eye(3)[None, None] * (1 - 2e-6) + [[0, 0, 2e-6], [0, 0, 2e-6], [0, 2e-6, 0]]
    shown = inspect_arrays(P, kind="decoder")
    assert "future mass\t2.000e−6" in show(shown).locator(".detail .right").inner_text()
    assert "2.000e-06" in show(shown, scripts=False).locator("tbody").inner_text()


def test_weights_where_none_may_be_are_drawn_on_the_hatching(show):
    shown = inspect_arrays(np.full((1, 2, 3, 3), 1 / 3), list("abc"), kind="decoder")
    page = show(shown)
    heads(page).nth(0).click()
    assert "Fault: decoder layer 0 head 0, mask leak" in page.locator(".detail").inner_text()
    alpha = page.locator(".detail .map canvas").evaluate(
        "c => [0.5, 0.05].map(x => c.getContext('2d').getImageData((2 + x) * c.width / 3, x * c.height / 3, 1, 1).data[3])"
    )
    assert alpha == [255, 0]
    page.keyboard.press("End")
    assert sentence(page) == as_stored(shown.maps[0]).sentence(0, 2)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_without_scripts_the_numbers_and_pictures_are_there(show, cities, colours):
    page = show(cities, inspection(1, 2, 5), scripts=False, colours=colours)
    assert page.locator("#part-0 tbody tr").count() == 18
    assert f"{cities.metrics(cities.maps[0])['confidence']:.4f}" in page.locator("#part-0 tbody tr").nth(0).inner_text()
    assert page.locator("#part-0 svg").count() == 0  # more than twelve heads
    assert page.locator("#part-1 svg").count() == 2


@pytest.mark.parametrize(
    ("L", "H", "T", "S", "kind"),
    [(1, 1, 1, 1, "decoder"), (1, 2, 1, 7, "cross"), (2, 1, 7, 2, "cross"), (1, 1, 3, 5, "decoder")],
)
def test_maps_of_odd_shapes(show, L, H, T, S, kind):
    shown = inspection(L, H, T, S, kind=kind)
    page = show(shown)
    heads(page).nth(0).click()
    page.keyboard.press("Control+End")
    assert focused(page) == as_stored(shown.maps[0]).sentence(T - 1, S - 1)
    page.get_by_role("button", name="show as a table").click()
    assert page.locator(".detail > div:last-child tbody tr").count() == T


def test_a_query_that_sees_nothing_and_a_map_without_pairs(show):
    keep = np.ones((5, 5), bool)
    keep[2] = False
    shown = inspection(1, 1, 5, kind="encoder", keep=keep)
    page = show(shown, inspect_arrays(np.zeros((1, 1, 0, 3)), [], list("abc"), kind="cross"))
    first = page.locator("#part-0")
    first.locator("[role=gridcell]").nth(1).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert first.locator(".sentence").inner_text() == as_stored(shown.maps[0]).sentence(2, 0)
    assert "may see no key" in first.locator(".top").inner_text()
    assert "no pairs" in page.locator("#part-1 .detail").inner_text()


def test_a_reduced_head_has_its_exact_top_keys_and_says_what_it_lacks(show):
    shown = inspection(5, 11, 256)
    page = show(shown, full=[("decoder", 0, 0)])
    assert "heads are here in full" in page.locator(".reduced").inner_text()
    reduced = page.evaluate("JSON.parse(document.getElementById('data-0').textContent).heads.findIndex(h => h.pooled)")
    heads(page).nth(0).click()
    assert focused(page) == as_stored(shown.maps[0]).sentence(0, 0)
    heads(page).nth(reduced).click()
    map = shown.maps[reduced]
    assert "not on the page in full" in page.locator(".detail .reduced").inner_text()
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Home")
    assert sentence(page).startswith(f"{map.name} · 8 … 11 → 0 … 3 · mean")
    assert numbers(sentence(page)) == pytest.approx([map.weights[8:12, :4].mean()], abs=6e-5)
    page.get_by_role("slider").fill("200")
    rows = [line.split("\t") for line in page.locator(".detail .top table").inner_text().split("\n")[2:]]
    assert [int(key) for key, _ in rows] == list(np.argsort(-map.weights[200], kind="stable")[:8])
    assert [float(x) for _, x in rows] == pytest.approx(np.sort(map.weights[200])[::-1][:8], abs=6e-5)


def test_twelve_by_twelve_heads_of_64_tokens_open(show, record_property):
    shown = inspection(12, 12, 64)
    started = time.perf_counter()
    page = show(shown)
    assert heads(page).count() == 144
    opened = time.perf_counter()
    heads(page).nth(100).click()
    assert focused(page) == as_stored(shown.maps[100]).sentence(0, 0)
    print(f"12 × 12 × 64: {opened - started:.2f} s to all heads, {time.perf_counter() - opened:.2f} s to one of them")


@pytest.mark.parametrize(("width", "colours"), [(390, "light"), (1280, "dark")])
def test_nothing_is_wider_than_the_window_even_at_twice_the_text(show, cities, width, colours):
    page = show(
        cities, inspection(3, 12, 13, title="x" * 80), compare(cities, cities), width=width, height=844, colours=colours
    )
    page.locator("#part-0 .overview [role=gridcell]").nth(1).click()
    page.locator("#part-1 .overview [role=gridcell]").nth(1).click()
    for size in ("100%", "200%"):
        page.evaluate("size => { document.documentElement.style.fontSize = size; }", size)
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_print_and_forced_colours_keep_the_maps(show, cities):
    page = show(cities, forced_colors="active")
    heads(page).nth(0).click()
    assert page.locator(".detail .map canvas").evaluate("e => getComputedStyle(e).forcedColorAdjust") == "none"
    page.emulate_media(media="print")
    assert page.locator(".detail .map canvas").is_visible()
    assert not page.locator(".controls").is_visible()
    assert page.locator(".detail .map").evaluate("e => getComputedStyle(e).overflowX") == "visible"


# Weights where none may be.


@pytest.fixture
def leaks():
    """A decoder whose first row puts 0.25 on each of the two keys after it, and which has a padded key with 0.3."""
    P = np.array([[[0.2, 0.3, 0.25, 0.25], [0.1, 0.3, 0.0, 0.6], [0.4, 0.3, 0.3, 0], [0.1, 0.3, 0.2, 0.4]]])
    return inspect_arrays(P[None], list("abcd"), kind="decoder", keep=np.array([True, False, True, True]))


def test_leaks_are_in_the_table_in_the_copies_and_in_the_legend(show, leaks):
    page = show(leaks)
    top = page.locator(".detail .top tbody").inner_text().split("\n")
    assert top == ["b (hidden!)\t0.3000", "c (hidden!)\t0.2500", "d (hidden!)\t0.2500", "a\t0.2000"]
    page.get_by_role("button", name="show as a table").click()
    rows = page.locator(".detail > div:last-child tbody tr")
    assert rows.nth(0).inner_text() == "a\t0.2000\t0.3000 (hidden!)\t0.2500 (hidden!)\t0.2500 (hidden!)"
    assert rows.nth(2).inner_text() == "c\t0.4000\t0.3000 (hidden!)\t0.3000\t–"
    assert "a → b (hidden!) 0.3000, c (hidden!) 0.2500, d (hidden!) 0.2500, a 0.2000\n" in copied(page, "text")
    assert [row[:2] for row in csv.reader(io.StringIO(copied(page, "CSV")))][1:5] == [["a", key] for key in "abcd"]
    assert json.loads(copied(page, "JSON"))["weight"][2] == pytest.approx([0.4, 0.3, 0.3, None], abs=1e-5)
    assert "a small square: weight where none may be" in page.locator(".detail .legend").inner_text()


def test_a_leak_is_drawn_on_the_grey_of_padding_as_well(show, leaks):
    page = show(leaks)
    middle, edge, seen = page.locator(".detail .map canvas").evaluate(
        "c => [[1.5, 3.5], [1.1, 3.1], [2.5, 3.5]].map(([k, q]) => "
        "[...c.getContext('2d').getImageData(k * c.width / 4, q * c.height / 4, 1, 1).data])"
    )
    assert sum(abs(a - b) for a, b in zip(middle, edge, strict=True)) > 100  # the grey is no colour of a weight
    assert 5 < sum(abs(a - b) for a, b in zip(middle, seen, strict=True)) < 100  # 0.3 and 0.2 on one scale


def test_no_legend_of_leaks_where_there_are_none(show):
    given = inspection(1, 1, 5, gradient=True)  # ∂L/∂P of hidden pairs is no weight
    page = show(given)
    page.get_by_role("radio", name="∂L/∂P", exact=True).check()
    assert "small square" not in page.locator(".detail .legend").inner_text()
    assert "hidden!" not in page.locator(".detail").inner_text()
    page.get_by_role("button", name="show as a table").click()
    assert page.locator(".detail > div:last-child tbody tr").nth(0).inner_text().endswith("–\t–\t–\t–")


def test_a_reduced_head_tells_its_leaks(show, monkeypatch):
    monkeypatch.setattr(maps, "LIMIT", 150_000)
    P = np.stack([map.weights for map in inspection(2, 3, 101).maps]) / 2
    P[:, np.arange(101), 100 * (np.arange(101) < 50)] += 0.5
    shown = inspect_arrays(P.reshape(2, 3, 101, 101), kind="decoder")
    page = show(shown, scripts=True)
    at = page.evaluate("JSON.parse(document.getElementById('data-0').textContent).heads.findIndex(h => h.pooled)")
    assert "pooled" in heads(page).nth(at).inner_text()
    heads(page).nth(at).click()
    assert "largest weights are exact." in page.locator(".detail .reduced").inner_text()
    page.get_by_role("slider").fill("3")
    assert "100 (hidden!)\t0.5000" in page.locator(".detail .top").inner_text()
    assert "of 4 that it may see" in page.locator(".detail .top").inner_text()
    assert re.search(r"\n3 → .*100 \(hidden!\) 0\.5000", copied(page, "text"))
    page.get_by_role("button", name="show as a table").click()
    assert "100 (hidden!) 0.5000" in page.locator(".detail > div:last-child tbody tr").nth(3).inner_text()
    cell(page).focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("End")
    assert re.search(r"hidden: after the query, mean 0\.5000 where there is weight all the same", sentence(page))
    assert "small square" in page.locator(".detail .legend").inner_text()


def test_a_reduced_head_says_that_its_gradient_is_lost(show, monkeypatch):
    monkeypatch.setattr(maps, "LIMIT", 280_000)
    page = show(inspection(2, 3, 61, gradient=True))
    assert "∂L/∂P of the others is not here." in page.locator(".reduced").first.inner_text()
    heads(page).filter(has_text="pooled").first.click()
    assert "Its ∂L/∂P is not here." in page.locator(".detail .reduced").inner_text()
    assert page.get_by_role("radio").count() == 0


# What is sorted, and by what.


def test_a_head_without_a_metric_comes_last_both_ways(show):
    keep = np.ones((1, 3, 5, 5), bool)
    keep[0, 1] = np.eye(5)  # one visible key: nothing to choose, and so no sink
    shown = inspection(1, 3, 5, kind="encoder", keep=keep)
    assert [shown.metrics(map)["sink"] is None for map in shown.maps] == [False, True, False]
    page = show(shown)
    page.get_by_label("sort by").select_option("sink")
    for order in ("down", "up"):
        page.get_by_label("order").select_option(order)
        assert heads(page).nth(2).inner_text().startswith("layer 0 head 1\nsink –")


def test_at_least_and_at_most_have_the_number_itself(show, cities):
    page = show(cities)
    values = sorted(cities.metrics(map)["confidence"] for map in cities.of_kind("encoder"))
    page.get_by_label("only where").select_option("confidence")
    page.get_by_label("number", exact=True).fill(repr(values[2]))
    assert heads(page).count() == 4
    page.get_by_role("combobox", name="is", exact=True).select_option("most")
    assert heads(page).count() == 3


def test_the_top_keys_follow_the_choice_and_the_size_of_either_sign(show):
    P = np.array([[[[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.3, 0.3, 0.4]]]])
    G = np.array([[[[0.1, -3.0, 2.0], [1, 2, 3], [3, 2, 1]]]])
    page = show(inspect_arrays(P, list("abc"), kind="encoder", gradient=G))
    for name, order in (("weight", "abc"), ("∂L/∂P", "bca"), ("P·∂L/∂P", "bca")):
        page.get_by_role("radio", name=name, exact=True).check()
        assert "".join(page.locator(".detail .top tbody th").all_inner_texts()) == order


def test_a_gradient_of_any_size_has_four_digits(show):
    P = np.full((1, 1, 2, 2), 0.5)
    for size, text in ((1e-50, "+1.234e−50"), (1e20, "+1.234e20"), (1, "+1.2340")):
        page = show(inspect_arrays(P, kind="encoder", gradient=size * np.array([[[[1.234, -0.5], [0.25, 0]]]])))
        page.get_by_role("radio", name="∂L/∂P", exact=True).check()
        assert page.locator(".detail .top tbody tr").nth(0).inner_text() == f"0\t0.5000\t{text}\t" + (
            "+6.170e" + text.split("e")[1].replace("50", "51").replace("20", "19") if "e" in text else "+0.6170"
        )
        assert text in page.locator(".detail .ticks").inner_text()


def test_what_changed_most_is_of_either_sign_and_the_metrics_are_b_minus_a(show):
    A = np.array([[[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.3, 0.3, 0.4]]]])
    B = np.array([[[[0.5, 0.1, 0.4], [0.2, 0.3, 0.5], [0.3, 0.3, 0.4]]]])
    runs = [inspect_arrays(P, list("abc"), kind="encoder") for P in (A, B)]
    page = show(compare(*runs))
    assert "".join(page.locator(".detail .top tbody th").all_inner_texts()) == "cba"
    assert page.locator(".detail .top tbody tr").nth(1).inner_text() == "b\t0.3000\t0.1000\t−0.2000"
    of_a, of_b = (run.metrics(run.maps[0])["confidence"] for run in runs)
    row = page.locator(".detail .even tbody tr").filter(has_text="confidence").inner_text()
    assert numbers(row) == pytest.approx([of_a, of_b, of_b - of_a], abs=6e-5)
    assert of_b < of_a and "−" in row


def test_a_comparison_tells_leaks(show, leaks):
    other = inspect_arrays(np.eye(4)[None, None], list("abcd"), kind="decoder")
    page = show(compare(other, leaks))
    assert "c (hidden!)\t0.0000\t0.2500\t+0.2500" in page.locator(".detail .top").inner_text()
    assert "a → c (hidden!): A 0.0000, B 0.2500, B − A +0.2500" in copied(page, "text")
    page.get_by_role("button", name="show as a table").click()
    assert "c (hidden!)" in page.locator(".detail > div:last-child tbody").inner_text()


# What stands where.


def test_the_pinned_pair_keeps_its_mark(show, cities):
    page = show(cities)
    heads(page).nth(0).click()
    mark = page.locator(".detail .mark")
    assert not mark.is_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    before = mark.bounding_box()
    assert before == cell(page).bounding_box()
    page.keyboard.press("ArrowDown")
    assert mark.bounding_box() == before != cell(page).bounding_box()
    page.keyboard.press("Escape")
    assert not mark.is_visible()


def test_no_findings_are_said(show, cities):
    said = "No findings: no head and no layer has numbers that call for a look."
    calm = inspection(1, 2, 5)
    assert not calm.diagnose()
    assert said in show(calm).locator("#part-0").inner_text()
    assert said in show(calm, scripts=False).locator("#part-0").inner_text()
    assert said not in show(inspect_arrays(np.full((1, 1, 5, 5), 0.2), kind="encoder")).locator("#part-0").inner_text()


def test_the_map_has_the_row_for_itself_at_twice_the_text(show):
    page = show(inspection(1, 2, 14, tokens=SOURCE))
    heads(page).nth(0).click()
    for size, beside in (("100%", True), ("200%", False)):
        page.evaluate("size => { document.documentElement.style.fontSize = size; }", size)
        figure, right = (page.locator(f".detail .columns > {place}").bounding_box() for place in (".figure", ".right"))
        assert (figure["x"] + figure["width"] <= right["x"]) == beside
        assert (figure["y"] + figure["height"] <= right["y"]) != beside
    top, metrics = (page.locator(".detail .right table").nth(i).bounding_box() for i in (0, 1))
    assert metrics["y"] - top["y"] - top["height"] < 60  # no gap under the one key of the first row


def test_without_scripts_no_table_is_cut(show, cities):
    page = show(cities, scripts=False)
    assert page.locator("#part-0 .wide").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_chinese_names_are_whole(show, cities):
    for width in (1280, 390):
        page = show(compare(cities, cities), width=width, height=844)
        for names in (".row-names", ".column-names"):
            for name in page.locator(f".detail {names} bdi").all()[:14]:
                assert name.evaluate("e => e.scrollWidth <= e.clientWidth + 1 && e.scrollHeight <= e.clientHeight + 1")


def test_runs_that_may_see_other_keys_are_compared_without_ranks(show):
    open_mask = inspect_arrays(np.full((1, 1, 3, 3), 1 / 3), list("abc"), kind="encoder")
    P = np.tril(np.ones((1, 1, 3, 3))) / np.arange(1, 4)[:, None]
    causal = inspect_arrays(P, list("abc"), kind="encoder", keep=np.tri(3, dtype=bool))
    page = show(compare(open_mask, causal))
    assert page.locator(".sentence").inner_text() == "layer 0 head 0 · a → a = 0.3333 in A; 1.0000 in B; B − A = +0.6667"
