"""Initial copy: rows per second from the emulator into the lake, compared with a rival way of reading.

The bank's accounts are there before the pipeline begins, and nobody writes meanwhile. The platform copies
them in chunks as Spark tasks, straight into the table. In comparison, a stock client reads the rows in
one stream and writes nothing: a bound that no copy through that client can pass.
"""

import argparse
import itertools
from dataclasses import replace
from typing import Any

from benchmarks.inputs.bank import Bench, open_bench
from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from cdc_platform.pipeline.copying.copy import copy_tables
from cdc_platform.pipeline.cycle import run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.resources import spark_session
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings
from cdc_platform_tests.servers.bank import OPENING_BALANCE, open_database
from cdc_platform_tests.servers.bookings import ACCOUNT_COLUMNS, ACCOUNTS, account_row

OURS = "platform, into the lake"
ROWS_PER_COMMIT = 2000
FIRST_ROWS = 1000
"""With which the bank is opened."""


def fill_accounts(database: Any, rows: int) -> None:
    """Insert accounts until there are so many."""
    for begin in range(FIRST_ROWS, rows, ROWS_PER_COMMIT):
        batch_rows = [
            account_row(key, OPENING_BALANCE) for key in range(begin, min(begin + ROWS_PER_COMMIT, rows))
        ]
        with database.batch() as batch:
            batch.insert(ACCOUNTS, ACCOUNT_COLUMNS, batch_rows)


def read_with_stock_client(database: Any) -> int:
    """Read every row in one stream, and return how many there were."""
    with database.snapshot() as snapshot:
        sql = f"SELECT {', '.join(ACCOUNT_COLUMNS)} FROM {ACCOUNTS}"
        return sum(1 for _ in snapshot.execute_sql(sql))


def copying(bench: Bench, number: int, chunk_rows: int) -> Pipeline:
    """Return a pipeline that begins with a copy, in a separate part of the lake."""
    source = bench.pipeline.source
    assert isinstance(source, SpannerSettings)
    source = replace(source, start_timestamp=None)
    settings = replace(
        bench.pipeline,
        name=f"copy_{number}",
        source=source,
        copy_chunk_rows=chunk_rows,
        copy_s=3600.0,
        tables=(ACCOUNTS,),
    )
    return open_pipeline(settings)


def time_copy(bench: Bench, spark: Any, number: int, options: argparse.Namespace) -> float:
    """Return the seconds of one copy, after making sure that the table that comes of it is whole."""
    pipeline = copying(bench, number, options.chunk_rows)
    taken = timed(lambda: copy_tables(pipeline, spark))
    run_cycle(pipeline, spark)
    table = pipeline.lake.table(ACCOUNTS)
    balances = table.scan(selected_fields=("balance",)).to_arrow() if table is not None else []
    must_equal(options.rows, len(balances), "rows of the table")
    pipeline.source.close()
    return taken


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=200_000, help="rows to copy")
    parser.add_argument("--chunk-rows", type=int, default=25_000, help="rows a task copies")
    parser.add_argument("--rounds", type=int, default=3, help="copies after a first one, which is cold")
    options = parser.parse_args()
    report = Report("copy", options)
    folder = options.work / "copy"
    with open_bench(folder, accounts=FIRST_ROWS) as bench, open_database(bench.bank) as database:
        fill_accounts(database, options.rows)
        spark = spark_session(bench.pipeline)
        time_copy(bench, spark, 0, options)
        numbers = itertools.count(1)
        seconds = interleaved(
            options.rounds,
            {
                OURS: lambda: time_copy(bench, spark, next(numbers), options),
                "stock client, one stream, kept nowhere": lambda: timed(
                    lambda: must_equal(options.rows, read_with_stock_client(database), "rows read")
                ),
            },
        )
    report.compare(seconds, OURS, options.rows, "rows/s")


if __name__ == "__main__":
    main()
