"""What the demo's users see in the browser."""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform_tests.programs import Program, free_port, running_demo
from cdc_platform_tests.spark_fixtures import require_java

pytestmark = pytest.mark.integration

DEMO_OPTIONS: Final = ("--rate", "50", "--token-life", "10")
"""Slow enough for a busy machine to keep up with the bank."""
WITHIN_S: Final = 600.0
"""A busy machine is slow, not wrong."""
SHOWN_WITHIN_S: Final = 120.0
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
ASSETS: Final = (
    "raw_change_records",
    "partition_lineage",
    "change_log",
    "accounts",
    "transfers",
    "cut",
    "maintenance",
)
COLUMNS: Final = ("account_id", "owner", "balance", "opened_on", "labels", "primary key", "array<string>")


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """A page of a headless browser."""
    browsers = (shutil.which(name) for name in BROWSERS)
    browser = next((found for found in browsers if found is not None), None)
    if browser is None and os.environ.get("CI") != "true":
        pytest.skip("No Chromium was found on the PATH: install the package `chromium`")
    assert browser is not None, "No Chromium was found on the PATH: install the package `chromium`"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, which containers often are, Chromium has no sandbox.
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield opened.new_page(viewport={"width": 1600, "height": 1000})
        opened.close()


def text_of(page: Any, address: str, expected: tuple[str, ...], keys: str | None = None) -> str:
    """Open an address until the page shows all that is expected; return its text, complete or not."""
    give_up_at = time.monotonic() + SHOWN_WITHIN_S
    text = ""
    while time.monotonic() < give_up_at and not all(part in text for part in expected):
        page.goto(address, timeout=SHOWN_WITHIN_S * 1000, wait_until="domcontentloaded")
        page.wait_for_timeout(3000)
        if keys is not None:
            page.keyboard.press(keys)
            page.wait_for_timeout(2000)
        text = page.inner_text("body")
    return text


def address_of(demo: Program) -> str:
    """Return the address that the demo prints."""
    demo.wait_for("Dagster's UI: ", WITHIN_S)
    found = re.search(r"Dagster's UI: (http://\S+)", demo.said())
    assert found is not None
    return found[1]


def test_the_demo_in_the_browser(page: Any, tmp_path: Path) -> None:
    """While the demo runs, the UI shows the assets of both tables and a table's columns; Ctrl-C ends it."""
    require_java()
    with running_demo(tmp_path, *DEMO_OPTIONS, "--port", str(free_port())) as demo:
        address = address_of(demo)
        graph = text_of(page, f"{address}/asset-groups", ASSETS, keys="Alt+KeyE")
        assert [asset for asset in ASSETS if asset not in graph] == [], graph
        table = text_of(page, f"{address}/assets/bank/accounts", COLUMNS)
        assert [part for part in COLUMNS if part not in table] == [], table
        demo.process.send_signal(signal.SIGINT)
        assert demo.ends_with(WITHIN_S) == 0, demo.said()
