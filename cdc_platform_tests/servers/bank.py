"""A bank in Spanner's emulator, with one rule: no transaction changes the sum of all balances.

As a program it writes transfers until it is stopped:
`python -m cdc_platform_tests.servers.bank --host localhost:9010 --rate 300`.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from cdc_platform.sources.spanner.spanner_settings import EMULATOR_VARIABLE
from cdc_platform.sources.workers import keep_out_of_forks
from cdc_platform_tests.servers.bookings import (
    ACCOUNT_COLUMNS,
    ACCOUNTS,
    TRANSFERS,
    BankAccounts,
    Booking,
    account_row,
)

# Timestamps are written with whole seconds and arrays without NULL: the emulator's change streams
# falsify others.
ACCOUNTS_DDL: Final = """CREATE TABLE accounts (
  account_id INT64 NOT NULL,
  owner STRING(MAX) NOT NULL,
  balance INT64 NOT NULL,
  opened_on DATE,
  labels ARRAY<STRING(MAX)>,
) PRIMARY KEY (account_id)"""
DDL: Final = (
    ACCOUNTS_DDL,
    """CREATE TABLE transfers (
  transfer_id STRING(36) NOT NULL,
  from_account INT64 NOT NULL,
  to_account INT64 NOT NULL,
  amount INT64 NOT NULL,
  fee NUMERIC,
  booked_at TIMESTAMP,
  note STRING(MAX),
) PRIMARY KEY (transfer_id)""",
)
OPENING_BALANCE: Final = 1000

_CREATE_WITHIN_S: Final = 60.0
_ABORTED_ATTEMPTS: Final = 50
_ABORTED_PAUSE_S: Final = 0.005


@dataclass(frozen=True)
class BankSettings:
    """Location of the bank; `host` is the address of an emulator."""

    host: str
    project: str = "cdc-demo"
    instance: str = "bank"
    database: str = "bank"
    change_stream: str = "bank_changes"
    value_capture_type: str = "NEW_ROW"


@dataclass(frozen=True)
class Written:
    """Summary of a writer: its commits, its retries, and how long it wrote."""

    transactions: int
    aborted: int
    seconds: float


_ENVIRONMENT: Final = threading.Lock()
"""A lock on temporary changes of the environment."""


@contextmanager
def open_client(settings: BankSettings) -> Iterator[Any]:
    """Yield the stock client of the bank's project."""
    keep_out_of_forks()
    os.environ["no_grpc_proxy"] = settings.host.rpartition(":")[0]  # noqa: SIM112 - gRPC reads lower case
    from google.cloud import spanner

    # The stock client takes an emulator's address from the environment alone, when it is made.
    with _ENVIRONMENT:
        before = os.environ.get(EMULATOR_VARIABLE)
        os.environ[EMULATOR_VARIABLE] = settings.host
        try:
            client = spanner.Client(project=settings.project, disable_builtin_metrics=True)
        finally:
            _restore(EMULATOR_VARIABLE, before)
    try:
        yield client
    finally:
        client.close()


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        del os.environ[variable]
    else:
        os.environ[variable] = value


@contextmanager
def open_database(settings: BankSettings) -> Iterator[Any]:
    """Yield the bank's database, as an object of the stock client."""
    with open_client(settings) as client:
        database = client.instance(settings.instance).database(settings.database)
        try:
            yield database
        finally:
            # The client closes its own channels, and not that of a database.
            database.spanner_api.transport.close()


def create_bank(settings: BankSettings, accounts: int = 100) -> datetime:
    """Create instance, database, tables, change stream and accounts; existing ones stay as they are.

    The stream is there before the first account: read from the moment that is returned, a new one has the
    whole history.
    """
    stream = (
        f"CREATE CHANGE STREAM {settings.change_stream} FOR {ACCOUNTS}, {TRANSFERS} "
        f"OPTIONS (value_capture_type = '{settings.value_capture_type}')"
    )
    with open_client(settings) as client:
        create_instance(settings, client)
        _create(client.instance(settings.instance).database(settings.database, (*DDL, stream)))
    with open_database(settings) as database:
        with database.snapshot() as snapshot:
            begin: datetime = next(iter(snapshot.execute_sql("SELECT CURRENT_TIMESTAMP")))[0]
        if not read_accounts(database).balances:
            rows = [account_row(key, OPENING_BALANCE) for key in range(accounts)]
            with database.batch() as batch:
                batch.insert(ACCOUNTS, ACCOUNT_COLUMNS, rows)
    return begin


def create_instance(settings: BankSettings, client: Any) -> None:
    """Create the instance on the emulator, unless it is there."""
    configuration = f"projects/{settings.project}/instanceConfigs/emulator-config"
    _create(client.instance(settings.instance, configuration, display_name="bank", node_count=1))


def read_accounts(database: Any) -> BankAccounts:
    """Return the balances of a strong read; account numbers continue above all that were ever used."""
    sql = (
        "SELECT account_id, balance FROM accounts UNION ALL "
        "SELECT GREATEST(MAX(from_account), MAX(to_account)), NULL FROM transfers"
    )
    with database.snapshot() as snapshot:
        rows = [(key, balance) for key, balance in snapshot.execute_sql(sql) if key is not None]
    balances = {int(key): int(balance) for key, balance in rows if balance is not None}
    return BankAccounts(balances, max((int(key) for key, _ in rows), default=-1) + 1)


def sum_of_balances(database: Any) -> int:
    """Return the sum of all balances by a strong read."""
    with database.snapshot() as snapshot:
        return int(next(iter(snapshot.execute_sql("SELECT SUM(balance) FROM accounts")))[0] or 0)


def write_transfers(
    settings: BankSettings,
    *,
    seconds: float | None = None,
    rate: float | None = None,
    seed: int | None = None,
    stop: threading.Event | None = None,
) -> Written:
    """Write transfers, at most `rate` a second, until the time is over or `stop` is set.

    It must be the bank's only writer: balances are written from memory, so one commit is one call.
    """
    stop = stop or threading.Event()
    dice = random.Random(seed)  # noqa: S311 - made-up data, and repeatable by its seed
    transactions = aborted = 0
    begin_s = time.monotonic()
    with open_database(settings) as database:
        bank_accounts = read_accounts(database)
        while not stop.is_set() and (seconds is None or time.monotonic() - begin_s < seconds):
            booking = bank_accounts.next_booking(dice)
            aborted += _commit(database, booking)
            bank_accounts.apply(booking)
            transactions += 1
            if rate is not None:
                stop.wait(max(0.0, begin_s + transactions / rate - time.monotonic()))
    return Written(transactions, aborted, time.monotonic() - begin_s)


def _commit(database: Any, booking: Booking) -> int:
    """Commit the booking; return how often Spanner aborted it before."""
    from google.api_core.exceptions import Aborted

    for attempt in range(_ABORTED_ATTEMPTS):
        try:
            with database.batch() as batch:
                booking.write(batch)
        except Aborted:
            time.sleep(_ABORTED_PAUSE_S)
        else:
            return attempt
    with database.batch() as batch:
        booking.write(batch)
    return _ABORTED_ATTEMPTS


def _create(resource: Any) -> None:
    from google.api_core.exceptions import AlreadyExists

    try:
        resource.create().result(_CREATE_WITHIN_S)
    except AlreadyExists:
        return


def main(arguments: Sequence[str] | None = None) -> int:
    """Write transfers until a signal arrives or the time is over; say as JSON what was written."""
    parser = argparse.ArgumentParser(
        prog="python -m cdc_platform_tests.servers.bank", description=main.__doc__
    )
    parser.add_argument("--host", required=True, help="address of the emulator, such as localhost:9010")
    for name in ("project", "instance", "database"):
        parser.add_argument(f"--{name}", default=getattr(BankSettings, name))
    parser.add_argument("--rate", type=float, help="transactions a second; as many as possible without it")
    parser.add_argument("--seconds", type=float, help="how long to write; until a signal without it")
    parser.add_argument("--seed", type=int, help="makes the transfers repeatable")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings = BankSettings(options.host, options.project, options.instance, options.database)
    totals = write_transfers(
        settings, seconds=options.seconds, rate=options.rate, seed=options.seed, stop=stop
    )
    sys.stdout.write(json.dumps(asdict(totals)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
