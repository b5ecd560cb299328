"""Records per second and core: the platform's decoding into Arrow compared with the stock client's.

Both begin with the same serialised answer of a change stream query. The stock client ends with Python
objects, the platform with the Arrow batches that Spark takes.
"""

import argparse
import gc
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.cloud.spanner_v1.streamed import StreamedResultSet
from google.cloud.spanner_v1.types import PartialResultSet

from benchmarks.inputs.messages import answer
from benchmarks.measure.harness import Report, arguments, interleaved, must_equal, timed
from cdc_platform.model.base.timestamps import from_datetime
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.spanner.client.chunks import RowAssembler
from cdc_platform.sources.spanner.client.wire import rows_parser
from cdc_platform.sources.spanner.stream.batches import RecordBatchBuilder
from cdc_platform.sources.spanner.stream.decode import decode_change_record

PLATFORM, STOCK, LAZY = "platform, to Arrow", "stock client, default", "stock client, lazy, not extracted"
FOREVER_MICROS = 2**62


@dataclass
class Checksum:
    """What both ways must agree on: records, commit times, and a column inside the mods."""

    records: int = 0
    commit_micros: int = 0
    balances: int = 0


def decode_platform(messages: list[bytes]) -> list[pa.RecordBatch]:
    """Decode as the platform's reader does."""
    assembler, builder = RowAssembler(), RecordBatchBuilder(1, ReadWindow("token", 0, FOREVER_MICROS))
    batches = []
    for row in assembler.rows(map(rows_parser(), messages)):
        builder.add(decode_change_record(row[0]))
        if builder.is_full:
            batches.append(builder.take_complete())
    return [*batches, builder.take_all()]


def decode_stock(messages: list[bytes]) -> list[list[Any]]:
    """Decode as `snapshot.execute_sql(...)` does."""
    return list(StreamedResultSet(PartialResultSet.deserialize(message) for message in messages))


def decode_lazy(messages: list[bytes]) -> int:
    """Decode as `snapshot.execute_sql(..., lazy_decode=True)` does, and look at nothing."""
    lazy = StreamedResultSet(
        (PartialResultSet.deserialize(message) for message in messages), lazy_decode=True
    )
    return sum(1 for _ in lazy)


def checksum_platform(batches: list[pa.RecordBatch]) -> Checksum:
    """Return the checksum of Arrow batches."""
    checksum = Checksum()
    for batch in batches:
        checksum.records += batch.num_rows
        checksum.commit_micros += sum(batch["record_timestamp"].cast(pa.int64()).to_pylist())
        for mods in batch["mods"].to_pylist():
            checksum.balances += sum(int(json.loads(mod["new_values"])["balance"]) for mod in mods)
    return checksum


def checksum_stock(rows: list[list[Any]]) -> Checksum:
    """Return the checksum of the stock client's rows."""
    checksum = Checksum()
    for ((data, _, _),) in (row[0] for row in rows):
        for record in data:
            checksum.records += 1
            checksum.commit_micros += from_datetime(record[0])
            checksum.balances += sum(int(mod[1]["balance"]) for mod in record[6])
    return checksum


def without_garbage(decode: Callable[[list[bytes]], object], messages: list[bytes]) -> Callable[[], float]:
    """Return a candidate that begins with collected garbage."""

    def run() -> float:
        gc.collect()
        return timed(lambda: decode(messages))

    return run


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--records", type=int, default=20_000, help="data change records, one mod each")
    parser.add_argument("--columns", type=int, nargs="+", default=[6, 12], help="columns of the table")
    parser.add_argument("--records-per-message", type=int, default=10, help="rows of a partial result set")
    parser.add_argument("--records-per-transaction", type=int, default=1, help="records of one timestamp")
    parser.add_argument("--rounds", type=int, default=5, help="rounds")
    options = parser.parse_args()
    report = Report("decode", options)
    for columns in options.columns:
        measure(report, options, columns)


def measure(report: Report, options: argparse.Namespace, columns: int) -> None:
    """Compare the ways on records of a table with so many columns."""
    per_message, per_transaction = options.records_per_message, options.records_per_transaction
    messages = list(answer(options.records, columns, per_message, options.seed, per_transaction))
    size_bytes = sum(map(len, messages)) / options.records
    report.note(f"{columns} columns: size of a record", size_bytes, "B")
    expected, checksum = checksum_stock(decode_stock(messages)), checksum_platform(decode_platform(messages))
    must_equal(expected, checksum, "decoded records")
    decode_lazy(messages)
    ways: dict[str, Callable[[list[bytes]], object]] = {
        PLATFORM: decode_platform,
        STOCK: decode_stock,
        LAZY: decode_lazy,
    }
    candidates = {
        f"{columns} columns: {name}": without_garbage(decode, messages) for name, decode in ways.items()
    }
    # As a worker does, in which the libraries stay and only records come and go; each way has run once.
    gc.freeze()
    seconds = interleaved(options.rounds, candidates)
    report.compare(seconds, f"{columns} columns: {PLATFORM}", options.records, "records/s/core")


if __name__ == "__main__":
    main()
