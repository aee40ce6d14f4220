"""A report in Chromium as a reader sees it, and what it should not have done meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: apt install chromium")


def looked_at(browser: Any, path: Path, **how: Any) -> tuple[Any, list[str]]:
    """The report at `path` in a page of 1280 x 800 with all figures drawn; and its console errors, dialogs
    and requests to anywhere else, of which there should be none."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, **how)
    page.set_default_timeout(60_000)
    bad: list[str] = []
    address = path.resolve().as_uri()
    page.on("console", lambda message: bad.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: bad.append(str(error)))
    page.on("dialog", lambda dialog: (bad.append(dialog.message), dialog.dismiss()))
    page.on(
        "request",
        lambda one: None if one.url.startswith((address, "data:", "blob:")) else bad.append(one.url),
    )
    page.goto(address)
    for slot in page.locator(".plot").all():
        slot.scroll_into_view_if_needed()
        slot.locator(".main-svg").first.wait_for()
    page.evaluate("scrollTo(0, 0)")
    return page, bad
