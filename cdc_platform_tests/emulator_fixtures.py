"""Fixtures of the Spanner emulator."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.servers.bank import BankSettings, create_bank
from cdc_platform_tests.servers.spanner_emulator import (
    Emulator,
    EmulatorMissing,
    find_emulator,
    open_emulator,
)

TOKEN_LIFE_S = 3
"""Partitions of the tests' emulator live so long to twice as long."""
LONG_TOKEN_LIFE_S = 3600


@dataclass(frozen=True)
class BankStream:
    """A bank on the emulator, and the settings with which its change stream is read."""

    bank: BankSettings
    spanner: SpannerSettings


@contextmanager
def required() -> Iterator[None]:
    """Skip where there is no emulator on a laptop; fail in CI."""
    try:
        yield
    except EmulatorMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def emulator() -> Iterator[str]:
    """The address of the one emulator of the test run, whose partitions churn."""
    with required(), open_emulator(TOKEN_LIFE_S) as host:
        yield host


@pytest.fixture(scope="module")
def still_emulator() -> Iterator[str]:
    """The address of an emulator whose partitions outlive the tests, where only values matter."""
    with required(), Emulator(find_emulator(), LONG_TOKEN_LIFE_S) as emulator:
        yield emulator.host


def make_bank(host: str, database: str, value_capture_type: str = "NEW_ROW") -> BankStream:
    """Return a new bank in a separate database."""
    bank = BankSettings(host, database=database, value_capture_type=value_capture_type)
    create_bank(bank, accounts=20)
    spanner = SpannerSettings(
        bank.project, bank.instance, bank.database, bank.change_stream, emulator_host=host
    )
    return BankStream(bank, spanner)


def change_schema(database: Any, definitions: Sequence[str], within_s: float) -> None:
    """Change the schema of a database that is written to.

    Spanner lets its transactions abort for that; the emulator refuses the change while one is open, all
    of its statements at once.
    """
    from google.api_core.exceptions import FailedPrecondition
    from google.api_core.retry import Retry

    def is_refused_for_now(error: BaseException) -> bool:
        return isinstance(error, FailedPrecondition) and "concurrent schema change" in str(error)

    change = Retry(is_refused_for_now, initial=0.05, maximum=1.0, timeout=within_s)
    change(lambda: database.update_ddl(definitions).result(within_s))()
