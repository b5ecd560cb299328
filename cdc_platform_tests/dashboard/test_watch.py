"""Several pipelines on one page, one of which has a lake that does not answer."""

import re
import socket
import threading
from pathlib import Path
from typing import Final

from cdc_platform.components.loading import load_settings
from cdc_platform.dashboard.facts import WatchedPipeline
from cdc_platform.dashboard.page import PageOptions
from cdc_platform.dashboard.watch import Readings, Watch
from cdc_platform_tests.support.watched_lakes import SECOND, WatchedLake
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

START: Final = 1_800_000_000_000_000
PATIENCE_S: Final = 2.0
"""A few files are read in a hundredth of it."""


def test_who_does_not_answer_keeps_nobody_waiting() -> None:
    """One that is silent is not asked again until it has answered; a late answer is shown the next time."""
    may_answer, requests = threading.Event(), list[int]()

    def slow() -> str:
        requests.append(1)
        number = len(requests)
        may_answer.wait()
        return f"slow {number}"

    readings = Readings(0.5, lambda _seconds: "silent")
    expected = {"slow": "silent", "quick": "quick"}
    for _ in range(2):
        assert expected == readings.ask({"slow": slow, "quick": lambda: "quick"})
    assert len(requests) == 1
    may_answer.set()
    while (answer := readings.ask({"slow": slow})["slow"]) == "silent":
        pass
    assert answer == "slow 1"
    assert readings.ask({}) == {}


def test_a_lake_that_does_not_answer_hides_no_other_one(tmp_path: Path) -> None:
    """The page and the metrics say of it that it is silent, and show the other pipelines as they are."""
    for name in ("shop", "silent"):
        (tmp_path / name).mkdir()
    shop = write_defs(tmp_path / "shop", bank_attributes(name="shop"))
    WatchedLake.begin(shop, START).run_cycle(START + SECOND, {"accounts": 3})
    with socket.create_server(("127.0.0.1", 0)) as server:
        catalog = {"type": "rest", "uri": f"http://127.0.0.1:{server.getsockname()[1]}"}
        lake = {"path": str(tmp_path / "silent" / "lake"), "catalog": catalog}
        silent = write_defs(tmp_path / "silent", bank_attributes(name="silent", lake=lake))
        watched = [WatchedPipeline.of(load_settings(path), 60.0) for path in (silent, shop)]
        # The first reading of a process imports what it needs.
        watched[1].read_facts()
        watch = Watch(watched, PATIENCE_S)
        page, metrics = watch.page(PageOptions(1.0)), watch.metrics()

    assert "Its lake has not answered for" in page
    is_up = dict(re.findall(r'^cdc_platform_up\{pipeline="(\w+)"\} (\S+)$', metrics, re.MULTILINE))
    assert is_up == {"shop": "1.0", "silent": "0.0"}
