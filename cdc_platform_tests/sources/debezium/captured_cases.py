"""Cases that are captured at the source: each a list of statements of sessions, with a name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cdc_platform.sources.debezium.settings.engine_settings import Snapshot
from cdc_platform_tests.sources.debezium.captured_types import (
    TYPE_SETUP,
    TYPES_ROWS,
    shapes_row,
    shapes_setup,
    types_row,
    types_setup,
)
from cdc_platform_tests.support.debezium.databases import Step

BIG: Final = "(SELECT string_agg(md5({0} || i::text), '') FROM generate_series(1, 80) i)"
"""A text of 2560 letters, stored out of line."""


def big(seed: int) -> str:
    """Return an expression for a text that is stored out of line."""
    return BIG.format(f"'{seed}-'")


@dataclass(frozen=True)
class Case:
    """A capture.

    Args:
        name: name of its file.
        says: what it shows.
        setup: statements before the engine starts for the first time.
        steps: statements between the first run of the engine and the last one.
        properties: properties of the connector.
        with_schemas: whether the events carry schema blocks.
        stops: whether the engine is expected to fail at the steps.
        snapshot: what the engine reads first.
    """

    name: str
    says: str
    setup: Sequence[Step]
    steps: Sequence[Step]
    properties: dict[str, str] = field(default_factory=dict)
    with_schemas: bool = False
    stops: bool = False
    snapshot: Snapshot = Snapshot.INITIAL


def _typed_setup() -> list[Step]:
    rows = [types_row(number) for number in range(1, TYPES_ROWS + 1)]
    return [*TYPE_SETUP, *shapes_setup(), *types_setup(), shapes_row(1), *rows]


TYPED_STEPS: Final[list[Step]] = [
    shapes_row(2),
    "UPDATE shapes SET touched = 1",
    *(
        (statement.replace(f"VALUES ({number},", f"VALUES ({number + 10},"), values)
        for number in range(1, TYPES_ROWS + 1)
        for statement, values in [types_row(number)]
    ),
]

SETTINGS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    # name: what it shows, the settings
    "default": ("default settings", {}),
    "binary_base64": ("bytes as base64 text", {"binary.handling.mode": "base64"}),
    "binary_base64_url_safe": ("bytes as URL-safe text", {"binary.handling.mode": "base64-url-safe"}),
    "binary_hex": ("bytes as hex text", {"binary.handling.mode": "hex"}),
    "decimal_string": ("decimals as text", {"decimal.handling.mode": "string"}),
    "decimal_double": ("decimals as doubles", {"decimal.handling.mode": "double"}),
    "time_isostring": ("times as ISO texts", {"time.precision.mode": "isostring"}),
    "time_connect": ("times in milliseconds", {"time.precision.mode": "connect"}),
    "time_microseconds": ("times in microseconds", {"time.precision.mode": "microseconds"}),
    "time_nanoseconds": ("times in nanoseconds", {"time.precision.mode": "nanoseconds"}),
    "time_adaptive_microseconds": (
        "times of a day in microseconds, the others by precision",
        {"time.precision.mode": "adaptive_time_microseconds"},
    ),
    "interval_string": ("intervals as ISO texts", {"interval.handling.mode": "string"}),
    "hstore_map": ("hstore as objects", {"hstore.handling.mode": "map"}),
    "unknown_types": ("types that Debezium does not know", {"include.unknown.datatypes": "true"}),
    "placeholder": ("a marker of one's own", {"unavailable.value.placeholder": "NOPE"}),
    "placeholder_hex": ("a marker of bytes", {"unavailable.value.placeholder": "hex:FF00"}),
}

FLOATS: Final = (
    "CREATE TABLE floats (id int PRIMARY KEY, n int, v float8[])",
    "ALTER TABLE floats ALTER v SET STORAGE EXTERNAL",
    "INSERT INTO floats SELECT 1, 0, array_agg(i) FROM generate_series(1, 300) i",
)
FLOATS_STEPS: Final = ("INSERT INTO floats VALUES (2, 0, '{1.5}')", "UPDATE floats SET n = 1 WHERE id = 1")

TYPED: Final = [
    *(
        Case(f"types_{name}", f"Every type, unavailable too: {says}", _typed_setup(), TYPED_STEPS, properties)
        for name, (says, properties) in SETTINGS.items()
    ),
    Case(
        "types_default_schema",
        "Every type, unavailable too, with schema blocks",
        _typed_setup(),
        TYPED_STEPS,
        with_schemas=True,
    ),
    Case(
        "types_identity_full",
        "Every type under REPLICA IDENTITY FULL: nothing is unavailable",
        [*_typed_setup(), "ALTER TABLE shapes REPLICA IDENTITY FULL"],
        TYPED_STEPS,
    ),
    Case(
        "types_fail",
        "A type without marker under event.converting.failure.handling.mode=fail: the engine stops",
        FLOATS,
        FLOATS_STEPS,
        {"event.converting.failure.handling.mode": "fail"},
        stops=True,
    ),
    Case(
        "types_needed",
        "A NOT NULL column of a type without marker: the engine stops",
        [*FLOATS, "ALTER TABLE floats ALTER v SET NOT NULL"],
        FLOATS_STEPS,
        stops=True,
    ),
]

ITEMS: Final = (
    "CREATE TABLE items (id int PRIMARY KEY, n int, big text, other text, needed text NOT NULL DEFAULT 'n')",
    "ALTER TABLE items ALTER big SET STORAGE EXTERNAL, ALTER other SET STORAGE EXTERNAL",
)


def insert_item(key: int, n: int = 0) -> str:
    """Return the statement that inserts an item with two texts out of line."""
    return f"INSERT INTO items SELECT {key}, {n}, {big(key)}, {big(key + 50_000)}, 'needed {key}'"


KEYS: Final = Case(
    "keys",
    "Updates, key changes and reinserts with values out of line; ids identify the case, see the README",
    [*ITEMS, insert_item(1), insert_item(2)],
    [
        "SET enable_indexscan = off",  # the shift needs the order in which the rows were inserted
        "SET enable_bitmapscan = off",
        "UPDATE items SET n = 1 WHERE id = 1",  # C02: both unavailable
        f"UPDATE items SET big = {big(3)} WHERE id = 1",  # C03: one of two
        "UPDATE items SET big = NULL WHERE id = 1",  # C04: a real null
        "UPDATE items SET big = 'short' WHERE id = 2",  # C05: value and marker in turn
        "UPDATE items SET n = 2 WHERE id = 2",
        insert_item(600),  # C06: column-wise in a transaction, and over more than one
        "BEGIN",
        f"UPDATE items SET big = {big(6)} WHERE id = 600",
        f"UPDATE items SET other = {big(66)} WHERE id = 600",
        "UPDATE items SET n = 6 WHERE id = 600",
        "COMMIT",
        "INSERT INTO items VALUES (700, 0, '__debezium_unavailable_value', '[\"x\"]')",  # C07: literal marker
        "UPDATE items SET n = 7 WHERE id = 700",
        insert_item(800),  # C08: key change
        "UPDATE items SET id = 801 WHERE id = 800",
        insert_item(900),  # C09: key change with a value
        f"UPDATE items SET id = 901, big = {big(9)} WHERE id = 900",
        insert_item(1000),  # C10: a chain in a transaction
        "BEGIN",
        "UPDATE items SET id = 1001 WHERE id = 1000",
        f"UPDATE items SET id = 1002, other = {big(10)} WHERE id = 1001",
        "UPDATE items SET id = 1003 WHERE id = 1002",
        "COMMIT",
        insert_item(1100),  # C11: a swap through a third key
        insert_item(1101),
        "BEGIN",
        "UPDATE items SET id = 1109 WHERE id = 1100",
        "UPDATE items SET id = 1100 WHERE id = 1101",
        "UPDATE items SET id = 1101 WHERE id = 1109",
        "COMMIT",
        insert_item(1200),  # C12: onto a key that was deleted in the same transaction
        insert_item(1201),
        "BEGIN",
        "DELETE FROM items WHERE id = 1201",
        "UPDATE items SET id = 1201 WHERE id = 1200",
        "COMMIT",
        *(insert_item(key) for key in (1303, 1302, 1301, 1300)),  # C13: a shift in one statement
        "UPDATE items SET id = id + 1 WHERE id BETWEEN 1300 AND 1303",
        insert_item(1400),  # C14: delete and reinsert in a transaction, with nulls
        "BEGIN",
        "DELETE FROM items WHERE id = 1400",
        "INSERT INTO items VALUES (1400, 14, NULL, 'again')",
        "COMMIT",
        insert_item(1500),  # C15: the same in two transactions, then an update
        "DELETE FROM items WHERE id = 1500",
        insert_item(1500, 15),
        "UPDATE items SET n = 16 WHERE id = 1500",
        insert_item(1600),  # C16: there and back
        "UPDATE items SET id = 1601 WHERE id = 1600",
        "UPDATE items SET id = 1600 WHERE id = 1601",
        insert_item(1700),  # C17: many transactions on a row
        *(f"UPDATE items SET n = {n} WHERE id = 1700" for n in range(1, 6)),
        f"UPDATE items SET other = {big(17)} WHERE id = 1700",
        "UPDATE items SET n = 17 WHERE id = 1700",
        insert_item(1800),  # C18: savepoints
        "BEGIN",
        f"UPDATE items SET big = {big(18)} WHERE id = 1800",
        "SAVEPOINT a",
        "UPDATE items SET id = 1801 WHERE id = 1800",
        "ROLLBACK TO a",
        "UPDATE items SET n = 18 WHERE id = 1800",
        "COMMIT",
        "DELETE FROM items WHERE id = 801",  # C19: delete of a row whose key had changed
    ],
)
