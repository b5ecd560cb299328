"""A small bank: records whose effect is easy to say, for tests of single steps."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import (
    ACCOUNTS,
    START,
    TRANSFERS,
    data_change,
    feed,
    log_rows,
    make_pipeline,
    rows_of,
    source_of,
    window_row,
)

SECOND: Final = 1_000_000

Balances = dict[int, int]


def bank_pipeline(lake: LakeSettings, **options: TableOptions) -> Pipeline:
    """Return a pipeline of accounts and transfers, with the options of some of them."""
    return make_pipeline(lake, (ACCOUNTS, TRANSFERS), options=options)


def opening(account: int, balance: int, at_micros: int) -> RawRow:
    """Return the record that opens an account."""
    mod = ({"id": str(account)}, {"owner": f"owner {account}", "balance": str(balance)})
    return data_change(
        "accounts", ModType.INSERT, mod, at_micros=at_micros, transaction=f"open-{account}-{at_micros}"
    )


def closing(account: int, at_micros: int) -> RawRow:
    """Return the record that closes an account."""
    mod: tuple[dict[str, str], dict[str, str]] = ({"id": str(account)}, {})
    return data_change(
        "accounts", ModType.DELETE, mod, at_micros=at_micros, transaction=f"close-{account}-{at_micros}"
    )


def transfer(balances: Balances, at_micros: int) -> list[RawRow]:
    """Return the two records of a transaction that leaves these balances."""
    name = f"transfer-{at_micros}"
    mods = [({"id": str(account)}, {"balance": str(balance)}) for account, balance in balances.items()]
    moved = ({"tid": name}, {"amount": "1"})
    return [
        data_change("accounts", ModType.UPDATE, *mods, at_micros=at_micros, transaction=name, records=2),
        data_change(
            "transfers",
            ModType.INSERT,
            moved,
            at_micros=at_micros,
            transaction=name,
            records=2,
            sequence=1,
        ),
    ]


def feed_cycle(pipeline: Pipeline, number: int) -> None:
    """Commit the raw records of one of the bank's cycles, numbered from 1.

    The first opens accounts 1 to 3 with 100 each. The second closes account 3, opens account 4 with 100
    and moves 10 from account 1 to 2. Every further one moves 1 from account 1 to 2.
    """
    begun = START + number * SECOND
    if number == 1:
        records = [opening(account, 100, begun + account) for account in (1, 2, 3)]
    elif number == 2:
        records = [closing(3, begun), opening(4, 100, begun + 1), *transfer({1: 90, 2: 110}, begun + 2)]
    else:
        records = transfer({1: 92 - number, 2: 108 + number}, begun)
    feed(pipeline, begun + SECOND - 1, *records)


def feed_next(pipeline: Pipeline) -> int:
    """Commit the raw records of the bank's next cycle, and return its number."""
    number = read_mark(pipeline.lake.system_table(RAW)).cycle + 1
    feed_cycle(pipeline, number)
    return number


def expected_balances(number: int) -> Balances:
    """Return the balances after one of the bank's cycles."""
    if number == 1:
        return {1: 100, 2: 100, 3: 100}
    return {1: 92 - number, 2: 108 + number, 4: 100}


def balances(pipeline: Pipeline, snapshot_id: int | None = None) -> Balances:
    """Return the balances that a reader of the table sees."""
    return {row["id"]: row["balance"] for row in rows_of(pipeline, "accounts", snapshot_id)}


NOW = START + 10 * SECOND


def bank_of(lake: LakeSettings, accounts: int, *tables: TableSchema, chunk_rows: int = 8) -> Pipeline:
    """Return a pipeline that begins when the bank has accounts already, and watches what is named."""
    pipeline = make_pipeline(lake, tables or (ACCOUNTS,), copy_chunk_rows=chunk_rows)
    source = source_of(pipeline)
    source.now_micros = NOW

    def rows_at(table: str, _micros: int) -> Iterator[pa.RecordBatch]:
        rows = [{"id": key, "owner": f"owner {key}", "balance": 100} for key in range(1, accounts + 1)]
        schema = table_arrow_schema(ACCOUNTS if table == "accounts" else TRANSFERS)
        yield pa.RecordBatch.from_pylist(rows if table == "accounts" else [], schema)

    source.rows_at = rows_at
    return pipeline


def busy(pipeline: Pipeline, accounts: int = 1, broken: int = 0) -> Pipeline:
    """Let each cycle of a pipeline bring some accounts, of which some are broken, and return it."""

    def answer(cycle: int, windows: Sequence[ReadWindow]) -> list[RawRow]:
        moment = windows[0].end_inclusive_micros
        opened = [opening(cycle * 100 + number, 10, moment) for number in range(accounts)]
        for row in opened[:broken]:
            row["mods"][0]["new_values"] = "no JSON"
        rows = [*opened, *(window_row(planned, records=accounts) for planned in windows)]
        return [{**row, "cycle": cycle} for row in rows]

    source_of(pipeline).answer = answer
    return pipeline


def check_busy(pipeline: Pipeline) -> None:
    """Check that the account of each busy cycle is in the log once, and in the table."""
    opened = [cycle * 100 for cycle in range(1, read_mark(pipeline.lake.system_table(RAW)).cycle + 1)]
    logged = sorted(int(row["transaction_id"].split("-")[1]) for row in log_rows(pipeline))
    assert opened == logged
    assert opened == sorted(row["id"] for row in rows_of(pipeline, "accounts"))


def wait(pipeline: Pipeline, seconds: float) -> None:
    """Let the source's clock continue."""
    source_of(pipeline).now_micros += round(seconds * SECOND)
