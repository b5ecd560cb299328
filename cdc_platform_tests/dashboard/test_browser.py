"""The status page as its readers see it: served, in a headless browser, on a desk and on a phone."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.lake.state.last_results import LastResult, save_results
from cdc_platform.model.base.stored_names import CHECK_RESULTS, QUARANTINE
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform_tests import programs
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.lake.stored_lake import forget_metadata
from cdc_platform_tests.support.browser import open_browser
from cdc_platform_tests.support.watched_lakes import SECOND, WatchedLake
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

pytestmark = pytest.mark.integration

WITHIN_S: Final = 120.0
WIDTHS: Final = (1280, 390)
SCHEMES: Final = {"light": "rgb(245, 246, 248)", "dark": "rgb(13, 16, 21)"}
"""The colour of the page in each scheme."""
HOUR_S: Final = 3600
FINDING: Final = "Two rows have the key 7."


@dataclass(frozen=True)
class Dashboard:
    """A dashboard that runs: the folder of its pipelines, its address, and its log."""

    folder: Path
    address: str
    program: programs.Program


def write_history(folder: Path, name: str, ended_s_ago: float = 0) -> Path:
    """Make a pipeline with a few cycles, whose partitions split and merge, and return its file."""
    folder.mkdir()
    defs = write_defs(folder, bank_attributes(name=name))
    end_micros = clock_micros() - int(ended_s_ago * SECOND)
    moments = [end_micros - seconds * SECOND for seconds in (50, 40, 30, 20, 10, 0)]
    lake = WatchedLake.begin(defs, moments[0] - SECOND)
    lake.run_cycle(moments[0], {}, children={"a": [""], "b": [""]})
    lake.run_cycle(moments[1], {"accounts": 4, "transfers": 2}, children={"a1": ["a"], "a2": ["a"]})
    lake.run_cycle(moments[2], {"accounts": 6}, children={"c": ["a2", "b"]})
    for micros in moments[3:]:
        lake.run_cycle(micros, {"accounts": 5, "transfers": 1})
    return defs


def report_failure(defs: Path, pipeline: str) -> None:
    """Store a check that passed, and one that failed, as a cycle or `cdc-platform check` does."""
    results = [
        LastResult("keys_unique", f"{pipeline}/accounts", False, False, time.time(), FINDING),
        LastResult("exactly_once", f"{pipeline}__cdc/change_log", True, False, time.time(), ""),
    ]
    save_results(open_pipeline(load_settings(defs)).lake, results)


def lose_tables(defs: Path) -> None:
    """Let the catalog name files of check results, of the quarantine and of a table that do not exist."""
    lake = open_pipeline(load_settings(defs)).lake
    for namespace, name in (
        (lake.system_namespace, CHECK_RESULTS),
        (lake.system_namespace, QUARANTINE),
        (lake.pipeline, "transfers"),
    ):
        forget_metadata(lake.settings, namespace, name)


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard of five pipelines: healthy, late, with a failed check, empty, and with a damaged lake."""
    folder = tmp_path_factory.mktemp("pipelines")
    write_history(folder / "bank", "bank")
    write_history(folder / "orders", "orders", ended_s_ago=HOUR_S)
    report_failure(write_history(folder / "shop", "shop"), "shop")
    lose_tables(write_history(folder / "tills", "tills"))
    (folder / "stock").mkdir()
    begin(write_defs(folder / "stock", bank_attributes(name="stock")))
    arguments = ("dashboard", folder, "--port", "0", "--late-after", "1800")
    log = tmp_path_factory.mktemp("log") / "dashboard.log"
    with programs.start(log, programs.COMMAND_LINE, *arguments) as program:
        program.wait_for("Status page: ", WITHIN_S)
        match = re.search(r"Status page: (http://\S+)", program.output())
        assert match is not None
        yield Dashboard(folder, match[1], program)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless browser."""
    with open_browser() as opened:
        yield opened


def section_of(page: Any, pipeline: str) -> str:
    """Return the text of a pipeline on the page."""
    return str(page.inner_text(f"#{pipeline}"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_fits_its_reader(dashboard: Dashboard, browser: Any, width: int, scheme: str) -> None:
    """On a desk and on a phone, by day and by night, nothing is cut off and nothing comes from elsewhere."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: problems.append(message.text))
    page.goto(dashboard.address)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == SCHEMES[scheme]
    assert [f"{dashboard.address}/"] == [url for url in requests if not url.startswith("data:")]
    assert problems == []
    page.close()


def test_one_word_and_a_reason(dashboard: Dashboard, browser: Any) -> None:
    """Each pipeline has its state and the reason for it; the page begins with how many need attention."""
    page = browser.new_page()
    page.goto(dashboard.address)
    assert page.inner_text("h1") == "▲ 4 of 5 pipelines need attention"
    words = {
        name: page.inner_text(f"#{name} .badge") for name in ("bank", "orders", "shop", "stock", "tills")
    }
    assert words == {
        "bank": "✓ Healthy",
        "orders": "▲ Late",
        "shop": "▲ Failing",
        "stock": "▲ Starting",
        "tills": "▲ Unknown",
    }
    assert "the newest cut is 1 h" in page.inner_text("#orders .reason")
    assert page.inner_text("#shop .reason") == "check keys_unique failed on shop/accounts"
    assert page.inner_text("#stock .reason") == "no cut has been published yet"
    page.close()


def test_what_the_page_shows_of_a_pipeline(dashboard: Dashboard, browser: Any) -> None:
    """Lag, rate, cut, checks, quarantine, both charts, tables with their rows, and partitions are there."""
    page = browser.new_page()
    page.goto(dashboard.address)
    bank = section_of(page, "bank")
    for part in (
        "Lag of the newest cut",
        "Changes a second",
        "Last cut\n6",
        "none run yet",
        "Quarantine\n0",
    ):
        assert part in bank, bank
    rows = [row.inner_text().split("\t")[:3] for row in page.query_selector_all("#bank tbody tr")]
    assert rows == [["accounts", "25", "25"], ["transfers", "5", "5"]]
    kinds = [bar.get_attribute("class") for bar in page.query_selector_all("#bank svg.partitions rect")]
    assert sorted(kinds) == ["finished", "finished", "finished", "watermark", "watermark"]
    assert page.get_attribute("#bank .branches", "d").count("M") == 2
    shop = section_of(page, "shop")
    assert FINDING in shop, shop
    assert "1 failed" in shop, shop
    page.close()


def test_a_damaged_lake_shows_what_can_be_read(dashboard: Dashboard, browser: Any) -> None:
    """The page names each damaged part, and shows charts, the cut, partitions and the other tables."""
    page = browser.new_page()
    page.goto(dashboard.address)
    tills = section_of(page, "tills")
    for part in ("checks", "quarantine", "table transfers"):
        assert f"{part} cannot be read: The lake is damaged" in tills, tills
    assert tills.count("or `cdc-platform check`, stores new ones") == 1
    for part in ("Last cut\n6", "Checks\nunknown", "Quarantine\n-", "Lag of the newest cut"):
        assert part in tills, tills
    rows = [row.inner_text().split("\t")[:3] for row in page.query_selector_all("#tills tbody tr")]
    assert rows == [["accounts", "25", "25"], ["transfers", "-", "5"]]
    assert len(page.query_selector_all("#tills svg.partitions rect")) == 5
    page.close()


def test_the_file_is_the_same_page(dashboard: Dashboard, browser: Any, tmp_path: Path) -> None:
    """`--html` writes one file that a browser shows without a server, and that does not load itself again."""
    file = tmp_path / "status.html"
    code, _, problems = run("dashboard", dashboard.folder / "bank", "--html", file)
    assert (code, problems) == (0, "")
    page = browser.new_page()
    page.goto(file.as_uri())
    assert page.inner_text("h1") == "✓ bank is healthy"
    assert "Checks\nnone run yet" in section_of(page, "bank")
    assert "refresh" not in file.read_text(encoding="utf-8")
    page.close()
