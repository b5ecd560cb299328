"""Odd values as sources may send them, and whether the results of readers fit the types of columns."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.json_codec import write
from cdc_platform.spark.log.event_order import order_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS: Final = (
    *("0", "-0", "1", "-1", "1_000", "9007199254740993", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "1.5", "99.99", "100.00", "0.001", "1e3", "1e39", "1e400", "-1E-400", "1" * 40),
    *("340282350000000000000000000000000000000", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity"),
)
TEXTS: Final = (
    *(
        "",
        " ",
        "true",
        "FALSE",
        "t",
        "x",
        "é",
        "0x1F",
        "\\x00ff",
        "AP8Q",
        "AP8",
        "AP8Q\n",
        "null",
        "{}",
        "[1",
    ),
    *("2024-02-29", "2023-02-29", "0001-01-01", "9999-12-31", "10000-01-01", "-0044-03-15", "+12024-01-01"),
    *("infinity", "-infinity", "2024-02-29T01:02:03", "2024-02-29 01:02:03.123456789", "2024-02-29T24:00:00"),
    *("2024-02-29T01:02:03Z", "2024-02-29T01:02:03+05:30", "0001-01-01T00:00:00+14:00", "20240229T010203Z"),
    *(
        "9999-12-31T23:59:59.999999-12:00",
        "01:02:03",
        "-838:59:59",
        "25:00:00",
        "01:02:03.5+02",
        "P1M",
        "PT1S",
    ),
)
OTHERS: Final[Sequence[Any]] = (
    *(0, 1, -1, 1.5, 1e39, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**40, True, False),
    *([], [None], [[1]], {}, {"a": 1}, {"value": "x"}, {"value": None}, {"date": 1, "time": 2}),
    *({"scale": 2, "value": "AP8Q"}, {"nestedArray": [{"nestedArray": None, "elementValue": 1}]}),
)


def unfit_values(
    spark: "SparkSession",
    accepted: Mapping[ColumnType, Sequence[Any]],
    capabilities: SourceCapabilities,
) -> list[tuple[ColumnType, str]]:
    """Return the types and faults of values, looked at as if nothing were known of them."""
    types, batches = list(accepted), EventBatches(1)
    values = [(number, value) for number, column_type in enumerate(types) for value in accepted[column_type]]
    for place, (number, value) in enumerate(values):
        batches.add(_event_of(number, place, value), ReadWindow("", 0, 1), SourceFile("f", "", 1, 1))
    records = spark.createDataFrame(pa.Table.from_batches(batches.take()))
    tables = [_table_of(number, column_type) for number, column_type in enumerate(types)]
    changes = order_events(records, 0, len(values), tables, capabilities).frame
    unfit = changes.where("fault IS NOT NULL").select("table_name", "fault").collect()
    return [(types[int(row["table_name"][1:])], row["fault"]) for row in unfit]


def _table_of(number: int, column_type: ColumnType) -> TableSchema:
    """Return a table with a column of a type."""
    columns = (Column("id", ColumnType("INT64"), True, 1), Column("v", column_type, False, 2))
    return TableSchema(f"t{number}", columns)


def _event_of(table: int, number: int, value: Any) -> SourceEvent:
    """Return the event of a row with a value."""
    return SourceEvent(
        table=f"t{table}",
        mod_type=ModType.INSERT,
        ordering_key=f"{number:06d}",
        event_id=f"{table}/{number}",
        transaction_id="",
        source_micros=None,
        column_types="[]",
        keys=write({"id": number}),
        new_values=write({"v": value}),
    )
