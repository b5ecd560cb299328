"""The servers of the demo's bank: it works on either, and on the simulator it survives a restart."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cdc_platform.demo.bank import BankSettings, open_database, sum_of_balances
from cdc_platform.demo.home import DemoHome, open_home, prepare_home
from cdc_platform.demo.processes import HOME_VARIABLE, Children
from cdc_platform.demo.servers import DemoServer, open_bank, start_writer, stop_writer

pytestmark = pytest.mark.integration


@contextmanager
def running(server: DemoServer, folder: Path) -> Iterator[tuple[BankSettings, DemoHome, Children]]:
    """Yield a bank whose server runs."""
    with ExitStack() as stack:
        home = stack.enter_context(open_home(folder))
        children = stack.enter_context(Children(home.folder, home.logs))
        yield open_bank(server, stack, home, children, rate=50, token_life_s=3), home, children


def transfers(bank: BankSettings) -> int:
    """Return how many transfers the bank has booked."""
    with open_database(bank) as database, database.snapshot() as reading:
        return int(next(iter(reading.execute_sql("SELECT COUNT(*) FROM transfers")))[0])


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize(
    ("server", "total"), [(DemoServer.SIMULATOR, 1_000_000), (DemoServer.EMULATOR, 100_000)]
)
def test_the_bank_works(
    server: DemoServer, total: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bank books on, and the sum of its balances stays."""
    monkeypatch.setenv(HOME_VARIABLE, "")
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    with running(server, tmp_path) as (bank, _, children):
        start_writer(server, bank, children, rate=50)
        give_up_at = time.monotonic() + 300
        while transfers(bank) < 20 and time.monotonic() < give_up_at:
            children.check()
            time.sleep(0.1)
        assert transfers(bank) >= 20
        last_words = stop_writer(server, children)
        with open_database(bank) as database:
            assert total == sum_of_balances(database)
        assert (server is DemoServer.EMULATOR) == ("transactions" in (last_words or ""))


def test_the_simulated_bank_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started again in the same home, the simulator has the history of before, and the lake goes on."""
    monkeypatch.setenv(HOME_VARIABLE, "")
    with running(DemoServer.SIMULATOR, tmp_path) as (bank, home, _):
        assert not prepare_home(home, bank)
        home.lake.mkdir()
        time.sleep(1)
        before = transfers(bank)
    with running(DemoServer.SIMULATOR, tmp_path) as (bank, home, _):
        assert prepare_home(home, bank)
        assert transfers(bank) >= before > 0
