"""The fixture `open_page` itself: it lets a good page pass, and would fail for each of these."""

import pytest

FRAME = "<iframe sandbox='allow-scripts' srcdoc='<p>within</p><script>{}</script>'></iframe>"
NO_SCRIPT = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'


@pytest.fixture
def write(tmp_path):
    def written(html):
        path = tmp_path / "page.html"
        path.write_text(f"<!doctype html><title>春</title>{html}", encoding="utf-8")
        return path

    return written


def test_a_page_and_a_frame_in_it(open_page, write):
    page = open_page(write("<p>here</p>" + FRAME.format("document.querySelector(`p`).append(`, run`)")))
    assert page.inner_text("p") == "here"
    assert page.frame_locator("iframe").locator("p").inner_text() == "within, run"


@pytest.mark.parametrize(
    ("html", "complaint"),
    [
        ("<script>console.error('bad')</script>", "console: bad"),
        ("<script>throw new Error('thrown')</script>", "error: thrown"),
        ("<script>Promise.reject(new Error('refused'))</script>", "error: refused"),
        (FRAME.format("throw new Error(`in the frame`)"), "error: in the frame"),
        (f"{NO_SCRIPT}<script>0</script>", "Content Security Policy"),
        ("<img src='http://example.com/a.png'>", "request for http://example.com/a.png"),
        ("<img src='beside.png'>", "beside.png"),
    ],
)
def test_what_is_wrong_with_a_page_is_seen(watched, write, html, complaint):
    open_file, close = watched
    open_file(write(html))
    assert complaint in "\n".join(close())
