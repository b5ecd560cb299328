"""The demo's bank on an emulator, and a pipeline that reads it, for benchmarks that need a real source."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.timestamps import from_datetime, to_rfc3339
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.servers.bank import BankSettings, create_bank, read_accounts
from cdc_platform_tests.servers.spanner_emulator import open_emulator

PIPELINE = "bank"
CHANGES_PER_TRANSFER = 3


@dataclass(frozen=True)
class Bench:
    """A bank with accounts, and the settings of the pipeline that reads it."""

    bank: BankSettings
    pipeline: PipelineSettings


@contextmanager
def open_bench(folder: Path, partition_life_s: int | None = None, accounts: int = 1000) -> Iterator[Bench]:
    """Provide an emulator with a new bank, and the settings of a pipeline on an empty lake."""
    shutil.rmtree(folder, ignore_errors=True)
    with open_emulator(partition_life_s) as host:
        bank = BankSettings(host)
        begin_micros = from_datetime(create_bank(bank, accounts))
        source = SpannerSettings(
            project=bank.project,
            instance=bank.instance,
            database=bank.database,
            change_stream=bank.change_stream,
            emulator_host=host,
            # The stream has the whole history of the bank only from its own beginning.
            start_timestamp=to_rfc3339(begin_micros),
        )
        spark = SparkSettings(driver_memory="3g")
        yield Bench(bank, PipelineSettings(PIPELINE, source, LakeSettings(str(folder)), spark))


def book_transfers(database: Any, transfers: int, dice: random.Random) -> None:
    """Commit transfers one by one, about three changes each; the caller is the bank's only writer."""
    bank_accounts = read_accounts(database)
    for _ in range(transfers):
        booking = bank_accounts.next_booking(dice)
        database.run_in_transaction(booking.write)
        bank_accounts.apply(booking)
