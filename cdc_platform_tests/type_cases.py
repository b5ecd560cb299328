"""Values of every type of both dialects, as change records write them and as plain reads do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.sources.spanner.spanner_settings import Dialect
from cdc_platform_tests.support.history import JsonValue

Forms = tuple[JsonValue, JsonValue]
"""A value in a change record, and in the result of a query."""


@dataclass(frozen=True)
class TypeCase:
    """A type and values of it, the plain ones first; `as_key` says whether it may be part of a key."""

    name: str
    type: ColumnType
    values: tuple[Forms, ...]
    as_key: bool = False


MAX_INT64: Final = str(2**63 - 1)
MIN_INT64: Final = str(-(2**63))
BEYOND_DOUBLE: Final = str(2**53 + 1)
MIN_NUMERIC: Final = "-99999999999999999999999999999.999999999"
HUGE_NUMERIC: Final = "9" * 60 + "." + "123456789" * 4

SAME: Final[Mapping[str, tuple[JsonValue, ...]]] = {
    "BOOL": (True, False),
    "INT64": ("0", BEYOND_DOUBLE, MAX_INT64, MIN_INT64),
    "FLOAT32": (3.140000104904175, "NaN", "Infinity", "-Infinity", 3.4028234663852886e38, -0.0),
    "FLOAT64": (0.1, "NaN", "Infinity", "-Infinity", 5e-324, 1.7976931348623157e308, 3, -0.0),
    "NUMERIC": ("1.5", MIN_NUMERIC, "0.000000001", "7"),
    "STRING": ("", "null", 'a"b\\cé\n😀', "2024-02-29"),
    "BYTES": ("", "AP8Q", "+/+/"),
    "DATE": ("2024-02-29", "0001-01-01", "1582-10-10", "9999-12-31"),
    "JSON": ('{"a":[1,null]}', "null", '"text"', "[]"),
    "UUID": ("0b8a3c9e-5d0e-4a5b-9d0a-3f7a2c1b4d5e", "00000000-0000-0000-0000-000000000000"),
    "INTERVAL": ("P1Y2M3DT4H5M6.789S", "P0Y"),
    "ENUM": ("2", "-1"),
    "PROTO": ("CgNBbm4=", ""),
    "HOLOGRAM": ("as it is", ""),
}
"""Types of which both forms are equal; the last one is unknown to this version."""

TIMESTAMPS: Final[tuple[Forms, ...]] = (
    ("2024-02-29T01:02:03.123456Z", "2024-02-29T01:02:03.123456Z"),
    ("1582-10-10T00:00:00Z", "1582-10-10T00:00:00Z"),
    ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
)
NANOSECONDS: Final[Forms] = ("2024-02-29T01:02:03.123456789Z", "2024-02-29T01:02:03.123456789Z")
WITH_OFFSETS: Final[tuple[Forms, ...]] = (
    ("2024-02-29T03:02:03.5+02:00", "2024-02-29T01:02:03.500Z"),
    ("1969-12-31T23:59:59.999999+00:00", "1969-12-31T23:59:59.999999Z"),
)
POSTGRESQL_NAMES: Final = {
    "BOOL": "boolean",
    "INT64": "bigint",
    "FLOAT32": "real",
    "FLOAT64": "double precision",
    "STRING": "character varying",
    "BYTES": "bytea",
    "DATE": "date",
    "JSON": "jsonb",
    "UUID": "uuid",
    "INTERVAL": "interval",
    "HOLOGRAM": "hologram",
}
KEY_CODES: Final = frozenset(
    {"BOOL", "INT64", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "UUID", "ENUM"}
    # Spanner takes them for no key so far.
    | {"FLOAT32", "INTERVAL"}
)


def type_cases(dialect: Dialect) -> tuple[TypeCase, ...]:
    """Return every type of a dialect, and arrays of each, with NULL among their elements."""
    scalars = tuple(_googlesql() if dialect is Dialect.GOOGLESQL else _postgresql())
    return (*scalars, *map(_array_of, scalars))


def _googlesql() -> Iterator[TypeCase]:
    for code, values in SAME.items():
        forms = tuple((value, value) for value in values)
        yield TypeCase(code.lower(), ColumnType.from_spanner_type(code), forms, code in KEY_CODES)
    timestamp = ColumnType.from_spanner_type("TIMESTAMP")
    yield TypeCase("timestamp", timestamp, TIMESTAMPS, as_key=True)
    # Digits beyond microseconds are cut off outside keys.
    yield TypeCase("cut_timestamp", timestamp, (NANOSECONDS, *TIMESTAMPS))
    nanoseconds = (NANOSECONDS, *TIMESTAMPS)
    yield TypeCase("nanoseconds", timestamp.with_nanoseconds(), nanoseconds, as_key=True)


def _postgresql() -> Iterator[TypeCase]:
    for code, name in POSTGRESQL_NAMES.items():
        forms = tuple((value, value) for value in SAME[code])
        yield TypeCase(code.lower(), ColumnType.from_postgresql_type(name), forms, code in KEY_CODES)
    numeric = ("1.50", HUGE_NUMERIC, "NaN", "-0.000")
    annotated = ColumnType.from_postgresql_type("numeric")
    yield TypeCase("pg_numeric", annotated, tuple((text, text) for text in numeric), as_key=True)
    yield TypeCase("pg_oid", ColumnType.from_postgresql_type("oid"), (("7", "7"),))
    timestamp = ColumnType.from_postgresql_type("timestamp with time zone")
    yield TypeCase("timestamp", timestamp, (*TIMESTAMPS, *WITH_OFFSETS), as_key=True)
    nanoseconds = (NANOSECONDS, *WITH_OFFSETS)
    yield TypeCase("nanoseconds", timestamp.with_nanoseconds(), nanoseconds, as_key=True)


def _array_of(case: TypeCase) -> TypeCase:
    records, reads = ([form[side] for form in case.values] for side in (0, 1))
    values: tuple[Forms, ...] = (([*records, None], [*reads, None]), ([], []), ([None], [None]))
    return TypeCase(f"{case.name}s", ColumnType("ARRAY", case.type), values)
