"""What a notebook is given: a view that runs in a frame of its own, and what stays where a viewer takes frames out."""

import re

import numpy as np
import pytest

from npformer.inspection import compare, inspect_arrays
from npformer.inspection.notebook import mimebundle
from npformer.inspection.page import part_of
from npformer.inspection.page.line_chart import LineChart

TOKENS = ["我", "</script>", "北京", '"', "春天"]


def inspection(seed, title="attention"):
    rng = np.random.default_rng(seed)
    return inspect_arrays(rng.dirichlet(np.ones(5), (2, 3, 5)), TOKENS, TOKENS, kind="encoder", title=title)


CHART = LineChart("Loss & more", {"run A": ([0, 10, 20], [3.0, 2.0, 1.5])})
VIEWS = {
    "heads": inspection(1),
    "comparison": compare(inspection(1, "good"), inspection(2, "bad")),
    "line_chart": CHART,
}


@pytest.fixture
def notebook(open_page, tmp_path):
    """A page that shows outputs one after the other, with styles and scripts of its own, as a notebook has."""

    def opened(*outputs, **options):
        path = tmp_path / "notebook.html"
        around = "<!doctype html><meta charset='utf-8'><title>notebook</title><style>table { color: red }</style>"
        path.write_text(around + "\n".join(f"<div class='output'>{output}</div>" for output in outputs), encoding="utf-8")
        return open_page(path, width=1000, **options)

    return opened


@pytest.mark.parametrize("thing", VIEWS.values(), ids=VIEWS)
def test_the_bundle(thing):
    bundle = mimebundle(thing)
    assert set(bundle) == {"text/plain", "text/html"}
    frame, still = bundle["text/html"].split("</iframe>")
    assert frame.startswith("<iframe srcdoc=") and frame.count("<") == 1
    assert 'sandbox="allow-scripts"' in frame and ' src="' not in frame
    assert "<script" not in still and part_of(thing).static in still
    assert bundle == mimebundle(thing) == thing._repr_mimebundle_()


def test_the_text_is_that_of_the_terminal():
    assert "layer 0 head 0" in mimebundle(VIEWS["heads"])["text/plain"]
    assert "\x1b" not in mimebundle(VIEWS["heads"])["text/plain"]
    assert mimebundle(CHART)["text/plain"] == str(CHART)
    answer = VIEWS["heads"].who_attends("春天", "北京")
    assert mimebundle(answer)["text/plain"] == str(answer)


def test_what_needs_no_script_has_no_frame():
    answer = VIEWS["heads"].who_attends("春天", "北京")
    assert mimebundle(answer)["text/html"] == part_of(answer).static
    assert mimebundle("Words <b>.") == {"text/plain": "Words <b>.", "text/html": "<p>Words &lt;b&gt;.</p>\n"}
    assert mimebundle([])["text/html"] == part_of([]).static


@pytest.mark.parametrize("name", VIEWS)
def test_the_view_runs_in_its_frame(notebook, name):
    page = notebook(mimebundle(VIEWS[name])["text/html"])
    frame = page.frame_locator("iframe")
    frame.locator("button").first.wait_for()
    assert not page.locator("details table").first.is_visible()
    box = page.locator("iframe").bounding_box()
    assert box["width"] > 900 and box["height"] > 600
    frame_itself = page.frames[1]
    assert frame_itself.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert frame_itself.evaluate("origin") == "null"  # it cannot reach the notebook


def test_two_outputs_do_not_disturb_one_another(notebook):
    page = notebook(mimebundle(CHART)["text/html"], mimebundle(CHART)["text/html"])
    one, two = (page.locator("iframe").nth(i).content_frame for i in range(2))
    two.locator(".chart").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert two.locator(".chart-reading").all_inner_texts() == [
        "run A · step 20 · loss 1.5000",
        "pinned: run A · step 20 · loss 1.5000",
    ]
    assert one.locator(".chart-reading").nth(1).inner_text() == ""
    assert page.evaluate("document.styleSheets.length") == 1  # the notebook's own


def test_a_frame_can_copy(notebook):
    page = notebook(mimebundle(CHART)["text/html"])
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="copy as CSV").click()
    frame.get_by_text("copied as CSV").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "line,step,loss\nrun A,0,3\nrun A,10,2\nrun A,20,1.5\n"


@pytest.mark.parametrize("frames", [True, False])
def test_without_scripts_tables_and_pictures_stay(notebook, frames):
    outputs = [mimebundle(thing)["text/html"] for thing in VIEWS.values()]
    if not frames:
        outputs = [re.sub("<iframe.*</iframe>", "", output, flags=re.DOTALL) for output in outputs]
    page = notebook(*outputs, scripts=False)
    if frames:
        picture = page.locator("iframe").nth(2).content_frame.locator(".chart-wide")
        assert picture.get_by_text("run A").is_visible()
    for i in range(3):
        output = page.locator(".output").nth(i)
        assert not output.locator("table").first.is_visible()
        output.locator("summary").click()
        assert output.locator("table").first.is_visible()
    assert page.locator(".output").nth(0).get_by_role("row", name=re.compile("encoder layer 1 head 2")).is_visible()
    chart = page.locator(".output").nth(2)
    assert [svg.is_visible() for svg in chart.locator("details svg").all()] == [True, False]  # the narrow one is for pages
