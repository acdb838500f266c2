"""A page in a real, headless Chromium that reaches no network: what the views' tests look at.

CHROMIUM names the program; without it, it is looked for on PATH, and then where `playwright install chromium` puts it. Where
there is none the tests that need one are skipped; with NPFORMER_BROWSER=required they fail.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND"  # for what the browser asks of its own accord
TIMEOUT = 20_000  # ms, for one action, on a machine that others use


def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


def pytest_terminal_summary(terminalreporter):
    skipped = [report.longrepr[2] for report in terminalreporter.getreports("skipped") if "browser" in report.keywords]
    for reason in sorted(set(skipped)):
        terminalreporter.write_line(f"{skipped.count(reason)} tests skipped: {reason.removeprefix('Skipped: ')}")


@pytest.fixture(scope="session")
def browser():
    def none(reason: str):
        if os.environ.get("NPFORMER_BROWSER") == "required":
            pytest.fail(f"NPFORMER_BROWSER=required: {reason}", pytrace=False)
        pytest.skip(reason)

    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        none("no playwright, so no view was opened in a browser: pip install -e '.[browser]'")
    with sync_playwright() as playwright:
        named = os.environ.get("CHROMIUM")
        if named and not shutil.which(named):
            pytest.fail(f"CHROMIUM is no program: {named!r}", pytrace=False)
        found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
        found = found or shutil.which(playwright.chromium.executable_path)
        if not found:
            none("no Chromium, so no view was opened in a browser: install it, or name it in CHROMIUM")
        try:
            chromium = playwright.chromium.launch(executable_path=found, args=[*QUIET, NO_NETWORK])
        except Error as error:
            none(f"{found} does not start: {error.message.splitlines()[0]}")
        yield chromium
        chromium.close()


@pytest.fixture
def watched(browser):
    """`open_page` below, and the function that closes its pages and returns what was wrong with them."""
    contexts, wrong = [], []

    def open_file(path, *, width=1280, height=800, scripts=True, colours="light", **options):
        own = Path(path).resolve().as_uri()
        context = browser.new_context(
            viewport={"width": width, "height": height},
            java_script_enabled=scripts,
            color_scheme=colours,
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        context.set_default_timeout(TIMEOUT)
        context.route(re.compile("^(?!file:)"), lambda route: route.abort())
        context.on("request", lambda asked: asked.url == own or wrong.append(f"request for {asked.url[:200]}"))
        context.on("console", lambda said: said.type == "error" and wrong.append(f"console: {said.text}"))
        context.on("weberror", lambda thrown: wrong.append(f"error: {thrown.error}"))
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_offline(True)
        page = context.new_page()
        page.goto(own)
        return page

    def close():
        while contexts:
            context = contexts.pop()
            for frame in (frame for page in context.pages for frame in page.frames):
                frame.evaluate("0")  # what the frame has reported by now arrives before the answer
            context.close()
        return wrong

    yield open_file, close
    close()


@pytest.fixture
def open_page(watched):
    """Opens a file: `open_page(path, width=…, height=…, scripts=…, colours="light" | "dark")` and any other option of
    Playwright's new_context. At the end the test fails if the page had an error or asked for anything but its own file."""
    open_file, close = watched
    yield open_file
    wrong = close()
    assert not wrong, "\n".join(wrong)
