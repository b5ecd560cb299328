"""The demo's bank: it books all the time, and survives a restart."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.demo.bank import open_bank, sum_of_balances
from cdc_platform.demo.home import DemoHome, open_home, prepare_home
from cdc_platform.demo.processes import HOME_VARIABLE, Children
from cdc_platform.model.base.timestamps import from_rfc3339, to_rfc3339
from cdc_platform.simulator.wire.simulator_settings import DAY_S, RETENTION_S
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import Query
from cdc_platform.sources.spanner.source import SpannerSource
from cdc_platform_tests.yaml_files import change_stream_of

pytestmark = pytest.mark.integration


@contextmanager
def running(folder: Path) -> Iterator[tuple[Mapping[str, str], DemoHome]]:
    """Yield a bank that is open, and the home in which its history is."""
    with ExitStack() as stack:
        home = stack.enter_context(open_home(folder))
        children = stack.enter_context(Children(home.folder, home.logs))
        yield open_bank(home, children, rate=50, partition_life_s=3), home


def transfers(home: DemoHome) -> int:
    """Return how many transfers the bank of the home's pipeline has booked."""
    with closing(SpannerClient(change_stream_of(load_settings(home.defs)))) as client:
        return int(client.fetch_texts(Query("SELECT COUNT(*) FROM transfers"))[0][0] or 0)


def test_an_expired_bank_gives_way_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo whose change stream no longer keeps the history begins another bank and does not fail."""
    monkeypatch.setenv(HOME_VARIABLE, "")
    with running(tmp_path) as (bank, home):
        prepare_home(home, bank)
        home.lake.mkdir()
    expired_s = int(time.time()) - RETENTION_S - DAY_S
    state = json.loads(home.bank.read_text())
    home.bank.write_text(json.dumps({**state, "origin_micros": expired_s * 1_000_000}))
    os.utime(home.bank, (expired_s, expired_s))
    begun = home.defs.read_text()
    home.defs.write_text(begun.replace(bank["start_timestamp"], to_rfc3339(expired_s * 1_000_000)))
    with running(tmp_path) as (bank, home):
        assert not prepare_home(home, bank)
        with closing(SpannerSource(change_stream_of(load_settings(home.defs)))) as source:
            assert source.start_micros() == from_rfc3339(bank["start_timestamp"])


def test_the_bank_books_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of its balances stays; restarted in the same home, it keeps its history."""
    monkeypatch.setenv(HOME_VARIABLE, "")
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    with running(tmp_path) as (bank, home):
        assert not prepare_home(home, bank)
        home.lake.mkdir()
        give_up_at = time.monotonic() + 300
        while transfers(home) < 20 and time.monotonic() < give_up_at:
            time.sleep(0.1)
        assert (before := transfers(home)) >= 20
        assert sum_of_balances(bank) == 1_000_000
    with running(tmp_path) as (bank, home):
        assert prepare_home(home, bank)
        assert transfers(home) >= before
        assert sum_of_balances(bank) == 1_000_000
