import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cdc_platform_tests.emulator_fixtures import make_bank
from cdc_platform_tests.servers.bank import (
    create_bank,
    open_database,
    read_accounts,
    sum_of_balances,
    write_transfers,
)

pytestmark = pytest.mark.integration

MIN_RATE = 10.0
"""Transactions a second that even a machine with much else to do writes."""


def test_sum_stays_while_transfers_are_written(emulator: str) -> None:
    """A strong read at any moment finds the sum that the bank began with."""
    bank = make_bank(emulator, "busy-bank").bank
    stop = threading.Event()
    writer = threading.Thread(target=write_transfers, args=(bank,), kwargs={"seed": 1, "stop": stop})
    with open_database(bank) as database:
        writer.start()
        sums = []
        for _ in range(10):
            time.sleep(0.1)
            sums.append(sum_of_balances(database))
        stop.set()
        writer.join()
        sums.append(sum_of_balances(database))

    assert set(sums) == {20_000}


def test_rate_is_kept(emulator: str) -> None:
    """A writer is fast without a rate, and not faster than the rate with one."""
    bank = make_bank(emulator, "quick-bank").bank

    fast = write_transfers(bank, seconds=2.0)
    slow = write_transfers(bank, seconds=2.0, rate=MIN_RATE / 2)

    assert fast.transactions / fast.seconds > MIN_RATE
    assert slow.transactions <= 11


def test_bank_is_made_once(emulator: str) -> None:
    """Making it again changes nothing, and numbers of closed accounts are not used again."""
    bank = make_bank(emulator, "old-bank").bank
    write_transfers(bank, seconds=1.0, seed=3)
    with open_database(bank) as database:
        before = read_accounts(database)

        create_bank(bank, accounts=5)

        assert read_accounts(database) == before


def test_program_writes_until_it_is_stopped(emulator: str) -> None:
    """As a program the bank writes, ends at a signal, and says what it did."""
    bank = make_bank(emulator, "program-bank").bank
    command = [sys.executable, "-m", "cdc_platform_tests.servers.bank", "--host", emulator, "--rate", "100"]
    command += ["--database", bank.database, "--project", bank.project, "--instance", bank.instance]
    root = Path(__file__).parents[2]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    with open_database(bank) as database:
        give_up_at_s = time.monotonic() + 300.0
        while count_of_transfers(database) == 0 and time.monotonic() < give_up_at_s:
            time.sleep(0.1)
        program.send_signal(signal.SIGTERM)
        output, _ = program.communicate(timeout=120)
        written = json.loads(output)["transactions"]

        assert program.returncode == 0
        assert count_of_transfers(database) == written > 0


def count_of_transfers(database: object) -> int:
    """Return the number of transfers by a strong read."""
    with database.snapshot() as snapshot:  # type: ignore[attr-defined] # the stock client ships no types
        return int(next(iter(snapshot.execute_sql("SELECT COUNT(*) FROM transfers")))[0])
