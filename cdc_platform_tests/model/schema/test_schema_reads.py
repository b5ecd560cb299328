"""Asking the source for its past schema."""

from cdc_platform.model.schema.schema_reads import PastSchemaReads, SchemaRead, storable
from cdc_platform_tests.example_tables import table


def test_a_moment_is_asked_for_once() -> None:
    """Several columns of one moment cost one question."""
    moments: list[int] = []

    def read(micros: int) -> SchemaRead:
        moments.append(micros)
        return SchemaRead(micros, (), {}, {})

    reads = PastSchemaReads(read)
    assert [reads(micros).micros for micros in (5, 6, 5)] == [5, 6, 5]
    assert moments == [5, 6]


def test_what_is_forgotten_is_not_asked_for_again() -> None:
    """Once the source does not state a moment any more, no other one is asked for; what is known stays so."""
    moments: list[int] = []

    def read(micros: int) -> SchemaRead:
        moments.append(micros)
        return SchemaRead(micros, (), {}, {}, is_exact=micros == 9)

    reads = PastSchemaReads(read)
    assert [reads(micros).is_exact for micros in (9, 1, 2, 9)] == [True, False, False, True]
    assert moments == [9, 1]


def test_columns_that_no_lake_can_have_count_as_unwatched() -> None:
    """Those of a key stay: without them there is no table, which is its own error."""
    odd = table("odd", {"_pos": "INT64"}, {"_deleted": "BOOL", "v": "INT64"})
    plain = table("plain", {"id": "INT64"}, {"v": "INT64"})
    schema_read = storable(SchemaRead(1, (odd, plain), {"odd": ("b",), "other": ("_file",)}, {}))
    assert [[column.name for column in schema.columns] for schema in schema_read.tables] == [
        ["_pos", "v"],
        ["id", "v"],
    ]
    assert schema_read.unwatched == {"odd": ("_deleted", "b"), "other": ("_file",)}
