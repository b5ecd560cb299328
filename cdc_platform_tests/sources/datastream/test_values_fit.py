"""Values that readers of Datastream's values accept fit the types that they declare."""

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from cdc_platform.model.base.malformed import MALFORMED
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.datastream.files.avro_values import avro_reader
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.values.json_text import JsonNumber
from cdc_platform.sources.datastream.values.types import FieldType, Kind
from cdc_platform.sources.datastream.values.values import json_reader
from cdc_platform.sources.event_batches import EventBatches
from cdc_platform.sources.json_codec import write
from cdc_platform.spark.log.event_order import order_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALARS: Final = [
    *(FieldType(kind) for kind in Kind if kind not in (Kind.DECIMAL, Kind.ARRAY, Kind.UNKNOWN)),
    *(FieldType(Kind.DECIMAL, *digits) for digits in [(4, 2), (38, 0), (38, 38), (65, 30), (5, -2)]),
    *(FieldType(Kind.BYTES, encoding=encoding) for encoding in ("hex", "base64")),
]
TYPES: Final = [*SCALARS, *(FieldType(Kind.ARRAY, element=field) for field in SCALARS)]
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
VALUES: Final[list[Any]] = [
    *(value for text in NUMBERS for value in (text, JsonNumber(text))),
    *TEXTS,
    *(0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**40, True, False),
    *([], [None], [[1]], {}, {"a": 1}, {"value": "x"}, {"value": None}, {"date": 1, "time": 2}),
    *({"nestedArray": [{"nestedArray": None, "elementValue": 1}], "elementValue": None},),
]


def accepted(field: FieldType) -> list[Any]:
    """Return what becomes of those of the values that the reader of a type lets pass."""
    read, values = json_reader(field), []
    for value in VALUES:
        try:
            values.append(read([value, None] if field.kind is Kind.ARRAY else value))
        except MALFORMED:
            continue
    return values


def table_of(number: int, field: FieldType) -> TableSchema:
    """Return a table with a column of a type."""
    columns = (Column("id", ColumnType("INT64"), True, 1), Column("v", field.column_type, False, 2))
    return TableSchema(f"t{number}", columns)


def event_of(table: str, number: int, value: Any) -> SourceEvent:
    """Return the event of a row with a value."""
    return SourceEvent(
        table=table,
        mod_type=ModType.INSERT,
        ordering_key=f"{number:06d}",
        event_id=f"{table}/{number}",
        transaction_id="",
        source_micros=None,
        column_types="[]",
        keys=write({"id": number}),
        new_values=write({"v": value}),
    )


@pytest.mark.integration
def test_what_readers_let_pass_fits_the_declared_type(spark: "SparkSession") -> None:
    """Odd values of every type, looked at as if nothing were known of them, have no fault."""
    batches, tables = EventBatches(1), [table_of(number, field) for number, field in enumerate(TYPES)]
    values = [(f"t{number}", value) for number, field in enumerate(TYPES) for value in accepted(field)]
    for place, (table, value) in enumerate(values):
        batches.add(event_of(table, place, value), ReadWindow("", 0, 1), SourceFile("f", "", 1, 1))
    records = spark.createDataFrame(pa.Table.from_batches(batches.take()))
    capabilities = DatastreamSettings("somewhere").capabilities
    judged = order_events(records, 0, len(values), tables, capabilities)
    unfit = judged.where("fault IS NOT NULL").select("table_name", "fault").collect()
    assert [(TYPES[int(row["table_name"][1:])], row["fault"]) for row in unfit] == []
    assert len(values) > 1_000
    assert capabilities.values_fit


def test_a_stored_decimal_of_too_many_digits_is_refused() -> None:
    """A decimal of Avro that its own type has no room for is no value."""
    read, wide = (avro_reader(FieldType(Kind.DECIMAL, 4, 2), is_wide=wide) for wide in (False, True))
    assert read is not None
    assert wide is not None
    assert wide((10_000).to_bytes(2, signed=True)) == "100.00"
    assert read((-9999).to_bytes(2, signed=True)) == "-99.99"
    with pytest.raises(ValueError, match="more digits than a decimal of 4, 2 after the point"):
        read((10_000).to_bytes(2, signed=True))
