"""Asking the source for its past schema."""

from cdc_platform.model.schema.schema_reads import Look, PastLooks, storable
from cdc_platform_tests.example_tables import table


def test_a_moment_is_asked_for_once() -> None:
    """Several columns of one moment cost one question."""
    asked: list[int] = []

    def tell(micros: int) -> Look:
        asked.append(micros)
        return Look(micros, (), {}, {})

    looks = PastLooks(tell)
    assert [looks(micros).micros for micros in (5, 6, 5)] == [5, 6, 5]
    assert asked == [5, 6]


def test_what_is_forgotten_is_not_asked_for_again() -> None:
    """Once the source does not tell a moment any more, no other one is asked for; what is known stays so."""
    asked: list[int] = []

    def tell(micros: int) -> Look:
        asked.append(micros)
        return Look(micros, (), {}, {}, is_exact=micros == 9)

    looks = PastLooks(tell)
    assert [looks(micros).is_exact for micros in (9, 1, 2, 9)] == [True, False, False, True]
    assert asked == [9, 1]


def test_columns_that_no_lake_can_have_count_as_unwatched() -> None:
    """Those of a key stay: without them there is no table, which is an error of its own."""
    odd = table("odd", {"_pos": "INT64"}, {"_deleted": "BOOL", "v": "INT64"})
    plain = table("plain", {"id": "INT64"}, {"v": "INT64"})
    found = storable(Look(1, (odd, plain), {"odd": ("b",), "other": ("_file",)}, {}))
    assert [[column.name for column in one.columns] for one in found.tables] == [["_pos", "v"], ["id", "v"]]
    assert found.unwatched == {"odd": ("_deleted", "b"), "other": ("_file",)}
