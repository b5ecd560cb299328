"""Take all pictures of docs/ from a demo: `python docs/screenshots.py` runs one, `--url` uses a running one.

It needs Chromium on the PATH, and the extra `test`. Look at the pictures before you commit them.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cdc_platform.demo.next_steps import Pages, graph_address

FOLDER: Final = Path(__file__).parent
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
STATUS_PAGE: Final = re.compile(r"Status page: (http://\S+)")
DAGSTER: Final = re.compile(r"Dagster's UI: (http://\S+)")
CUT: Final = re.compile(r"\bcut (\d+)\b")
OPTIONS: Final = ("--rate", "50")
"""Enough for pictures, and little enough for a busy machine."""
CUTS: Final = 12
"""Plots need some points."""
DEMO_WITHIN_S: Final = 1200.0
ENDS_WITHIN_S: Final = 120.0
SHOWN_WITHIN_MS: Final = 120_000
COMPLETE_MS: Final = 6000
"""Dagster's pages move while their parts arrive, and not every part says that it is still loading."""
LOADED: Final = "() => !/Loading/.test(document.body.innerText)"


@dataclass(frozen=True)
class Shot:
    """A picture.

    Args:
        name: of its file, without the suffix.
        path: of the page.
        size: width and height of the window, in pixels.
        expected: a text that the page shows once it is there.
        click: what is clicked then, as a selector of Playwright.
        is_dagster: whether it is a page of Dagster's UI, and not the status page.
        complete_ms: how long what the click opens needs to be complete.
    """

    name: str
    path: str
    size: tuple[int, int]
    expected: str
    click: str | None = None
    is_dagster: bool = True
    complete_ms: int = COMPLETE_MS


SYSTEM: Final = "/assets/bank__cdc"
PANEL: Final = "[aria-label=panel_show_right]"
"""The button that hides the list of assets next to the graph."""
NARROW: Final = "localStorage.setItem('dagster-nav-collapsed', 'true')"
"""Leaves only the symbols of Dagster's navigation."""
SHOTS: Final = (
    Shot("dashboard", "/?refresh=0", (1280, 900), "Freshness", is_dagster=False),
    Shot("dashboard-phone", "/?refresh=0", (390, 1240), "Changes a second", is_dagster=False),
    Shot("asset-graph", graph_address("", "bank"), (1660, 760), "change_log", f"button:has({PANEL})"),
    Shot("table", "/assets/bank/accounts", (1200, 1260), "account_id", "text=/^Plots$/"),
    Shot("lag", f"{SYSTEM}/cut", (1200, 1260), "published_at", "text=/^Plots$/"),
    Shot("checks", "/assets/bank/accounts?view=checks", (1500, 900), "Passed", "text=/^equals_log$/"),
    Shot(
        "partitions",
        f"{SYSTEM}/raw_change_records?view=partitions",
        (1500, 900),
        "Partitions Selected",
        r"text=/^\d{8}T\d{6}Z-\w+$/",
    ),
    Shot(
        "lineage",
        f"{SYSTEM}/partition_lineage",
        (1500, 900),
        "partition_token",
        "text=Show Markdown",
        complete_ms=1500,  # the next materialisation closes it
    ),
)


@contextmanager
def running_demo(port: int) -> Iterator[Pages]:
    """Run a demo in a separate folder until it has published some cuts, and give its addresses."""
    program = shutil.which("cdc-platform")
    if program is None:
        sys.exit("`cdc-platform` is not on the PATH: pip install -e '.[test]'")
    with tempfile.TemporaryDirectory() as home:
        command = [program, "demo", "--home", f"{home}/demo", "--port", str(port), *OPTIONS]
        demo = subprocess.Popen(
            command,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        # Dagster and Spark are in its group, too.
        late = threading.Timer(DEMO_WITHIN_S, os.killpg, (demo.pid, signal.SIGKILL))
        late.start()
        try:
            yield find_pages(iter(demo.stdout or ()))
        finally:
            late.cancel()
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=ENDS_WITHIN_S)


def find_pages(lines: Iterator[str]) -> Pages:
    """Return the addresses of a demo once it prints a late enough cut; what it prints continues."""
    status_page = dagster = None
    for line in lines:
        print(line, end="", file=sys.stderr)
        status_page, dagster = STATUS_PAGE.search(line) or status_page, DAGSTER.search(line) or dagster
        cut = CUT.search(line)
        if status_page and dagster and cut is not None and int(cut[1]) >= CUTS:
            # Somebody has to read what the demo continues to say.
            threading.Thread(target=list, args=(lines,), daemon=True).start()
            return Pages(status_page[1], dagster[1])
    sys.exit("The demo has ended, or has not published enough cuts in time; see above")


@contextmanager
def browser_page() -> Iterator[Any]:
    """Open a page of a headless browser."""
    from playwright.sync_api import sync_playwright

    found = (shutil.which(name) for name in BROWSERS)
    browser = next((path for path in found if path is not None), None)
    if browser is None:
        sys.exit("Chromium was not found on the PATH: install the package `chromium`")
    with sync_playwright() as playwright:
        # As root, which containers often are, Chromium has no sandbox.
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page()
        page.add_init_script(NARROW)
        yield page
        opened.close()


def take(page: Any, pages: Pages, shot: Shot, folder: Path) -> Path:
    """Take a picture and return its file."""
    width, height = shot.size
    address = (pages.dagster if shot.is_dagster else pages.status_page).rstrip("/")
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{address}{shot.path}", wait_until="domcontentloaded")
    page.get_by_text(shot.expected).first.wait_for(timeout=SHOWN_WITHIN_MS)
    page.wait_for_timeout(COMPLETE_MS)
    if shot.click is not None:
        page.locator(shot.click).first.click(timeout=SHOWN_WITHIN_MS)
    page.wait_for_timeout(shot.complete_ms)
    page.wait_for_function(LOADED, timeout=SHOWN_WITHIN_MS)
    file = folder / f"{shot.name}.png"
    page.screenshot(path=file)
    return file


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="address of Dagster's UI of a demo that runs already")
    parser.add_argument("--status-page", default="http://127.0.0.1:3030", help="its status page")
    parser.add_argument("--port", type=int, default=3000, help="port of the UI of the demo that is run")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the pictures")
    parser.add_argument("--only", choices=[shot.name for shot in SHOTS], help="take this picture alone")
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.url is not None:
            pages = Pages(options.status_page, options.url)
        else:
            pages = stack.enter_context(running_demo(options.port))
        page = stack.enter_context(browser_page())
        for shot in SHOTS:
            if options.only in {None, shot.name}:
                print(take(page, pages, shot, options.folder))


if __name__ == "__main__":
    main()
