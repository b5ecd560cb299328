"""Values that readers of Datastream's values accept fit the types that they declare."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.sources.datastream.files.avro_values import avro_reader
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.values.json_text import JsonNumber
from cdc_platform.sources.datastream.values.types import FieldType, Kind
from cdc_platform.sources.datastream.values.values import json_reader
from cdc_platform_tests.support.hostile.odd_values import NUMBERS, OTHERS, TEXTS, unfit_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALARS: Final = [
    *(FieldType(kind) for kind in Kind if kind not in (Kind.DECIMAL, Kind.ARRAY, Kind.UNKNOWN)),
    *(FieldType(Kind.DECIMAL, *digits) for digits in [(4, 2), (38, 0), (38, 38), (65, 30), (5, -2)]),
    *(FieldType(Kind.BYTES, encoding=encoding) for encoding in ("hex", "base64")),
]
TYPES: Final = [*SCALARS, *(FieldType(Kind.ARRAY, element=field) for field in SCALARS)]
VALUES: Final[list[Any]] = [
    *(value for text in NUMBERS for value in (text, JsonNumber(text))),
    *TEXTS,
    *OTHERS,
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


@pytest.mark.integration
def test_what_readers_let_pass_fits_the_declared_type(spark: "SparkSession") -> None:
    """Odd values of every type, looked at as if nothing were known of them, have no fault."""
    by_type = defaultdict[ColumnType, list[Any]](list)
    for field in TYPES:
        by_type[field.column_type] += accepted(field)
    capabilities = DatastreamSettings("somewhere").capabilities
    assert unfit_values(spark, by_type, capabilities) == []
    assert sum(map(len, by_type.values())) > 1_000
    assert capabilities.values_fit


def test_a_stored_decimal_of_too_many_digits_is_refused() -> None:
    """A decimal of Avro that its own type has no room for is not a value."""
    read, wide = (avro_reader(FieldType(Kind.DECIMAL, 4, 2), is_wide=wide) for wide in (False, True))
    assert read is not None
    assert wide is not None
    assert wide((10_000).to_bytes(2, signed=True)) == "100.00"
    assert read((-9999).to_bytes(2, signed=True)) == "-99.99"
    with pytest.raises(ValueError, match="more digits than a decimal of 4, 2 after the point"):
        read((10_000).to_bytes(2, signed=True))
