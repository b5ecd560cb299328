"""Values that readers of Debezium's values accept fit the types that they declare."""

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.sources.debezium.settings.connector import (
    BinaryMode,
    ConnectorModes,
    DecimalMode,
    TimeMode,
)
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.values.encodings import Encoding, agreed_encoding, declared_encoding
from cdc_platform.sources.debezium.values.moments import ValueRefused
from cdc_platform.sources.debezium.values.postgres_types import PostgresType
from cdc_platform.sources.debezium.values.values import fits_its_type, reader_of
from cdc_platform_tests.support.hostile.odd_values import NUMBERS, OTHERS, TEXTS, unfit_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES: Final = (
    *("boolean", "bigint", "real", "double precision", "numeric(6,2)", "numeric(38,38)", "numeric", "money"),
    *("text", "bytea", "date", "time", "timestamp", "timestamp(3)", "timestamptz", "interval", "uuid"),
    *("jsonb", "bit(3)", "hstore", "point", "date as text"),
)
MODES: Final = (
    ConnectorModes(),
    ConnectorModes(times=TimeMode.ISOSTRING, decimals=DecimalMode.STRING, binary=BinaryMode.HEX),
    ConnectorModes(
        times=TimeMode.NANOSECONDS, decimals=DecimalMode.DOUBLE, binary=BinaryMode.BASE64_URL_SAFE
    ),
    ConnectorModes(times=TimeMode.CONNECT),
)
VALUES: Final[list[Any]] = [*NUMBERS, Decimal("99.99"), Decimal("1E-7"), *TEXTS, *OTHERS]


def encodings() -> Iterator[Encoding]:
    """Yield the encoding of each type, of arrays of it, and of each type with a contradictory block."""
    declared: dict[Encoding, None] = {}
    for modes in MODES:
        types = [PostgresType.parse(name) for name in NAMES]
        types += [PostgresType.parse(f"{name}[]") for name in NAMES if "as text" not in name]
        declared |= {declared_encoding(kind, modes): None for kind in types}
    yield from declared
    yield from (agreed_encoding(reported, kind) for reported, kind in product(declared, declared))


def accepted(encoding: Encoding) -> Iterator[Any]:
    """Yield what becomes of those of the values that the reader of an encoding lets pass."""
    read = reader_of(encoding)
    for value in VALUES:
        try:
            yield read([value, None] if encoding.element is not None else value)
        except ValueRefused:
            continue


@pytest.mark.integration
def test_what_readers_let_pass_fits_the_declared_type(spark: "SparkSession") -> None:
    """Odd values of every encoding, read without any prior knowledge, have no fault.

    This does not hold for a column whose block and declaration contradict each other.
    """
    by_type = defaultdict[ColumnType, dict[str, Any]](dict)
    contradictory = 0
    for encoding in dict.fromkeys(encodings()):
        if fits_its_type(encoding):
            by_type[encoding.column_type] |= {str(value): value for value in accepted(encoding)}
        else:
            contradictory += 1
    capabilities = DebeziumSettings(FilesInput("somewhere")).capabilities
    values = {column_type: list(texts.values()) for column_type, texts in by_type.items()}
    assert unfit_values(spark, values, capabilities) == []
    assert sum(map(len, values.values())) > 500
    assert contradictory > 100
    assert capabilities.values_fit
