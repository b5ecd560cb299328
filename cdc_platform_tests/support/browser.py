"""A headless browser for tests of pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def open_browser() -> Iterator[Any]:
    """Yield Chromium, driven by playwright; skip the test where there is none, except in CI."""
    browsers = (shutil.which(name) for name in BROWSERS)
    browser = next((browser_path for browser_path in browsers if browser_path is not None), None)
    if browser is None and os.environ.get("CI") != "true":
        pytest.skip("Chromium was not found on the PATH: install the package `chromium`")
    assert browser is not None, "Chromium was not found on the PATH: install the package `chromium`"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, which containers often are, Chromium has no sandbox.
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield opened
        opened.close()
