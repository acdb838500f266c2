"""Lines over steps: what is refused, what is drawn, and what a reader can ask of the picture in a browser."""

import csv
import dataclasses
import io
import json
import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.inspection.page import part_of, write_page
from npformer.inspection.page.axis import axis, nice, number
from npformer.inspection.page.line_chart import LineChart
from npformer.inspection.page.line_drawing import COLOURS, DASHES, MANY, ROW, WIDE, spread, thinned

STEPS = [0, 100, 200, 350]
HOSTILE = ["</script><b>", "a\"b'c&", "\u202eשלום", "👩‍👩‍👧", "\0\x1b[31m", "\ud800", "春天 的 损失 " * 9, ""]


def loss_of_two(**options):
    return LineChart("Loss", {"run A": (STEPS, [4.5, 3.25, 2.524, 2.5]), "run B": (STEPS[:3], [4.4, 3.5, 3.125])}, **options)


def elements(svg):
    return list(ElementTree.fromstring(svg).iter())


def texts(svg):
    return [element.text for element in elements(svg) if element.tag.endswith("text")]


def curves(svg):
    """The `d` of each line; as many samples for the labels follow."""
    paths = [element.get("d") for element in elements(svg) if element.get("class", "").startswith("chart-line-")]
    return paths[: len(paths) // 2]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ({}, "at least one line"),
        ([("run A", (STEPS, STEPS))], "at least one line by its name"),
        ({"run A": STEPS}, "line 'run A' must be a pair"),
        ({"run A": ([1, 2, 3], [1, 2])}, "line 'run A' has 3 x but 2 y"),
        ({"run B": ([], [])}, "line 'run B' has no points"),
        ({"run A": ([1, 2], [1, 2]), "run B": ([1, 2], [math.nan, math.inf])}, "line 'run B' has no finite y, so"),
        ({"run A": ([1, math.nan], [1, 2])}, "line 'run A' has an x that is no finite number, at point 1"),
        ({"run A": ([1, 5, 3], [1, 2, 3])}, "line 'run A' goes back from x = 5 to 3, at point 2"),
        ({"run A": ([1, 2], ["a", "b"])}, "the y of line 'run A' must be numbers along one axis, got list"),
        ({"run A": ([1, 2], [1, 2j])}, "the y of line 'run A'"),
        ({"run A": ([[1], [2, 3]], [1, 2])}, "the x of line 'run A'"),
        ({"run A": (np.ones((2, 2)), [1, 2])}, "the x of line 'run A' must be numbers along one axis, got float64"),
    ],
)
def test_what_is_refused(lines, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        LineChart("Loss", lines)


def test_a_logarithmic_axis_wants_numbers_above_0():
    with pytest.raises(ValueError, match="line 'norm' has no finite y above 0"):
        LineChart("Norm", {"norm": ([1, 2], [0, -1])}, log=True)


def test_names_are_strings():
    with pytest.raises(TypeError, match="the names of lines must be str, got 3"):
        LineChart("Loss", {3: (STEPS, STEPS)})


def test_a_chart_does_not_change():
    y = np.array([3.0, 2.0])
    chart = LineChart("Loss", {"run A": ([1, 2], y)})
    before = chart.svg()
    y[0] = 77
    assert chart.svg() == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        chart.title = "other"


def test_the_picture_says_its_numbers():
    said = texts(loss_of_two(x="updates", y="nats").svg())
    assert {"Loss", "updates", "nats", "2.5000\u2002run A", "3.1250\u2002run B"} <= set(said)
    assert {"0", "100", "200", "300"} <= set(said)  # along x
    assert {"2.5", "3.0", "3.5", "4.0", "4.5"} <= set(said)


def test_points_stand_where_the_axes_have_them():
    svg = LineChart("", {"run": ([0, 100], [1.0, 3.0])}).svg()
    (d,) = curves(svg)
    (x0, y0), (x1, y1) = [tuple(map(float, point.split())) for point in d[1:].split("L")]
    level, ticks = {}, {}
    for e in elements(svg):
        if e.tag.endswith("text") and e.get("text-anchor") == "end" and e.text != "step":
            level[e.text] = float(e.get("y")) - 4
        if e.tag.endswith("text") and e.get("text-anchor") == "middle":
            ticks[e.text] = float(e.get("x"))
    assert (y0, y1) == (pytest.approx(level["1.0"], abs=0.11), pytest.approx(level["3.0"], abs=0.11))
    assert (x0, x1) == (pytest.approx(ticks["0"], abs=0.11), pytest.approx(ticks["100"], abs=0.11))


def test_gaps_break_the_line_and_are_said():
    y = [3.0, math.nan, 2.0, 1.5, math.inf, -math.inf, 1.25, 1.0, math.nan]
    chart = LineChart("Loss", {"good": ([0, 8], [2, 1]), "bad": (range(10, 19), y)})
    whole, broken = curves(chart.svg())
    assert whole.count("M") == 1
    assert [piece.count("L") for piece in broken.split("M")[1:]] == [0, 1, 1]
    assert broken.split("M")[1].endswith("h0")  # a point alone is a dot
    note = "bad: 4 of 9 points are not finite and left out, the first at step 11."
    assert chart.notes() == [note]
    assert note in texts(chart.svg())
    assert note in part_of(chart).static
    assert note in str(chart)


def test_on_a_logarithmic_axis_equal_factors_are_equal_steps():
    chart = LineChart("Norm", {"norm": ([0, 1, 2, 3, 4], [0.01, 0.1, 0, 10, 100])}, log=True)
    assert chart.notes() == ["norm: 1 of 5 points are not finite or not above 0 and left out, the first at step 2."]
    assert {"0.01", "0.1", "1", "10", "100"} <= set(texts(chart.svg()))
    heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", curves(chart.svg())[0])]
    assert heights[0] - heights[1] == pytest.approx(heights[2] - heights[3], abs=0.21)
    assert heights[1] - heights[2] == pytest.approx(2 * (heights[0] - heights[1]), abs=0.21)


FLOATS = st.floats(width=64) | st.sampled_from([0.0, -0.0, 5e-324, 1.8e308, 1.0, 1 + 1e-15, 1e250, -1e250, 1e-250])


@given(st.lists(FLOATS, min_size=1, max_size=13), st.integers(1, 7), st.booleans())
def test_any_numbers_can_be_drawn(y, apart, log):
    y = [*y, 1.0]
    svg = LineChart("Loss", {"a": (np.arange(len(y)) // apart, y), "b": ([0], [2.0])}, log=log).svg()
    width, height = WIDE, float(ElementTree.fromstring(svg).get("height"))
    for d in curves(svg):
        for x, level in re.findall(r"([^ MLh]+) ([^ MLh]+)", d):
            assert 0 <= float(x) <= width
            assert 0 <= float(level) <= height


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_can_be_written(name):
    chart = LineChart(name, {name: (STEPS, STEPS), name + "₂": (STEPS, STEPS)}, x=name, y=name)
    for text in (chart.svg(), part_of(chart).static, str(chart)):
        text.encode()
        assert text == str(chart) or "<b>" not in text
        assert not {"\0", "\x1b"} & set(text)
    assert len(curves(chart.svg())) == 2


def test_lines_differ_without_colour():
    n = len(COLOURS) * len(DASHES)
    svg = LineChart("Loss", {str(i): (STEPS, STEPS) for i in range(n)}).svg()
    lines = [e for e in elements(svg) if e.get("class", "").startswith("chart-line-")][:n]
    assert len({line.get("stroke-dasharray") for line in lines[: len(DASHES)]}) == len(DASHES)
    assert len({(line.get("stroke-dasharray"), line.get("stroke")) for line in lines}) == n


def test_many_points_are_thinned_to_the_lowest_and_highest_of_each_column():
    rng = np.random.default_rng(3)
    x, y = np.sort(rng.uniform(20.0, 143.0, 4999)), rng.standard_normal(4999)
    kept = thinned(x, y)
    assert len(kept) <= 2 * 124 + 2
    assert (np.diff(kept) > 0).all()
    for column in range(20, 143):
        inside = np.floor(x) == column
        chosen = inside[kept]
        assert y[kept][chosen].min() == y[inside].min()
        assert y[kept][chosen].max() == y[inside].max()


def test_a_thinned_picture_is_small_and_says_so():
    n = 7919
    y = np.random.default_rng(5).standard_normal(n)
    chart = LineChart("Loss", {"run A": (np.arange(n), y)})
    assert len(chart.svg()) < 30_000
    assert "Of up to 7,919 points a line, the picture has the lowest and the highest" in part_of(chart).static
    assert part_of(chart).data["lines"][0]["y"] == y.tolist()  # the page has all of them
    assert "lowest" not in " ".join(part_of(LineChart("", {"a": (np.arange(MANY), y[:MANY])})).static.split("<table>")[:1])


def test_what_a_page_is_sent_of_very_many_points_has_the_lowest_and_highest_and_says_so():
    n = 99_991
    y = np.random.default_rng(5).standard_normal((5, n))
    y[2, 70_000:70_010] = np.nan
    x = np.arange(n) - 5e5
    part = part_of(LineChart("Loss", {str(i): (x, y[i]) for i in range(5)}))
    assert len(json.dumps(part.data)) < 1_000_000
    assert "of each 2,000th of a line the lowest and the highest as well" in part.static
    for line, own in zip(part.data["lines"], y, strict=True):
        assert len(line["x"]) == len(line["y"]) <= 4002
        assert (line["x"][0], line["x"][-1]) == (x[0], x[-1])
        column = np.floor((x - x[0]) / (n - 1) * 2000)
        for inside in (own[column == 0], own[column == 777], own[column == 1998]):
            assert {inside.min(), inside.max()} <= set(line["y"])
    few = part_of(LineChart("Loss", {"a": (x[:20_000], y[0, :20_000])}))
    assert few.data["lines"][0]["y"] == y[0, :20_000].tolist()
    assert "what is read, copied and listed has all of them" in few.static
    assert part_of(LineChart("Loss", {"a": (np.zeros(20_001), np.arange(20_001))})).data["lines"][0]["y"] == [0, 20_000]


def test_lines_with_names_that_look_the_same_have_numbers():
    long = "a run that has a very long name, "
    names = ["a b", "a  b", "a\nb", long + "1", long + "2"]
    chart = LineChart("Loss", {name: ([0, 1], [2.0 + i, 1.0 + i]) for i, name in enumerate(names)})
    expected = ["a b", "a b 2", "a b 3", long + "1", long + "2"]
    assert [name for name, *_ in chart.points()] == expected
    assert [line["name"] for line in part_of(chart).data["lines"]] == expected
    labels = [text.split("\u2002")[1] for text in texts(chart.svg()) if "\u2002" in text]
    assert labels[::-1] == ["a b", "a b 2", "a b 3", "a run that has a very l…", "a run that has a very …2"]


def test_a_thinned_line_still_has_its_gaps():
    y = np.sin(np.arange(5000) / 300)
    y[2000:2500] = np.nan
    (d,) = curves(LineChart("", {"a": (np.arange(5000), y)}).svg())
    assert d.count("M") == 2


@given(st.lists(st.floats(20, 320), min_size=1, max_size=17))
def test_labels_do_not_cover_one_another(heights):
    placed = spread(sorted(heights), 20, 320)
    assert all(b - a >= ROW - 1e-9 for a, b in pairwise(placed))
    assert 20 - 1e-9 <= placed[0] and placed[-1] <= 320


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e9))
def test_ticks_are_few_round_and_right(low, span):
    if span < 1e-7 * abs(low):
        span = 1e-7 * abs(low)
    ticks = nice(low, low + span)
    assert 3 <= len(ticks) <= 8
    step = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-6), 3) in (1, 2, 5)
    values = axis(np.array([low, low + span]), room=0.0).ticks
    assert [float(text.replace("−", "-")) for _, text in values] == pytest.approx([tick for tick, _ in values])
    assert len({text for _, text in values}) == len(values)


NUMBERS = {
    0.0: "0",
    3.0: "3",
    -17.0: "−17",
    2.5239999: "2.5240",
    -0.125: "−0.1250",
    0.0999: "9.990e−2",
    6e-4: "6.000e−4",
    -1.5e-12: "−1.500e−12",
    123456.789: "123456.7890",
    4.2e10: "4.200e10",
    1e250: "1.000e250",
    2.0**-1074: "4.941e−324",
}


def test_numbers_as_they_are_written():
    assert {value: number(value) for value in NUMBERS} == NUMBERS
    assert number(-0.0) == "0"


def test_the_text_has_what_the_table_has():
    first, line, *_ = str(loss_of_two()).splitlines()
    assert first == "Loss"
    start = "run A: 4 points, loss first 4.5000 at step 0, last 2.5000 at step 350"
    assert line == f"{start}, lowest 2.5000 at step 350, highest 4.5000 at step 0"
    for cell in ("4.5000 at step 0", "2.5000 at step 350", "3.1250 at step 200"):
        assert cell in part_of(loss_of_two()).static


def test_a_part_needs_no_style_and_no_script_and_loses_no_digit():
    y = [0.1 + 0.2, 1e-17, math.nan, -math.inf, 2.0**60, 3.0]
    part = part_of(LineChart("Loss", {"a": ([0.5, 1, 2, 3, 4, 5], y)}))
    assert not re.search("style=|<script|<style|http", part.static)
    kept = json.loads(json.dumps(part.data, allow_nan=False))["lines"][0]
    assert kept["y"] == [0.1 + 0.2, 1e-17, None, None, 2.0**60, 3]
    assert kept["x"] == [0.5, 1, 2, 3, 4, 5]


# In a browser.


@pytest.fixture
def show(open_page, tmp_path):
    def shown(*parts, **options):
        return open_page(write_page(tmp_path / "page.html", "Training", parts), **options)

    return shown


def reading(page, which=0):
    return page.locator(".chart-reading").nth(which).inner_text()


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def test_by_keys_alone(show):
    page = show(loss_of_two())
    while page.evaluate("document.activeElement.getAttribute('role')") != "slider":
        press(page, "Tab")
    assert reading(page) == "run B · step 0 · loss 4.4000"  # the line whose label stands highest
    press(page, "ArrowDown", "ArrowRight", "ArrowRight")
    assert reading(page) == "run A · step 200 · loss 2.5240"
    assert page.locator(".chart").get_attribute("aria-valuetext") == "run A · step 200 · loss 2.5240"
    press(page, "Enter", "End")
    assert reading(page) == "run A · step 350 · loss 2.5000"
    assert reading(page, 1) == "pinned: run A · step 200 · loss 2.5240"
    press(page, "ArrowRight", "ArrowDown")  # no farther, and no line below
    assert reading(page) == "run A · step 350 · loss 2.5000"
    press(page, "ArrowUp")
    assert reading(page) == "run B · step 200 · loss 3.1250"  # the nearest step that it has
    press(page, "Home", "ArrowLeft")
    assert reading(page) == "run B · step 0 · loss 4.4000"
    press(page, "Escape")
    assert reading(page, 1) == ""


def test_page_up_and_down_go_a_tenth(show):
    page = show(LineChart("Loss", {"run A": (range(1000), np.linspace(5, 1, 1000))}))
    page.focus(".chart")
    press(page, "PageUp", "PageUp", "PageUp", "PageDown", "ArrowRight")
    assert reading(page).startswith("run A · step 201 ·")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_pointer_reads_what_is_under_it(show, width):
    chart = loss_of_two()
    page = show(chart, width=width)
    picture = page.locator(".chart-wide" if width > 800 else ".chart-narrow")
    assert [node.is_visible() for node in page.locator(".chart svg").all()] == [width > 800, width < 800]
    left, top, across, down = map(float, picture.get_attribute("data-frame").split())
    low, high = map(float, picture.get_attribute("data-y").split())
    box = picture.bounding_box()
    scale = box["width"] / float(picture.get_attribute("width"))
    for name, (xs, ys) in chart.lines.items():
        for x, y in zip(xs, ys, strict=True):
            at = left + x / 350 * across, top + (high - y) / (high - low) * down
            page.mouse.move(box["x"] + at[0] * scale + 2, box["y"] + at[1] * scale + 2)
            assert reading(page) == f"{name} · step {x:g} · loss {y:.4f}"
            mark = picture.locator("circle.chart-chosen")
            assert float(mark.get_attribute("cx")) == pytest.approx(at[0], abs=0.01)
            assert float(mark.get_attribute("cy")) == pytest.approx(at[1], abs=0.01)
    page.mouse.down()
    page.mouse.up()
    assert reading(page, 1) == "pinned: run B · step 200 · loss 3.1250"


def test_the_browser_writes_numbers_as_python_does(show):
    page = show(LineChart("Numbers", {"n": (range(len(NUMBERS)), list(NUMBERS))}))
    page.focus(".chart")
    for i, text in enumerate(NUMBERS.values()):
        assert reading(page) == f"n · step {i} · loss {text}"
        press(page, "ArrowRight")


def test_a_gap_is_read_as_one(show):
    page = show(LineChart("Loss", {"a": ([1, 2, 3], [3.0, math.nan, 2.0])}))
    page.focus(".chart")
    press(page, "ArrowRight")
    assert reading(page) == "a · step 2 · loss cannot be drawn"


def test_copies_and_the_table_have_every_point(show):
    rng = np.random.default_rng(11)
    x, y = np.arange(0, 7000, 7), rng.standard_normal(1000)
    y[500] = np.nan
    page = show(LineChart("Loss", {'a, "b"': (x, y), "春": ([1, 2], [0.1 + 0.2, 1e-17])}))

    def copied(name):
        page.get_by_role("button", name=f"copy as {name}").click()
        page.get_by_text(f"copied as {name}").wait_for()
        return page.evaluate("navigator.clipboard.readText()")

    head, *rows = csv.reader(io.StringIO(copied("CSV")))
    assert head == ["line", "step", "loss"]
    assert [row[0] for row in rows] == ['a, "b"'] * 1000 + ["春"] * 2
    assert [float(row[1]) for row in rows[:1000]] == x.tolist()
    assert rows[500][2] == ""
    np.testing.assert_array_equal([float(row[2] or "nan") for row in rows[:1000]], y)
    assert json.loads(copied("JSON"))["lines"][1] == {"name": "春", "x": [1, 2], "y": [0.1 + 0.2, 1e-17]}

    button = page.get_by_role("button", name="show as a table")
    button.click()
    table = page.locator("table").first
    assert table.locator("tbody tr").count() == 1002
    assert table.locator("tr").nth(2).inner_text().split("\t") == ['a, "b"', "7", number(y[1])]
    page.get_by_role("button", name="hide the table").click()
    assert page.locator("table").count() == 1


def test_a_line_break_in_csv_is_quoted(show):
    page = show(LineChart("Loss", {"a": ([1, 2], [3.0, 2.0])}, x="the\nstep", y="the\rloss"))
    page.get_by_role("button", name="copy as CSV").click()
    page.get_by_text("copied as CSV").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith('line,"the\nstep","the\rloss"\na,1,3\n')


def test_two_charts_do_not_disturb_one_another(show):
    page = show(loss_of_two(), "between", LineChart("Rate", {"rate": ([0, 1], [0.001, 0.0005])}, y="rate"))
    page.locator(".chart").nth(1).focus()
    press(page, "End", "Enter")
    assert reading(page).startswith("Point at a line")
    assert (reading(page, 1), reading(page, 3)) == ("", "pinned: rate · step 1 · rate 5.000e−4")
    assert page.locator(".chart").nth(0).locator("circle:visible").count() == 0


def test_without_scripts_the_picture_and_the_table_are_there(show):
    page = show(loss_of_two(), scripts=False, colours="dark")
    assert page.locator(".chart-wide").is_visible()
    assert page.locator(".chart-wide").get_by_text("run A").is_visible()
    assert not page.locator(".chart-narrow").is_visible()
    assert page.get_by_role("row", name=re.compile("run B 3 4.4000 at step 0")).is_visible()
    assert page.locator("button").count() == 0
    own = show(LineChart("Training", {"a": (STEPS, STEPS)}), scripts=False)
    assert own.locator("h1, h2").all_inner_texts() == ["Training"]


@pytest.mark.parametrize("end", [2000, 12_000_000])
def test_no_word_of_a_picture_is_cut(show, end):
    chart = LineChart("Loss", {"run A": ([0, end], [3.0, 2.0])}, x="updates")
    for width in (1280, 390):
        page = show(chart, width=width, height=844)
        assert page.locator(".chart svg:visible").evaluate(
            "s => { const b = s.getBoundingClientRect(); return [...s.querySelectorAll('text')].every(t => { "
            "const r = t.getBoundingClientRect(); return r.left >= b.left && r.right <= b.right + 0.5; }); }"
        )


def test_on_paper_there_is_nothing_to_press_and_a_chart_stays_with_its_heading(show):
    page = show(loss_of_two())
    page.emulate_media(media="print")
    assert page.locator("button:visible").count() == 0
    assert not page.get_by_text("Point at a line").is_visible()
    assert page.locator("h2").evaluate("e => getComputedStyle(e).breakAfter") == "avoid"
    assert page.locator(".chart").evaluate("e => getComputedStyle(e).breakInside") == "avoid"


def test_a_narrow_page_scrolls_down_alone(show):
    lines = {name: (STEPS, np.array([1, 2, 3, 4.0]) * 10.0 ** (7 * i - 9)) for i, name in enumerate(HOSTILE)}
    page = show(LineChart("长" * 60, lines, log=True), width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.focus(".chart")
    for _ in HOSTILE:
        press(page, "ArrowDown")
    assert page.locator(".chart-narrow text").filter(has_text="</script><b>").is_visible()


def test_a_page_of_its_own(open_page, tmp_path):
    path = loss_of_two().to_html(tmp_path / "loss.html")
    page = open_page(path)
    assert page.title() == "Loss"
    page.focus(".chart")
    assert reading(page) == "run B · step 0 · loss 4.4000"
