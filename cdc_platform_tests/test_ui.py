"""The demo's UI as its users see it in the browser."""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform_tests import programs
from cdc_platform_tests.java_options import INTERPRETED, SHORT_LIVED, VARIABLE
from cdc_platform_tests.programs import Program, free_port, running_demo
from cdc_platform_tests.spark_fixtures import require_java

pytestmark = [pytest.mark.integration, pytest.mark.long]

DEMO_OPTIONS: Final = ("--rate", "10", "--token-life", "60")
"""Little to do: what arrives, and that partitions churn, is shown by the demo without a UI."""
ENVIRONMENT: Final = {**programs.ENVIRONMENT, VARIABLE: f"{SHORT_LIVED} {INTERPRETED}"}
WITHIN_S: Final = 600.0
"""A busy machine is slow, not wrong."""
SHOWN_WITHIN_S: Final = 240.0
LOAD_AGAIN_S: Final = 20.0
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
ASSETS: Final = (
    "platform",
    "source",
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
    browser = next((browser_path for browser_path in browsers if browser_path is not None), None)
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
    text = ""
    for _ in range(int(SHOWN_WITHIN_S / LOAD_AGAIN_S)):
        page.goto(address, timeout=SHOWN_WITHIN_S * 1000, wait_until="domcontentloaded")
        load_again_at = time.monotonic() + LOAD_AGAIN_S
        while time.monotonic() < load_again_at:
            page.wait_for_timeout(1000)
            text = str(page.inner_text("body"))
            if all(part in text for part in expected):
                return text
            if keys is not None:
                page.keyboard.press(keys)
    return text


def address_of(demo: Program) -> str:
    """Return the address that the demo prints."""
    demo.wait_for("Dagster's UI: ", WITHIN_S)
    match = re.search(r"Dagster's UI: (http://\S+)", demo.said())
    assert match is not None
    return match[1]


def test_the_demo_in_the_browser(page: Any, tmp_path: Path) -> None:
    """While the demo runs, the UI shows the assets of both tables and a table's columns; Ctrl-C ends it."""
    require_java()
    options = (*DEMO_OPTIONS, "--port", str(free_port()))
    with running_demo(tmp_path, *options, environment=ENVIRONMENT) as demo:
        address = address_of(demo)
        graph = text_of(page, f"{address}/asset-groups", ASSETS, keys="Alt+KeyE")
        assert [asset for asset in ASSETS if asset not in graph] == [], graph
        # The first run is done sooner when no browser looks on.
        demo.wait_for("  cut 1  ", WITHIN_S)
        table = text_of(page, f"{address}/assets/bank/accounts", COLUMNS)
        assert [part for part in COLUMNS if part not in table] == [], table
        demo.process.send_signal(signal.SIGINT)
        assert demo.ends_with(WITHIN_S) == 0, demo.said()
