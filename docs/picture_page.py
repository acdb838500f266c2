"""Draws docs/attention.png: the page of `python -m demos cities`, opened at a head that the damage has changed.

python docs/picture_page.py PAGE    a page that the demo wrote; needs the extra `browser`, and a Chromium
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT, MARGIN = 1180, 700, 16
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def main(page: str) -> None:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        view.goto(Path(page).resolve().as_uri())
        section = view.locator("section", has=view.get_by_role("heading", name="trained (A) and no positions (B)"))
        top = section.locator(".detail").bounding_box()
        bottom = section.locator(".legends").bounding_box()
        clip = {
            "x": top["x"] - MARGIN,
            "y": top["y"],
            "width": top["width"] + 2 * MARGIN,
            "height": bottom["y"] + bottom["height"] + MARGIN - top["y"],
        }
        view.screenshot(path=ROOT / "docs" / "attention.png", full_page=True, clip=clip)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
