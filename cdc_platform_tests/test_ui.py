"""The demo's UI as its users see it in the browser."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.demo.next_steps import graph_address
from cdc_platform_tests.programs import Program, free_port, running_demo
from cdc_platform_tests.spark_fixtures import require_java
from cdc_platform_tests.support.browser import open_browser

pytestmark = [pytest.mark.integration, pytest.mark.long]

DEMO_OPTIONS: Final = ("--rate", "10", "--partition-life", "60")
"""Little to do: what arrives, and that partitions churn, is shown by the demo without a UI."""
WITHIN_S: Final = 600.0
"""A busy machine is slow, not wrong."""
SHOWN_WITHIN_S: Final = 240.0
LOAD_AGAIN_S: Final = 20.0
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
LARGE: Final = {"width": 1600, "height": 1000}
SMALL: Final = {"width": 1280, "height": 800}
"""The width at which everything after it is looked at, too."""
STATUS_PAGE: Final = (
    "bank",
    "Lag of the newest cut",
    "accounts",
    "transfers",
    "passed",
    "holds the watermark",
)
CHECKS: Final = ("equals_log", "equals_source", "fresh", "keys_unique", "Passed")
COLUMNS: Final = ("account_id", "owner", "balance", "opened_on", "labels", "primary key", "array<string>")


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """A page of a headless browser."""
    with open_browser() as browser:
        yield browser.new_page(viewport=LARGE)


def text_of(page: Any, address: str, expected: tuple[str, ...]) -> str:
    """Open an address until the page shows all that is expected; return its text, complete or not."""
    text = ""
    for _ in range(int(SHOWN_WITHIN_S / LOAD_AGAIN_S)):
        page.goto(address, timeout=SHOWN_WITHIN_S * 1000, wait_until="domcontentloaded")
        load_again_at = time.monotonic() + LOAD_AGAIN_S
        while time.monotonic() < load_again_at:
            page.wait_for_timeout(200)
            text = str(page.inner_text("body"))
            if all(part in text for part in expected):
                return text
    return text


def address_of(demo: Program, what: str) -> str:
    """Return an address that the demo prints."""
    demo.wait_for(f"{what}: ", WITHIN_S)
    match = re.search(rf"{what}: (http://\S+)", demo.output())
    assert match is not None
    return match[1]


def test_the_demo_in_the_browser(page: Any, tmp_path: Path) -> None:
    """While the demo runs, UI and status page show both tables, and link each other; Ctrl-C ends it."""
    require_java()
    options = (*DEMO_OPTIONS, "--port", str(free_port()))
    with running_demo(tmp_path, *options) as demo:
        address, status_page = (address_of(demo, what) for what in ("Dagster's UI", "Status page"))
        graph = text_of(page, graph_address(address, "bank"), ASSETS)
        assert [asset for asset in ASSETS if asset not in graph] == [], graph
        # The first run is done sooner when no browser looks on; the cut before it is the demo's own.
        page.goto("about:blank")
        demo.wait_for_match(r"  cut ([2-9]|\d\d)", WITHIN_S)
        table = text_of(page, f"{address}/assets/bank/accounts", COLUMNS)
        assert [part for part in COLUMNS if part not in table] == [], table
        checks = text_of(page, f"{address}/assets/bank/accounts?view=checks", CHECKS)
        assert [part for part in CHECKS if part not in checks] == [], checks
        # The page redraws itself for a smaller screen.
        page.set_viewport_size(SMALL)
        page.wait_for_timeout(1000)
        small = str(page.inner_text("body"))
        assert [part for part in CHECKS if part not in small] == [], small
        assert page.evaluate("document.documentElement.scrollWidth") == SMALL["width"]
        cut = text_of(page, f"{address}/assets/bank__cdc/cut", (f"{status_page}/#bank",))
        assert f"{status_page}/#bank" in cut, cut
        text = text_of(page, status_page, STATUS_PAGE)
        assert [part for part in STATUS_PAGE if part not in text] == [], text
        assert page.get_attribute("footer a:last-child", "href") == address
        demo.process.send_signal(signal.SIGINT)
        assert demo.ends_with(WITHIN_S) == 0, demo.output()
